"""Keep the tasks that a policy can solve, but not too easily: the pass@k filter.

The rollouts that choose tasks are never the ones that are reported of them (the chosen ones look better
than they are: winner's curse). ``reestimate`` measures the kept tasks again on fresh seeds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event
from typing import Literal

from pydantic import Field, JsonValue

from envgen.core import seeding
from envgen.core.errors import ConfigError, ResumeError
from envgen.core.families import find_family
from envgen.core.limits import Label
from envgen.core.types import PassAt, Record
from envgen.environments.hosts import open_dataset
from envgen.rollout.pass_at_k import (
    PassReport,
    TaskPass,
    databases_of,
    pass_report,
    task_pass,
)
from envgen.rollout.run import Progress, RolloutConfig, rollout
from envgen.store.dataset import Dataset
from envgen.store.runs import RunStore, TaskCounts
from envgen.store.subset import subset


class FilterConfig(Record):
    """Which tasks are kept."""

    dataset: Label
    rollouts: Label | None = None
    """Run folder of a rollout on that dataset; None: no pass rate matters."""
    proof: Literal["any", "strict"] = "any"
    """``strict`` drops code tasks with a fail-to-pass test whose verdict is not proven."""
    out: Label
    """Folder of the kept dataset."""
    pass_at: int = Field(default=100, ge=1)
    """The k of pass@k."""
    min: float = Field(default=0.0, ge=0, le=1)
    """Keep a task whose pass@k is at least this,"""
    exclusive: bool = True
    """or above it."""
    max_pass_at_1: float | None = Field(default=None, ge=0, le=1)
    """Drop a task that is passed more often than this."""
    name: Label | None = None
    """Id of the kept dataset; None: as the old one."""
    unproven: bool = False
    db_url: Label | None = None


Verdict = Literal["kept", "undecided", "too_hard", "too_easy", "unproven"]

_WHY_NONE: dict[Verdict, str] = {
    "kept": "",
    "undecided": "pass@{k} needs {k} error-free samples a task",
    "too_hard": "play them with a stronger policy or more samples, or make easier tasks (--level)",
    "too_easy": "play them with a weaker policy, or make harder tasks (--level)",
    "unproven": "`envgen validate` tells which gates fail; --proof any takes them all the same",
}


class Filtered(Record):
    """The filter's decision about one task."""

    task: TaskPass
    verdict: Verdict


class LevelCounts(Record):
    """Kept and dropped tasks of one level."""

    level: int | None
    kept: int = 0
    undecided: int = 0
    too_hard: int = 0
    too_easy: int = 0
    unproven: int = 0


class FilterReport(Record):
    """The tasks that were kept, and why the rest was not."""

    policy: str
    pass_at: int
    decisions: tuple[Filtered, ...]
    levels: tuple[LevelCounts, ...]
    out: str

    @property
    def kept(self) -> tuple[str, ...]:
        """Ids of the kept tasks."""
        return tuple(d.task.task_id for d in self.decisions if d.verdict == "kept")


def judge(task: TaskPass, config: FilterConfig) -> Verdict:
    """Whether one task is kept."""
    value = task.values[config.pass_at]
    if value is None:
        return "undecided"
    if value < config.min or (config.exclusive and value <= config.min):
        return "too_hard"
    if config.max_pass_at_1 is not None and task.c / task.n > config.max_pass_at_1:
        return "too_easy"
    return "kept"


