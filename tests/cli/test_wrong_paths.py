"""Wrong folders and missing parts: told at once, in one error, and nothing is lost."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from cli_runs import Cli, CommandResult


def refused(result: CommandResult, *words: str) -> None:
    """One clear error, with all of these words."""
    assert result.code == 2, result
    assert "Traceback" not in result.err
    assert result.err.count("error: ") == 1
    assert "hint: " in result.err
    for word in words:
        assert word in result.err, result


def test_canaries_tell_of_a_taken_folder_before_the_work(
    cli: Cli, dataset: Path, tmp_path: Path
) -> None:
    taken = tmp_path / "taken"
    taken.write_text("keep")
    refused(cli("canaries", dataset, "--out", taken), "exists", "choose another")
    assert taken.read_text() == "keep"


@pytest.mark.parametrize("mark", ["dataset.json", "run.json"])
@pytest.mark.parametrize(
    "command", [("eval", "--split", "all"), ("train", "sft"), ("train", "grpo")]
)
def test_runs_are_not_written_into_other_folders(
    cli: Cli, dataset: Path, tmp_path: Path, command: tuple[str, ...], mark: str
) -> None:
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / mark).write_text("keep")
    result = cli(*command, dataset, "--model", "gold", "--out", taken)
    refused(result, "taken", "choose another --out")
    assert [path.name for path in taken.iterdir()] == [mark]
    result = cli(*command, dataset, "--model", "gold", "--out", taken / mark)
    refused(result, "is a file")


def test_a_mistyped_policy_does_not_take_the_folder(
    cli: Cli, dataset: Path, tmp_path: Path
) -> None:
    for policy in ("golld", "gold"):
        result = cli(
            "eval", "--split", "all", dataset, "--model", policy, "--out", tmp_path / "e",
            "--temperature", "0",
        )  # fmt: skip
        if policy == "golld":
            refused(result, "unknown policy 'golld'")
    assert result.code == 0, result


def test_a_temperature_below_zero_is_told_in_a_line(
    cli: Cli, dataset: Path, tmp_path: Path
) -> None:
    result = cli("eval", dataset, "--model", "gold", "--out", "e", "--temperature", "-1")
    refused(result, "at least 0, not -1.0")
    assert "max_tasks" not in result.err


@pytest.mark.parametrize("device", ["cuda:99", "tpux"])
def test_an_absent_device_is_told_before_the_teachers_play(
    cli: Cli, dataset: Path, tmp_path: Path, device: str
) -> None:
    result = cli("train", "sft", dataset, "--model", "m", "--out", "s", "--device", device)
    refused(result, f"device {device!r} is not available", "--device cpu")
    assert not Path("s").exists()


def test_quickstart_with_training_needs_the_extra_at_once(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    refused(cli("quickstart", "--train", "--out", "q"), "training needs torch", "envgen-gym[train]")
    assert not Path("q").exists()


def test_reports_that_cannot_be_written(cli: Cli, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "metrics.jsonl").write_text(
        '{"step": 1, "seconds": 1.0, "sft/loss": 1, "sft/tokens": 2}\n'
    )
    refused(cli("report", run, "--out", tmp_path), "can't write the page", "another file")
    refused(cli("report", run / "metrics.jsonl"), "can't read", "Not a directory", "envgen train")


def test_missing_files_of_code_and_images(cli: Cli) -> None:
    refused(cli("generate", "code", "--repos", "none", "--out", "c"), "'none' can't be read")
    refused(
        cli("images", "bootstrap", "python", "--sources", "none"),
        "no such file or folder: 'none'",
        "--sources",
    )
    refused(
        cli("images", "bootstrap", "python", "--copy", "none"),
        "no such file or folder: 'none'",
        "--copy",
    )
    refused(cli("images", "clean", "--older-than", "-1", "--dry-run"), "--older-than")
