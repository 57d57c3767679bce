"""``envgen audit``: how hard tasks are, and what players achieve that are too simple for a hard one.

Tasks hold the figures (``Difficulty``); those of more re-seeds, or of tasks without, are measured here.
Nothing of a dataset is run: its constraint IR is re-seeded and played (``difficulty``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from statistics import fmean, median

from pydantic import Field

from envgen.core.errors import ConfigError, PipelineError
from envgen.core.limits import Label, Seconds, Whole
from envgen.core.types import Difficulty, Record
from envgen.pipelines.boundary import broken, outcomes
from envgen.pipelines.general.author import ProceduralAuthor, draft_of
from envgen.pipelines.general.difficulty.figures import gold_tokens
from envgen.pipelines.general.difficulty.measure import RESEEDS, measured
from envgen.pipelines.general.gates.trial import reseed_seed, trial_seed
from envgen.store.dataset import Dataset

_WORKER = "envgen.pipelines.general.audit:worker"


class AuditConfig(Record):
    """What to measure of which tasks."""

    reseeds: int | None = Field(default=None, ge=1, le=10_000)
    """Re-seeds of each task that every shortcut plays. None: the figures stored in the dataset, and 32
    re-seeds of tasks that have none."""
    tasks: int | None = Field(default=None, ge=1)
    """Tasks of each category and level; None: all."""
    seed: Whole = 0
    """Fixes the re-seeds. Stored figures are those of 0."""


class TaskAudit(Record):
    """How hard one task is."""

    task_id: Label
    category: Label
    level: int
    difficulty: Difficulty | None = None
    """None: it could not be measured."""
    stored: bool = False
    """Whether the figures are those of the dataset."""
    seconds: Seconds = 0.0
    """What measuring took."""
    error: str = ""


class AuditReport(Record):
    """What was measured, task by task."""

    path: str
    tasks: tuple[TaskAudit, ...]

    def cells(self) -> Iterator[dict[str, object]]:
        """Yield the medians of each category and level, and of the shortcuts the largest pass rates."""
        groups: dict[tuple[str, int], list[TaskAudit]] = {}
        for task in self.tasks:
            if task.difficulty is not None:
                groups.setdefault((task.category, task.level), []).append(task)
        for (category, level), tasks in sorted(groups.items()):
            known = [task.difficulty for task in tasks if task.difficulty is not None]
            played = [one.shortcuts for one in known if one.shortcuts is not None]
            yield {
                "category": category,
                "level": level,
                "tasks": len(tasks),
                "calls": _median(one.calls_upper_bound for one in known),
                "facts": _median(one.facts_upper_bound for one in known),
                "depth": _median(one.branch_depth for one in known),
                "density": _median(one.density.value if one.density else None for one in known),
                "tokens": _median(one.gold_tokens for one in known),
                "first": max((p.first_row for p in played), default=None),
                "greedy": max((p.greedy for p in played), default=None),
                "fit": max((p.first_fit for p in played), default=None),
                "recipe": max((p.recipe for p in played), default=None),
                "bound": max((p.at_bound or 0.0 for p in played), default=None),
                "exact": max((p.exact_sum or 0.0 for p in played), default=None),
                "constant": _mean(p.constant for p in played),
                "met": _mean(p.met_bounds for p in played),
                "ls200": max((p.local_search["200"] for p in played), default=None),
                "ls1000": max((p.local_search["1000"] for p in played), default=None),
                "seconds": _median(task.seconds for task in tasks),
            }


def _mean(values: Iterable[float | None]) -> float | None:
    """The mean of what is known; None if nothing is."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _median(values: Iterable[float | None]) -> float | None:
    """The median of what is known; None if nothing is."""
    known = [value for value in values if value is not None]
    return median(known) if known else None


class TaskToAudit(Record):
    """One task to measure."""

    dataset: str
    task_id: str
    reseeds: int | None
    seed: int
    unproven: bool


