"""Judge answers of mathematics by their type; nothing that was submitted is ever evaluated as code.

An answer says its kind, and a submission is read as that kind alone: by a parser of our own (``formulas``),
with limits on length, nesting and size before anything is computed, exactly (``surds``).
``tests/data/math_pairs.jsonl`` has the false equals of common graders.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cmp_to_key
from typing import Literal, Self

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from envgen.core.limits import Label, Text, Word
from envgen.core.types import Record
from envgen.verifiers.formulas import (
    INFINITY,
    LISTS,
    LONE_TEXT,
    Formula,
    FormulaReader,
    NoAnswerError,
    plain,
)
from envgen.verifiers.published import content, read_published
from envgen.verifiers.surds import MAX_BITS, FormulaComparison

MAX_CHARS = 2_000
Kind = Literal[
    "integer", "rational", "decimal", "expression", "interval", "set", "multiset", "tuple", "matrix",
    "string", "choice",
]  # fmt: skip
NUMBERS = frozenset({"integer", "rational", "decimal", "expression"})
"""Kinds that may have a unit, and write thousands in groups."""


class MathAnswer(Record):
    """What is accepted as the answer of a problem.

    Raises:
        ValueError: if its own value is not accepted.
    """

    kind: Kind
    value: Text
    """In the form that a solver should give."""
    digits: int = Field(default=0, ge=0, le=30)
    """Of ``decimal``: digits after the point to which it must be right; 0: to a millionth of its size."""
    unit: Label = ""
    """What may stand behind a number: any other unit is wrong."""
    variables: tuple[Word, ...] = Field(default=(), max_length=10)
    choices: tuple[Label, ...] = Field(default=(), max_length=100)
    """Of ``choice``: the words to choose from."""
    published: Label = ""
    """As somebody else published it: then what is given is read as publications are, too."""

    @model_serializer(mode="wrap")
    def _plain(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        """Without ``published`` where nobody published it: such answers keep the bytes that they had."""
        record: dict[str, object] = handler(self)
        if not self.published:
            del record["published"]
        return record

    @model_validator(mode="after")
    def _own_value_is_accepted(self) -> Self:
        if self.unit and self.kind not in NUMBERS:
            raise ValueError(f"an answer of kind {self.kind!r} has no unit")
        if self.kind == "choice":
            words = [_folded(word) for word in self.choices]
            if len(set(words)) < len(words) or _folded(self.value) not in words:
                raise ValueError(f"{self.value!r:.80} must be one of different choices")
        for own in (self.value, self.published or self.value):
            if not accepts(self, own):
                raise ValueError(f"{own!r:.80} can't be read as an answer of kind {self.kind!r}")
        return self


def accepts(answer: MathAnswer, given: object) -> bool:
    """Whether a submission is right; whatever it is, this is quick and raises nothing.

    Args:
        answer: what is accepted.
        given: what was submitted: a text, or a number.
    """
    if isinstance(given, bool) or not isinstance(given, str | int | float):
        return False
    if isinstance(given, int) and given.bit_length() > MAX_BITS:
        return False
    text = str(given)
    if max(len(text), len(answer.value), len(answer.published)) > MAX_CHARS:
        return False
    try:
        judge = _is_published if answer.published else _ACCEPTS[answer.kind]
        return judge(answer, content(text))
    except NoAnswerError:
        return False


def _is_published(answer: MathAnswer, text: str) -> bool:
    """Whether the value is right, and a name before it or a unit behind it is the published one."""
    own, found = read_published(content(answer.published)), read_published(text)
    if found.label not in ("", own.label) or found.unit not in ("", own.unit):
        return False
    if found.unit:
        answer = answer.model_copy(update={"unit": ""})
    return _ACCEPTS[answer.kind](answer, found.value)


def _line(text: str) -> str:
    """Composed, with single spaces; letters keep their case."""
    lone = LONE_TEXT.fullmatch(text.strip())
    return unicodedata.normalize("NFC", " ".join((lone[1] if lone else text).split()))


def _folded(text: str) -> str:
    line = _line(text)
    if len(line) > 2 and line[0] == "(" and line[-1] == ")":
        line = line[1:-1].strip()
    return unicodedata.normalize("NFC", line.casefold())


def _is_string(answer: MathAnswer, text: str) -> bool:
    return _line(text) == _line(content(answer.value)) != ""


def _is_choice(answer: MathAnswer, text: str) -> bool:
    return _folded(text) == _folded(content(answer.value)) != ""


def _without_unit(text: str, unit: str) -> str:
    """The number before the unit, or the text itself."""
    letters = re.sub(r"[\s{}()]", "", plain(unit))
    if not letters:
        return text
    skipped = r"[\s{}()]*"
    before = r"(?<![A-Za-z])" if letters[0].isalpha() else ""
    found = re.search(before + skipped.join(map(re.escape, letters)) + r"[\s})]*$", text)
    return text[: found.start()].rstrip() if found else text


def _items(answer: MathAnswer, text: str, *, more: tuple[str, ...] = ()) -> tuple[Formula, ...]:
    reader = FormulaReader(
        text,
        (*answer.variables, *more),
        grouped=answer.kind in NUMBERS,
        scientific=answer.kind == "decimal",
    )
    return reader.items()


def _comparison(answer: MathAnswer, text: str) -> FormulaComparison:
    return FormulaComparison(answer.variables, answer.value, text)


def _is_number(answer: MathAnswer, text: str) -> bool:
    wanted, found = _number(answer, content(answer.value)), _number(answer, text)
    comparison = _comparison(answer, text)
    if answer.kind == "expression":
        return comparison.same(wanted, found)
    if not (_is_literal(answer.kind, wanted) and _is_literal(answer.kind, found)):
        return False
    right, value = comparison.value(wanted, {}), comparison.value(found, {})
    if answer.kind != "decimal":
        return right == value
    assert isinstance(right, Fraction)
    assert isinstance(value, Fraction)
    allowed = Fraction(1, 2 * 10**answer.digits) if answer.digits else abs(right) / 10**6
    return abs(right - value) <= allowed


def _number(answer: MathAnswer, text: str) -> Formula:
    items = _items(answer, _without_unit(plain(text), answer.unit))
    if len(items) != 1:
        raise NoAnswerError("it is more than one")
    return items[0]


def _is_literal(kind: Kind, formula: Formula) -> bool:
    """Whether it is written as a number, and not as a sum to do."""
    formula = formula.parts[0] if formula.op == "neg" else formula
    if formula.op == "number":
        return kind != "integer" or formula.number.denominator == 1
    if kind == "integer":
        return False
    power = formula
    if formula.op == "*" and len(formula.parts) == 2:
        first, power = formula.parts
        first = first.parts[0] if first.op == "neg" else first
        if first.op != "number":
            return False
        if power.op == "inv":
            below = power.parts[0]
            if below.op != "number":
                return False
            return first.number.denominator == below.number.denominator == 1
    if (
        kind != "decimal"
        or power.op != "^"
        or power.parts[0] != Formula("number", number=Fraction(10))
    ):
        return False
    exponent = power.parts[1]
    return (exponent.parts[0] if exponent.op == "neg" else exponent).op == "number"


def _members(answer: MathAnswer, text: str) -> tuple[str, tuple[Formula, ...]]:
    """The bracket around them, or none, and the members."""
    text, kind = plain(text), answer.kind
    if text[:1] == "{" and text[-1:] == "}" and kind != "tuple":
        inner = text[1:-1].strip()
        return "{", _items(answer, inner) if inner else ()
    items = _items(answer, text)
    if len(items) == 1 and items[0].op in {"set": (), "multiset": ("list",)}.get(kind, LISTS):
        return items[0].op, items[0].parts
    return "", items


def _is_collection(answer: MathAnswer, text: str) -> bool:
    (mark, wanted), (own, found) = _members(answer, content(answer.value)), _members(answer, text)
    if own not in ("", mark or ("tuple" if answer.kind == "tuple" else "{")):
        return False
    comparison = _comparison(answer, text)
    if answer.kind == "tuple":
        return len(wanted) == len(found) and all(map(comparison.same, wanted, found))
    if answer.kind == "multiset" and len(wanted) != len(found):
        return False
    return _same_members(wanted, found, comparison, once=answer.kind == "set")


def _same_members(
    wanted: tuple[Formula, ...],
    found: tuple[Formula, ...],
    comparison: FormulaComparison,
    *,
    once: bool,
) -> bool:
    """Whether they are equal as sets (``once``) or as multisets."""
    here, there = _rest(wanted, found, comparison), _rest(found, wanted, comparison)
    if once:
        # A fraction may equal what was made with roots: so all of the other side is searched.
        return all(any(comparison.same(x, y) for y in found) for x in here) and all(
            any(comparison.same(x, y) for x in wanted) for y in there
        )
    for x in here:
        match = next((i for i, y in enumerate(there) if comparison.same(x, y)), None)
        if match is None:
            return False
        there.pop(match)
    return not there


def _rest(
    members: tuple[Formula, ...], other: tuple[Formula, ...], comparison: FormulaComparison
) -> list[Formula]:
    """Members that are no fraction, or a fraction that the others have less often."""
    left = Counter(comparison.fraction(x) for x in other)
    rest = []
    for x in members:
        number = comparison.fraction(x)
        if number is None or not left[number]:
            rest.append(x)
        else:
            left[number] -= 1
    return rest


_MATRIX = re.compile(r"\\begin\{([pb]?matrix)\}(.*)\\end\{\1\}", re.DOTALL)


def _rows(answer: MathAnswer, text: str) -> Formula:
    latex = _MATRIX.fullmatch(text.replace("\\left", "").replace("\\right", "").strip())
    if latex:
        rows = latex[2].strip().removesuffix("\\\\").split("\\\\")
        text = "[" + ",".join(f"[{row.replace('&', ',')}]" for row in rows) + "]"
    items = _items(answer, plain(text))
    rows_ = items[0].parts
    if (
        len(items) != 1
        or items[0].op != "list"
        or not all(row.op == "list" and row.parts for row in rows_)
        or len({len(row.parts) for row in rows_}) != 1
    ):
        raise NoAnswerError("it is no matrix")
    return items[0]


def _is_matrix(answer: MathAnswer, text: str) -> bool:
    wanted, found = _rows(answer, content(answer.value)), _rows(answer, text)
    return _comparison(answer, text).same(wanted, found)


@dataclass(frozen=True, slots=True)
class IntervalPiece:
    """One interval: ``low`` or ``high`` are None where it has no end."""

    low: Formula | None
    high: Formula | None
    with_low: bool
    with_high: bool


def _pieces(answer: MathAnswer, text: str, comparison: FormulaComparison) -> list[IntervalPiece]:
    """The intervals of a union in order, those that touch joined."""
    found = []
    for part in re.split(r"\\cup(?![A-Za-z])|(?<=[\])])\s*U\s*(?=[\[(])", plain(text)):
        shape = re.fullmatch(r"\s*([\[(])(.*)([\])])\s*", part)
        ends = _items(answer, shape[2], more=INFINITY) if shape else ()
        if shape is None or len(ends) != 2:
            raise NoAnswerError("it is no interval")
        low, high = (_end(one, negative) for one, negative in zip(ends, (True, False), strict=True))
        piece = IntervalPiece(low, high, shape[1] == "[", shape[3] == "]")
        if (low is None and piece.with_low) or (high is None and piece.with_high):
            raise NoAnswerError("infinity belongs to no interval")
        order = -1 if low is None or high is None else comparison.compare(low, high)
        if order > 0 or (order == 0 and not (piece.with_low and piece.with_high)):
            raise NoAnswerError("an interval is empty")
        found.append(piece)
    found.sort(key=cmp_to_key(lambda x, y: _order(x, y, comparison)))
    return _joined(found, comparison)


def _end(formula: Formula, negative: bool) -> Formula | None:
    inner = formula.parts[0] if formula.op == "neg" else formula
    if inner.op == "name" and inner.name in INFINITY:
        if (formula.op == "neg") != negative:
            raise NoAnswerError("an interval is empty")
        return None
    return formula


def _order(x: IntervalPiece, y: IntervalPiece, comparison: FormulaComparison) -> int:
    if x.low is None or y.low is None:
        return (x.low is not None) - (y.low is not None)
    return comparison.compare(x.low, y.low) or y.with_low - x.with_low


def _joined(pieces: list[IntervalPiece], comparison: FormulaComparison) -> list[IntervalPiece]:
    found = pieces[:1]
    for piece in pieces[1:]:
        last = found[-1]
        gap = (
            -1
            if last.high is None or piece.low is None
            else comparison.compare(piece.low, last.high)
        )
        if gap > 0 or (gap == 0 and not (last.with_high or piece.with_low)):
            found.append(piece)
            continue
        longer = last
        if last.high is not None:
            more = 1 if piece.high is None else comparison.compare(piece.high, last.high)
            longer = piece if more > 0 or (more == 0 and piece.with_high) else last
        found[-1] = IntervalPiece(last.low, longer.high, last.with_low, longer.with_high)
    return found


def _is_interval(answer: MathAnswer, text: str) -> bool:
    comparison = _comparison(answer, text)
    wanted = _pieces(answer, content(answer.value), comparison)
    found = _pieces(answer, text, comparison)
    return len(wanted) == len(found) and all(
        (x.with_low, x.with_high) == (y.with_low, y.with_high)
        and _same_end(x.low, y.low, comparison)
        and _same_end(x.high, y.high, comparison)
        for x, y in zip(wanted, found, strict=True)
    )


def _same_end(x: Formula | None, y: Formula | None, comparison: FormulaComparison) -> bool:
    return x is y if x is None or y is None else comparison.same(x, y)


_ACCEPTS: dict[str, Callable[[MathAnswer, str], bool]] = {
    **dict.fromkeys(NUMBERS, _is_number),
    **dict.fromkeys(("set", "multiset", "tuple"), _is_collection),
    "interval": _is_interval,
    "matrix": _is_matrix,
    "string": _is_string,
    "choice": _is_choice,
}