def filter(config: FilterConfig) -> FilterReport:
    """Write the dataset of the kept tasks, and say what became of the others.

    Raises:
        ResumeError: when the rollouts were made on another dataset.
        ConfigError: when no task is kept, or the configuration asks for nothing.
        StoreError: when there are no rollouts, or the out folder is taken.
    """
    dataset = open_dataset(config.dataset, unproven=config.unproven)
    counts, policy = _counts(config, dataset)
    ks = sorted({1, config.pass_at})
    decisions = []
    for task_id in sorted({*counts, *dataset.own_task_ids}):
        n, c, errors = counts.get(task_id, TaskCounts(0, 0, 0))
        level = dataset.facts(task_id).level
        task = task_pass(task_id, n, c, ks, errors=errors, level=level)
        verdict: Verdict = "kept" if config.rollouts is None else judge(task, config)
        spec = dataset.tasks[task_id]
        if config.proof == "strict" and not find_family(spec.family).is_proven(spec.evidence):
            verdict = "unproven"
        decisions.append(Filtered(task=task, verdict=verdict))
    report = FilterReport(
        policy=policy,
        pass_at=config.pass_at,
        decisions=tuple(decisions),
        levels=_by_level(decisions),
        out=config.out,
    )
    if not report.kept:
        verdicts = Counter(decision.verdict for decision in decisions)
        often, _ = verdicts.most_common(1)[0]
        hint = _WHY_NONE[often].format(k=config.pass_at)
        if config.rollouts is None:
            hint = "`envgen list` tells how many verdicts of each task are proven"
        told = ", ".join(
            f"{n} {verdict.replace('_', ' ')}" for verdict, n in sorted(verdicts.items())
        )
        raise ConfigError(f"no task is kept: {told}", hint)
    subset(dataset, report.kept, config.out, name=config.name, funnel={"filter": _funnel(report)})
    return report


def _counts(config: FilterConfig, dataset: Dataset) -> tuple[dict[str, TaskCounts], str]:
    """Samples, passes and errors of each task, and whose they are."""
    if config.rollouts is None:
        if config.proof == "any":
            raise ConfigError("nothing to filter by", "give rollouts, or ask for strict proof")
        return {}, ""
    with RunStore.read(config.rollouts, db_url=config.db_url) as store:
        if store.dataset_hash != dataset.manifest.content_hash:
            raise ResumeError(
                f"the rollouts in {config.rollouts!r} were made on another dataset",
                "roll out on this dataset first",
            )
        return store.counts(), str(store.stage("policy") or "")


def _by_level(decisions: Sequence[Filtered]) -> tuple[LevelCounts, ...]:
    counts: dict[int | None, Counter[str]] = {}
    for decision in decisions:
        counts.setdefault(decision.task.level, Counter())[decision.verdict] += 1
    ordered = sorted(counts, key=lambda level: (level is None, level or 0))
    return tuple(LevelCounts(level=level, **counts[level]) for level in ordered)


def _funnel(report: FilterReport) -> dict[str, JsonValue]:
    verdicts = Counter(decision.verdict for decision in report.decisions)
    return {
        "policy": report.policy,
        "pass_at": report.pass_at,
        **{verdict: count for verdict, count in sorted(verdicts.items())},
    }


def reestimate(
    dataset: str,
    selection: RolloutConfig,
    out: str,
    *,
    n: int | None = None,
    ks: Sequence[int] = (1, 10, 100),
    progress: Callable[[Progress], None] | None = None,
    cancel: Event | None = None,
) -> PassReport:
    """Measure the kept tasks on seeds that the filter never saw.

    Args:
        dataset: folder of the kept dataset.
        selection: how the filter's rollouts were made.
        out: run folder for the fresh rollouts.
        n: samples a task; None: as many as the filter had.
        ks: the k to report.
        progress: see ``rollout``.
        cancel: see ``rollout``.
    """
    fresh = selection.model_copy(
        update={
            "dataset": dataset,
            "out": out,
            "n": n or selection.n,
            "seed": seeding.derive(selection.seed, "reestimate"),
            "task_ids": None,
        }
    )
    rollout(fresh, progress=progress, cancel=cancel)
    opened = open_dataset(dataset, unproven=selection.unproven)
    levels = {task_id: opened.facts(task_id).level for task_id in opened.own_task_ids}
    with RunStore.read(out, db_url=selection.db_url) as store:
        policy = str(store.stage("policy") or "")
        databases = databases_of(opened, opened.own_task_ids)
        return pass_report(store.counts(), ks, policy=policy, levels=levels, databases=databases)


def with_pass_rates(
    dataset: Dataset, report: PassReport, seed: int, path: str | Path, *, name: str | None = None
) -> Dataset:
    """A copy of ``dataset`` whose tasks carry the measured rates of ``report``."""
    rates = {
        task.task_id: (PassAt(policy=report.policy, n=task.n, c=task.c, seed=seed),)
        for task in report.tasks
        if task.n
    }
    return subset(dataset, dataset.own_task_ids, path, name=name, pass_at=rates)
