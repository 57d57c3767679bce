"""pass@k: how likely at least one of k samples passes, with intervals.

The estimate is the unbiased one of Chen et al. 2021 (arXiv 2107.03374): 1 - C(n - c, k) / C(n, k) for c
passes in n samples. Episodes that were spoiled by an error count in neither n nor c; with fewer than k
samples a task is undecided.

A task's interval is about that task: what more samples of it would tell. It is Clopper and Pearson's exact
one (1934) on pass@1, mapped by the monotone 1 - (1 - p)^k, and then widened to hold the estimate, which can
lie beyond it because it is unbiased and not the plug-in 1 - (1 - c/n)^k. Both leave its coverage at least
nominal, if samples are independent with one success rate.

The interval of a mean over tasks is about other tasks, too: what more databases would tell. It comes from
resampling databases (``envgen.rollout.bootstrap``), for ``envgen pass-at-k`` as for ``envgen eval``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from pydantic import Field

from envgen.core.types import Record
from envgen.rollout.bootstrap import (
    BootstrapConfig,
    Estimate,
    Interval,
    Ratio,
    clopper_pearson,
    estimate,
)


def pass_at_k(n: int, c: int, k: int) -> float:
    """The unbiased estimate from c passes in n samples.

    Raises:
        ValueError: unless 1 <= k <= n and 0 <= c <= n.
    """
    if not (1 <= k <= n and 0 <= c <= n):
        raise ValueError(f"pass@{k} can't be estimated from {c} of {n}")
    # A quotient of whole numbers is rounded once: pass@1 is c / n to the last bit, and a filter at 0.25 keeps
    # 4 of 16. A sum of logs lies below it for 145 pairs of n <= 100.
    ways = math.comb(n, k)
    return (ways - math.comb(n - c, k)) / ways


def pass_at_k_interval(n: int, c: int, k: int, confidence: float = 0.95) -> Interval:
    """A task's interval of pass@k; holds the estimate, if there are k samples for one."""
    low, high = clopper_pearson(n, c, confidence)
    low, high = (-math.expm1(k * math.log1p(-p)) if p < 1 else 1.0 for p in (low, high))
    if k > n:
        return Interval(low, high)
    value = pass_at_k(n, c, k)
    return Interval(min(low, value), max(high, value))


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
    """k -> interval about this task; for every k, once there is a sample."""

    def decided(self, k: int) -> bool:
        """Whether there are enough samples for pass@k."""
        return self.values.get(k) is not None


class GroupPass(Record):
    """Mean pass@k over the tasks of a level, or over all of them."""

    group: str
    level: int | None = None
    """None: of all levels."""
    tasks: int
    samples: int
    errors: int
    means: dict[int, float | None]
    """k -> mean over the decided tasks."""
    intervals: dict[int, tuple[float, float]] = Field(default_factory=dict)
    """k -> interval of the mean over databases; none where the decided tasks have one database only."""
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


def group_pass(
    level: int | None,
    tasks: Iterable[TaskPass],
    ks: Sequence[int],
    *,
    databases: Mapping[str, str] | None = None,
    confidence: float = 0.95,
) -> GroupPass:
    """The means over some tasks; undecided ones are left out of a mean and counted.

    Args:
        level: theirs; None if they are all.
        tasks: its tasks.
        ks: the k to report.
        databases: task id -> database; a task that is not in it has one of its own.
        confidence: of the intervals.
    """
    tasks = list(tasks)
    found = {k: _mean(tasks, k, databases or {}, confidence) for k in ks}
    return GroupPass(
        group="all" if level is None else f"level {level}",
        level=level,
        tasks=len(tasks),
        samples=sum(task.n for task in tasks),
        errors=sum(task.errors for task in tasks),
        means={k: None if mean is None else mean.value for k, mean in found.items()},
        intervals={
            k: (mean.low, mean.high)
            for k, mean in found.items()
            if mean is not None and mean.low is not None and mean.high is not None
        },
        undecided={k: sum(not task.decided(k) for task in tasks) for k in ks},
        solved=sum(task.c > 0 for task in tasks),
    )


def _mean(
    tasks: Sequence[TaskPass], k: int, databases: Mapping[str, str], confidence: float
) -> Estimate | None:
    decided = [(task.task_id, v) for task in tasks if (v := task.values[k]) is not None]
    return estimate(
        Ratio.mean([value for _, value in decided]),
        [databases.get(task_id, task_id) for task_id, _ in decided],
        BootstrapConfig(confidence=confidence),
        proportion=True,
    )


def pass_report(
    counts: Mapping[str, Any],
    ks: Sequence[int],
    *,
    policy: str = "",
    levels: Mapping[str, int | None] | None = None,
    databases: Mapping[str, str] | None = None,
    confidence: float = 0.95,
) -> PassReport:
    """The tables of a run.

    Args:
        counts: task id -> (n, c, errors), as ``RunStore.counts`` gives them.
        ks: the k to report, each at least 1.
        policy: whose run it is.
        levels: task id -> level.
        databases: task id -> database; a task that is not in it has one of its own.
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
    pooled = partial(group_pass, ks=ks, databases=databases, confidence=confidence)
    return PassReport(
        policy=policy,
        ks=tuple(ks),
        confidence=confidence,
        tasks=tuple(tasks),
        levels=tuple(pooled(level, groups[level]) for level in sorted(groups)),
        total=pooled(None, tasks),
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
        if dataset is None:
            levels, databases = (_noted(store.stage(name)) for name in ("levels", "databases"))
        else:
            levels = {task_id: dataset.facts(task_id).level for task_id in dataset.tasks}
            databases = databases_of(dataset, dataset.tasks)
        return pass_report(
            store.counts(),
            ks,
            policy=str(store.config.get("policy", "")),
            levels=levels,
            databases=databases,
            confidence=confidence,
        )


def databases_of(dataset: Any, task_ids: Iterable[str]) -> dict[str, str]:
    """Task id -> what its rows are known by; a task without a database has its environment's id."""
    return {
        task_id: dataset.database_hash(task_id) or dataset.facts(task_id).environment_id
        for task_id in task_ids
    }


def _noted(stage: Any) -> dict[str, Any]:
    return stage if isinstance(stage, dict) else {}
