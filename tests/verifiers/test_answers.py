"""Short answers: no false equals, whatever common normalisers take for one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from envgen.verifiers.answers import ShortAnswer, accepts, read

PAIRS = Path(__file__).parents[1] / "data" / "answer_pairs.jsonl"
"""Written by hand: gold, what was given, and whether that is the same answer."""


def test_pairs_are_equal_where_a_reader_says_so_and_nowhere_else() -> None:
    rows: list[dict[str, Any]] = [json.loads(line) for line in PAIRS.read_text().splitlines()]
    wrong = []
    for row in rows:
        answer = ShortAnswer(kind=row["kind"], values=row["gold"], unit=row.get("unit", ""))
        if accepts(answer, read(row["given"])) != row["equal"]:
            wrong.append(row)
    assert not wrong
    assert sum(not row["equal"] for row in rows) > 100


@pytest.mark.parametrize(
    "given", ["x" * 1_000_000, "[" * 100_000, '"' + "\\u0000" * 9, "\ud800", "9" * 10_000]
)
def test_hostile_answers_are_wrong_and_quick(given: str) -> None:
    for kind in ("text", "number", "year", "date", "set"):
        assert not accepts(ShortAnswer.model_validate({"kind": kind, "values": [7]}), read(given))
