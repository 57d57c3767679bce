"""What every maker of problems promises: two methods, varied problems, numbers read with care."""

from __future__ import annotations

import time
from collections import Counter
from random import Random

import pytest
from pydantic import JsonValue

from envgen.pipelines.interpreter.makers.maker import Maker, Params
from envgen.pipelines.interpreter.makers.registry import all_makers
from envgen.verifiers.maths import accepts

HOSTILE: tuple[JsonValue, ...] = (
    None,
    "__import__('os')",
    1.5,
    True,
    [],
    {},
    ["x"],
    [[None]],
    [[1, 2], [3]],
)
LARGE: tuple[JsonValue, ...] = (0, -1, 10**30, [10**30], [[10**30]], [1] * 10**5, "A" * 10**5)

ALLOWED = [("together", True), ("where", [])]
"""What a table's problem may say."""

every_maker = pytest.mark.parametrize(
    "maker", all_makers().values(), ids=lambda maker: str(maker.name)
)


def drawn(maker: Maker, seed: int, level: int | None = None) -> Params:
    rng = Random(f"{maker.name} {seed}")
    return maker.draw(rng, level or rng.randint(1, 8))


def agree(maker: Maker, params: Params) -> None:
    answer, again = maker.solve(params), maker.check(params)
    assert accepts(answer, again.value), (params, answer, again)
    assert accepts(again, answer.value), (params, answer, again)


@every_maker
def test_two_methods_agree(maker: Maker) -> None:
    for seed in range(20):
        agree(maker, drawn(maker, seed))


@pytest.mark.slow
@every_maker
def test_two_methods_agree_on_many(maker: Maker) -> None:
    for seed in range(20, 100):
        agree(maker, drawn(maker, seed, seed % 8 + 1))


@every_maker
def test_problems_and_answers_differ(maker: Maker) -> None:
    problems = [drawn(maker, seed) for seed in range(40)]
    assert len({maker.text(params) for params in problems}) > 37
    ((_, most),) = Counter(maker.solve(params).value for params in problems).most_common(1)
    assert most <= 8


@every_maker
def test_numbers_of_strangers_are_refused(maker: Maker) -> None:
    """A wrong type is a ValueError; what is too large or senseless is one, too, or is solved at once."""
    params = drawn(maker, 1)
    for name in params:
        for value in HOSTILE:
            if (name, value) in ALLOWED:
                continue
            with pytest.raises(ValueError, match=r".*"):
                tried(maker, {**params, name: value})
        for value in LARGE:
            started = time.process_time()
            try:
                tried(maker, {**params, name: value})
            except ValueError:
                pass
            assert time.process_time() - started < 2.0, (name, value)
    with pytest.raises(ValueError, match=r".*"):
        tried(maker, {})


def tried(maker: Maker, params: Params) -> None:
    maker.solve(params)
    maker.check(params)
    maker.text(params)


@pytest.mark.parametrize(
    "where",
    [
        [["year", ">=", "1900"]],
        [["year", "==", 1900]],
        [["classification", ">=", "painting"]],
        [["classification", "==", 5]],
        [["year", ">=", True]],
        [[["year"], ">=", 1900]],
        [["year; DROP TABLE works", ">=", 1900]],
        [["classification", "==", "painting"]] * 99,
    ],
)
def test_no_condition_of_a_stranger_reaches_code_or_sql(where: JsonValue) -> None:
    maker = all_makers()["table_median"]
    for run in (maker.solve, maker.check, maker.code, maker.text):
        with pytest.raises(ValueError, match=r"condition|value"):
            run({**drawn(maker, 1), "where": where})


def test_a_quoted_value_stays_a_value() -> None:
    maker = all_makers()["table_distinct"]
    text = "x'] or __import__('os').system('true') or d['"
    params: dict[str, JsonValue] = {
        **drawn(maker, 1),
        "where": [["classification", "==", text]],
    }
    assert f"== {text!r}" in str(maker.code(params))
    assert maker.check(params).value == "0"
