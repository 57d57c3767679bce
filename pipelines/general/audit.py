"""``envgen audit``: how hard tasks are, and what players achieve that are too simple for a hard one.

Nothing of a dataset is run: its constraint IR is re-seeded and played here (``difficulty``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from statistics import median

from pydantic import Field

from envgen.core.errors import ConfigError
from envgen.core.limits import Count, Label, Real, Whole
from envgen.core.seeding import derive
from envgen.core.types import Record, Shortcuts
from envgen.pipelines.boundary import broken, outcomes
from envgen.pipelines.general.author import ProceduralAuthor, draft_of
from envgen.pipelines.general.difficulty.facts import branch_depth, facts, fewest_calls
from envgen.pipelines.general.difficulty.measure import gold_tokens, shortcuts
from envgen.store.dataset import Dataset

_WORKER = "envgen.pipelines.general.audit:worker"


class AuditConfig(Record):
    """What to measure of which tasks."""

    reseeds: int = Field(default=32, ge=1, le=10_000)
    """Re-seeds of each task that every shortcut plays."""
    tasks: int | None = Field(default=None, ge=1)
    """Tasks of each category and level; None: all."""
    seed: Whole = 0


class TaskAudit(Record):
    """How hard one task is."""

    task_id: Label
    category: Label
    level: int
    gold_calls: Count = 0
    """Tool calls of the gold run."""
    fewest_calls: Count = 0
    """Of gold's distinct calls as many as tell all facts: an upper bound on what is needed."""
    facts: Count = 0
    """Cells such that gold stays right whatever the others hold: an upper bound, too."""
    branch_depth: Count = 0
    density: Real | None = None
    gold_tokens: Count = 0
    """Estimated, of gold's episode without reasoning."""
    shortcuts: Shortcuts | None = None
    """None: it can't be re-seeded, or too few re-seeds hold such a task."""
    error: str = ""


class AuditReport(Record):
    """What was measured, task by task."""

    path: str
    tasks: tuple[TaskAudit, ...]

    def cells(self) -> Iterator[dict[str, object]]:
        """Yield the medians of each category and level, and of the shortcuts the largest pass rates."""
        groups: dict[tuple[str, int], list[TaskAudit]] = {}
        for task in self.tasks:
            if not task.error:
                groups.setdefault((task.category, task.level), []).append(task)
        for (category, level), tasks in sorted(groups.items()):
            played = [task.shortcuts for task in tasks if task.shortcuts is not None]
            yield {
                "category": category,
                "level": level,
                "tasks": len(tasks),
                "calls": median(task.fewest_calls for task in tasks),
                "facts": median(task.facts for task in tasks),
                "depth": median(task.branch_depth for task in tasks),
                "density": median(task.density or 0.0 for task in tasks),
                "tokens": median(task.gold_tokens for task in tasks),
                "first": max((p.first_row for p in played), default=None),
                "greedy": max((p.greedy for p in played), default=None),
                "fit": max((p.first_fit for p in played), default=None),
                "recipe": max((p.recipe for p in played), default=None),
                "ls200": max((p.local_search["200"] for p in played), default=None),
                "ls1000": max((p.local_search["1000"] for p in played), default=None),
            }


class TaskToAudit(Record):
    """One task to measure."""

    dataset: str
    task_id: str
    reseeds: int
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
    for done, (job, outcome) in enumerate(outcomes(_WORKER, measured, jobs, workers, ahead=1), 1):
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
    yield measured


@cache
def _open(path: str, unproven: bool) -> Dataset:
    return Dataset.open(path, unproven=unproven)


def measured(job: TaskToAudit) -> TaskAudit:
    """Measure one task; deterministic in the job."""
    dataset, author = _open(job.dataset, job.unproven), ProceduralAuthor()
    task, draft = dataset.task_files(job.task_id), draft_of(dataset, job.task_id)
    assert draft is not None
    assert draft.problem is not None
    assert task.gold is not None
    problem, tables, gold = draft.problem, draft.tables, task.gold
    needed = facts(problem, tables, gold)
    seed = derive(job.seed, "audit", job.task_id)
    density = task.spec.difficulty.density
    return TaskAudit(
        task_id=job.task_id,
        category=draft.category,
        level=draft.level,
        gold_calls=len(gold.calls),
        fewest_calls=fewest_calls(problem, tables, gold, draft.prompt, needed),
        facts=len(needed),
        branch_depth=branch_depth(problem),
        density=None if density is None else density.value,
        gold_tokens=gold_tokens(draft.prompt, draft.tools, gold.calls),
        shortcuts=shortcuts(lambda i: author.instance(draft, derive(seed, i)), seed, job.reseeds),
    )
