"""Which statements to generate, to be proven."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, get_args

from pydantic import AfterValidator, Field

from envgen.core.limits import Label, Whole
from envgen.core.types import Record
from envgen.pipelines.search.config import bounds
from envgen.verifiers.proof_statement import SystemName

SYSTEMS: tuple[SystemName, ...] = get_args(SystemName)
DEFAULT = ("deduction", "equational")


def _systems(text: str) -> str:
    if unknown := [one for one in text.split(",") if one not in SYSTEMS]:
        raise ValueError(f"systems are {', '.join(SYSTEMS)}, not {unknown[0][:20]!r}")
    return text


def _level(text: str) -> str:
    if bounds(text)[-1] > 8:
        raise ValueError("levels go from 1 to 8")
    return text


class ProofConfig(Record):
    """Which statements."""

    family: ClassVar[str] = "proof"
    problems: int = Field(default=60, ge=1, le=100_000)
    """How many."""
    system: Annotated[Label, AfterValidator(_systems)] = ",".join(DEFAULT)
    """Proof systems: deduction, equational, metamath, or several with commas."""
    level: Annotated[Label, AfterValidator(_level)] = "1..8"
    """How long proofs are: a level or a range."""
    database: Path | None = None
    """Of Metamath, whose theorems to take: a .mm file. None: Debian's set.mm (metamath-databases)."""
    seed: Whole = 0
    """The same seed and options give the same statements."""
