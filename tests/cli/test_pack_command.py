"""``envgen pack`` by command: in the sandbox, and what comes of it in other commands."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from cli_runs import ROOT, Cli

READS = "most-overdue"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The example with one task."""
    copy = Path(shutil.copytree(ROOT / "examples" / "library_loans", tmp_path / "library_loans"))
    shutil.rmtree(copy / "tasks" / "lend-frankenstein")
    return copy


@pytest.mark.bwrap
def test_by_command(cli: Cli, folder: Path, tmp_path: Path) -> None:
    """In the sandbox, where packed code runs unless the user says otherwise: it can't mark the host."""
    mark = tmp_path / "mark"
    with (folder / "tools.py").open("a") as file:
        file.write(f"\n\ntry:\n    open({str(mark)!r}, 'w')\nexcept OSError:\n    pass\n")
    done = cli("pack", folder, "--out", tmp_path / "ds", "--json", tmp_path / "pack.json")
    assert done.code == 0, done.err
    assert "proven" in done.out
    assert "no constraint IR" in done.out
    assert json.loads((tmp_path / "pack.json").read_text())["written"] is True
    assert cli("list", tmp_path / "ds").code == 0
    assert cli("show", tmp_path / "ds", READS).code == 0
    assert cli("export", tmp_path / "ds", "--out", tmp_path / "x.jsonl").code == 0
    refused = cli("validate", tmp_path / "ds", "--backend", "inline")
    assert refused.code == 2
    assert "--trust" in refused.err
    assert not mark.exists()
    again = cli("pack", folder, "--out", tmp_path / "ds")
    assert "unchanged" in again.out


@pytest.mark.bwrap
def test_mistakes_are_told_with_what_to_do(cli: Cli, folder: Path, tmp_path: Path) -> None:
    (folder / "tasks" / READS / "verifier.py").write_text(
        "def verify(answer, initial, final):\n    return []\n"
    )
    failed = cli("pack", folder, "--out", tmp_path / "ds", "--backend", "inline", "--trust")
    assert failed.code == 1
    assert "empty" in failed.out
    assert "nothing was written" in failed.out
    assert "return the name of the broken rule" in failed.err
    assert not (tmp_path / "ds").exists()
    (folder / "database.sql").unlink()
    missing = cli("pack", folder, "--out", tmp_path / "ds")
    assert missing.code == 2
    assert "no database" in missing.err
    assert "hint:" in missing.err
