"""Tables at any width: whole columns may go, numbers are never cut."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cli_runs import Cli, envgen

from envgen.cli.columns import first_words
from envgen.cli.console import out
from envgen.cli.records import show_rows

HEADS = ("task", "n ", "pass@1 ", "pass@1 95% ", "why", "pass@16 ", "pass@16 95% ")
ROWS = [
    ("trip-0001-abcdef0123", 16, "0.062", "0.001..0.302", "too few of 1234567 rows", "1.000", "-"),
    ("t-2", 65536, "0.500", "0.125..0.872", "an_unbroken_word_of_some_length", "0.872", "0.1..0.9"),
]
NUMBER = re.compile(r"\d+(?:\.\d+)?")


def shown(capsys: pytest.CaptureFixture[str], width: int, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(out, "_width", width)
    show_rows(HEADS, ROWS, "a long title " * 20, ("pass@16 95% ",))
    return capsys.readouterr().out


@pytest.mark.parametrize("width", [20, 40, 60, 80, 100, 200])
def test_no_number_is_cut_at_any_width(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    output = shown(capsys, width, monkeypatch)
    _, _, table = output.partition("\n")
    known = {number for row in ROWS for value in row for number in NUMBER.findall(str(value))}
    known |= {number for head in HEADS for number in NUMBER.findall(head)}
    assert set(NUMBER.findall(table)) <= known
    assert "trip-0001-abcdef0123" in table
    if width >= 40:
        assert all(len(line) <= width for line in table.splitlines()), table


def test_columns_that_are_left_out_are_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(out, "_width", 80)
    show_rows(HEADS, ROWS, spare=("pass@16 95% ",))
    captured = capsys.readouterr()
    assert (
        "left out: pass@16 95%; a wider terminal shows them, --json FILE has them" in captured.err
    )
    assert "0.872" in captured.out
    monkeypatch.setattr(out, "_width", 40)
    show_rows(HEADS, ROWS)
    assert "left out: pass@1 95%, why, pass@16, pass@16 95%;" in capsys.readouterr().err


def test_a_long_policy_name_moves_no_column(
    cli: Cli, dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("rollout", dataset, "--policy", "noisy-gold:0.123456789012345678", "--n", 4, "--out", "r")
    for width in (40, 80):
        monkeypatch.setattr(out, "_width", width)
        result = cli("pass-at-k", "r", "--k", "1,4,16")
        assert "policy noisy-gold:0.123456789012345678\n" in result.out
        assert re.search(r"^over +tasks +solved +episodes", result.out, re.M) or width == 40, (
            result.out
        )
        assert "left out: " in result.err


def test_a_pipe_gets_every_column_whole(dataset: Path, tmp_path: Path) -> None:
    run = tmp_path / "r"
    envgen("rollout", dataset, "--policy", "random-valid", "--n", 4, "--out", run)
    result = envgen("pass-at-k", run, "--k", "1,4,16")
    assert "left out" not in result.err, result.err
    head = next(line for line in result.out.splitlines() if line.startswith("task "))
    assert head.split("  ")[-1].strip() == "pass@16 95%"
    assert all(re.search(r"(\d\.\d{3}\.\.\d\.\d{3}|-)$", line) for line in result.out.splitlines()
               if line.startswith("tiny-"))  # fmt: skip


@pytest.mark.parametrize(
    ("text", "width", "cut"),
    [
        ("plan a trip", 11, "plan a trip"),
        ("plan a trip now", 11, "plan a…"),
        ("plan\n a  trip now", 12, "plan a trip…"),
        ("unbreakable", 5, "unbr…"),
    ],
)
def test_prompts_are_cut_at_a_word(text: str, width: int, cut: str) -> None:
    assert first_words(text, width) == cut
