"""Answers of mathematics: no false equals, whatever common graders take for one, and nothing hangs."""

from __future__ import annotations

import json
import math
import operator
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envgen.verifiers.formulas import FormulaReader, NoAnswerError
from envgen.verifiers.maths import Kind, MathAnswer, accepts
from envgen.verifiers.surds import ExactArithmetic

PAIRS = Path(__file__).parents[1] / "data" / "math_pairs.jsonl"
"""Written by hand: gold, what was given, and whether that is the answer."""
GOLD: dict[Kind, str] = {
    "integer": "7",
    "rational": "1/7",
    "decimal": "0.7",
    "expression": "sqrt(x)+1",
    "interval": "[0,1)",
    "set": "{1,sqrt(2)}",
    "multiset": "{1,1}",
    "tuple": "(1,2)",
    "matrix": "[[1,2]]",
    "string": "word",
    "choice": "word",
}
ANSWERS = [
    MathAnswer(kind=kind, value=value, variables=("x",), choices=("word", "other"))
    for kind, value in GOLD.items()
]
ANSWERS += [
    MathAnswer(kind="rational", value="5/2", unit="cm", published="x = 2\\frac{1}{2} \\text{ cm}."),
    MathAnswer(kind="set", value="{2,-2}", published="\\pm 2"),
]
SIGNS = (
    *"0123456789.,+-*/^!()[]{}xe U$%_\\",
    *("sqrt", "\\sqrt", "\\frac", "\\boxed{", "\\left(", "pi", "\u221e", "\u00bd", "\u00b2"),
    *("10^", "99!", "**", "\ud800", "\u0664", "\\cup", "\\begin{pmatrix}", "&", "\\\\", "\\text{"),
    *("\\pm", "\\,", ",\\!", "{,}", "x = ", "\\overline{", " or ", "cm", "\\binom{"),
)


def _is_quick(answer: MathAnswer, text: str, limit_s: float) -> bool:
    """Whether one of three tries is: the collector may run in any."""
    for _ in range(3):
        start = time.process_time()
        accepts(answer, text)
        if time.process_time() - start < limit_s:
            return True
    return False


def test_pairs_are_equal_where_a_reader_says_so_and_nowhere_else() -> None:
    rows: list[dict[str, Any]] = [json.loads(line) for line in PAIRS.read_text().splitlines()]
    wrong = []
    for row in rows:
        answer = MathAnswer.model_validate(
            {
                "value" if k == "gold" else k: v
                for k, v in row.items()
                if k not in ("given", "equal")
            }
        )
        if accepts(answer, row["given"]) != row["equal"]:
            wrong.append(row)
    assert not wrong
    assert sum(not row["equal"] for row in rows) > 400


@pytest.mark.parametrize(
    "text",
    [
        "9**9**9**9", "(10^10^10)!", "10^-10^10", "1/(10^10^10)!", "2^(10^3000)", "99!!!!!", "(99!)!",
        "x^99999", "(x+1)^9^9^9", "9" * 2_000, "9" * 1_000_000, "(" * 1_999, "-" * 1_999, "2^" * 999,
        "sqrt(" * 300, "\\sqrt" * 300, "\\frac" * 300, "\\boxed{" * 200, "\\boxed" * 300, "1," * 999,
        "+".join(f"\u221a{n}" for n in range(2, 300)), "*".join(["(\u221ax+\u221a2)"] * 200),
        "/".join(["1099!"] * 300), "+".join(f"1/{900 + n}!" for n in range(150)),
        "{" + ",".join(["\u221a2+\u221a3"] * 250) + "}", "\u00bd" * 2_000, "1e3000", "1e-3000",
        "1e" + "9" * 99, "[" + "U[".join(["0,1]"] * 300), "\\text{" * 300,
        "sqrt(" * 45 + "2" + ")" * 45, "m" * 2_000, "\\pm" * 600, "1 or " * 399 + "1", "\\pm 1," * 280,
        "1" * 999 + " " * 999, "5 " * 999, "\\," * 999, "1\\,111" * 280, "\\frac" * 9 + "1" * 1_900,
        "\\text{" + "a " * 900 + "}", "2" + "\\text{ a}" * 200, "x=" * 999, "1" + " units" * 300,
    ],
)  # fmt: skip
def test_hostile_answers_are_wrong_and_quick(text: str) -> None:
    for answer in ANSWERS:
        assert not accepts(answer, text)
        assert _is_quick(answer, text, 0.5), answer.kind


@settings(deadline=None, max_examples=300)
@given(st.one_of(st.text(max_size=300), st.lists(st.sampled_from(SIGNS), max_size=60).map("".join)))
def test_random_texts_raise_nothing_and_take_no_time(text: str) -> None:
    for answer in ANSWERS:
        assert _is_quick(answer, text, 0.05), answer.kind


