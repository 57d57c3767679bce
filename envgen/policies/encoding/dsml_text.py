"""The fixed words of DeepSeek-V3.2's message encoding, as parts: how tools and reply formats are told.

They are the published format to the byte (``docs/model.md``); a model trained on it knows no other.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from envgen.policies.base import Tool
from envgen.policies.encoding.codec import Control, Part
from envgen.policies.encoding.reply import function

BOS = Control("<\uff5cbegin\u2581of\u2581sentence\uff5c>")
EOS = Control("<\uff5cend\u2581of\u2581sentence\uff5c>")
USER, ASSISTANT = Control("<\uff5cUser\uff5c>"), Control("<\uff5cAssistant\uff5c>")
THINK, END_THINK = Control("<think>"), Control("</think>")
DSML = Control("\uff5cDSML\uff5c")
CONTROLS = (BOS, EOS, USER, ASSISTANT, THINK, END_THINK, DSML)

WORDS = ("invoke", "parameter", "name", "string", "true", "false", "function_results", "result")
"""Words of the tags, worth a token each; the block's own name comes with them."""


def to_json(value: object) -> str:
    """JSON as this encoding writes it: a space behind commas and colons, no escapes."""
    return json.dumps(value, ensure_ascii=False)


def opening(tag: str, block: str = "") -> Iterator[Part]:
    """``<DSML tag>``; ``block`` is what follows at once."""
    yield from ("<", DSML, f"{tag}{block}")


def closing(tag: str) -> Iterator[Part]:
    """``</DSML tag>``."""
    yield from ("</", DSML, f"{tag}>")


def told_tools(tools: Sequence[Tool], block: str) -> Iterator[Part]:
    """The section that explains how to call tools, and lists them, one JSON a line."""
    yield "## Tools\n\nYou have access to a set of tools you can use to answer the user's question.\n"
    yield 'You can invoke functions by writing a "'
    yield from opening(block, '>" block like the following as part of your reply to the user:\n')
    yield from opening(block, ">\n")
    yield from opening("invoke", ' name="$FUNCTION_NAME">\n')
    yield from opening("parameter", ' name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE')
    yield from closing("parameter")
    yield "\n...\n"
    yield from closing("invoke")
    yield "\n"
    yield from opening("invoke", ' name="$FUNCTION_NAME2">\n...\n')
    yield from closing("invoke")
    yield "\n"
    yield from closing(block)
    yield (
        "\n\nString and scalar parameters should be specified as is without any escaping or quotes, while"
        ' lists and objects should use JSON format. The "string" attribute should be set to "true" for string'
        ' type parameters and "false" for other types (numbers, booleans, arrays, objects).\n\n'
        "If the thinking_mode is enabled, then after function results you should strongly consider outputting"
        " a thinking block. Here is an example:\n\n"
    )
    yield from opening(block, ">\n...\n")
    yield from closing(block)
    yield "\n\n<function_results>\n...\n</function_results>\n\n"
    yield from (THINK, "...thinking about results", END_THINK)
    yield "\n\nHere are the functions available in JSONSchema format:\n<functions>\n"
    yield "\n".join(to_json(function(tool)) for tool in tools)
    yield "\n</functions>\n"


def told_format(schema: Mapping[str, Any]) -> Iterator[Part]:
    """The section that asks for replies of one JSON Schema."""
    yield "## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n"
    yield to_json(schema)
