"""Evaluate what ``envgen rollout`` stored: run folders, each with the dataset that it was made on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from envgen.core.errors import ConfigError, ResumeError
from envgen.core.types import Record, Trajectory
from envgen.environments.hosts import open_dataset
from envgen.store.runs import RunStore
from envgen.train.evaluate import (
    Comparison,
    Evaluation,
    EvaluationConfig,
    TaskFacts,
    compare,
    evaluate,
    task_facts,
)


class PlayedRun(Record):
    """Rollouts of one policy on one dataset."""

    run: str
    """The run folder."""
    dataset: str
    unproven: bool = False
    """Accept tasks without evidence."""
    db_url: str | None = None
    """Where the run's records are; None: in its folder."""


class _Read(NamedTuple):
    trajectories: list[Trajectory]
    facts: dict[str, TaskFacts]


def evaluate_runs(runs: Sequence[PlayedRun], config: EvaluationConfig | None = None) -> Evaluation:
    """One policy's figures over all its runs, such as one on held-out tasks and one on canaries.

    Raises:
        ConfigError: as ``evaluate``; also if two datasets have different tasks of one name.
        ResumeError: if a run was made on another dataset than the one named.
        StoreError: if there is no run.
    """
    read = _read(runs)
    return evaluate(read.trajectories, read.facts, config)


def compare_runs(
    before: Sequence[PlayedRun],
    after: Sequence[PlayedRun],
    config: EvaluationConfig | None = None,
) -> Comparison:
    """Two policies on the same tasks.

    Raises:
        ConfigError: as ``compare``; also if two datasets have different tasks of one name.
        ResumeError: if a run was made on another dataset than the one named.
        StoreError: if there is no run.
    """
    old, new = _read(before), _read(after)
    return compare(old.trajectories, new.trajectories, _merged(old.facts, new.facts), config)


def _read(runs: Sequence[PlayedRun]) -> _Read:
    trajectories: list[Trajectory] = []
    facts: dict[str, TaskFacts] = {}
    for played in runs:
        dataset = open_dataset(played.dataset, unproven=played.unproven)
        with RunStore.read(played.run, db_url=played.db_url) as store:
            if store.dataset_hash != dataset.manifest.content_hash:
                raise ResumeError(
                    f"the rollouts in {played.run!r} were made on another dataset than "
                    f"{played.dataset!r}",
                    "name the dataset that was rolled out",
                )
            found = list(store.trajectories())
        own = task_facts(dataset, sorted({one.task_id for one in found}))
        facts = _merged(facts, own)
        trajectories += found
    return _Read(trajectories, facts)


def _merged(first: dict[str, TaskFacts], second: dict[str, TaskFacts]) -> dict[str, TaskFacts]:
    for task_id in first.keys() & second.keys():
        if first[task_id] != second[task_id]:
            raise ConfigError(
                f"two datasets have different tasks named {task_id!r}", "evaluate them apart"
            )
    return {**first, **second}
