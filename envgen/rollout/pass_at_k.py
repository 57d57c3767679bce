"""pass@k: how likely at least one of k samples passes, per task, with an interval.

The estimate is the unbiased one of Chen et al. 2021 (arXiv 2107.03374): 1 - C(n - c, k) / C(n, k) for c
passes in n samples. The interval is Clopper-Pearson's exact one on pass@1, mapped by 1 - (1 - p)^k: it is an
interval for a policy whose samples are independent with one success rate. Episodes that were spoiled by an
error count in neither n nor c; with fewer than k samples a task is undecided.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import Field

from envgen.core.types import Record


class Interval(NamedTuple):
    """A confidence interval."""

    low: float
    high: float


def pass_at_k(n: int, c: int, k: int) -> float:
    """The unbiased estimate from c passes in n samples.

    Raises:
        ValueError: unless 1 <= k <= n and 0 <= c <= n.
    """
    if not (1 <= k <= n and 0 <= c <= n):
        raise ValueError(f"pass@{k} can't be estimated from {c} of {n}")
    if n - c < k:
        return 1.0
    # log of C(n - c, k) / C(n, k) as a sum of k logs: exact enough, and no huge integers.
    return 0.0 - math.expm1(math.fsum(math.log1p(-c / (n - i)) for i in range(k)))


def clopper_pearson(n: int, c: int, confidence: float = 0.95) -> Interval:
    """The exact binomial interval for a success rate.

    Raises:
        ValueError: unless 0 <= c <= n, n > 0 and 0 < confidence < 1.
    """
    if not (0 <= c <= n and n > 0 and 0 < confidence < 1):
        raise ValueError(f"no interval for {c} of {n} at {confidence}")
    from scipy.special import betaincinv

    alpha = 1 - confidence
    low = 0.0 if c == 0 else float(betaincinv(c, n - c + 1, alpha / 2))
    high = 1.0 if c == n else float(betaincinv(c + 1, n - c, 1 - alpha / 2))
    return Interval(low, high)


def pass_at_k_interval(n: int, c: int, k: int, confidence: float = 0.95) -> Interval:
    """Clopper-Pearson's interval on pass@1, mapped to pass@k."""
    low, high = clopper_pearson(n, c, confidence)
    return Interval(*(-math.expm1(k * math.log1p(-p)) if p < 1 else 1.0 for p in (low, high)))


class TaskPass(Record):
    """One task's pass@k."""

    task_id: str
    level: int | None = None
    n: int
    """Error-free samples."""
    c: int
    """Of these, passed."""
    errors: int = 0
    values: dict[int, float | None]
    """k -> estimate; None where there are fewer than k samples."""
    intervals: dict[int, tuple[float, float]] = Field(default_factory=dict)
    """k -> interval (Clopper-Pearson on pass@1, mapped); for every k, once there is a sample."""

    def decided(self, k: int) -> bool:
        """Whether there are enough samples for pass@k."""
        return self.values.get(k) is not None


class GroupPass(Record):
    """Mean pass@k over the tasks of a level, or over all of them."""

    group: str
    tasks: int
    samples: int
    errors: int
    means: dict[int, float | None]
    """k -> mean over the decided tasks."""
    undecided: dict[int, int]
    """k -> tasks with fewer than k error-free samples."""
    solved: int
    """Tasks with at least one pass."""


class PassReport(Record):
    """pass@k of a run: per task, per level and in total."""

    policy: str
    ks: tuple[int, ...]
    confidence: float
    tasks: tuple[TaskPass, ...]
    levels: tuple[GroupPass, ...]
    total: GroupPass


def task_pass(
    task_id: str,
    n: int,
    c: int,
    ks: Sequence[int],
    *,
    errors: int = 0,
    level: int | None = None,
    confidence: float = 0.95,
) -> TaskPass:
    """One task's estimates and intervals."""
    intervals = {k: pass_at_k_interval(n, c, k, confidence) for k in ks if n > 0}
    return TaskPass(
        task_id=task_id,
        level=level,
        n=n,
        c=c,
        errors=errors,
        values={k: pass_at_k(n, c, k) if n >= k else None for k in ks},
        intervals={k: (low, high) for k, (low, high) in intervals.items()},
    )


def group_pass(group: str, tasks: Iterable[TaskPass], ks: Sequence[int]) -> GroupPass:
    """The means over some tasks; undecided ones are left out of a mean and counted."""
    tasks = list(tasks)
    decided = {k: [v for t in tasks if (v := t.values[k]) is not None] for k in ks}
    return GroupPass(
        group=group,
        tasks=len(tasks),
        samples=sum(task.n for task in tasks),
        errors=sum(task.errors for task in tasks),
        means={k: math.fsum(v) / len(v) if v else None for k, v in decided.items()},
        undecided={k: len(tasks) - len(v) for k, v in decided.items()},
        solved=sum(task.c > 0 for task in tasks),
    )


def pass_report(
    counts: Mapping[str, Any],
    ks: Sequence[int],
    *,
    policy: str = "",
    levels: Mapping[str, int | None] | None = None,
    confidence: float = 0.95,
) -> PassReport:
    """The tables of a run.

    Args:
        counts: task id -> (n, c, errors), as ``RunStore.counts`` gives them.
        ks: the k to report, each at least 1.
        policy: whose run it is.
        levels: task id -> level.
        confidence: of the intervals.
    """
    levels = levels or {}
    tasks = []
    for task_id, (n, c, errors) in sorted(counts.items()):
        level = levels.get(task_id)
        tasks.append(
            task_pass(task_id, n, c, ks, errors=errors, level=level, confidence=confidence)
        )
    groups: dict[int, list[TaskPass]] = {}
    for task in tasks:
        if task.level is not None:
            groups.setdefault(task.level, []).append(task)
    return PassReport(
        policy=policy,
        ks=tuple(ks),
        confidence=confidence,
        tasks=tuple(tasks),
        levels=tuple(group_pass(f"level {level}", groups[level], ks) for level in sorted(groups)),
        total=group_pass("all", tasks, ks),
    )


def run_report(
    folder: Any,
    ks: Sequence[int] = (1, 10, 100),
    *,
    dataset: Any = None,
    confidence: float = 0.95,
    db_url: str | None = None,
) -> PassReport:
    """The tables of the run in ``folder``; levels come from ``dataset``, or from the run's own record.

    Raises:
        StoreError: if there is no run.
    """
    from envgen.store.runs import RunStore

    with RunStore.read(folder, db_url=db_url) as store:
        levels: dict[str, int | None] = {}
        if dataset is not None:
            levels = {task_id: dataset.facts(task_id).level for task_id in dataset.tasks}
        elif isinstance(stored := store.stage("levels"), dict):
            levels = {name: level for name, level in stored.items() if isinstance(level, int)}
        policy = str(store.config.get("policy", ""))
        return pass_report(store.counts(), ks, policy=policy, levels=levels, confidence=confidence)
