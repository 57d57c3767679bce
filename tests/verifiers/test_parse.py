from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from schemas import json_values, wild_text

from envgen.verifiers.parse import AnswerError, parse_answer, whole_numbers


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
        ("", "not valid JSON"),
        ("{", "not valid JSON"),
        ("1 2", "not valid JSON"),
        ("NaN", "contains NaN"),
        ('{"a": -Infinity}', "contains -Infinity"),
        ("[1e999]", "is not a finite number"),
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
        ("```json\n" + "1" * 65_536 + "\n```", "longer than 65536 bytes"),
        ("Here it is:\n```json\n1\n```", "not valid JSON"),
        ("```json\n1\n```\nThat is it.", "not valid JSON"),
        ("```json\n1\n```\n```json\n2\n```", "not valid JSON"),
        ("```json\n1\n```\n```json\n1\n```", "not valid JSON"),
        ("```\n```json\n1\n```\n```", "not valid JSON"),
        ("```json\n1", "not valid JSON"),
        ("1\n```", "not valid JSON"),
        ("```", "not valid JSON"),
        ("```json\n```", "not valid JSON"),
        ("```json 1 ```", "not valid JSON"),
        ("````json\n1\n````", "not valid JSON"),
        ("```python\n1\n```", "not valid JSON"),
        ("```json\n1 2\n```", "not valid JSON"),
        ('```json\n{"a": 1, "a": 1}\n```', "has the key 'a' twice"),
        ("\u00a0```json\n1\n```", "not valid JSON"),
        ("```json\n1\n```\u200b", "not valid JSON"),
        ('"' + "\N{GRINNING FACE}" * 20_000 + '"', "longer than 65536 bytes"),
    ],
)
def test_refused_with_reason(raw: str, reason: str) -> None:
    with pytest.raises(AnswerError, match=reason):
        parse_answer(raw)


@pytest.mark.parametrize(
    "raw",
    [
        '```json\n{"a": "x"}\n```',
        '```\n{"a": "x"}\n```',
        ' \n```json \r\n{"a":\n "x"}\r\n  ```\n\n',
    ],
)
def test_one_fence_around_all_of_it_is_taken_off(raw: str) -> None:
    """The prompt shows the form in one."""
    assert parse_answer(raw) == {"a": "x"}


def test_a_fence_within_a_text_stays() -> None:
    assert parse_answer('```json\n"```"\n```') == "```"


INTEGERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "n": {"type": "integer"},
        "x": {"type": "number"},
        "step": {"enum": [10, 20]},
        "pair": {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}]},
        "list": {"type": "array", "items": {"type": "integer"}},
    },
    "additionalProperties": {"const": 3},
}


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ('{"n": 75.0}', {"n": 75}),
        ('{"n": 7.5e1}', {"n": 75}),
        ('{"n": 75.5}', {"n": 75.5}),
        ('{"n": "75"}', {"n": "75"}),
        ('{"n": true}', {"n": True}),
        ('{"n": 1e17}', {"n": 1e17}),  # it may have been another number
        ('{"x": 75.0}', {"x": 75.0}),
        ('{"step": 20.0, "other": 3.0}', {"step": 20, "other": 3}),
        ('{"pair": [1.0, 1.0, 1.0]}', {"pair": [1, 1.0, 1.0]}),
        ('{"list": [1.0, [2.0]]}', {"list": [1, [2.0]]}),
    ],
)
def test_whole_numbers_are_integers_where_the_schema_says_so(raw: str, expected: Any) -> None:
    assert repr(whole_numbers(parse_answer(raw), INTEGERS)) == repr(expected)


def test_brackets_in_strings_are_no_nesting() -> None:
    assert parse_answer('"' + '[\\"' * 100 + '"') == '["' * 100


def test_hostile_texts_cost_little() -> None:
    start = time.perf_counter()
    for raw in ["x" * 10_000_000, "[" * 65_000, "{" + '"a":1,' * 10_000 + '"a":1}', "1" * 65_000]:
        with pytest.raises(AnswerError):
            parse_answer(raw)
    assert time.perf_counter() - start < 1.0
