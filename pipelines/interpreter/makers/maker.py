"""What a maker of problems is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from random import Random
from typing import Literal, cast

from pydantic import JsonValue

from envgen.verifiers.maths import MathAnswer

Params = Mapping[str, JsonValue]
"""A problem's numbers, as JSON: all else follows from them."""
ProblemKind = Literal["math", "logic", "data", "reasoning-gym"]


@dataclass(frozen=True, kw_only=True)
class Maker:
    """Makes problems of one sort. Every function is a fixed one of its arguments.

    ``solve`` and ``check`` must be two methods, written apart: a formula and a search, or two libraries. The
    gold ``code`` is a third derivation, run in the kernel.
    """

    name: str
    """Its id: ``[a-z0-9_]+``."""
    kind: ProblemKind
    area: str
    """As a textbook's contents would say: number theory, linear algebra, ..."""
    draw: Callable[[Random, int], Params]
    """The numbers of a problem of a level, 1 (easy by hand or nearly) to 8."""
    text: Callable[[Params], str]
    """The problem, in words. It says what form the answer has."""
    solve: Callable[[Params], MathAnswer]
    """The answer, by a fast method."""
    check: Callable[[Params], MathAnswer]
    """The answer, by another method."""
    code: Callable[[Params], str]
    """Python that prints the answer as its last line."""
    files: Callable[[Params], dict[str, str]] | None = None
    """Files in the kernel's working folder, by name."""
    about: Callable[[Params], str] | None = None
    """What the files are: part of the environment's instructions."""


def integer(value: int) -> MathAnswer:
    """An answer that is a whole number."""
    return MathAnswer(kind="integer", value=str(value))


def decimal(value: float, digits: int, unit: str = "") -> MathAnswer:
    """An answer that is right to so many digits after the point."""
    return MathAnswer(kind="decimal", value=f"{value:.{digits}f}", digits=digits, unit=unit)


def rational(value: Fraction | int) -> MathAnswer:
    """An answer that is a fraction: ``a/b`` in lowest terms, or a whole number."""
    return MathAnswer(kind="rational", value=str(Fraction(value)))


def text_answer(value: str) -> MathAnswer:
    """An answer that is a word."""
    return MathAnswer(kind="string", value=value)


# ---- numbers: drawn, and read with care, for they may come from a stranger's file


def drawn(rng: Random, **values: object) -> Params:
    """The numbers of a problem, with the number of its wording."""
    return cast(Params, {"wording": rng.randrange(_WORDINGS), **values})


_WORDINGS = 6
_HUGE = 10**18


def number(params: Params, name: str, low: int = -_HUGE, high: int = _HUGE) -> int:
    """A whole number of a problem, from ``low`` to ``high``.

    Raises:
        ValueError: if there is none of this name, or it is not between these.
    """
    return _whole(params.get(name), name, low, high)


def numbers(
    params: Params, name: str, most: int, low: int = -_HUGE, high: int = _HUGE
) -> list[int]:
    """A list of 1 to ``most`` whole numbers of a problem, each from ``low`` to ``high``.

    Raises:
        ValueError: if it is anything else.
    """
    return _wholes(params.get(name), name, most, low, high)


def rows(
    params: Params,
    name: str,
    most: int,
    width: int = 0,
    low: int = -_HUGE,
    high: int = _HUGE,
) -> list[list[int]]:
    """A list of 1 to ``most`` rows of whole numbers, each ``width`` wide (0: as wide as there are rows).

    Raises:
        ValueError: if it is anything else.
    """
    found = params.get(name)
    if not isinstance(found, list) or not 0 < len(found) <= most:
        raise ValueError(f"{name!r} must be 1 to {most} rows, got {found!r:.40}")
    wide = width or len(found)
    table = [_wholes(row, name, wide, low, high) for row in found]
    if any(len(row) != wide for row in table):
        raise ValueError(f"{name!r} must have rows of {wide} numbers")
    return table


def letters(params: Params, name: str, most: int, alphabet: str) -> str:
    """A word of 1 to ``most`` letters of ``alphabet``.

    Raises:
        ValueError: if it is anything else.
    """
    found = params.get(name)
    if not isinstance(found, str) or not 0 < len(found) <= most or set(found) - set(alphabet):
        raise ValueError(f"{name!r} must be 1 to {most} of {alphabet[:40]}, got {found!r:.40}")
    return found


def _whole(value: object, name: str, low: int, high: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{name!r} must be a whole number, got {value!r:.40}")
    if not low <= value <= high:
        raise ValueError(f"{name!r} must be from {low} to {high}")
    return value


def _wholes(value: object, name: str, most: int, low: int, high: int) -> list[int]:
    if not isinstance(value, list) or not 0 < len(value) <= most:
        raise ValueError(f"{name!r} must be 1 to {most} numbers, got {value!r:.40}")
    return [_whole(one, name, low, high) for one in value]


# ---- words and programs


def worded(*wordings: str) -> Callable[[Params], str]:
    """The problem's text: one of these, chosen by its numbers, with ``{name}`` for each of them."""

    def text(params: Params) -> str:
        wording = wordings[number(params, "wording", 0, _WORDINGS - 1) % len(wordings)]
        try:
            return wording.format(**{name: _shown(value) for name, value in params.items()})
        except KeyError as error:
            raise ValueError(f"a number is missing: {error}") from None

    return text


def _shown(value: object) -> str:
    if isinstance(value, list) and not any(isinstance(one, list | dict) for one in value):
        return ", ".join(str(one) for one in value)
    if isinstance(value, list):
        return ", ".join("(" + _shown(one) + ")" for one in value)
    return str(value)


def program(names: str, body: str) -> Callable[[Params], str]:
    """Gold's code: these numbers as variables of the same names, then ``body``.

    Numbers stand in it as literals, so that a stranger's numbers are never read as code.
    """

    def code(params: Params) -> str:
        given = [f"{name} = {params.get(name)!r}" for name in names.split()]
        return "\n".join([*given, body.strip()])

    return code
