from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from schemas import json_values, wild_text

from envgen.verifiers.parse import AnswerError, parse_answer


@settings(max_examples=50, deadline=None)
@given(json_values)
def test_json_comes_back_as_it_was(value: Any) -> None:
    assert repr(parse_answer(json.dumps(value))) == repr(value)


@settings(max_examples=100, deadline=None)
@given(wild_text)
def test_any_text_is_parsed_or_refused_with_a_reason(raw: str) -> None:
    reason = ""
    try:
        parse_answer(raw)
    except AnswerError as error:
        reason = str(error)
    assert reason == "" or reason.startswith("the answer")


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ("", "no JSON"),
        ("{", "no JSON"),
        ("1 2", "no JSON"),
        ("NaN", "contains NaN"),
        ('{"a": -Infinity}', "contains -Infinity"),
        ("[1e999]", "at 0 is not a finite number"),
        ('{"a": {"b": 1, "b": 2}}', "has the key 'b' twice"),
        ("[" * 51 + "]" * 51, "deeper than 50"),
        ("[" * 60_000, "deeper than 50"),
        ('"\ud800"', "lone surrogate"),
        ('"\\udc00"', "lone surrogate"),
        ('{"\\ud800": 1}', "key"),
        ('"a\\u0000"', "NUL"),
        ("9" * 5000, "digits"),
        ("1" + "0" * 19, "too large"),
        ('"' + "x" * 65_536 + '"', "longer than 65536 bytes"),
        ('"' + "\N{GRINNING FACE}" * 20_000 + '"', "longer than 65536 bytes"),
    ],
)
def test_refused_with_reason(raw: str, reason: str) -> None:
    with pytest.raises(AnswerError, match=reason):
        parse_answer(raw)


def test_brackets_in_strings_are_no_nesting() -> None:
    assert parse_answer('"' + '[\\"' * 100 + '"') == '["' * 100


def test_hostile_texts_cost_little() -> None:
    start = time.perf_counter()
    for raw in ["x" * 10_000_000, "[" * 65_000, "{" + '"a":1,' * 10_000 + '"a":1}', "1" * 65_000]:
        with pytest.raises(AnswerError):
            parse_answer(raw)
    assert time.perf_counter() - start < 1.0
