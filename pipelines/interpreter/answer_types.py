"""The type of a published answer, where it has one reading that can be judged exactly."""

from __future__ import annotations

import re
from contextlib import suppress

from envgen.verifiers.formulas import LONE_TEXT
from envgen.verifiers.maths import Kind, MathAnswer
from envgen.verifiers.published import members, read_published

MAX_ANSWER = 300
LETTERS = tuple("ABCDEFGHIJ")
_WORDS = (("Yes", "No"), ("True", "False"))
_GROUPS = re.compile(r"(?<![\d.])[1-9]\d{0,2}(?:,\d{3})+(?!\d)", re.ASCII)
_FREE_ORDER = re.compile(
    r"separated by commas|in any order|\ball\b[^.?]{0,80}\b(?:solutions|roots|values|numbers|integers)\b",
    re.I,
)


def typed(text: str, problem: str = "", solution: str = "") -> MathAnswer | None:
    """An answer with its type; None where it has none that can be judged exactly.

    Args:
        text: as it was published.
        problem: says whether the order of a list counts.
        solution: shows whether commas between groups of three digits are one number's.
    """
    if len(text) > MAX_ANSWER:
        return None
    joined = without_group_commas(text, solution)
    if joined is None:
        return None
    with suppress(ValueError):  # it can't be read as what it looks like
        return _typed(text, joined, problem)
    return None


def without_group_commas(text: str, solution: str) -> str | None:
    """The text without commas in its number; None where nothing says whether it is one number.

    ``120,150`` is one where the solution shows it without a comma or as ``{,}``, and two otherwise.
    """
    found = _GROUPS.search(text)
    if found is None:
        return text
    groups = found[0].split(",")
    shown = r"(?:\{,\}|,\\!)?".join(groups)
    alone = text.count(",") == len(groups) - 1 and not re.match(r"\s*(?:\\left)?\s*\\?[(\[{]", text)
    if not alone or not re.search(rf"(?<![\d.,}}]){shown}(?!\d|,\d|\{{,)", solution, re.ASCII):
        return None
    return text.replace(found[0], "".join(groups))


def _typed(text: str, joined: str, problem: str) -> MathAnswer | None:
    word = _word(joined)
    for choices in (LETTERS, *_WORDS):
        if word in choices:
            return MathAnswer(kind="choice", value=word, choices=choices, published=text)
    found = read_published(joined)
    value = found.value
    if re.fullmatch(r"-?\d+", value, re.ASCII):
        return MathAnswer(kind="integer", value=value, unit=found.unit, published=text)
    if re.fullmatch(r"-?(?:\d+/\d+|\d*\.\d+)", value, re.ASCII):  # a published decimal is exact
        return MathAnswer(kind="rational", value=value, unit=found.unit, published=text)
    kind = _collection(value, problem)
    if kind is not None:
        return MathAnswer(kind=kind, value=value, unit=found.unit, published=text)
    bare = re.sub(r"\\[a-zA-Z]+", " ", value)
    letters = re.findall(r"[a-zA-Z]+", bare)
    names = tuple(sorted(set(letters) - {"e"}))
    # An i may be the imaginary unit, f(x) a function; with a name before it, it is an equation.
    if "," in value or any(len(one) > 1 or one == "i" for one in letters):
        return None
    if re.search(r"[fghFGHPQ]\s*\(", bare) or (names and found.label):
        return None
    return MathAnswer(
        kind="expression", value=value, unit=found.unit, variables=names, published=text
    )


def _word(text: str) -> str:
    """A text that is one word or letter, without the brackets around it."""
    text = text.strip().removesuffix(".")
    lone = LONE_TEXT.fullmatch(text)
    text = (lone[1] if lone else text).strip()
    return text[1:-1].strip() if text[:1] == "(" and text[-1:] == ")" else text


def _collection(value: str, problem: str) -> Kind | None:
    """Which collection a value is; None for a number or a list whose order nobody states.

    A pair in round brackets may be a point or an open interval. Both are equal to another pair where
    the ends are, and are written so: as a tuple of two it is judged rightly, whichever it is.
    """
    bare = re.sub(r"\\(?:left|right)(?![A-Za-z])", "", value).strip()
    if re.match(r"\\\{|\\(?:emptyset|varnothing)(?![A-Za-z])|\{[^{}]*,", bare):
        return "set"
    if re.match(r"\\begin\{[pb]matrix\}", bare):
        return "matrix"
    if re.search(r"\\cup(?![A-Za-z])|\u222a|\\infty|\u221e", bare) and bare[:1] in "([":
        return "interval"
    if len(members(bare)) > 1:
        return "set" if _FREE_ORDER.search(problem) else None
    inside = len(members(bare[1:-1]))
    if bare[:1] not in ("(", "[") or bare[-1:] not in (")", "]") or inside < 2:
        return None
    if inside > 2 or bare[0] + bare[-1] == "()":
        return "tuple"
    with suppress(ValueError):
        MathAnswer(kind="interval", value=value)
        return "interval"
    return "tuple"
