"""What is measured of a task, and the length of gold's episode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from envgen.core.canonical import dumps
from envgen.core.types import CallRecord, Message, Shortcuts, ToolSpec
from envgen.policies.budget import estimated_tokens


class Measures(NamedTuple):
    """The fields of ``Difficulty`` that need the constraint IR, density apart."""

    calls_upper_bound: int
    facts_upper_bound: int
    branch_depth: int
    shortcuts: Shortcuts | None
    """None: there are too few re-seeds."""


def gold_tokens(prompt: str, tools: Sequence[ToolSpec], calls: Sequence[CallRecord]) -> int:
    """An estimate of the tokens of gold's episode, tool schemas included, reasoning not.

    Args:
        prompt: all that an agent reads before its first call.
        tools: that it can call.
        calls: of gold.
    """
    messages = [Message(role="user", content=prompt + dumps([tool.openai() for tool in tools]))]
    for call in calls:
        called = dumps({"name": call.name, "arguments": call.arguments})
        reply = dumps(call.result if call.error is None else {"error": call.error})
        messages += [
            Message(role="assistant", content=called),
            Message(role="tool", content=reply),
        ]
    return estimated_tokens(messages)
