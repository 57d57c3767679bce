"""Judge answers of mathematics by their type; nothing that was submitted is ever evaluated as code.

An answer says its kind, and a submission is read as that kind alone. A text is read by a parser of our own,
with limits on length and powers before anything is computed.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Literal

from pydantic import Field

from envgen.core.limits import Label, Text
from envgen.core.types import Record

MAX_CHARS = 2_000
Kind = Literal["integer", "rational", "decimal", "string"]
_RATIONAL = re.compile(r"([+-]?\d{1,400})(?:/(\d{1,400})|\.(\d{1,400}))?")


class MathAnswer(Record):
    """What is accepted as the answer of a problem."""

    kind: Kind
    value: Text
    """In the form that a solver should give."""
    digits: int = Field(default=0, ge=0, le=30)
    """Of ``decimal``: digits after the point to which it must be right."""
    unit: Label = ""
    """What may stand behind a number."""


def accepts(answer: MathAnswer, given: object) -> bool:
    """Whether a submission is right; whatever it is, this is quick and raises nothing.

    Args:
        answer: what is accepted.
        given: what was submitted: a text, or a number.
    """
    if isinstance(given, bool) or not isinstance(given, str | int | float):
        return False
    text = str(given).strip()
    if not 0 < len(text) <= MAX_CHARS:
        return False
    if answer.kind == "string":
        return " ".join(text.split()).casefold() == " ".join(answer.value.split()).casefold()
    if answer.unit and text.endswith(answer.unit):
        text = text.removesuffix(answer.unit).strip()
    found, wanted = _number(text), _number(answer.value)
    if found is None or wanted is None:
        return False
    if answer.kind == "decimal":
        return abs(found - wanted) <= Fraction(1, 2 * 10**answer.digits)
    return found == wanted


def _number(text: str) -> Fraction | None:
    match = _RATIONAL.fullmatch(text.replace("\u2212", "-"))
    if match is None:
        return None
    whole, below, after = match.groups()
    if below is not None:
        return Fraction(int(whole), int(below)) if int(below) else None
    return Fraction(whole + "." + after) if after else Fraction(int(whole))
