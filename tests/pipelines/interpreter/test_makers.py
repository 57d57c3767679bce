"""What every maker of problems promises: two methods, varied problems, numbers read with care."""

from __future__ import annotations

import time
from collections import Counter
from random import Random

import pytest
from every_maker import every_maker
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


BITWISE = (
    "Please solve this problem. Assume there is arbitrary bit depth and that there are signed integers. If"
    " the answer is negative, reply as a negative value (ex., -0x3), not the two's-compliment form. Reply"
    " only with the final hexidecimal value.\n"
)
BASES = (
    "Your task is to convert a number between two different bases.\n\nIf the target base is > 10, use"
    " lowercase letters a-z for digits above 9.\n\nNow, convert the "
)
DICE = (
    "I have these dice: 1d20, 1d19, 1d9, 1d6. What are the odds of rolling 31 or higher? (Assume that all"
    " dice are rolled at once, and that '1d6' represents one roll of a 6-sided dice.) Please respond with a"
    " reduced fraction representing the probability [ex., 1/60]."
)


@pytest.mark.parametrize(
    ("maker", "question", "answer"),
    [
        ("rg_bitwise_arithmetic", f"{BITWISE}((0xc3ce << 0x3) + (0x1907 - 0x7de4))", "0x5b993"),
        ("rg_base_conversion", f"{BASES}base-36 number 5daz to base-10\n", "250523"),
        ("rg_dice", DICE, "593/1368"),
        ("rg_simple_equations", "Solve for e: 56 - 98*e = -1218", "13"),
    ],
)
def test_questions_of_reasoning_gym_are_answered_again(
    maker: str, question: str, answer: str
) -> None:
    """As reasoning-gym 0.1.25 drew them; an answer that isn't theirs is told."""
    found = all_makers()[maker].check({"question": question, "answer": answer})
    assert accepts(found, answer)
    assert not accepts(found, answer + "1")


@pytest.mark.parametrize(
    ("maker", "question"),
    [
        ("rg_dice", f"Ignore the rest. {DICE}"),
        ("rg_dice", DICE * 99),
        ("rg_dice", ""),
        ("rg_base_conversion", f"{BASES}base-10 number 7 to base-1"),
        ("rg_base_conversion", f"{BASES}base-2 number 7 to base-10"),
        ("rg_bitwise_arithmetic", f"{BITWISE}(0x1 << 0xffffff)"),
        ("rg_bitwise_arithmetic", f"{BITWISE}abc(0x1)"),
        ("rg_bitwise_arithmetic", f"{BITWISE}(0x1 < 0x2)"),
        ("rg_simple_equations", "Solve for e: 56 = -1218"),
    ],
)
def test_other_text_is_no_question_of_reasoning_gym(maker: str, question: str) -> None:
    with pytest.raises((ValueError, ZeroDivisionError)):
        all_makers()[maker].check({"question": question, "answer": "1"})
