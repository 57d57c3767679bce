"""What readers who know nothing of envgen make of a dataset folder: the Hub's front matter and Parquet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from store_samples import environment, small_dataset, task
from tiny_dataset import write_tiny_dataset

from envgen.core.types import PublicRule, PublicTask
from envgen.environments.code_tools import CODE_TOOLS, SUBMIT, SUBMIT_SPEC
from envgen.environments.toolbox import Toolbox
from envgen.store.columns import json_field, tool_row
from envgen.store.hub_card import hub_licences
from envgen.store.subset import export
from envgen.store.writer import DatasetWriter


def card(folder: Path) -> tuple[dict[str, object], str]:
    """The front matter and the text of a dataset's card."""
    _, front, text = (folder / "README.md").read_text().split("---\n", 2)
    return yaml.safe_load(front), text


def test_the_front_matter_says_what_the_hub_asks_for(tmp_path: Path) -> None:
    dataset = small_dataset(tmp_path / "ds", variants=3)
    front, text = card(dataset.path)
    assert front == {
        "pretty_name": "sample",
        "license": ["cc0-1.0"],
        "language": ["en"],
        "task_categories": ["reinforcement-learning", "text-generation"],
        "size_categories": ["n<1K"],
        "tags": ["agent", "envgen", "synthetic", "tool-use"],
        "configs": [
            {
                "config_name": "default",
                "data_files": [{"split": "train", "path": "data/train.parquet"}],
            }
        ],
    }
    assert "made up" in text
    assert "Kill rate" in text


def test_the_card_of_code_tasks_says_what_these_are(tmp_path: Path) -> None:
    with DatasetWriter(tmp_path / "code", name="code") as writer:
        created = environment()
        spec = created.spec.model_copy(update={"licence": "GPL-3.0-only", "category": "code"})
        writer.add_environment(created.model_copy(update={"spec": spec}))
        bundle = task()
        spec_of_task = bundle.spec.model_copy(update={"family": "code"})
        writer.add_task(bundle.model_copy(update={"spec": spec_of_task}))
        writer.finish()
    front, text = card(tmp_path / "code")
    assert front["license"] == ["gpl-3.0"]
    assert "code" in front["tags"]  # type: ignore[operator]  # a list
    assert "made up" not in text
    assert "real change of a public repository" in text
    assert "Kill rate" not in text
    assert "No database and no schema" not in text


def test_a_dataset_without_tasks_names_no_files(tmp_path: Path) -> None:
    dataset = DatasetWriter(tmp_path / "ds", name="none").finish()
    front, _ = card(dataset.path)
    assert "configs" not in front
    assert front["license"] == ["unknown"]
    assert not (dataset.path / "data").exists()


@pytest.mark.parametrize(
    ("licences", "named"),
    [
        (["MIT", "Apache-2.0"], ["apache-2.0", "mit"]),
        (["LGPL-2.1-or-later"], ["lgpl-2.1"]),
        (["ODbL-1.0"], ["odbl"]),
        (["unknown"], ["unknown"]),
        (["of my own: ask"], ["other"]),
    ],
)
def test_licences_are_named_as_the_hub_does(licences: list[str], named: list[str]) -> None:
    assert hub_licences(licences) == named


def test_tables_have_nested_columns(tmp_path: Path) -> None:
    dataset = small_dataset(tmp_path / "ds", variants=3)
    export(dataset, tmp_path / "t.parquet", "parquet")
    own = pq.read_table(dataset.path / "data" / "train.parquet")
    exported = pq.read_table(tmp_path / "t.parquet")
    assert own.schema == exported.schema
    assert set(own.schema.names) == set(PublicTask.model_fields)
    rule = own.schema.field("rules").type.value_type
    assert {field.name for field in rule} == set(PublicRule.model_fields)
    assert rule.field("value").metadata == json_field("value").metadata == {b"content": b"JSON"}
    assert own.column("id").to_pylist() == sorted(dataset.own_task_ids)
    assert exported.column("id").to_pylist() == sorted(dataset.tasks)
    for row in exported.to_pylist():
        task = dataset.tasks[row["id"]]
        assert row["prompt"] == task.prompt
        assert row["limits"] == task.limits.model_dump()
        tools: list[Any] = Toolbox(dataset.environments[task.environment_id]).openai()
        assert tools[-1]["function"]["name"] == "submit_result"  # the prompt orders that call
        for given, tool in zip(row["tools"], tools, strict=True):
            function = given["function"]
            parameters = json.loads(function.pop("parameters"))
            assert {**function, "parameters": parameters} == tool["function"]


def test_tables_of_code_tasks_list_the_submit_tool(tmp_path: Path) -> None:
    """As their agents see it: without an argument."""
    with DatasetWriter(tmp_path / "code", name="code") as writer:
        created, bundle = environment(), task()
        changes: dict[str, Any] = {"category": "code", "tools": CODE_TOOLS, "submit_tool": SUBMIT}
        spec = created.spec.model_copy(update=changes)
        writer.add_environment(created.model_copy(update={"spec": spec}))
        of_code = bundle.spec.model_copy(update={"family": "code"})
        writer.add_task(bundle.model_copy(update={"spec": of_code}))
        dataset = writer.finish()
    export(dataset, tmp_path / "t.parquet", "parquet")
    export(dataset, tmp_path / "t.jsonl", "jsonl")
    offered: list[Any] = Toolbox(spec, SUBMIT_SPEC).openai()
    assert offered[-1]["function"]["name"] == SUBMIT
    assert json.loads((tmp_path / "t.jsonl").read_text())["tools"] == offered
    for table in (dataset.path / "data" / "train.parquet", tmp_path / "t.parquet"):
        (row,) = pq.read_table(table).to_pylist()
        assert row["tools"] == [tool_row(tool) for tool in offered]


@pytest.mark.slow
def test_the_datasets_library_reads_folders_and_exports_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    library = pytest.importorskip(
        "datasets", reason="datasets is not installed: pip install datasets"
    )
    dataset = write_tiny_dataset(tmp_path / "ds", variant=True)
    found = library.load_dataset(str(dataset.path), cache_dir=str(tmp_path / "cache"))
    assert found["train"].num_rows == 4
    row = found["train"][0]
    assert row["tools"][0]["function"]["name"]
    assert row["limits"]["turns"] > 0
    export(dataset, tmp_path / "t.parquet", "parquet")
    loaded = library.load_dataset(
        "parquet", data_files=str(tmp_path / "t.parquet"), cache_dir=str(tmp_path / "cache")
    )
    assert loaded["train"].num_rows == 5
    assert loaded["train"][0]["prompt"]
