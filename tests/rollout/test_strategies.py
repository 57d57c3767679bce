from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tiny_dataset import write_tiny_dataset

from envgen.core.types import Message, Score, StopReason, ToolCall, Trajectory, Turn, Usage
from envgen.environments.general import GeneralEnv
from envgen.policies.base import PolicyReply
from envgen.policies.context import ContextConfig
from envgen.rollout.episode import run_episode
from envgen.rollout.strategies import fewest_step, parallel_fewest_step


def trajectory(sample: int, steps: int, *, passed: bool = False, **fields: Any) -> Trajectory:
    base: dict[str, Any] = {
        "task_id": "t",
        "sample": sample,
        "policy": "p",
        "seed": 0,
        "messages": (),
        "turns": tuple(Turn(message_index=i) for i in range(steps)),
        "score": Score(value=float(passed), passed=passed),
        "stop": StopReason.SUBMITTED,
    }
    return Trajectory(**{**base, **fields})


def test_the_shortest_submission_counts_and_all_are_paid() -> None:
    group = [
        trajectory(0, 5, passed=True),
        trajectory(1, 2, stop=StopReason.TURN_LIMIT),
        trajectory(2, 3, usage=Usage(prompt_tokens=9)),
        trajectory(3, 3, passed=True, usage=Usage(prompt_tokens=4)),
    ]
    choice = fewest_step(group)
    assert (choice.sample, choice.passed, choice.steps) == (3, True, 3)
    assert (choice.total_steps, choice.total_tokens) == (13, 13)
    assert fewest_step(group[1:2]).sample is None


def test_groups_are_whole() -> None:
    rollouts = [trajectory(i, 1 + i % 3) for i in range(7)]
    assert [c.sample for c in parallel_fewest_step(rollouts, 3)] == [0, 3]
    with pytest.raises(ValueError, match="at least 1"):
        parallel_fewest_step(rollouts, 0)
    with pytest.raises(ValueError, match="one task"):
        fewest_step([])


class Looker:
    """Lists hotels until told otherwise; notes what it sees; summarises when no tools are given."""

    name, version = "looker", "1"

    def __init__(self) -> None:
        self.views: list[list[Message]] = []

    def respond(self, messages: Any, tools: Any, sampling: Any, **more: Any) -> PolicyReply:
        if not tools:
            return PolicyReply(Message(role="assistant", content="all is known"))
        self.views.append(list(messages))
        call = ToolCall(id=f"c{len(self.views)}", name="list_hotels", arguments={"city": "Suzhou"})
        return PolicyReply(Message(role="assistant", tool_calls=(call,)))


@pytest.mark.parametrize("strategy", ["summary", "discard-75", "discard-all"])
def test_a_full_window_is_managed(strategy: Any, tmp_path: Path) -> None:
    env = GeneralEnv(write_tiny_dataset(tmp_path / "tiny"), backend="inline", unproven=True)
    policy = Looker()
    config = ContextConfig(strategy=strategy, window_tokens=250)
    got = run_episode(env, policy, "tiny-cheapest", sample=0, seed=0, context=config).trajectory
    assert got.context_events
    event = got.context_events[0]
    assert event.tokens_after < event.tokens_before
    assert event.dropped_pairs >= 1
    assert (event.summary_tokens > 0) == (strategy == "summary")
    longest = max(map(len, policy.views))
    assert longest < len(got.messages)
    head = [m for m in got.messages if m.role in ("system", "user")][:2]
    for view in policy.views:
        assert view[: len(head)] == head  # the task always stays
        ids = {call.id for m in view for call in m.tool_calls}
        assert {m.tool_call_id for m in view if m.role == "tool"} == ids  # pairs go whole
    if strategy == "summary":
        assert any("all is known" in m.content for m in policy.views[-1])
