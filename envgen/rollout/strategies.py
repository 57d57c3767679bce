"""Spend more at test time: Parallel-fewest-step (DeepSeek-V3.2, section 4.4).

N independent rollouts of a task are made and the one with the fewest steps counts. Only rollouts that
submitted are looked at; ties go to fewer tokens, then to the earlier sample. All N are paid for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from envgen.core.limits import Count, Id
from envgen.core.types import Record, StopReason, Trajectory

_SUBMITTED = frozenset({StopReason.SUBMITTED, StopReason.ANSWERED})


class GroupChoice(Record):
    """What the strategy made of one group of rollouts of one task."""

    task_id: Id
    sample: Count | None
    """The chosen rollout; None when none submitted."""
    passed: bool
    steps: Count
    """Replies of the chosen rollout."""
    total_steps: Count
    """Replies of all N."""
    total_tokens: Count


def fewest_step(group: Sequence[Trajectory]) -> GroupChoice:
    """Choose among rollouts of one task; errored ones are paid for but never chosen.

    Raises:
        ValueError: for an empty group, or one of several tasks.
    """
    if len({trajectory.task_id for trajectory in group}) != 1:
        raise ValueError("a group holds rollouts of one task")
    able = [t for t in group if t.error is None and t.stop in _SUBMITTED]
    chosen = min(able, key=lambda t: (len(t.turns), _tokens(t), t.sample), default=None)
    return GroupChoice(
        task_id=group[0].task_id,
        sample=chosen.sample if chosen else None,
        passed=bool(chosen and chosen.score and chosen.score.passed),
        steps=len(chosen.turns) if chosen else 0,
        total_steps=sum(len(t.turns) for t in group),
        total_tokens=sum(map(_tokens, group)),
    )


def parallel_fewest_step(trajectories: Iterable[Trajectory], n: int) -> list[GroupChoice]:
    """The strategy with N = ``n`` on stored rollouts: each task's samples in groups of n, in order.

    A last group of fewer than n is left out.
    """
    if n < 1:
        raise ValueError(f"n must be at least 1, got {n}")
    by_task: dict[str, list[Trajectory]] = {}
    for trajectory in trajectories:
        by_task.setdefault(trajectory.task_id, []).append(trajectory)
    choices = []
    for task_id in sorted(by_task):
        rollouts = sorted(by_task[task_id], key=lambda t: t.sample)
        for i in range(0, len(rollouts) - n + 1, n):
            choices.append(fewest_step(rollouts[i : i + n]))
    return choices


def _tokens(trajectory: Trajectory) -> int:
    return trajectory.usage.prompt_tokens + trajectory.usage.completion_tokens
