"""OpenAI's messages and tools as ours, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from envgen.core.canonical import compact
from envgen.core.errors import ConfigError
from envgen.core.jsonvalues import JsonError, kind_of, strict_loads
from envgen.core.schema import ANNOTATIONS, KEYWORDS, compile_schema
from envgen.core.types import Message, ToolCall
from envgen.policies.base import Tool
from envgen.policies.serving.errors import ApiError

MAX_ARGUMENT_BYTES = 1 << 22
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
    given = item.get("tool_calls")
    if given is not None and not isinstance(given, list):
        raise _refused(f"{where}.tool_calls must be an array", f"{where}.tool_calls")
    calls = [_call(call, f"{where}.tool_calls[{i}]") for i, call in enumerate(given or ())]
    reasoning = item.get("reasoning_content", item.get("reasoning"))
    if reasoning is not None and not isinstance(reasoning, str):
        raise _refused(f"{where}.reasoning_content must be a text", f"{where}.reasoning_content")
    return Message(
        role="assistant",
        content=_content(item.get("content"), where),
        reasoning=reasoning or None,
        tool_calls=tuple(calls),
    )


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
    content = _content(item.get("content"), where)
    return Message.model_validate({"role": role, "content": content, "tool_call_id": call_id})


def _content(given: Any, where: str) -> str:
    """Content as text; a list of text parts is joined."""
    if given is None:
        return ""
    if isinstance(given, str):
        return given
    if not isinstance(given, list):
        raise _refused(f"{where}.content must be a text, not {kind_of(given)}", f"{where}.content")
    texts: list[str] = []
    for part in given:
        if not isinstance(part, Mapping) or part.get("type") != "text":
            raise _refused(
                f"{where}.content may hold text parts only; this model reads nothing else",
                f"{where}.content",
            )
        if not isinstance(part.get("text"), str):
            raise _refused(f"{where}.content has a text part without text", f"{where}.content")
        texts.append(part["text"])
    return "".join(texts)


def _call(item: Any, where: str) -> ToolCall:
    function = item.get("function") if isinstance(item, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise _refused(f"{where} must be an object with a function's name", where)
    call_id, text = item.get("id"), function.get("arguments", "{}")
    if not isinstance(call_id, str) or not isinstance(text, str):
        raise _refused(f"{where} needs an 'id' and 'arguments' that are texts", where)
    try:
        arguments = strict_loads(
            text or "{}", max_bytes=MAX_ARGUMENT_BYTES, max_string=MAX_ARGUMENT_BYTES
        )
    except JsonError:
        arguments = None
    if not isinstance(arguments, dict):
        return ToolCall(id=call_id, name=function["name"], arguments_text=text)
    return ToolCall(id=call_id, name=function["name"], arguments=arguments)


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
