"""What trainers load, without the trainers: TRL's environments, and the packages of all forms."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tiny_dataset import TOOLS_SOURCE, write_tiny_dataset
from transformers.utils.chat_template_utils import get_json_schema

from envgen.core.canonical import compact
from envgen.core.errors import ConfigError, StoreError
from envgen.core.types import ToolSpec
from envgen.integrations.exports import PACKAGES, write_package
from envgen.integrations.sessions import Episodes
from envgen.integrations.settings import EpisodesConfig
from envgen.integrations.trl import OVER, TrlEnvironment, load, method
from envgen.store.dataset import Dataset

HOTELS = ("tiny-cheapest", "tiny-pair", "tiny-book")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_tiny_dataset(tmp_path_factory.mktemp("loaded") / "ds", variant=True)


def tools_of(environment: TrlEnvironment) -> dict[str, Any]:
    """As TRL finds them."""
    members = inspect.getmembers(type(environment), predicate=inspect.isfunction)
    names = [name for name, _ in members if name != "reset" and not name.startswith("_")]
    return {name: getattr(environment, name) for name in names}


def test_gold_passes_through_trl_s_methods(dataset: Dataset) -> None:
    loaded = load(dataset, task_ids=HOTELS, backend="inline")
    for row in loaded.train_dataset:
        environment = loaded.environment_factory[row["environment"]]()
        environment.reset(**{name: value for name, value in row.items() if name != "environment"})
        assert loaded.reward_funcs([environment]) == [0.0]
        tools, gold = tools_of(environment), dataset.task_files(row["task_id"]).gold
        assert gold is not None
        for call in gold.calls:
            tools[call.name](**call.arguments)
        tools["submit_result"](answer_text=compact(gold.answer))
        assert loaded.reward_funcs([environment]) == [1.0]
        assert tools["list_hotels"](city="Suzhou") == OVER


def test_trl_reads_a_tool_as_it_is() -> None:
    properties = {
        "city": {"type": "string", "description": "Where."},
        "kind": {"enum": ["inn", "hotel"], "description": "Which."},
        "price": {"type": "integer", "minimum": 1, "maximum": 9},
        "tags": {"type": "array", "items": {"type": "string"}},
        "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}], "description": "Most."},
    }
    parameters: Any = {
        "type": "object",
        "properties": properties,
        "required": ["city", "kind", "tags"],
    }
    spec = ToolSpec(name="find_hotels", description="Hotels of a city.", parameters=parameters)
    read = get_json_schema(method(spec))["function"]
    assert (read["name"], read["description"]) == ("find_hotels", "Hotels of a city.")
    found = read["parameters"]["properties"]
    assert set(found) == set(properties)
    assert set(read["parameters"]["required"]) == {"city", "kind", "tags"}
    assert (found["city"]["type"], found["kind"]["enum"]) == ("string", ["inn", "hotel"])
    assert found["tags"]["items"]["type"] == "string"
    assert "at least 1, at most 9" in found["price"]["description"]


@pytest.mark.parametrize("name", ["reset", "class"])
def test_a_name_that_trl_can_t_have_is_told(name: str) -> None:
    spec = ToolSpec(name=name, description="x", parameters={"type": "object", "properties": {}})
    with pytest.raises(ConfigError, match="TRL can't have the name"):
        method(spec)


def test_a_broken_environment_has_no_reward(tmp_path: Path) -> None:
    broken = f"{TOOLS_SOURCE}\nraise SystemExit(3)\n"
    dataset = write_tiny_dataset(tmp_path / "ds", tools_source=broken)
    loaded = load(dataset, task_ids=("tiny-pair",), backend="inline")
    (row,) = loaded.train_dataset
    environment = loaded.environment_factory[row["environment"]]()
    environment.reset(task_id=row["task_id"])
    assert "the environment broke" in tools_of(environment)["list_hotels"](city="Suzhou")
    assert loaded.reward_funcs([environment]) == [None]


def test_a_hundred_thousand_episodes_come_of_a_small_dataset(dataset: Dataset) -> None:
    rows = load(dataset, episodes=100_000, families=("general",), task_ids=HOTELS).train_dataset
    assert len(rows) == 100_000
    first = rows[:6]["task_id"]
    assert sorted(first[:3]) == sorted(first[3:]) == sorted(HOTELS)


def test_plain_text_answers_are_refused_where_trl_never_sees_them(
    dataset: Dataset, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="plain text"):
        load(dataset, task_ids=("tiny-count",))
    with pytest.raises(ConfigError, match="plain text"):
        write_package(dataset, tmp_path / "pkg", "trl")
    assert not (tmp_path / "pkg").exists()


def test_filters_are_the_same_for_all_loaders(dataset: Dataset) -> None:
    chosen = Episodes(dataset, EpisodesConfig(variants=False, max_level=1, limit=2, seed=3))
    assert len(chosen) == 2
    assert all(dataset.facts(name).level == 1 for name in chosen.task_ids)
    assert Episodes(dataset, EpisodesConfig()).task_ids == tuple(dataset.tasks)
    assert (
        chosen.task_ids
        == Episodes(dataset, EpisodesConfig(variants=False, max_level=1, limit=2, seed=3)).task_ids
    )


@pytest.mark.parametrize("format", [name for name in PACKAGES if name != "trl"])
def test_a_package_holds_the_dataset_and_code_that_parses(
    dataset: Dataset, tmp_path: Path, format: str
) -> None:
    assert write_package(dataset, tmp_path / "pkg", format) == len(dataset.tasks)
    (held,) = (tmp_path / "pkg").glob("*/dataset")
    assert Dataset.open(held).manifest == dataset.manifest
    for file in (tmp_path / "pkg").rglob("*.py"):
        if held not in file.parents:
            compile(file.read_text("utf-8"), str(file), "exec")
    with pytest.raises(StoreError, match="exists already"):
        write_package(dataset, tmp_path / "pkg", format)


def test_verl_s_rows_name_their_tasks_and_hold_no_answer(dataset: Dataset, tmp_path: Path) -> None:
    write_package(dataset, tmp_path / "pkg", "verl")
    rows = [
        row
        for name in {dataset.facts(task).split for task in dataset.tasks}
        for row in pq.read_table(tmp_path / "pkg" / "data" / f"{name}.parquet").to_pylist()
    ]
    assert {row["extra_info"]["task_id"] for row in rows} == {*dataset.tasks}
    for row in rows:
        assert row["prompt"] == Episodes(dataset).messages(row["extra_info"]["task_id"])
        assert (row["agent_name"], row["reward_model"]["ground_truth"]) == ("envgen", "")
    assert (tmp_path / "pkg" / "data" / "validation.parquet").is_file()
