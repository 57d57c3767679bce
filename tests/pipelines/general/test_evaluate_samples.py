from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import JsonValue
from sample_problems import SAMPLES

from envgen.pipelines.general.evaluate import accepted, evaluate, rule_ids

READ_ONLY = [name for name, sample in SAMPLES.items() if sample.problem.shape != "C"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@pytest.mark.parametrize("name", READ_ONLY)
def test_sample_verdicts(name: str) -> None:
    sample = SAMPLES[name]
    for answer in sample.accepted:
        assert all(evaluate(sample.problem, sample.tables, answer).values())
    for answer in sample.rejected:
        assert not accepted(sample.problem, sample.tables, answer)


@pytest.mark.parametrize("name", list(SAMPLES))
@settings(max_examples=30, deadline=None)
@given(answer=JSON)
def test_total_on_any_json(name: str, answer: JsonValue) -> None:
    sample = SAMPLES[name]
    held = evaluate(sample.problem, sample.tables, answer)
    assert tuple(held) == rule_ids(sample.problem)
    assert not all(held.values())


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, (*path, key))
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from _leaves(item, (*path, i))
    yield path


def _replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    if isinstance(value, dict):
        return {k: _replaced(v, path[1:], new) if k == path[0] else v for k, v in value.items()}
    return [_replaced(v, path[1:], new) if i == path[0] else v for i, v in enumerate(value)]


@pytest.mark.parametrize("name", READ_ONLY)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_total_with_one_part_replaced(name: str, data: st.DataObject) -> None:
    sample = SAMPLES[name]
    answer = sample.accepted[0]
    path = data.draw(st.sampled_from(list(_leaves(answer))))
    changed = _replaced(answer, path, data.draw(JSON))
    held = evaluate(sample.problem, sample.tables, changed)
    assert set(map(type, held.values())) == {bool}


def test_true_is_not_one() -> None:
    sample = SAMPLES["a_stay"]
    answer = {**sample.accepted[0], "nights": True}
    assert not any(evaluate(sample.problem, sample.tables, answer).values())


def test_one_broken_clause_is_named() -> None:
    sample = SAMPLES["a_stay"]
    held = evaluate(sample.problem, sample.tables, {**sample.accepted[0], "nights": 3})
    assert [rule for rule, ok in held.items() if not ok] == ["short_if_good"]
