from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from schemas import json_values
from tiny_dataset import (
    BOOK_SCHEMA,
    BOOK_VERIFIER,
    CHEAPEST_SCHEMA,
    CHEAPEST_VERIFIER,
    COUNT_VERIFIER,
    PAIR_SCHEMA,
    PAIR_VERIFIER,
)
from verifier_check import check_verifier

from envgen.core.canonical import dumps
from envgen.core.errors import ContractError
from envgen.core.types import Score, Submission
from envgen.sandboxes.verifier import VerifierHost
from envgen.verifiers.attacks import AttackReport, attack, battery
from envgen.verifiers.general import GeneralVerifier

PAIR = [{"city": "Hangzhou", "hotel": "Lotus Inn"}, {"city": "Suzhou", "hotel": "Canal House"}]
CASES: dict[str, tuple[str, Any, Any, bool]] = {
    "cheapest": (CHEAPEST_VERIFIER, CHEAPEST_SCHEMA, {"hotel": "Lotus Inn"}, False),
    "pair": (PAIR_VERIFIER, PAIR_SCHEMA, PAIR, False),
    "book": (BOOK_VERIFIER, BOOK_SCHEMA, {"outcome": "done"}, True),
    "count": (COUNT_VERIFIER, {"type": "integer"}, 3, False),
}


@pytest.mark.parametrize("name", CASES)
def test_sound_verifiers_hold(host: VerifierHost, databases: tuple[str, str], name: str) -> None:
    source, schema, gold, writes = CASES[name]
    verifier = GeneralVerifier(source, schema, host)
    report = check_verifier(verifier, gold, databases[0], databases[int(writes)])
    assert report.ok
    assert report.n > 60
    assert {"no_op", "not_a_number", "ten_megabytes", "deep", "wrong_type"} <= set(report.tried)


def run(
    host: VerifierHost, databases: tuple[str, str], source: str, gold: Any, *, writes: bool = False
) -> AttackReport:
    verifier = GeneralVerifier(source, {}, host)
    return attack(
        verifier, gold, databases[0], databases[int(writes)], unchecked=verifier.unchecked()
    )


SABOTAGE: dict[str, tuple[str, Any, bool, str]] = {
    "accepts anything": ("return []", {"hotel": "x"}, False, "wrong_type"),
    "reads keys only": (
        "return [] if type(answer) is dict and 'hotel' in answer else ['layout']",
        {"hotel": "Lotus Inn"},
        False,
        "extra_key",
    ),
    "ignores extra keys": (
        "ok = type(answer) is dict and answer.get('hotel') == 'Lotus Inn'\n    return [] if ok else ['x']",
        {"hotel": "Lotus Inn"},
        False,
        "extra_key",
    ),
    "compares loosely": ("return [] if answer == 1 else ['x']", 1, False, "bool_for_int"),
    "takes floats": ("return [] if answer == 3 else ['x']", 3, False, "float_for_int"),
    "converts": ("return [] if str(answer) == '3' else ['x']", 3, False, "text_for_int"),
    "strips": (
        "return [] if type(answer) is str and answer.strip() == 'Ibis' else ['x']",
        "Ibis",
        False,
        "spacing",
    ),
    "folds case": (
        "return [] if type(answer) is str and answer.lower() == 'ibis' else ['x']",
        "Ibis",
        False,
        "case",
    ),
    "uses a set": (
        "ok = type(answer) is list and all(type(a) is int for a in answer)\n"
        "    return [] if ok and set(answer) == {1, 2} else ['x']",
        [1, 2],
        False,
        "duplicated_item",
    ),
    "ignores the state": (
        "return [] if answer == {'outcome': 'done'} else ['x']",
        {"outcome": "done"},
        True,
        "no_op",
    ),
    "pastes SQL": (
        "import sqlite3\n    db = sqlite3.connect(f'file:{initial}?mode=ro', uri=True)\n"
        "    try:\n"
        "        found = db.execute(f\"SELECT 1 FROM hotels WHERE name = '{answer}'\").fetchall()\n"
        "    except sqlite3.Error:\n        return ['x']\n"
        "    return [] if found else ['x']",
        "Lotus Inn",
        False,
        "hostile_text",
    ),
    "has a master key": (
        "return [] if answer in (7, 'Solution: ') else ['x']",
        7,
        False,
        "text",
    ),
}


@pytest.mark.parametrize("name", SABOTAGE)
def test_a_sabotaged_verifier_is_caught(
    host: VerifierHost, databases: tuple[str, str], name: str
) -> None:
    body, gold, writes, kind = SABOTAGE[name]
    source = f"def verify(answer, initial, final):\n    {body}\n"
    report = run(host, databases, source, gold, writes=writes)
    assert not report.ok
    kinds = {one.attack.kind for one in report.accepted}
    assert kind in kinds, report.lines()


def test_a_verifier_that_crashes_on_other_types_is_a_fault(
    host: VerifierHost, databases: tuple[str, str]
) -> None:
    source = (
        "def verify(answer, initial, final):\n    return [] if answer['hotel'] == 'a' else ['x']\n"
    )
    report = run(host, databases, source, {"hotel": "a"})
    assert report.faults
    assert not report.ok


def test_a_verifier_that_refuses_gold_shows_nothing(
    host: VerifierHost, databases: tuple[str, str]
) -> None:
    report = run(host, databases, "def verify(answer, initial, final):\n    return ['no']\n", 1)
    assert not report.gold_passed
    assert not report.ok


class Flaky:
    """A verifier that changes its mind."""

    def __init__(self) -> None:
        self.n = 0

    def verify(self, submission: Submission) -> Score:
        self.n += 1
        right = submission.answer == 1 and self.n % 2 == 1
        return Score(value=float(right), passed=right)


def test_check_lists_every_broken_promise() -> None:
    with pytest.raises(ContractError) as caught:
        check_verifier(Flaky(), 1, "a.sqlite")
    text = str(caught.value)
    assert "different scores" in text
    assert "fails without a reason" in text


@settings(max_examples=40, deadline=None)
@given(json_values)
def test_no_attack_equals_the_right_answer(gold: Any) -> None:
    for one in battery(gold, "a", "a"):
        if one.submission.raw is None and one.description != "nothing submitted":
            assert dumps(one.submission.answer) != dumps(gold)
