"""Problems drawn from makers, evenly over makers and levels, and kept if every gate holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from envgen.core.errors import ConfigError
from envgen.core.seeding import rng
from envgen.pipelines.assemble import AssembleSummary, TaskDraft, assemble
from envgen.pipelines.interpreter.config import InterpreterConfig
from envgen.pipelines.interpreter.makers.registry import makers_of
from envgen.pipelines.interpreter.tasks import InterpreterProblem, task_of
from envgen.pipelines.search.config import bounds
from envgen.sandboxes.zygote import WorkerBackend

_SPARE = 1.1
"""Problems drawn for each one that is asked for; gates refuse some."""
_GIVE_UP = 50
"""Draws in a row that give nothing new, after which the makers have no more."""


def generate_interpreter(
    config: InterpreterConfig,
    out: str | Path,
    *,
    workers: int | None = None,
    backend: WorkerBackend = "auto",
    progress: Callable[[int, int, str], None] | None = None,
) -> AssembleSummary:
    """Generate a dataset of code-interpreter problems at ``out``.

    Args:
        config: which problems.
        out: the dataset folder; it must not exist.
        workers: processes that prove; default: one per core. The bytes don't depend on it.
        backend: of the kernels in which gold is played.
        progress: called after each problem.

    Raises:
        ConfigError: if ``out`` exists.
        ResumeError: if ``OUT.partial`` holds another configuration's work.
    """
    if Path(out).exists():
        raise ConfigError(f"{str(out)!r} exists", "choose another --out, or remove it")
    return assemble(
        config, out, list(drafts(config)), name="interpreter", seed=config.seed,
        most=config.problems, workers=workers, backend=backend, progress=progress,
    )  # fmt: skip


def drafts(config: InterpreterConfig) -> Iterator[TaskDraft]:
    """Problems of a config that differ in their words, not proven yet: a tenth more than it asks for."""
    makers, levels = makers_of(config.kind.split(",")), bounds(config.level)
    seen: set[str] = set()
    number = fruitless = 0
    while len(seen) < round(config.problems * _SPARE) + 1 and fruitless < _GIVE_UP:
        maker = makers[number % len(makers)]
        level = levels[(number + number // len(makers)) % len(levels)]
        params = maker.draw(rng(config.seed, "problem", number), level)
        number += 1
        draft = task_of(InterpreterProblem(maker=maker.name, level=level, params=dict(params)))
        fruitless = fruitless + 1 if draft.task.spec.prompt in seen else 0
        if not fruitless:
            seen.add(draft.task.spec.prompt)
            yield draft