def audit(
    config: AuditConfig,
    dataset: str | Path,
    *,
    workers: int | None = None,
    unproven: bool = False,
    progress: Callable[[int, int, str], None] | None = None,
) -> AuditReport:
    """Measure the tasks of a dataset; deterministic in ``config``.

    Raises:
        ConfigError: if the dataset has no task with a constraint IR.
    """
    source = Dataset.open(dataset, unproven=unproven)
    chosen: list[str] = []
    of_cell: dict[tuple[str, int], int] = {}
    for task_id in source.own_task_ids:
        spec = source.tasks[task_id]
        cell = (source.environments[spec.environment_id].category, spec.difficulty.level)
        of_cell[cell] = of_cell.get(cell, 0) + 1
        if config.tasks is None or of_cell[cell] <= config.tasks:
            chosen.append(task_id)
    jobs = [
        TaskToAudit(
            dataset=str(source.path),
            task_id=task_id,
            reseeds=config.reseeds,
            seed=config.seed,
            unproven=unproven,
        )
        for task_id in chosen
        if source.task_files(task_id).constraints is not None
    ]
    if not jobs:
        raise ConfigError(
            f"no task of {str(dataset)!r} has a constraint IR",
            "datasets of `envgen generate general` have",
        )
    found: list[TaskAudit] = []
    for done, (job, outcome) in enumerate(outcomes(_WORKER, audited, jobs, workers, ahead=1), 1):
        if outcome.error is None:
            found.append(outcome.value)
        else:
            why = broken("audit", outcome.error).reason
            found.append(TaskAudit(task_id=job.task_id, category="-", level=1, error=why))
        if progress:
            progress(done, len(jobs), job.task_id)
    return AuditReport(path=str(dataset), tasks=tuple(found))


@contextmanager
def worker() -> Iterator[Callable[[TaskToAudit], TaskAudit]]:
    """Give a worker process its function."""
    yield audited


@cache
def _open(path: str, unproven: bool) -> Dataset:
    return Dataset.open(path, unproven=unproven)


def audited(job: TaskToAudit) -> TaskAudit:
    """How hard one task is, as it is stored or measured here; deterministic in the job."""
    started = time.monotonic()
    dataset = _open(job.dataset, job.unproven)
    spec = dataset.tasks[job.task_id]
    stored = _is_stored(job, spec.difficulty)
    found = spec.difficulty if stored else _measured(job, dataset)
    return TaskAudit(
        task_id=job.task_id,
        category=dataset.environments[spec.environment_id].category,
        level=found.level,
        difficulty=found,
        stored=stored,
        seconds=time.monotonic() - started,
    )


def _is_stored(job: TaskToAudit, found: Difficulty) -> bool:
    """Whether what is stored of a task is what the job asks for."""
    if job.seed != 0 or found.calls_upper_bound is None:
        return False
    if job.reseeds is None:
        return True
    return found.shortcuts is not None and found.shortcuts.n == job.reseeds


def _measured(job: TaskToAudit, dataset: Dataset) -> Difficulty:
    """Measure a task as the gates do, over as many re-seeds as the job asks for."""
    task, draft = dataset.task_files(job.task_id), draft_of(dataset, job.task_id)
    if draft is None or draft.problem is None or task.gold is None:
        raise PipelineError(f"task {job.task_id!r} has no constraint IR or no gold run")
    author, seed = ProceduralAuthor(), trial_seed(job.seed, job.task_id)
    found = measured(
        draft.problem,
        draft.tables,
        task.gold,
        draft.public_text,
        lambda i: author.instance(draft, reseed_seed(seed, i)),
        seed=seed,
        n=RESEEDS if job.reseeds is None else job.reseeds,
    )
    tokens = gold_tokens(draft.public_text, draft.tools, task.gold.calls)
    return task.spec.difficulty.model_copy(update={**found._asdict(), "gold_tokens": tokens})
