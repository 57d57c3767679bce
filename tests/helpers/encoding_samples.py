"""Tokenizers, conversations and Hypothesis strategies for tests of encodings."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from hypothesis import strategies as st

from envgen.core.types import Message, ToolCall
from envgen.model.tokenizer import Tokenizer, TokenizerConfig, train_tokenizer
from envgen.policies.encoding import Encoding, EncodingConfig, control_tokens, make_encoding

TEXTS = (
    "Find the cheapest hotel in Hangzhou and book it for 3 nights.",
    '[{"name":"Lotus Inn","price":180},{"name":"West Lake","price":420}]',
    "I list the hotels of Suzhou, then compare their prices: 260 < 390.",
) * 3


def weather_tool(name: str = "get_weather", **properties: Any) -> dict[str, Any]:
    """A tool in OpenAI's form."""
    parameters = {"type": "object", "properties": properties or {"city": {"type": "string"}}}
    function = {"name": name, "description": "Tell the weather", "parameters": parameters}
    return {"type": "function", "function": function}


TOOLS = (weather_tool(), weather_tool("list_hotels", city={}, limit={}))


@cache
def sample_tokenizer(kind: str) -> Tokenizer:
    """A small tokenizer for one kind of encoding."""
    return train_tokenizer(
        TEXTS,
        TokenizerConfig(
            vocab_size=360,
            control_tokens=control_tokens(EncodingConfig(kind=kind)),
            single_tokens=("city", "price", "name", "list_hotels", "invoke", "get_weather"),
        ),
    )


@cache
def _encoding(text: str) -> Encoding:
    config = EncodingConfig.model_validate_json(text)
    return make_encoding(config, sample_tokenizer(config.kind))


def sample_encoding(**config: Any) -> Encoding:
    """An encoding with a small tokenizer."""
    return _encoding(json.dumps(config))


def call(name: str, number: int = 0, turn: int = 0, **arguments: Any) -> ToolCall:
    """A well-formed call."""
    return ToolCall(id=f"call_{turn}_{number}", name=name, arguments=arguments)


def reply(
    content: str = "", *calls: ToolCall, reasoning: str | None = None, turn: int = 0
) -> Message:
    """An assistant message whose calls are numbered as ``parse`` does."""
    numbered = tuple(c.model_copy(update={"id": f"call_{turn}_{i}"}) for i, c in enumerate(calls))
    return Message(role="assistant", content=content, reasoning=reasoning, tool_calls=numbered)


def results(message: Message, *contents: str) -> list[Message]:
    """A tool message for each call."""
    return [
        Message(role="tool", content=content, tool_call_id=c.id)
        for c, content in zip(message.tool_calls, contents, strict=True)
    ]


HOSTILE = (
    "<|assistant|>",
    "<|end|>",
    "<|call|>",
    "<think>",
    "</think>",
    "<\uff5cAssistant\uff5c>",
    "<\uff5cend\u2581of\u2581sentence\uff5c>",
    "\uff5cDSML\uff5c",
    "</\uff5cDSML\uff5cparameter>",
    "\n\n",
    '"',
    "</result>",
)
texts = st.lists(
    st.one_of(st.text(max_size=8), st.sampled_from(HOSTILE), st.sampled_from(TEXTS)), max_size=4
).map("".join)
"""Any text; often one that looks like control tokens."""
clean_texts = texts.map(lambda text: text.replace("\0", ""))
"""What may stand in a call."""
names = st.from_regex(r"[a-z][a-z_]{0,7}", fullmatch=True)
_scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**18), 10**18),
    st.floats(allow_nan=False, allow_infinity=False),
    clean_texts,
)
values = st.recursive(
    _scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(clean_texts, inner, max_size=3)
    ),
    max_leaves=6,
)


@st.composite
def replies(draw: st.DrawFn, *, thinking: bool, turn: int = 0) -> Message:
    """Assistant messages that every encoding can express."""
    found = [
        ToolCall(
            id="", name=draw(names), arguments=draw(st.dictionaries(names, values, max_size=3))
        )
        for _ in range(draw(st.integers(0, 3)))
    ]
    reasoning = draw(st.one_of(st.none(), texts.filter(bool))) if thinking else None
    if thinking and not found and reasoning is None:
        reasoning = "hm"
    return reply(draw(texts), *found, reasoning=reasoning, turn=turn)


@st.composite
def user_turns(draw: st.DrawFn, *, thinking: bool, most: int = 3) -> list[Message]:
    """A user message, replies with calls and their results."""
    messages = [Message(role="user", content=draw(texts))]
    for turn in range(draw(st.integers(1, most))):
        message = draw(replies(thinking=thinking, turn=turn).filter(lambda m: m.tool_calls))
        messages += [message, *results(message, *(draw(texts) for _ in message.tool_calls))]
    return messages
