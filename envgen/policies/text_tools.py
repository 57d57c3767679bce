"""Tool calls written in plain text: how models are told to write them, and how they are read.

Read are the conventions that open models use:

* ``<tool_call>{"name": ..., "arguments": {...}}</tool_call>`` (Hermes, Qwen);
* ``<function=NAME>{...}</function>``, or with ``<parameter=KEY>VALUE</parameter>`` (Llama, Qwen-Coder);
* ``[TOOL_CALLS] [{"name": ..., "arguments": {...}}]`` (Mistral);
* fenced JSON with ``name`` and ``arguments``;
* a DSML block: ``<|DSML|invoke name="..."><|DSML|parameter name="..." string="true|false">`` (DeepSeek-V3.2;
  its fullwidth bars are read too);
* ``<|call|>NAME<|arg|>KEY<|text|>VALUE<|arg|>KEY<|json|>VALUE``, with ``<|thought|>`` behind reasoning (the
  compact encoding);
* ``<think>...</think>`` in front is reasoning.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple

from envgen.core.types import Message, ToolCall, written_call
from envgen.policies.base import Tool

_HERMES = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)
_FUNCTION = re.compile(r"<function=([\w.-]+)>(.*?)(?:</function>|$)", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=([\w.-]+)>"), re.compile("</parameter>")
_FENCE = re.compile(r"```(?:json|tool_call)?[^\S\n]*\n(.*?)```", re.DOTALL)
_MISTRAL = re.compile(r"\[TOOL_CALLS\]\s*(\[.*)", re.DOTALL)
_BAR = r"[|\uff5c]"
_DSML = (
    re.compile(rf'<{_BAR}DSML{_BAR}invoke name="([^"]+)">'),
    re.compile(rf"</{_BAR}DSML{_BAR}invoke>"),
)
_DSML_PARAMETER = (
    re.compile(rf'<{_BAR}DSML{_BAR}parameter name="([^"]+)" string="(true|false)">'),
    re.compile(rf"</{_BAR}DSML{_BAR}parameter>"),
)
_COMPACT_VALUE = re.compile(r"<\|(text|json)\|>")
_DSML_BLOCK = re.compile(rf"<{_BAR}DSML{_BAR}function_calls>.*", re.DOTALL)


class WrittenCall(NamedTuple):
    """A call as found in text."""

    name: str
    arguments: dict[str, Any] | None
    text: str


def instructions(tools: Sequence[Tool]) -> str:
    """The system text that tells a model without native tool calls how to make one."""
    listed = "\n".join(json.dumps(tool.get("function", tool), ensure_ascii=False) for tool in tools)
    return (
        "You can call these tools; each line is a JSON description:\n"
        f"{listed}\n\n"
        "To call tools, write one block for each call and nothing after the last block:\n"
        '<tool_call>\n{"name": "tool_name", "arguments": {"argument": "value"}}\n</tool_call>'
    )


def split_thinking(text: str) -> tuple[str | None, str]:
    """(reasoning, the rest): what stands before ``</think>`` or ``<|thought|>``; None if neither is there."""
    if (end := text.find("</think>")) >= 0:
        mark, thought = "</think>", text[:end].lstrip().removeprefix("<think>")
    elif (end := text.find("<|thought|>")) >= 0 and "<|call|>" not in text[:end]:
        mark, thought = "<|thought|>", text[:end]
    else:
        return None, text
    return thought.strip(), text[end + len(mark) :].lstrip("\n")


def parse_text(
    text: str, names: Collection[str] = (), *, turn: int = 0, reasoning: str | None = None
) -> Message:
    """Split a model's text into reasoning, content and tool calls.

    Args:
        text: what the model wrote.
        names: known tools; fenced JSON counts as a call only if it names one of them.
        turn: makes the call ids unique within the episode.
        reasoning: reasoning that the server already split off.
    """
    if reasoning is None:
        reasoning, text = split_thinking(text)
    content, written = text, list[WrittenCall]()
    for reader in _READERS:
        found = reader(text, names)
        if found is not None:
            content, written = found
            break
    calls = tuple(
        written_call(f"call_{turn}_{i}", call.name, call.arguments, call.text)
        if call.arguments is not None
        else ToolCall(id=f"call_{turn}_{i}", name=call.name, arguments_text=call.text)
        for i, call in enumerate(written)
    )
    content = content.strip() if calls else content
    return Message(role="assistant", content=content, reasoning=reasoning, tool_calls=calls)


Found = tuple[str, list[WrittenCall]]


def _between(
    opening: re.Pattern[str], closing: re.Pattern[str], text: str
) -> Iterator[tuple[re.Match[str], str]]:
    """Openings and what stands between each and the first closing after it, in time linear in the text."""
    place = 0
    while (opened := opening.search(text, place)) and (
        closed := closing.search(text, opened.end())
    ):
        yield opened, text[opened.end() : closed.start()]
        place = closed.end()


def _read_dsml(text: str, names: Collection[str]) -> Found | None:
    calls = []
    for opened, body in _between(*_DSML, text):
        name, arguments = opened[1], dict[str, Any]()
        for parameter, value in _between(*_DSML_PARAMETER, body):
            arguments[parameter[1]] = value if parameter[2] == "true" else _loose(value)
        calls.append(WrittenCall(name, arguments, body))
    return (_DSML_BLOCK.sub("", text), calls) if calls else None


def _read_compact(text: str, names: Collection[str]) -> Found | None:
    content, *written = text.split("<|call|>")
    calls = []
    for body in written:
        name, *arguments = body.split("<|arg|>")
        calls.append(WrittenCall(name, _compact_arguments(arguments), body))
    return (content, calls) if calls else None


def _compact_arguments(written: Sequence[str]) -> dict[str, Any] | None:
    arguments: dict[str, Any] = {}
    for text in written:
        key, *value = _COMPACT_VALUE.split(text)
        if len(value) != 2:
            return None
        arguments[key] = value[1] if value[0] == "text" else _loose(value[1])
    return arguments


def _read_hermes(text: str, names: Collection[str]) -> Found | None:
    bodies = _HERMES.findall(text)
    if not bodies:
        return None
    calls = []
    for body in map(str.strip, bodies):
        inner = _read_functions(body, names)
        calls += inner[1] if inner else _json_calls(body) or [WrittenCall("", None, body)]
    return _HERMES.sub("", text), calls


def _read_functions(text: str, names: Collection[str]) -> Found | None:
    calls = []
    for name, body in _FUNCTION.findall(text):
        pairs = {
            found[1]: _loose(value.removeprefix("\n").removesuffix("\n"))
            for found, value in _between(*_PARAMETER, body)
        }
        arguments = pairs or _object(body)
        calls.append(WrittenCall(name, arguments, body))
    return (_FUNCTION.sub("", text), calls) if calls else None


def _read_mistral(text: str, names: Collection[str]) -> Found | None:
    found = _MISTRAL.search(text)
    if not found:
        return None
    try:
        items, _ = json.JSONDecoder().raw_decode(found.group(1))
    except (ValueError, RecursionError):
        return text[: found.start()], [WrittenCall("", None, found.group(1))]
    return text[: found.start()], [call for item in items for call in _json_calls(json.dumps(item))]


def _read_fenced(text: str, names: Collection[str]) -> Found | None:
    calls = []
    for body in map(str.strip, _FENCE.findall(text)):
        calls += [call for call in _json_calls(body) if call.name in names]
    if calls:
        return _FENCE.sub("", text), calls
    bare = [call for call in _json_calls(text) if call.name in names]
    return ("", bare) if bare else None


_READERS: tuple[Callable[[str, Collection[str]], Found | None], ...] = (
    _read_dsml,
    _read_compact,
    _read_hermes,
    _read_functions,
    _read_mistral,
    _read_fenced,
)


def _json_calls(text: str) -> list[WrittenCall]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return []
    calls = []
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, dict) and isinstance(item.get("function"), dict):
            item = item["function"]
        if not isinstance(item, dict) or not isinstance(item.get("name"), str):
            return []
        arguments = item.get("arguments", item.get("parameters", {}))
        if isinstance(arguments, str):
            calls.append(WrittenCall(item["name"], _object(arguments), arguments))
        else:
            whole = _none_or_object(arguments)
            calls.append(WrittenCall(item["name"], whole, json.dumps(arguments)))
    return calls


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return _none_or_object(value)


def _none_or_object(value: Any) -> dict[str, Any] | None:
    """Arguments as they were read: null says that there are none; None for what is no object."""
    return value if isinstance(value, dict) else {} if value is None else None


def _loose(text: str) -> Any:
    """A parameter's value: JSON where it is JSON, else the text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
