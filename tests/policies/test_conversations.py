from __future__ import annotations

from typing import Any

import pytest

from envgen.core.types import Message, ToolCall
from envgen.policies import conversations
from envgen.policies.conversations import Conversations, Past

USER = Message(role="user", content="go")
TOOLS: list[dict[str, Any]] = [{"type": "function", "function": {"name": "f"}}]


def reply(turn: int, content: str = "") -> Message:
    call = ToolCall(id=f"call_{turn}_0", name="f", arguments={})
    return Message(role="assistant", content=content, tool_calls=(call,))


def result(turn: int) -> Message:
    return Message(role="tool", content="same", tool_call_id=f"call_{turn}_0")


def test_a_conversation_is_found_again() -> None:
    kept = Conversations()
    kept.remember([USER], reply(0), TOOLS, 1, [1, 2])
    longer = [USER, reply(0), result(0)]
    assert kept.past(longer, TOOLS, 1) == Past([1, 2], 2)
    assert kept.past(longer, TOOLS, 2) is None
    assert kept.past(longer, [], 1) is None
    assert kept.past([USER], TOOLS, 1) is None
    assert kept.past([USER, reply(0, "other"), result(0)], TOOLS, 1) is None


def test_a_conversation_that_lost_its_middle_is_another_one() -> None:
    """Context management left one block of many: as many turns as after the first reply."""
    kept = Conversations()
    kept.remember([USER], reply(0), TOOLS, 1, [1, 2])
    kept.remember([USER, reply(0), result(0)], reply(1), TOOLS, 1, [1, 2, 3])
    assert kept.past([USER, reply(1), result(1)], TOOLS, 1) is None


def test_what_environments_clean_is_still_recognised() -> None:
    kept = Conversations()
    kept.remember([USER], reply(0, "a\0b"), TOOLS, 1, [1])
    assert kept.past([USER, reply(0, "a\ufffdb"), result(0)], TOOLS, 1) is not None


def test_the_oldest_are_forgotten_when_tokens_run_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversations, "REMEMBERED_TOKENS", 10)
    kept = Conversations()

    def known() -> list[int]:
        longer = [USER, reply(0), result(0)]
        return [seed for seed in range(5) if kept.past(longer, TOOLS, seed) is not None]

    for seed in range(5):
        kept.remember([USER], reply(0), TOOLS, seed, [1, 2, 3])
    assert known() == [2, 3, 4]
    kept.remember([USER], reply(0), TOOLS, 2, [1, 2, 3, 4])  # again: it is the newest now
    assert known() == [2, 3, 4]
    kept.remember([USER], reply(0), TOOLS, 0, [7] * 6)
    assert known() == [0, 2]
    assert kept.past([USER, reply(0)], TOOLS, 0) == Past([7] * 6, 2)
