"""Conversations as text for people and text-only policies, and in OpenAI's form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from envgen.core.canonical import compact, dumps
from envgen.core.types import Message


def render_messages(messages: Sequence[Message]) -> str:
    """A conversation: a line per role, then what was said and called."""
    return "\n\n".join(map(render_message, messages))


def render_message(message: Message) -> str:
    """One message, its tool calls as JSON."""
    parts = [f"[{message.role}]"]
    if message.reasoning:
        parts.append(f"<think>{message.reasoning}</think>")
    if message.content:
        parts.append(message.content)
    for call in message.tool_calls:
        arguments = call.arguments_text if call.arguments is None else dumps(call.arguments)
        parts.append(f"{call.name}({arguments})")
    return "\n".join(parts)


def message_dict(message: Message) -> dict[str, Any]:
    """A message in OpenAI's form; ``arguments`` of calls are JSON text."""
    value: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.reasoning is not None:
        value["reasoning_content"] = message.reasoning
    if message.tool_call_id is not None:
        value["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        value["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {
                    "name": call.name,
                    "arguments": call.arguments_text or ""
                    if call.arguments is None
                    else compact(call.arguments),
                },
            }
            for call in message.tool_calls
        ]
    return value


def clip(text: str, limit: int) -> str:
    """``text`` cut in its middle to ``limit`` characters, saying how much is gone."""
    if len(text) <= limit:
        return text
    mark = f"\n... [{len(text) - limit} characters cut] ...\n"
    keep = max(0, limit - len(mark) - 16)
    head = keep // 3
    return (text[:head] + mark + text[len(text) - (keep - head) :])[:limit]
