"""A run, read by a person: its figures, and one episode turn by turn."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_runs import Cli

from envgen.cli import show_run

pytestmark = pytest.mark.bwrap


@pytest.fixture
def run(cli: Cli, dataset: Path) -> str:
    words = ("--policy", "gold", "--n", 2, "--task", "tiny-pair", "--task", "tiny-count")
    assert cli("rollout", dataset, *words, "--backend", "inline", "--out", "r").code == 0
    return "r"


def test_a_run_is_shown_with_its_figures(cli: Cli, run: str) -> None:
    result = cli("show", run, "--json", "f.json")
    assert result.code == 0, result
    found = json.loads(Path("f.json").read_text())
    assert (found["policy"], found["episodes"], found["passed"], found["errors"]) == (
        "gold",
        4,
        4,
        0,
    )
    assert "tiny-pair" in result.out
    assert "envgen show r TASK --sample N" in result.err


def test_an_episode_is_shown_turn_by_turn(
    cli: Cli, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = cli("show", run, "tiny-p", "--sample", 1)
    assert result.out.startswith("tiny-pair sample 1, policy gold\n")
    parts = ("1. user", "calls list_hotels", "result of list_hotels", "score 1, passed")
    assert [result.out.find(part) for part in parts] == sorted(map(result.out.index, parts))
    monkeypatch.setattr(show_run, "MAX_CHARS", 20)
    assert "more characters; --full shows them]" in cli("show", run, "tiny-pair").out
    assert "more characters" not in cli("show", run, "tiny-pair", "--full").out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("tiny-pear",), "did you mean 'tiny-pair'"),
        (("tiny-pair", "--sample", 7), "its samples are 0..1"),
    ],
)
def test_episodes_that_are_not_there(
    cli: Cli, run: str, words: tuple[object, ...], message: str
) -> None:
    result = cli("show", run, *words)
    assert result.code == 2
    assert message in result.err


def test_what_is_no_run_says_what_to_use(cli: Cli, run: str, dataset: Path) -> None:
    assert "`envgen pass-at-k r` has its rates" in cli("report", run).err
    assert (
        "--sample, --full, --failed and --html are for runs"
        in cli("show", dataset, "--sample", 1).err
    )


def test_episodes_are_written_as_a_page(cli: Cli, run: str) -> None:
    assert cli("show", run, "--html", "all.html").out == "wrote 4 episodes to all.html\n"
    page = Path("all.html").read_text("utf-8")
    assert page.count('<section id="episode-') == 4
    assert page.count("Passed, score 1.") == 4
    assert "Content-Security-Policy" in page
    assert cli("show", run, "tiny-pair", "--html", "p.html").out == "wrote 2 episodes to p.html\n"


def test_what_failed_is_listed_and_shown(cli: Cli, dataset: Path, run: str) -> None:
    assert "no episode that is meant failed in 'r'" in cli("show", run, "--failed").err
    words = ("--policy", "random", "--n", 2, "--task", "tiny-pair", "--backend", "inline")
    assert cli("rollout", dataset, *words, "--out", "w").code == 0
    listed = cli("show", "w", "--failed", "--json", "f.json")
    assert [row["sample"] for row in json.loads(Path("f.json").read_text())] == [0, 1]
    assert "tiny-pair" in listed.out
    assert "not passed" in cli("show", "w", "tiny-pair", "--failed").out
    assert cli("show", "w", "--failed", "--html", "f.html").code == 0
    assert "Failed, score 0." in Path("f.html").read_text("utf-8")
