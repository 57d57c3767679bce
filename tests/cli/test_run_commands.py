"""rollout, pass-at-k and filter, one after another as a user types them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from cli_runs import Cli

pytestmark = pytest.mark.bwrap


def test_roll_out_estimate_and_filter(cli: Cli, dataset: Path) -> None:
    result = cli(
        "rollout", dataset, "--policy", "random-valid", "--n", 12, "--seed", 3, "--max-cost", 5,
        "--task", "tiny-cheapest", "--task", "tiny-pair", "--out", "runs/x", "--json", "x.json",
    )  # fmt: skip
    assert result.code == 0, result.err
    assert re.search(r"^samples +24\nwanted +24$", result.out, re.MULTILINE)
    summary = json.loads(Path("x.json").read_text())
    assert summary["passed"] > 0

    result = cli("pass-at-k", "runs/x", "--k", "1,10,100", "--json", "p.json")
    assert result.code == 0
    assert "tiny-cheapest" in result.out
    assert all(len(line) <= 80 for line in result.out.splitlines())
    report = json.loads(Path("p.json").read_text())
    assert report["total"]["samples"] == 24
    assert report["tasks"][0]["values"]["100"] is None
    short = cli("pass-at-k", "runs/x", "--no-tasks")
    assert "tiny-cheapest" not in short.out
    assert "level 1" in short.out

    result = cli(
        "filter", dataset, "--rollouts", "runs/x", "--pass-at", 10, "--min", 0, "--exclusive",
        "--max-pass-at-1", 0.95, "--out", "kept", "--json", "f.json",
    )  # fmt: skip
    assert result.code == 0, result.err
    assert " of 4 tasks kept" in result.out
    assert "random-valid" not in cli("list", "kept").out  # flattering rates are no evidence
    assert (
        cli("filter", dataset, "--rollouts", "runs/x", "--pass-at", 10, "--out", "kept").code == 2
    )


def test_the_same_rollout_again_adds_nothing(cli: Cli, dataset: Path) -> None:
    words = ("rollout", dataset, "--policy", "gold", "--n", 2, "--out", "runs/gold", "--json", "g")
    assert cli(*words).code == 0
    first = json.loads(Path("g").read_text())
    assert first["passed"] == 8
    assert cli(*words).code == 0
    again = json.loads(Path("g").read_text())
    assert again["new"] == 0
    for name in ("mean_calls", "reached_verifier", "stops"):  # those of the run, not of no episode
        assert again[name] == first[name]
        assert again[name]


def test_another_rollout_into_the_same_folder_is_refused(cli: Cli, dataset: Path) -> None:
    assert cli("rollout", dataset, "--policy", "gold", "--out", "runs/a").code == 0
    result = cli("rollout", dataset, "--policy", "random", "--out", "runs/a")
    assert result.code == 2
    assert "hint:" in result.err


def test_errored_episodes_are_told_and_retried(cli: Cli, dataset: Path) -> None:
    words = ("rollout", dataset, "--policy", "random-valid", "--task", "tiny-count", "--out", "r")
    result = cli(*words)
    assert result.code == 1
    assert "1 x PolicyError" in result.out
    assert "error: 0 of 1 episodes played\nhint: --retry-errors" in result.err
    assert "new" in cli(*words, "--retry-errors", "--json", "r.json").out
    assert json.loads(Path("r.json").read_text())["new"] == 1


def test_variants_are_played_on_request(cli: Cli, dataset: Path) -> None:
    words = ("rollout", dataset, "--policy", "gold", "--variants", "--out", "r", "--json", "r.json")
    assert cli(*words).code == 0
    assert json.loads(Path("r.json").read_text())["tasks"] == 5


@pytest.mark.parametrize("text", ["", "0", "1,,2", "a", "-1"])
def test_bad_lists_of_k(cli: Cli, text: str) -> None:
    result = cli("pass-at-k", "runs/x", "--k", text)
    assert result.code == 2
    assert "--k: Input should be" in result.err
