"""Helpers that all encodings share to read and write assistant messages."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import JsonValue

from envgen.core.canonical import content_hash
from envgen.core.jsonvalues import JsonError, strict_loads
from envgen.core.types import Message, ToolCall
from envgen.policies.base import Tool
from envgen.policies.encoding.base import EncodingConfig, EncodingError

_MAX_JSON_BYTES = 1 << 22


def function(tool: Tool) -> Tool:
    """The description of a tool itself, without OpenAI's wrapper."""
    found: Tool = tool.get("function", tool)
    return found


def load_json(text: str) -> JsonValue:
    """A value that a model wrote.

    Raises:
        EncodingError: if it is no JSON, or none that can be stored.
    """
    try:
        return strict_loads(text, max_bytes=_MAX_JSON_BYTES, max_string=_MAX_JSON_BYTES)
    except JsonError as error:
        raise EncodingError(f"{text[:60]!a} {error}") from error


def called(
    turn: int, number: int, name: str, arguments: dict[str, JsonValue] | None, text: str | None
) -> ToolCall:
    """Call ``number`` of reply ``turn``; ``text`` is for a malformed one."""
    return ToolCall(id=f"call_{turn}_{number}", name=name, arguments=arguments, arguments_text=text)


def require_same(message: Message, read: Message) -> None:
    """Check that what was written reads back.

    Raises:
        EncodingError: if it does not.
    """
    if _meaning(message) != _meaning(read):
        raise EncodingError("the message can't be told from another one in this encoding")


def require_expressible(message: Message, config: EncodingConfig) -> None:
    """Refuse what no encoding can write as a reply.

    Raises:
        EncodingError: saying what.
    """
    if message.role != "assistant":
        raise EncodingError(f"a model writes assistant messages, not {message.role} messages")
    if message.reasoning and not config.thinking:
        raise EncodingError("the message has reasoning, but this encoding has no thinking")
    for call in message.tool_calls:
        if call.arguments is None:
            raise EncodingError(f"the call of {call.name!r} is malformed: it has no arguments")


def require_prompt(messages: Sequence[Message]) -> None:
    """Check that it is the model's turn, and that every tool result answers a call in its place.

    Raises:
        EncodingError: saying what is amiss.
    """
    if not messages or messages[-1].role not in ("user", "tool"):
        last = messages[-1].role if messages else "nothing"
        raise EncodingError(f"a model answers a user or a tool; the conversation ends with {last}")
    open_calls: list[ToolCall] = []
    for message in messages:
        if message.role == "tool":
            _take(open_calls, message)
            continue
        if open_calls:
            raise EncodingError(f"the call {open_calls[0].id!r} has no result")
        open_calls = list(message.tool_calls)
    if open_calls:
        raise EncodingError(f"the call {open_calls[0].id!r} has no result")


def require_reply(messages: Sequence[Message], start: int) -> None:
    """Check that ``messages[start - 1]`` is a reply.

    Raises:
        EncodingError: if it is not.
    """
    if not 1 <= start <= len(messages) or messages[start - 1].role != "assistant":
        raise EncodingError(f"message {start - 1} must be a reply that an extension can follow")


def has_user(messages: Sequence[Message]) -> bool:
    """Whether one of the messages is a user's."""
    return any(message.role == "user" for message in messages)


def _take(open_calls: list[ToolCall], result: Message) -> None:
    if not open_calls:
        raise EncodingError(f"the tool result {result.content[:40]!a} answers no call")
    call = open_calls.pop(0)
    if result.tool_call_id not in (None, call.id):
        raise EncodingError(
            f"expected the result of {call.id!r}, got that of {result.tool_call_id!r}",
            "put results in the order of the calls",
        )


def _meaning(message: Message) -> str:
    """What ``parse`` must give back; told apart as JSON does, so that 1, 1.0 and true differ."""
    calls = [[call.name, call.arguments] for call in message.tool_calls]
    return content_hash([message.role, message.content, message.reasoning or None, calls])
