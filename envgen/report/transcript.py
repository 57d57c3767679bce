"""An episode's messages for a page: results laid out, long ones folded, very long ones cut."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from envgen.core.types import Message, Trajectory

_MAX_TEXT = 20_000
_FOLD_LINES = 14


class Step(NamedTuple):
    """One message of the episode, ready to show."""

    number: int
    role: str
    tool: str | None
    """The tool whose result it is."""
    reasoning: str
    text: str
    calls: list[tuple[str, str]]
    """(tool, arguments)"""
    folded: bool
    """Long: shown closed."""


def steps_of(episode: Trajectory, *, cut: bool = True) -> list[Step]:
    """The messages of an episode, ready to show; ``cut``: very long texts end with a sign."""
    names = {call.id: call.name for message in episode.messages for call in message.tool_calls}
    return [
        _step(i, message, names, _cut if cut else str) for i, message in enumerate(episode.messages)
    ]


def _step(
    number: int, message: Message, names: dict[str, str], shorten: Callable[[str], str]
) -> Step:
    tool = None
    text = message.content
    if message.role == "tool":
        tool = names.get(message.tool_call_id or "", "a call")
        text = _pretty_json(text)
    calls = []
    for call in message.tool_calls:
        if call.arguments is None:
            calls.append((call.name, call.arguments_text or ""))
        else:
            calls.append((call.name, _arguments(call.arguments)))
    folded = (
        message.role in ("tool", "system") and text.count("\n") + len(text) // 100 > _FOLD_LINES
    )
    return Step(
        number, message.role, tool, shorten(message.reasoning or ""), shorten(text),
        [(name, shorten(arguments)) for name, arguments in calls], folded,
    )  # fmt: skip


def _arguments(arguments: dict[str, Any]) -> str:
    return "\n".join(f"{name} = {_argument(value)}" for name, value in arguments.items())


def _argument(value: Any) -> str:
    if isinstance(value, str) and value.strip()[:1] in ("{", "["):
        pretty = _pretty_json(value)
        if pretty != value:
            return pretty
    return json.dumps(value, ensure_ascii=False)


def _pretty_json(text: str) -> str:
    if text.strip()[:1] not in ("{", "["):
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if isinstance(value, list) and value and all(isinstance(x, dict) for x in value):
        return "[\n" + ",\n".join("  " + json.dumps(x, ensure_ascii=False) for x in value) + "\n]"
    line = json.dumps(value, ensure_ascii=False)
    return line if len(line) <= 90 else json.dumps(value, ensure_ascii=False, indent=2)


def _cut(text: str) -> str:
    if len(text) <= _MAX_TEXT:
        return text
    return f"{text[:_MAX_TEXT]}\n[... {len(text) - _MAX_TEXT:,} more characters]"
