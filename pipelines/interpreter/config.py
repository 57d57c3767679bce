"""Which code-interpreter problems to generate."""

from __future__ import annotations

from typing import Annotated, ClassVar, get_args

from pydantic import AfterValidator, Field

from envgen.core.limits import Label, Whole
from envgen.core.types import Record
from envgen.pipelines.interpreter.makers.maker import ProblemKind
from envgen.pipelines.search.config import bounds

KINDS: tuple[ProblemKind, ...] = get_args(ProblemKind)


def _kinds(text: str) -> str:
    if unknown := [one for one in text.split(",") if one not in KINDS]:
        raise ValueError(f"kinds are {', '.join(KINDS)}, not {unknown[0][:20]!r}")
    return text


def _level(text: str) -> str:
    if bounds(text)[-1] > 8:
        raise ValueError("levels go from 1 to 8")
    return text


class InterpreterConfig(Record):
    """Which problems."""

    family: ClassVar[str] = "interpreter"
    problems: int = Field(default=60, ge=1, le=100_000)
    """How many."""
    kind: Annotated[Label, AfterValidator(_kinds)] = "math,logic,data"
    """Kinds of problems: math, logic, data, or several with commas; or reasoning-gym, the package."""
    level: Annotated[Label, AfterValidator(_level)] = "1..8"
    """How hard: a level or a range. Numbers grow with it."""
    seed: Whole = 0
    """The same seed and options give the same problems."""
