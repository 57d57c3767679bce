"""The options of a look-alike: values that can't be told from the true one without computing it.

The options have no centre. Those of a text are the corners of a cube of word changes; those of a number are
a window that begins at a random distance before it; several literals share a cube of all their changes.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

Value = str | int | float | bool
MAX_BITS = 4
"""Of one literal: 16 options."""
_WORD = re.compile(r"[^\W\d_]+|\d+")
_PATTERN_WORD = re.compile(r"(?<![\\{\w])[^\W\d_]{2,}")
"""In a regular expression: no escape and no number of repeats."""
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_TRIES = 200


class Literal(NamedTuple):
    """A literal's value; in a pattern only words are changed."""

    value: Value
    pattern: bool = False
    natural: bool = False
    """No option is below 0: of an unsigned type it would not compile. Fewer are left of small numbers."""


class _Dimension(NamedTuple):
    literal: int
    bits: int
    """At most."""
    drawn: Callable[[int], list[Value]]
    """So many alternatives, the true one first."""
    span: tuple[int, int] | None = None
    """The word of a text that changes."""


def capacity(literals: Sequence[Literal]) -> int:
    """How many bits of options an expectation has, at most ``MAX_BITS``."""
    found = sum(_bits(literal, word) for literal in literals for word in _slots(literal))
    return min(MAX_BITS, found)


def options(
    literals: Sequence[Literal], bits: int, words: Sequence[str], draw: random.Random
) -> list[tuple[Value, ...]]:
    """Draw ``2 ** bits`` options for the literals of an expectation, the true one first.

    Args:
        literals: those of the expectation.
        bits: at most their ``capacity``.
        words: replacements, the best first.
        draw: makes every choice.
    """
    dimensions = [
        dimension
        for n, literal in enumerate(literals)
        for dimension in _dimensions(n, literal, words, draw)
    ]
    draw.shuffle(dimensions)
    shares = _shares([dimension.bits for dimension in dimensions], bits)
    chosen = [(one, one.drawn(2**share)) for one, share in zip(dimensions, shares, strict=True)]
    axes = [alternatives for _, alternatives in chosen]
    return [
        _applied(literals, [one for one, _ in chosen], corner)
        for corner in itertools.product(*axes)
    ]


def _shares(most: Sequence[int], bits: int) -> list[int]:
    """Bits of each dimension: one each, and again, until all are given."""
    shares = [0] * len(most)
    while bits > sum(shares):
        open_ = [n for n, share in enumerate(shares) if share < most[n]]
        for n in open_[: bits - sum(shares)]:
            shares[n] += 1
    return shares


def _slots(literal: Literal) -> list[re.Match[str] | None]:
    """The words of a text that may change; of what has none, the whole."""
    if not isinstance(literal.value, str):
        return [None]
    found = list((_PATTERN_WORD if literal.pattern else _WORD).finditer(literal.value))
    return [*found] if found or literal.pattern else [None]


def _bits(literal: Literal, word: re.Match[str] | None) -> int:
    if isinstance(literal.value, bool):
        return 1
    if literal.natural and isinstance(literal.value, int) and 0 <= literal.value < 16:
        return (literal.value + 1).bit_length() - 1
    return MAX_BITS if word is not None or not isinstance(literal.value, str) else 1


def _dimensions(
    n: int, literal: Literal, words: Sequence[str], draw: random.Random
) -> Iterator[_Dimension]:
    for slot in _slots(literal):
        value = literal.value if slot is None else slot[0]
        drawn = partial(_alternatives, value, words, draw)
        yield _Dimension(n, _bits(literal, slot), drawn, slot and slot.span())


def _alternatives(
    value: Value, words: Sequence[str], draw: random.Random, size: int
) -> list[Value]:
    """So many values, the true one first."""
    if isinstance(value, bool):
        both: list[Value] = [value, not value]
        return both[:size]
    if isinstance(value, str):
        return _others(value, size, words, draw)
    return _window(value, size, draw)


def _window(value: int | float, size: int, draw: random.Random) -> list[Value]:
    """Neighbours in a window that begins anywhere before the value."""
    first = -draw.randrange(size)
    if isinstance(value, int):
        step = max(1, abs(value) // 1000)
        return [value, *(value + n * step for n in range(first, first + size) if n)]
    digits = re.sub(r".*\.|e.*", "", repr(value))
    places = min(len(digits), 3) if "e" not in repr(value) else 0
    unit = max(10.0**-places, abs(value) / 100)
    return [value, *(round(value + n * unit, places + 2) for n in range(first, first + size) if n)]


def _others(word: str, size: int, words: Sequence[str], draw: random.Random) -> list[Value]:
    """A word and others of its kind, taken from ``words`` if they are there."""
    if word.isdigit():
        return [word, *_numerals(word, size, draw)]
    fit = [one for one in words if _fits(one, word)]
    near = fit[: 2 * size]
    draw.shuffle(near)
    found = [word]
    candidates = itertools.chain((_like(one, word) for one in near), _invented(word, draw))
    for one in itertools.islice(candidates, _TRIES * size):
        if len(found) == size:
            break
        if one not in found and not any(one in other or other in one for other in found if word):
            found.append(one)
    return [*found]


def _fits(other: str, word: str) -> bool:
    return other.isalpha() and other.lower() != word.lower() and (len(word) < 3) == (len(other) < 3)


def _like(other: str, word: str) -> str:
    """Another word, in the case of one."""
    if word.isupper() and len(word) > 1:
        return other.upper()
    return other.capitalize() if word[:1].isupper() else other.lower()


def _invented(word: str, draw: random.Random) -> Iterator[str]:
    """Words that nobody uses, as long as one."""
    while True:
        invented = "".join(draw.choice(_LETTERS) for _ in range(max(1, len(word))))
        yield _like(invented, word)


def _numerals(word: str, size: int, draw: random.Random) -> list[str]:
    span = 10 ** len(word)
    first = int(word) - draw.randrange(size)
    window = [f"{(first + n) % span:0{len(word)}}" for n in range(size)]
    found = [one for one in dict.fromkeys(window) if one != word]
    wider = (str(int(word) + n) for n in itertools.count(1))
    while len(found) < size - 1:  # one digit has ten values
        one = next(wider)
        found += [one] if one not in (word, *found) else []
    return found


def _applied(
    literals: Sequence[Literal], dimensions: Sequence[_Dimension], corner: Sequence[Value]
) -> tuple[Value, ...]:
    values: list[Value] = [literal.value for literal in literals]
    changes = sorted(
        zip(dimensions, corner, strict=True), key=lambda pair: pair[0].span or (0, 0), reverse=True
    )
    for dimension, value in changes:
        before = values[dimension.literal]
        if dimension.span is None:
            values[dimension.literal] = value
        else:
            start, end = dimension.span
            values[dimension.literal] = f"{str(before)[:start]}{value}{str(before)[end:]}"
    return tuple(values)
