"""Held-out evaluation during GRPO: every few steps, play tasks that are never trained on."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from envgen.core.errors import ConfigError
from envgen.core.seeding import derive
from envgen.environments.families import check_backend
from envgen.environments.hosts import open_dataset
from envgen.store.dataset import Dataset
from envgen.train.config import HeldOutConfig
from envgen.train.parallel import Ranks
from envgen.train.rollouts import Sampler


class HeldOut(NamedTuple):
    """The held-out tasks of a run: the same tasks and seeds at every evaluation."""

    config: HeldOutConfig
    dataset: Dataset
    task_ids: tuple[str, ...]
    seed: int

    def due(self, step: int, steps: int) -> bool:
        """Return whether an evaluation is due after step ``step`` of ``steps``."""
        every = self.config.every
        return every is not None and (step % every == 0 or step == steps)

    def judge(self, sampler: Sampler, ranks: Ranks) -> dict[str, float]:
        """Play the tasks with the engine's weights; return ``eval/...`` figures over all processes."""
        began = time.monotonic()
        mine = range(ranks.rank, len(self.task_ids), ranks.size)
        played = sampler.play(
            self.dataset,
            [self.task_ids[i] for i in mine],
            [derive(self.seed, i) for i in mine],
            self.config.temperature,
        )
        verdicts = [
            None if one.error is not None or one.score is None else one.score.passed
            for one in played
        ]
        passed = [one for some in ranks.gather(verdicts) for one in some]
        valid = [one for one in passed if one is not None]
        found = {"eval/errored": 1 - len(valid) / len(passed)}
        if valid:
            found["eval/pass_rate"] = sum(valid) / len(valid)
        return {**found, "eval/tasks": len(passed), "time/eval_s": time.monotonic() - began}


def held_out(
    config: HeldOutConfig, trained: Dataset, chosen: Sequence[str], sampler: Sampler, seed: int
) -> HeldOut:
    """Choose the held-out tasks of a run.

    Args:
        config: which tasks, and when.
        trained: the dataset that is trained on.
        chosen: the tasks that are trained on.
        sampler: the one that will play them.
        seed: of the run.

    Raises:
        ConfigError: if there are none, or a training task is one of them or shares its database.
    """
    if config.every is None:
        return HeldOut(config, trained, (), seed)
    dataset = trained
    if config.data is not None:
        dataset = open_dataset(config.data, trust=trained.trusted)
    names = [n for n in dataset.tasks if config.split in (None, dataset.facts(n).split)]
    if not names:
        raise ConfigError(
            f"{str(dataset.path)!r} has no task in split {config.split!r} to evaluate on",
            "name another with eval.split or eval.data, or leave eval.every out",
        )
    own = {trained.database_hash(name): name for name in chosen}
    own.pop("", None)
    ids = set(chosen)
    for name in names:
        twin = name if name in ids else own.get(dataset.database_hash(name))
        if twin is not None:
            raise ConfigError(
                f"held-out task {name!r} is trained on"
                + (f", as {twin!r}" if twin != name else ""),
                "evaluate on another split or dataset: eval.split, eval.data",
            )
    names.sort(key=lambda name: derive(seed, "held out", name))
    check_backend(dataset, names, sampler.config.backend)
    return HeldOut(config, dataset, tuple(names[: config.tasks]), derive(seed, "held out"))
