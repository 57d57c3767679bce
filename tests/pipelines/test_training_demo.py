"""The training demo on a small scale: its stages run, and a cold start that learnt nothing stops it."""

from __future__ import annotations

from pathlib import Path

import pytest

from envgen.core.errors import ConfigError
from envgen.pipelines.demo_records import TrainingDemoConfig
from envgen.pipelines.training_demo import training_demo
from envgen.store.dataset import Dataset
from envgen.train.metrics import read_metrics

pytestmark = pytest.mark.slow

SMALL = TrainingDemoConfig(
    parents=1,
    variants=40,
    taught=24,
    dense_epochs=1,
    index_epochs=1,
    sparse_epochs=1,
    filter_tasks=1,
    filter_samples=2,
    held_out=2,
    seed=3,
)


def test_a_cold_start_whose_calls_are_invalid_stops_the_demo(tmp_path: Path) -> None:
    said: list[str] = []
    with pytest.raises(ConfigError, match="all tool calls are valid: too few"):
        training_demo(SMALL, tmp_path, progress=lambda done, total, text: said.append(text))
    stages = list(dict.fromkeys(text.partition(":")[0] for text in said))
    assert stages == [
        "tasks", "teachers", "cold start", "indexer", "ceiling", "sparse cold start", "pass@100",
        "before",
    ]  # fmt: skip
    for stage in ("dense", "indexer", "ceiling", "sft"):
        assert read_metrics(tmp_path / stage)
    data = Dataset.open(tmp_path / "tasks" / "variants")
    splits = [data.facts(name).split for name in data.tasks]
    assert 0 < splits.count("test") < splits.count("train")
    assert not (tmp_path / "grpo").exists()


def test_a_folder_of_another_configuration_is_refused(tmp_path: Path) -> None:
    (tmp_path / "training_config.json").write_text("{}")
    with pytest.raises(ConfigError, match="another configuration"):
        training_demo(SMALL, tmp_path)
