from __future__ import annotations

import json
from typing import Any

import pytest
from tiny_dataset import BOOK_SCHEMA, BOOK_VERIFIER, CHEAPEST_SCHEMA, CHEAPEST_VERIFIER

from envgen.core.errors import VerifierError
from envgen.core.types import Schema, Submission
from envgen.sandboxes.verifier import VerifierHost
from envgen.verifiers.base import BatchVerifier, Verifier
from envgen.verifiers.general import GeneralVerifier


def cheapest(host: VerifierHost) -> GeneralVerifier:
    return GeneralVerifier(CHEAPEST_VERIFIER, CHEAPEST_SCHEMA, host)


def test_it_is_a_verifier(host: VerifierHost) -> None:
    assert isinstance(cheapest(host), Verifier)
    assert isinstance(cheapest(host), BatchVerifier)


@pytest.mark.parametrize(
    ("raw", "reasons"),
    [
        ('{"hotel": "Lotus Inn"}', ()),
        ('{"hotel": "West Lake"}', ("cheapest",)),
        ('{"hotel": "Garden Court"}', ("city",)),
        ('{"hotel": "Lotus Inn"', ("malformed: the answer is not valid JSON: ",)),
        ('{"hotel": 1}', ("schema: hotel: must be string, not integer",)),
        ('{"hotel": "Lotus Inn", "x": 1}', ("schema: 'x' is unknown (allowed: 'hotel')",)),
    ],
)
def test_score_and_reasons(
    host: VerifierHost, submission: Submission, raw: str, reasons: tuple[str, ...]
) -> None:
    score = cheapest(host).verify(submission.model_copy(update={"raw": raw}))
    assert score.passed == (not reasons)
    assert score.value == float(not reasons)
    for found, expected in zip(score.reasons, reasons, strict=True):
        assert found.startswith(expected)


@pytest.mark.parametrize(
    ("raw", "passed"),
    [
        ("3", True),
        ("3.0", True),
        ("```json\n3\n```", True),
        ("3.5", False),
        ("```json\n3\n```\n3", False),
        ('"3"', False),
    ],
)
def test_what_is_3_in_json_is_3(
    host: VerifierHost, submission: Submission, raw: str, passed: bool
) -> None:
    source = (
        "def verify(answer, initial, final):\n"
        "    return [] if type(answer) is int and answer == 3 else ['x']\n"
    )
    verifier = GeneralVerifier(source, {"type": "integer"}, host)
    assert verifier.verify(submission.model_copy(update={"raw": raw})).passed is passed


def test_an_item_in_two_spellings_is_there_twice(
    host: VerifierHost, submission: Submission
) -> None:
    schema: Schema = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}
    verifier = GeneralVerifier("def verify(answer, initial, final):\n    return []\n", schema, host)
    score = verifier.verify(submission.model_copy(update={"raw": "[3, 3.0]"}))
    assert score.reasons == ("schema: has the same item twice",)


def test_nothing_submitted_is_a_score(host: VerifierHost, submission: Submission) -> None:
    score = cheapest(host).verify(submission)
    assert (score.value, score.reasons) == (0.0, ("no_submission",))


def test_an_answer_counts_where_there_is_no_text(
    host: VerifierHost, submission: Submission
) -> None:
    right = submission.model_copy(update={"answer": {"hotel": "Lotus Inn"}})
    assert cheapest(host).verify(right).passed


def test_many_score_in_order(host: VerifierHost, submission: Submission) -> None:
    answers: list[Any] = [{"hotel": "Lotus Inn"}, {"hotel": "x"}, 3, None, {"hotel": "Lotus Inn"}]
    many = [submission.model_copy(update={"raw": json.dumps(one)}) for one in answers]
    passed = [score.passed for score in cheapest(host).verify_many(many)]
    assert passed == [True, False, False, False, True]
    assert cheapest(host).verify_many([]) == []


def test_initial_and_final_are_told_apart(host: VerifierHost, databases: tuple[str, str]) -> None:
    verifier = GeneralVerifier(BOOK_VERIFIER, BOOK_SCHEMA, host)
    done = {"outcome": "done"}
    initial, final = databases
    assert verifier.verify(Submission(answer=done, initial=initial, final=final)).passed
    assert verifier.verify(Submission(answer=done, initial=initial)).reasons == ("booking",)


@pytest.mark.parametrize(
    "body",
    [
        "return 1 // 0",
        "return None",
        "return True",
        "return 'ok'",
        "return [1]",
        "raise SystemExit(0)",
        "import os; os._exit(0)",
        "return verify(answer, initial, final)",
    ],
)
def test_a_broken_verifier_is_an_error_and_no_score(
    host: VerifierHost, submission: Submission, body: str
) -> None:
    source = f"def verify(answer, initial, final):\n    {body}\n"
    with pytest.raises(VerifierError):
        GeneralVerifier(source, None, host).verify(submission.model_copy(update={"raw": "1"}))


def test_a_verifier_that_hangs_is_an_error(host: VerifierHost, submission: Submission) -> None:
    source = "def verify(answer, initial, final):\n    while True:\n        pass\n"
    verifier = GeneralVerifier(source, None, host, timeout_s=0.5)
    with pytest.raises(VerifierError):
        verifier.verify(submission.model_copy(update={"raw": "1"}))
    assert cheapest(host).verify(submission.model_copy(update={"raw": '{"hotel": "x"}'})).reasons


def test_a_missing_database_is_an_error(host: VerifierHost) -> None:
    with pytest.raises(VerifierError, match="initial database"):
        cheapest(host).verify(Submission(raw='{"hotel": "Lotus Inn"}'))
