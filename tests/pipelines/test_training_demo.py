"""The training demo: what it asks, its stages on a small scale, and a cold start that learnt nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from envgen.core.errors import ConfigError
from envgen.pipelines.demo_records import TrainingDemoConfig
from envgen.pipelines.general.author import ProceduralAuthor
from envgen.pipelines.general.draft import Draft, DraftRequest
from envgen.pipelines.general.generate import GenerateConfig, generate
from envgen.pipelines.training_demo import require_one_question, training_demo
from envgen.store.dataset import Dataset
from envgen.train.metrics import read_metrics

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


@pytest.mark.parametrize("seed", range(20))
def test_the_demos_page_asks_one_question_over_few_rows(seed: int) -> None:
    draft = ProceduralAuthor().draft(DraftRequest(domain="rooms", level=1), seed)
    assert isinstance(draft, Draft)
    assert "Which room has the highest" in draft.prompt
    assert 2 <= len(draft.tables["rooms"]) <= 4
    assert [tool.name for tool in draft.tools] == ["list_rooms"]


def test_tasks_that_ask_several_questions_are_refused(tmp_path: Path) -> None:
    config = GenerateConfig(
        categories=("meeting_scheduling",), environments=3, tasks_per_environment=2, max_level=1
    )
    generate(config, tmp_path / "ds", workers=1, backend="inline")
    with pytest.raises(ConfigError, match="kinds of question"):
        require_one_question(Dataset.open(tmp_path / "ds"))


@pytest.mark.slow
def test_a_cold_start_whose_calls_are_invalid_stops_the_demo(tmp_path: Path) -> None:
    lines: list[str] = []
    with pytest.raises(ConfigError, match="all tool calls are valid: too few"):
        training_demo(SMALL, tmp_path, progress=lambda done, total, text: lines.append(text))
    stages = list(dict.fromkeys(text.partition(":")[0] for text in lines))
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
