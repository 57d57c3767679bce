"""list, show, validate, variants and export, on a hand-written dataset."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from cli_runs import Cli

from envgen.cli.console import out
from envgen.cli.show import outline

pytestmark = pytest.mark.bwrap


def test_list_has_a_row_for_each_task(cli: Cli, dataset: Path) -> None:
    result = cli("list", dataset)
    assert result.code == 0
    lines = result.out.splitlines()
    assert lines[0].startswith("tiny: 2 environments, 4 tasks, 1 variant")
    assert [line.split()[0] for line in lines[2:6]] == [
        "tiny-book", "tiny-cheapest", "tiny-count", "tiny-pair",
    ]  # fmt: skip
    assert all(len(line) <= 80 for line in lines)


def test_list_has_category_and_first_words_of_prompts(
    cli: Cli, dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = cli("list", dataset)
    assert re.search(r"^tiny-count +quiz .*  How many hotels…$", result.out, re.M), result.out
    monkeypatch.setattr(out, "_width", 200)
    result = cli("list", dataset)
    assert "  How many hotels are there in Hangzhou? Answer with the…\n" in result.out
    assert all(len(line) <= 200 for line in result.out.splitlines())


def test_list_writes_figures_as_json(cli: Cli, dataset: Path, tmp_path: Path) -> None:
    result = cli("list", dataset, "--json", tmp_path / "new" / "tasks.json")
    assert result.code == 0
    assert "wrote" in result.err
    tasks = json.loads((tmp_path / "new" / "tasks.json").read_text())
    assert {task["id"] for task in tasks} >= {"tiny-book", "tiny-pair"}


def test_show_has_every_part_and_no_secret(cli: Cli, dataset: Path) -> None:
    result = cli("show", dataset, "tiny-pair")
    assert result.code == 0
    for part in ("Prompt", "Policy", "Tools", "Answer", "Rules", "Difficulty", "Evidence"):
        assert f"\n{part}" in result.out
    assert "Together they cost at most 450." in result.out
    assert "book_hotel(hotel, nights)  writes" in result.out
    assert '[{"city": "Hangzhou" | "Suzhou", "hotel": <hotels.name>}] x 2' in result.out
    assert "Lotus Inn" not in result.out
    assert "def verify" not in result.out
    assert all(len(line) <= 80 for line in result.out.splitlines())


def test_show_tells_secrets_when_asked(cli: Cli, dataset: Path, tmp_path: Path) -> None:
    result = cli("show", dataset, "tiny-pair", "--secrets", "--json", tmp_path / "task.json")
    assert "def solve():" in result.out
    assert "def verify(" in result.out
    assert "Lotus Inn" in result.out
    assert json.loads((tmp_path / "task.json").read_text())["id"] == "tiny-pair"


def test_show_takes_the_beginning_of_an_id(cli: Cli, dataset: Path) -> None:
    assert cli("show", dataset, "tiny-p").out.startswith("tiny-pair")


def test_show_without_a_task_takes_the_first_and_says_so(cli: Cli, dataset: Path) -> None:
    cli("list", dataset, "--json", dataset.parent / "list.json")
    first = json.loads((dataset.parent / "list.json").read_text())[0]
    result = cli("show", dataset)
    assert result.out.startswith(first["id"])
    assert "the first of 4 tasks" in result.err


@pytest.mark.parametrize(
    ("task", "near"),
    [
        ("tiny", "did you mean 'tiny-"),
        ("tiny-boook", "did you mean 'tiny-book'"),
        ("zzz", "there are 'tiny-book'"),
    ],
)
def test_show_of_an_unknown_task_names_near_ones(
    cli: Cli, dataset: Path, task: str, near: str
) -> None:
    result = cli("show", dataset, task)
    assert result.code == 2
    assert f"error: no task '{task}'" in result.err
    assert near in result.err
    assert "hint: `envgen list" in result.err


def test_validate_holds(cli: Cli, dataset: Path, tmp_path: Path) -> None:
    result = cli("validate", dataset, "--json", tmp_path / "v.json")
    assert result.code == 0
    assert "all 5 hold" in result.out
    assert json.loads((tmp_path / "v.json").read_text())["variants_checked"] == 1


def test_variants_of_a_dataset_without_blueprints(cli: Cli, dataset: Path) -> None:
    result = cli("variants", dataset, "--per-task", 2, "--out", "v")
    assert result.code == 2
    assert "hint:" in result.err
    assert not Path("v").exists()


@pytest.mark.parametrize("format", ["jsonl", "parquet"])
def test_export_names_its_file_after_the_dataset(cli: Cli, dataset: Path, format: str) -> None:
    result = cli("export", dataset, "--format", format)
    assert result.code == 0
    assert result.out == f"wrote 5 tasks to ds.{format}\n"
    content = Path(f"ds.{format}").read_bytes()
    assert b"def solve" not in content
    assert b"def verify" not in content
    again = cli("export", dataset, "--format", format)
    assert again.code == 2
    assert "exists" in again.err


def test_a_dataset_without_evidence_needs_a_word(cli: Cli, dataset: Path, tmp_path: Path) -> None:
    from tiny_dataset import tiny_environments, tiny_tasks

    from envgen.store.writer import DatasetWriter

    shutil.rmtree(dataset)
    with DatasetWriter(dataset, name="tiny", seed=7) as writer:
        for environment in tiny_environments():
            writer.add_environment(environment)
        for task in tiny_tasks():
            bare = task.spec.model_copy(update={"evidence": ()})
            writer.add_task(task.model_copy(update={"spec": bare}))
        writer.finish()
    refused = cli("list", dataset)
    assert refused.code == 2
    assert "hint:" in refused.err
    assert cli("list", dataset, "--unproven").code == 0


def test_outline_of_schemas() -> None:
    schema = {
        "type": "object",
        "properties": {
            "n": {"type": "integer", "minimum": 1, "maximum": 9},
            "all": {"type": "array", "items": {"type": "string"}, "maxItems": 3},
            "pair": {"prefixItems": [{"const": 1}, {"anyOf": [{"type": "null"}, {}]}], "type": "array"},
        },
    }  # fmt: skip
    assert outline(schema) == '{"n": 1..9, "all": [string, ...] at most 3, "pair": [1, null | any]}'
