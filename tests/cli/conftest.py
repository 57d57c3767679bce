from __future__ import annotations

from pathlib import Path

import pytest
from cli_runs import Cli
from tiny_dataset import write_tiny_dataset

from envgen.cli.console import out, talk


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    return write_tiny_dataset(tmp_path / "ds", variant=True).path


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Run commands in this process, in an empty folder, in a terminal's 80 columns."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(out, "_width", 80)
    monkeypatch.setattr(talk, "_width", 80)
    return Cli(capfd)
