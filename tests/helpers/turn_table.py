"""Turns as clients send them, for every door: what is to become of each.

``ANSWER`` stands for the text of the right answer. A turn is paid (the answer is in it), is refused whole,
holds a call that is refused, or is plain text.
"""

from __future__ import annotations

import json
from typing import Any

ANSWER = "@answer@"
ARGUMENTS = {"answer_text": ANSWER}
SUBMIT = {"name": "submit_result", "arguments": ARGUMENTS}
NESTED = {
    "id": "c1",
    "type": "function",
    "function": {**SUBMIT, "arguments": json.dumps(ARGUMENTS)},
}
LIST = {"name": "list_hotels"}
SDK: dict[str, Any] = {
    "content": None, "refusal": None, "role": "assistant", "annotations": None, "audio": None,
    "function_call": None,
}  # fmt: skip


def turn(*calls: Any, **more: Any) -> dict[str, Any]:
    return {"content": "", "tool_calls": list(calls), **more}


PAID: dict[str, Any] = {
    "flat": turn(SUBMIT),
    "nested": turn(NESTED),
    "nested, arguments an object": turn({"type": "function", "function": SUBMIT}),
    "a dump of OpenAI's SDK": {**SDK, "tool_calls": [NESTED]},
    "annotations and audio that are something": {
        **SDK, "annotations": [], "audio": {"id": "a"}, "tool_calls": [NESTED],
    },
    "no content": {"tool_calls": [SUBMIT]},
    "content null": turn(SUBMIT, content=None),
    "content of parts": turn(SUBMIT, content=[{"type": "text", "text": "so"}]),
    "content of marked parts": turn(
        SUBMIT, content=[{"type": "text", "text": "so", "cache_control": {"type": "ephemeral"}}]
    ),
    "content of output parts": turn(SUBMIT, content=[{"type": "output_text", "text": "so"}]),
    "content of no parts": turn(SUBMIT, content=[]),
    "content that thinks": turn(SUBMIT, content="<think>\nhm\n</think>\n\n"),
    "reasoning": turn(SUBMIT, reasoning="hm"),
    "reasoning_content": turn(SUBMIT, reasoning_content="hm"),
    "reasoning null": turn(SUBMIT, reasoning=None, reasoning_content=None),
    "reasoning_details": turn(SUBMIT, reasoning_details=[{"type": "reasoning.text", "text": "hm"}]),
    "a field of some provider": turn(SUBMIT, provider_specific_fields={"x": 1}),
    "OpenEnv's metadata": turn(SUBMIT, metadata={}),
    "a name": turn(SUBMIT, name="agent"),
    "a refusal": turn(SUBMIT, refusal="no"),
    "index": turn({"index": 0, **NESTED}),
    "id null": turn({**NESTED, "id": None}),
    "id a number": turn({**NESTED, "id": 7}),
    "id too long": turn({**NESTED, "id": "x" * 999}),
    "type null": turn({**NESTED, "type": None}),
    "a call with more": turn({**SUBMIT, "thought_signature": "abc"}),
    "arguments with space": turn({**SUBMIT, "arguments": f"\n {json.dumps(ARGUMENTS, indent=2)} "}),
    "the older form of one call": {"content": None, "function_call": NESTED["function"]},
    "arguments null first": turn({**LIST, "arguments": None}, SUBMIT),
    "arguments empty first": turn({**LIST, "arguments": ""}, SUBMIT),
    "arguments the text null first": turn({**LIST, "arguments": "null"}, SUBMIT),
    "arguments missing first": turn(LIST, SUBMIT),
    "an unknown tool first": turn({"name": "nope"}, SUBMIT),
    "submitted twice": turn(SUBMIT, SUBMIT),
    "64 calls": turn(*[LIST] * 63, SUBMIT),
}  # fmt: skip
REFUSED: dict[str, tuple[Any, str]] = {
    "calls an object": ({"tool_calls": {}}, "'tool_calls' must be an array, not object"),
    "calls a text": ({"tool_calls": "list_hotels"}, "'tool_calls' must be an array, not string"),
    "calls a number": ({"tool_calls": 5}, "'tool_calls' must be an array, not integer"),
    "content a number": (turn(LIST, content=3), "'content' must be a text, not integer"),
    "content an object": (turn(LIST, content={}), "'content' must be a text, not object"),
    "content an image": (
        turn(content=[{"type": "image_url", "image_url": "x"}]),
        "parts of text only",
    ),
    "a part without text": (turn(content=[{"type": "text"}]), "parts of text only"),
    "a part that is null": (turn(content=[None]), "parts of text only"),
    "reasoning a number": (turn(LIST, reasoning=5), "'reasoning' must be a text, not integer"),
    "reasoning an array": (
        turn(LIST, reasoning_content=["x"]),
        "'reasoning' must be a text, not array",
    ),
    "65 calls": (turn(*[LIST] * 65), "at most 64 tool calls"),
}
FAULTY: dict[str, tuple[Any, str]] = {
    "a number": (5, "must be an object, not integer"),
    "null": (None, "must be an object, not null"),
    "nothing": ({}, "needs a 'name'"),
    "an empty name": ({"name": ""}, "needs a 'name'"),
    "a long name": ({"name": "x" * 200}, "needs a 'name'"),
    "a name that is a number": ({"name": 5}, "needs a 'name'"),
    "function null": ({"function": None}, "needs a 'name'"),
    "a custom tool": ({"type": "custom", "custom": {"name": "x", "input": "y"}}, "needs a 'name'"),
    "arguments an array": ({**LIST, "arguments": []}, "must be an object, not array"),
    "arguments a number": ({**LIST, "arguments": 5}, "must be an object, not integer"),
    "arguments the text of a number": (
        {**LIST, "arguments": "3"},
        "must be an object, not integer",
    ),
    "arguments cut off": ({**LIST, "arguments": '{"a": '}, "a text that is not valid JSON"),
    "arguments twice": ({**LIST, "arguments": '{"a": 1, "a": 2}'}, "twice"),
    "arguments with NaN": ({**LIST, "arguments": '{"a": NaN}'}, "NaN"),
    "an unknown tool": ({"name": "nope", "arguments": {}}, "unknown_tool"),
    "an argument missing": ({"name": "get_hotel", "arguments": {}}, "invalid_arguments"),
    "an argument of another type": (
        {"name": "get_hotel", "arguments": {"hotel": 5}},
        "invalid_arguments",
    ),
    "an argument too many": ({**SUBMIT, "arguments": {**ARGUMENTS, "x": 1}}, "invalid_arguments"),
}
PLAIN: dict[str, Any] = {
    "words": {"content": "hello"},
    "a dump without calls": {**SDK, "content": "hello"},
    "no calls": {"content": "hello", "tool_calls": []},
    "calls null": {"content": "hello", "tool_calls": None},
    "nothing said": {"role": "assistant", "content": None},
    "no message": {"city": "Rome"},
    "an empty object": {},
    "an array": [1],
    "a number": 5,
    "a text": "hello",
    "null": None,
}


def filled(value: Any, answer: str) -> Any:
    """A turn with the right answer in its place."""
    quoted = json.dumps(json.dumps(answer)[1:-1])[1:-1]  # inside of a text that is JSON
    text = json.dumps(value).replace(f'\\"{ANSWER}\\"', f'\\"{quoted}\\"')
    return json.loads(text.replace(f'"{ANSWER}"', json.dumps(answer)))
