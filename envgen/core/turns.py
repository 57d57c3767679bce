"""Read an agent's turn into a message with tool calls, whichever door it comes by; nothing malformed raises.

Gym, OpenEnv's WebSocket, HTTP, MCP and the model server all read turns here, so that the same message gets
the same reward, or is refused in the same words.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pydantic import JsonValue

from envgen.core.canonical import dumps
from envgen.core.jsonvalues import JsonError, clean_text, kind_of, strict_loads
from envgen.core.types import Message, ToolCall

MAX_ACTION_CHARS = 1_048_576
"""Room for a long reasoning; a tool's argument may have 65,536 characters at most."""
_MAX_BYTES = 4 * MAX_ACTION_CHARS
MAX_CALLS_A_MESSAGE = 64
MAX_NAME = 128
NAMELESS = "invalid"
"""Name given to a call that has no name, or is not an object."""
SHOWN_CHARS = 2_000
"""Of a refused text, as much is kept in the conversation."""
_KEYS = frozenset(
    {
        "role", "content", "tool_calls", "reasoning", "reasoning_content", "refusal", "name",
        "annotations", "audio", "function_call", "reasoning_details", "metadata",
    }
)  # fmt: skip
"""Keys of an assistant message, as clients of OpenAI's API and of OpenEnv dump it."""
_TEXT_PARTS = ("text", "output_text", "input_text")


class Action(NamedTuple):
    """An agent's action of one turn.

    Attributes:
        message: as it enters the conversation, safe to store.
        faults: per tool call, why its arguments can't be used, or None.
        problem: why the whole text is no message, or None.
    """

    message: Message
    faults: tuple[str | None, ...] = ()
    problem: str | None = None


def parse_action(action: object, turn: int = 0) -> Action:
    """Read an action: plain text, or the JSON of an assistant message.

    Args:
        action: ``{"content": text, "tool_calls": [{"name": ..., "arguments": {...}}]}`` (OpenAI's
            nested form is read too), or any text.
        turn: numbers the ids of calls that come without one.
    """
    if not isinstance(action, str):
        return _refused("", f"an action is a text, not {kind_of(action)}")
    if len(action) > MAX_ACTION_CHARS:
        return _refused(action, f"an action has at most {MAX_ACTION_CHARS} characters")
    if action.lstrip()[:1] != "{":
        return Action(_message(action))
    try:
        value = strict_loads(action, max_bytes=_MAX_BYTES, max_string=MAX_ACTION_CHARS)
    except JsonError as error:
        if '"tool_calls"' in action:
            return _refused(action, f"the message {error}")
        return Action(_message(action))
    if not isinstance(value, dict) or not _is_message(value):
        return Action(_message(action))
    return read_turn(value, turn)


def encode_message(message: Message) -> str:
    """The action that says the same as an assistant message."""
    value: dict[str, JsonValue] = {"content": message.content}
    if message.reasoning is not None:
        value["reasoning"] = message.reasoning
    if message.tool_calls:
        value["tool_calls"] = [
            {
                "id": call.id,
                "name": call.name,
                "arguments": call.arguments_text if call.arguments is None else call.arguments,
            }
            for call in message.tool_calls
        ]
    elif message.reasoning is None and message.content.lstrip()[:1] != "{":
        return message.content
    return dumps(value)


def _is_message(value: dict[str, JsonValue]) -> bool:
    known = value.get("role") == "assistant" or value.keys() <= _KEYS
    return "tool_calls" in value or ("content" in value and known)


def read_turn(value: Mapping[str, JsonValue], turn: int = 0) -> Action:
    """Read an assistant message; what it holds besides is passed over. See ``parse_action``."""
    try:
        content = content_text(value.get("content"))
    except ValueError as error:
        return _refused(dumps(value), str(error))
    reasoning = value.get("reasoning", value.get("reasoning_content"))
    calls = value.get("tool_calls")
    if reasoning is not None and not isinstance(reasoning, str):
        return _refused(dumps(value), f"'reasoning' must be a text, not {kind_of(reasoning)}")
    if calls is None and value.get("function_call") is not None:  # OpenAI's older form of one call
        calls = [value["function_call"]]
    if calls is not None and not isinstance(calls, list):
        return _refused(dumps(value), f"'tool_calls' must be an array, not {kind_of(calls)}")
    if calls is not None and len(calls) > MAX_CALLS_A_MESSAGE:
        return _refused(dumps(value), f"a message has at most {MAX_CALLS_A_MESSAGE} tool calls")
    pairs = [_parse_call(call, f"call_{turn}_{i}") for i, call in enumerate(calls or [])]
    message = Message(
        role="assistant",
        content=content,
        reasoning=reasoning,
        tool_calls=tuple(call for call, _ in pairs),
    )
    return Action(message, tuple(fault for _, fault in pairs))


def content_text(content: JsonValue) -> str:
    """The text of a message's content: a text, none, or an array of parts that are texts.

    Raises:
        ValueError: saying what else it holds.
    """
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise ValueError(f"'content' must be a text, not {kind_of(content)}")
    texts = []
    for part in content:
        text = part.get("text") if isinstance(part, dict) else None
        if (
            not isinstance(part, dict)
            or part.get("type") not in _TEXT_PARTS
            or not isinstance(text, str)
        ):
            raise ValueError(
                '\'content\' may hold parts of text only: {"type": "text", "text": ...}'
            )
        texts.append(text)
    return "".join(texts)


def _parse_call(call: JsonValue, default_id: str) -> tuple[ToolCall, str | None]:
    if not isinstance(call, dict):
        text = clean_text(dumps(call), SHOWN_CHARS)
        fault = f"a tool call must be an object, not {kind_of(call)}"
        return ToolCall(id=default_id, name=NAMELESS, arguments_text=text), fault
    given = call.get("id")
    call_id = given if isinstance(given, str) and 0 < len(given) <= MAX_NAME else default_id
    inner = call.get("function")
    body = inner if isinstance(inner, dict) else call
    name, arguments = body.get("name"), body.get("arguments", {})
    if not isinstance(name, str) or not name or len(name) > MAX_NAME:
        text = clean_text(dumps(call), SHOWN_CHARS)
        fault = f"a tool call needs a 'name' of at most {MAX_NAME} characters"
        return ToolCall(id=call_id, name=NAMELESS, arguments_text=text), fault
    if isinstance(arguments, str):
        given_text = arguments
        try:
            arguments = strict_loads(given_text or "{}", max_bytes=_MAX_BYTES)
        except JsonError as error:
            return _unusable(call_id, name, given_text), f"the arguments are a text that {error}"
    arguments = {} if arguments is None else arguments  # how some servers say that there are none
    if not isinstance(arguments, dict):
        fault = f"the arguments must be an object, not {kind_of(arguments)}"
        return _unusable(call_id, name, dumps(arguments)), fault
    return ToolCall(id=call_id, name=name, arguments=arguments), None


def _unusable(call_id: str, name: str, text: str) -> ToolCall:
    return ToolCall(id=call_id, name=name, arguments_text=clean_text(text, SHOWN_CHARS))


def _message(text: str) -> Message:
    return Message(role="assistant", content=clean_text(text, MAX_ACTION_CHARS))


def _refused(text: str, problem: str) -> Action:
    return Action(Message(role="assistant", content=clean_text(text, SHOWN_CHARS)), (), problem)
