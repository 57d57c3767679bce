"""report and the live table of train grpo."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_runs import Cli

from envgen.cli.train import step_rows
from envgen.train.metrics import Metrics


def test_report_of_a_run(cli: Cli, tmp_path: Path) -> None:
    with Metrics(tmp_path / "run") as metrics:
        metrics.write(1, {"sft/loss": 0.5, "sft/tokens": 10.0})
    result = cli("report", tmp_path / "run", "--json", tmp_path / "report.json")
    assert result.code == 0, result
    assert "<svg" in (tmp_path / "run" / "report.html").read_text()
    assert json.loads((tmp_path / "report.json").read_text())["counts"]["steps"] == 1
    result = cli("report", tmp_path / "none")
    assert result.code == 2
    assert "can't read" in result.err


def test_rows_come_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    now = 0.0
    show = step_rows(40, 1.0, lambda: now)
    for step in range(1, 41):
        now = step / 10
        show(step, {"reward/total": 0.25, "policy/kl": None})
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].split()[:3] == ["step", "reward", "passed"]
    assert [int(line.split()[0]) for line in lines[1:]] == [1, 11, 21, 31, 40]
    assert lines[1].split()[1:4] == ["0.25", "-", "-"]
    assert len({len(line) for line in lines}) == 1
