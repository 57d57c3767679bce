"""A level-1 dataset, teachers' rollouts of it and a small model that speaks about it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

import envgen
from envgen.model.config import preset
from envgen.model.modeling import DSAForCausalLM
from envgen.model.tokenizer import dataset_names, dataset_texts, train_tokenizer
from envgen.pipelines.general.generate import GenerateConfig
from envgen.pipelines.general.variants import VariantsConfig
from envgen.policies.encoding import EncodingConfig, save_encoding, tokenizer_config
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
    config = GenerateConfig(environments=1, tasks_per_environment=1, max_level=1, seed=3)
    envgen.generate(config, folder / "parents", workers=1)
    envgen.variants(
        VariantsConfig(per_task=per_task, seed=1), folder / "parents", found.dataset, workers=1
    )
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


def save_model(school: School) -> None:
    """A tiny model with random weights."""
    names = dataset_names(school.dataset)
    settings = tokenizer_config(ENCODING, names, vocab_size=700)
    tokenizer = train_tokenizer(dataset_texts(school.dataset), settings)
    model = DSAForCausalLM(
        preset("tiny", vocab_size=tokenizer.vocab_size, num_hidden_layers=2, index_topk=32)
    )
    model.save_pretrained(school.model)
    tokenizer.save(school.model)
    save_encoding(ENCODING, school.model)
