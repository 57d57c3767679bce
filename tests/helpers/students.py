"""A level-1 dataset, teachers' rollouts of it and a small model that speaks about it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from shutil import rmtree
from typing import NamedTuple

import envgen
from envgen.environments.hosts import open_dataset
from envgen.pipelines.general.generate import GenerateConfig
from envgen.pipelines.general.variants import VariantsConfig
from envgen.policies.encoding import EncodingConfig
from envgen.policies.new_model import NewModelConfig, new_model
from envgen.policies.registry import PolicyConfig
from envgen.rollout.run import RolloutConfig, rollout

ENCODING = EncodingConfig(kind="compact", tools="names", results="table", system=False)


class School(NamedTuple):
    """Where things are."""

    dataset: Path
    gold: Path
    greedy: Path
    model: Path


@cache
def school(folder: Path, per_task: int = 9) -> School:
    """Made once a folder; takes some seconds."""
    found = School(folder / "ds", folder / "gold", folder / "greedy", folder / "model")
    config = GenerateConfig(
        categories=("room_lookup",),
        environments=1,
        tasks_per_environment=1,
        max_level=1,
        seed=11,
    )
    envgen.generate(config, folder / "parents", workers=1)
    _write_variants(folder / "parents", found.dataset, per_task)
    for spec, out in (("gold", found.gold), ("greedy", found.greedy)):
        rollout(
            RolloutConfig(
                dataset=str(found.dataset),
                policy=PolicyConfig(spec=spec),
                out=str(out),
                variants=True,
            )
        )
    save_model(found)
    return found


def _write_variants(parents: Path, out: Path, per_task: int) -> None:
    """Variants that all fall into split ``train`` if they are few, so that others are empty.

    The split of a variant is drawn from its database, which changes with every change of a domain.
    """
    for seed in range(1, 100):
        envgen.variants(VariantsConfig(per_task=per_task, seed=seed), parents, out, workers=1)
        splits = {task.split for _, task in open_dataset(out).tasks.items()}
        if splits == {"train"} or per_task > 9:
            return
        rmtree(out)
    raise AssertionError("no 9 variants of 99 seeds are all in split 'train'")


def save_model(school: School) -> None:
    """A tiny model with random weights."""
    config = NewModelConfig(
        preset="tiny",
        model={
            "num_hidden_layers": 2,
            "index_topk": 96,
            "tie_word_embeddings": True,
            "initializer_range": 0.06,
        },
        encoding=ENCODING.model_dump(include={"kind", "tools", "results", "system"}),
        vocab_size=700,
        entity_tokens=100,
    )
    new_model(config, school.dataset, school.model)
