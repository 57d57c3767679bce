"""What a maker of problems is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Literal

from pydantic import JsonValue

from envgen.verifiers.maths import MathAnswer

Params = Mapping[str, JsonValue]
"""A problem's numbers, as JSON: all else follows from them."""
ProblemKind = Literal["math", "logic", "data"]


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


def number(params: Params, name: str) -> int:
    """A whole number of a problem.

    Raises:
        ValueError: if there is none of this name.
    """
    value = params.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{name!r} must be a whole number, got {value!r:.40}")
    return value
