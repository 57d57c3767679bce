"""Every example runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from cli_runs import ROOT, environment
from tiny_dataset import write_tiny_dataset


def run(name: str, *arguments: object) -> str:
    result = subprocess.run(
        [sys.executable, "-P", str(ROOT / "examples" / name), *map(str, arguments)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_step_by_hand(tmp_path: Path) -> None:
    dataset = write_tiny_dataset(tmp_path / "ds")
    said = run("step_by_hand.py", dataset.path, "tiny-pair")
    assert "no_such_tool" in said
    assert "reward 0.0, terminated True" in said


@pytest.mark.slow
def test_filter_by_pass_at_k(tmp_path: Path) -> None:
    said = run("filter_by_pass_at_k.py", tmp_path)
    assert "proven tasks" in said
    assert "kept: " in said


def test_every_example_is_run() -> None:
    here = Path(__file__).read_text()
    for example in (ROOT / "examples").glob("*.py"):
        assert f'"{example.name}"' in here
