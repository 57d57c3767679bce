"""OpenAI's messages and tools as ours, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from envgen.core.canonical import compact
from envgen.core.errors import ConfigError
from envgen.core.schema import ANNOTATIONS, KEYWORDS, compile_schema
from envgen.core.turns import NAMELESS, content_text, read_turn
from envgen.core.types import Message, ToolCall
from envgen.policies.base import Tool
from envgen.policies.serving.errors import ApiError

_ROLES = {"system": "system", "developer": "system", "user": "user", "tool": "tool"}


def read_messages(wire: Sequence[Mapping[str, Any]]) -> list[Message]:
    """The conversation of a request; results of parallel calls are put in the order of the calls.

    Raises:
        ApiError: naming the message that can't be read.
    """
    messages: list[Message] = []
    for i, item in enumerate(wire):
        where = f"messages[{i}]"
        if item.get("role") == "assistant":
            messages.append(_assistant(item, where))
        else:
            messages.append(_other(item, where))
    return _in_order(messages)


def read_tools(wire: Sequence[Mapping[str, Any]] | None) -> list[Tool]:
    """The tools of a request, their schemas compiled once to see that they can be.

    Raises:
        ApiError: naming the tool that is amiss.
    """
    tools: list[Tool] = []
    names: set[str] = set()
    for i, item in enumerate(wire or ()):
        where = f"tools[{i}]"
        function = item.get("function")
        if item.get("type", "function") != "function" or not isinstance(function, Mapping):
            raise _refused(f"{where} must be a function with its 'function' object", where)
        name = function.get("name")
        if not isinstance(name, str) or not 0 < len(name) <= 64 or not _is_name(name):
            raise _refused(
                f"{where} needs a name of 1 to 64 letters, digits, _ and -", f"{where}.name"
            )
        if name in names:
            raise _refused(f"{where} has the name {name!r} of another tool", f"{where}.name")
        if not isinstance(function.get("description", ""), str):
            raise _refused(f"{where} has a description that is not text", f"{where}.description")
        names.add(name)
        _check_parameters(function.get("parameters"), f"{where}.function.parameters")
        parameters = function.get("parameters") or {"type": "object", "properties": {}}
        tools.append({"type": "function", "function": {**function, "parameters": parameters}})
    return tools


def wire_call(call: ToolCall) -> dict[str, Any]:
    """A call in OpenAI's form; a malformed one keeps the text that the model wrote."""
    text = call.arguments_text or ""
    if call.arguments is not None:
        text = compact(call.arguments)
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": text}}


def _refused(message: str, where: str, code: str = "invalid_value") -> ApiError:
    return ApiError(f"Invalid request: {message}.", code=code, param=where)


def _is_name(text: str) -> bool:
    return text.isascii() and text.replace("-", "_").replace("_", "a").isalnum()


def _check_parameters(schema: Any, where: str) -> None:
    if schema is None:
        return
    if not isinstance(schema, dict) or schema.get("type", "object") != "object":
        raise _refused(f"{where} must be a JSON Schema of type 'object'", where, "invalid_schema")
    try:
        compile_schema(_judged(schema))
    except (ConfigError, RecursionError) as error:
        raise _refused(f"{where}: {error}", where, "invalid_schema") from error


def _judged(schema: Any) -> Any:
    """A schema without the keywords that our validator does not know (``$ref``, ``pattern``, ...).

    The schema is told to the model and never enforced, so these are no reason to refuse it.
    """
    if not isinstance(schema, dict):
        return schema
    kept = {key: part for key, part in schema.items() if key in KEYWORDS and key not in ANNOTATIONS}
    for key in ("items", "additionalProperties"):
        if key in kept:
            kept[key] = _judged(kept[key])
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        if isinstance(kept.get(key), list):
            kept[key] = [_judged(part) for part in kept[key]]
    if isinstance(kept.get("properties"), dict):
        kept["properties"] = {name: _judged(part) for name, part in kept["properties"].items()}
    return kept


def _assistant(item: Mapping[str, Any], where: str) -> Message:
    """A turn that the model took earlier; what can't be read of its calls is kept as the text that it was."""
    read = read_turn(item)
    if read.problem is not None:
        raise _refused(f"{where}: {read.problem}", where)
    for i, (call, fault) in enumerate(zip(read.message.tool_calls, read.faults, strict=True)):
        if fault is not None and call.name == NAMELESS:
            raise _refused(f"{where}: {fault}", f"{where}.tool_calls[{i}]")
    return read.message


def _other(item: Mapping[str, Any], where: str) -> Message:
    given = item.get("role")
    role = _ROLES.get(given) if isinstance(given, str) else None
    if role is None:
        raise _refused(
            f"{where}.role is {given!r}, not one of assistant, {', '.join(_ROLES)}", f"{where}.role"
        )
    call_id = item.get("tool_call_id")
    if role == "tool" and not isinstance(call_id, str):
        raise _refused(f"{where} needs a 'tool_call_id'", f"{where}.tool_call_id")
    if role != "assistant" and item.get("content") is None:
        raise _refused(f"{where} needs a 'content'", f"{where}.content")
    try:
        content = content_text(item.get("content"))
    except ValueError as error:
        raise _refused(f"{where}: {error}", f"{where}.content") from error
    return Message.model_validate({"role": role, "content": content, "tool_call_id": call_id})


def _in_order(messages: list[Message]) -> list[Message]:
    """Clients may send the results of parallel calls in any order; models read them in the calls' order."""
    ordered: list[Message] = []
    place: dict[str, int] = {}
    run: list[Message] = []
    for message in messages:
        if message.role == "tool":
            run.append(message)
            continue
        ordered += sorted(run, key=lambda m: place.get(m.tool_call_id or "", len(place)))
        run = []
        place = {call.id: i for i, call in enumerate(message.tool_calls)}
        ordered.append(message)
    return ordered + sorted(run, key=lambda m: place.get(m.tool_call_id or "", len(place)))
