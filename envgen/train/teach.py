"""Conversations to learn from: the stored rollouts of teachers.

Any run folder will do: ``gold``, ``hasty:0.6`` (a biased expert, who often takes the first row that breaks
no rule), a larger model. What a teacher did is written in the student's own encoding.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from envgen.core.errors import ConfigError
from envgen.core.seeding import derive
from envgen.core.types import Trajectory
from envgen.environments.toolbox import Toolbox
from envgen.policies.base import Tool
from envgen.policies.encoding import Encoding, EncodingError
from envgen.policies.registry import PolicyConfig
from envgen.rollout.run import Progress as RolloutProgress
from envgen.rollout.run import RolloutConfig, rollout
from envgen.store.dataset import Dataset
from envgen.store.runs import RunStore
from envgen.train.sft import TaughtRow, taught_rows

logger = logging.getLogger(__name__)


class TaskTools:
    """The tools of a dataset's tasks in OpenAI's form."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self._known: dict[str, list[Tool]] = {}

    def of(self, task_id: str) -> Sequence[Tool]:
        """The tools that the task's agent may call, the submit tool included."""
        if task_id not in self._dataset.tasks:
            raise ConfigError(
                f"the rollouts are of task {task_id!r}, which the dataset does not hold",
                "give the dataset that was rolled out",
            )
        environment_id = self._dataset.facts(task_id).environment_id
        if environment_id not in self._known:
            spec = self._dataset.environment_files(environment_id).spec
            self._known[environment_id] = list(Toolbox(spec).openai())
        return self._known[environment_id]


def play_teachers(
    dataset: Dataset,
    specs: Sequence[str],
    folder: Path,
    seed: int = 0,
    progress: Callable[[int, int, str], None] | None = None,
    *,
    episodes: int = 1,
) -> list[Path]:
    """Play every task with each teacher, variants included; what is played already stays.

    Returns:
        The run folders, in order.
    """
    runs = []
    for spec in specs:
        out = teacher_folder(folder, spec)
        config = RolloutConfig(
            dataset=str(dataset.path),
            policy=PolicyConfig(spec=spec),
            out=str(out),
            n=episodes,
            seed=derive(seed, "teacher", spec),
            variants=True,
        )

        def told(now: RolloutProgress, spec: str = spec) -> None:
            if progress:
                progress(now.done, now.total, f"{spec} plays")

        rollout(config, progress=told)
        runs.append(out)
    return runs


def teacher_folder(folder: Path, spec: str) -> Path:
    """Where a teacher's run is."""
    return folder / re.sub(r"[^\w.-]+", "_", spec)


def teacher_rows(
    runs: Sequence[str | Path],
    dataset: Dataset,
    encoding: Encoding,
    *,
    split: str | None = None,
    passed_only: bool = False,
    max_tokens: int | None = None,
    weights: Sequence[float] = (),
) -> list[TaughtRow]:
    """The rows of all conversations of some runs, in order.

    Args:
        runs: run folders of ``envgen rollout`` on ``dataset``.
        dataset: for the tools.
        encoding: the student's.
        split: of the tasks to learn from; None: all.
        passed_only: leave rollouts out that did not pass.
        max_tokens: leave longer rows out.
        weights: what a token of each run counts; empty: 1.

    Raises:
        ConfigError: if nothing is left to learn from.
    """
    tools = TaskTools(dataset)
    rows: list[TaughtRow] = []
    unwritable = too_long = 0
    for weight, trajectory in _trajectories(runs, weights or [1.0] * len(runs)):
        if split is not None and dataset.facts(trajectory.task_id).split != split:
            continue
        if trajectory.error is not None or (passed_only and not _passed(trajectory)):
            continue
        try:
            task = trajectory.task_id
            found = taught_rows(encoding, trajectory.messages, tools.of(task), task)
        except EncodingError as error:
            unwritable += 1
            logger.debug("task %s sample %d: %s", trajectory.task_id, trajectory.sample, error)
            continue
        kept = [row for row in found if max_tokens is None or len(row.ids) <= max_tokens]
        too_long += len(found) - len(kept)
        rows += kept if weight == 1 else [_weighted(row, weight) for row in kept]
    if unwritable or too_long:
        logger.warning(
            "left out: %d rollouts that the encoding can't express, %d rows that are too long",
            unwritable,
            too_long,
        )
    if not rows:
        raise ConfigError(
            "the teachers' rollouts leave nothing to learn from",
            "look at `envgen pass-at-k` of the runs; drop --passed-only; raise the model's window",
        )
    return rows


def _trajectories(
    runs: Sequence[str | Path], weights: Sequence[float]
) -> Iterator[tuple[float, Trajectory]]:
    for folder, weight in zip(runs, weights, strict=True):
        with RunStore.read(folder) as run:
            yield from ((weight, trajectory) for trajectory in run.trajectories())


def _weighted(row: TaughtRow, weight: float) -> TaughtRow:
    return replace(row, weights=np.full(len(row.places), weight, np.float32))


def _passed(trajectory: Trajectory) -> bool:
    return trajectory.score is not None and trajectory.score.passed
