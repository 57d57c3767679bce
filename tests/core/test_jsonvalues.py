from __future__ import annotations

import json

import pytest
from hypothesis import assume, given, settings
from schemas import json_values, wild_json, wild_text

from envgen.core.jsonvalues import JsonError, clean_text, kind_of, same, strict_loads, unsafe


@settings(max_examples=80, deadline=None)
@given(wild_text)
def test_clean_text_can_be_stored_and_sent(text: str) -> None:
    clean = clean_text(text)
    clean.encode()
    assert "\0" not in clean
    assert clean_text(clean) == clean
    if unsafe(text) is None:
        assert clean == text


def test_clean_text_is_bounded() -> None:
    assert clean_text("x" * 100, 10) == "xxxxxxxxxx... [90 characters cut]"


@settings(max_examples=60, deadline=None)
@given(wild_json)
def test_strict_loads_gives_only_what_may_travel(value: object) -> None:
    try:
        found = strict_loads(json.dumps(value), max_bytes=100_000)
    except JsonError:
        return
    assert unsafe(found) is None
    json.dumps(found, ensure_ascii=False, allow_nan=False).encode()


@settings(max_examples=60, deadline=None)
@given(json_values, json_values)
def test_same_is_equality_of_json(a: object, b: object) -> None:
    assert same(a, a)  # type: ignore[arg-type]  # JSON by construction
    texts = [json.dumps(value, sort_keys=True) for value in (a, b)]
    assume("-0.0" not in "".join(texts))  # equal to 0.0, spelt differently
    assert same(a, b) == (texts[0] == texts[1])  # type: ignore[arg-type]  # as above


@pytest.mark.parametrize(
    ("value", "kind"),
    [(None, "null"), (True, "boolean"), (1, "integer"), (1.5, "number"), ("", "string")],
)
def test_kinds_have_their_json_names(value: object, kind: str) -> None:
    assert kind_of(value) == kind