@pytest.mark.parametrize(
    "given",
    [None, True, False, [7], {"a": 7}, b"7", 7j, float("nan"), float("inf"), 10**9_999],
    ids=lambda value: type(value).__name__,
)
def test_what_is_neither_text_nor_number_is_wrong(given: object) -> None:
    assert not any(accepts(answer, given) for answer in ANSWERS)


@given(st.integers(), st.integers())
def test_integers_are_equal_to_themselves_alone(x: int, y: int) -> None:
    answer = MathAnswer(kind="integer", value=str(x))
    for form in (str(x), x, f"{x:,}", f"{x}.0", f"${x}$"):
        assert accepts(answer, form)
    for form in (str(y), y, f"{y:,}"):
        assert accepts(answer, form) == (x == y)
    assert not accepts(answer, str(x + 1))


OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}
Sum = tuple[str, Fraction | None]
"""A formula, and its value if it has one."""


def _combined(parts: tuple[Sum, str, Sum]) -> Sum:
    (left, x), sign, (right, y) = parts
    undefined = x is None or y is None or (sign == "/" and y == 0)
    value = None if undefined else OPERATIONS[sign](x, y)
    return f"({left}) {sign} ({right})", value


NUMBERS = st.integers(0, 99).map(lambda n: (str(n), Fraction(n)))
SUMS = st.recursive(
    NUMBERS,
    lambda inner: st.tuples(inner, st.sampled_from(sorted(OPERATIONS)), inner).map(_combined),
    max_leaves=12,
)


@given(SUMS, SUMS)
def test_formulas_have_the_values_that_pythons_fractions_give(one: Sum, other: Sum) -> None:
    (text, value), (second, its_value) = one, other
    if value is None:
        with pytest.raises(ValueError, match="can't be read"):
            MathAnswer(kind="expression", value=text)
        return
    for kind in ("rational", "expression"):
        answer = MathAnswer(kind=kind, value=str(value))
        assert accepts(answer, str(value))
        assert not accepts(answer, str(value + Fraction(1, 10**50)))
    assert accepts(answer, text)
    assert accepts(answer, second) == (value == its_value)


@given(st.lists(st.tuples(st.integers(-9, 9), st.integers(1, 12)), min_size=1, max_size=5))
def test_signs_of_sums_of_roots_are_those_of_floats_or_zero(terms: list[tuple[int, int]]) -> None:
    numbers, total = ExactArithmetic(), ExactArithmetic().root(Fraction(0), 2)
    squares: dict[int, int] = {}
    near = 0.0
    for factor, under in terms:
        root = numbers.root(Fraction(under), 2)
        total = numbers.add(total, numbers.multiply(Fraction(factor), root))
        near += factor * under**0.5
        square = max(n for n in range(1, 4) if under % n**2 == 0)
        squares[under // square**2] = squares.get(under // square**2, 0) + factor * square
    zero = not any(squares.values())
    assert (numbers.sign(total) == 0) == zero
    assert zero or abs(near) < 1e-9 or numbers.sign(total) == (1 if near > 0 else -1)


def test_what_is_divided_by_almost_nothing_is_large() -> None:
    numbers = ExactArithmetic()
    root = numbers.root(Fraction(2), 2)
    near = Fraction(-math.isqrt(2 * 10**1_000) - 1, 10**500)
    huge = numbers.invert(numbers.add(root, near))
    total = numbers.add(huge, Fraction(10**450))
    assert numbers.sign(total) == -1
    assert not numbers.equal(total, Fraction(10**450))
    assert numbers.equal(numbers.multiply(numbers.invert(huge), Fraction(2)), numbers.add(
        numbers.multiply(root, Fraction(2)), 2 * near
    ))  # fmt: skip


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "integer", "value": "1/2"},
        {"kind": "integer", "value": ""},
        {"kind": "string", "value": " "},
        {"kind": "expression", "value": "x+1"},
        {"kind": "expression", "value": "1/0"},
        {"kind": "expression", "value": "9^9^9^9"},
        {"kind": "set", "value": "{1,2}", "unit": "m"},
        {"kind": "choice", "value": "A"},
        {"kind": "choice", "value": "A", "choices": ("A", "a")},
        {"kind": "interval", "value": "(2,1)"},
        {"kind": "matrix", "value": "[[1,2],[3]]"},
    ],
)
def test_an_answer_that_cant_be_read_is_refused_when_it_is_made(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"can't be read|has no unit|different choices"):
        MathAnswer.model_validate(fields)


def test_a_reader_says_why() -> None:
    with pytest.raises(NoAnswerError, match="ambiguous"):
        FormulaReader("1/2x", ("x",), grouped=False).items()
