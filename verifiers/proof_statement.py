"""A statement to prove and what its proof may cite, as records, and the proof system of both."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field

from envgen.core.errors import DatasetError
from envgen.core.limits import Label, Name
from envgen.core.types import Record
from envgen.verifiers import deduction, equational
from envgen.verifiers.equational import Algebra
from envgen.verifiers.metamath_system import MetamathStatement, MetamathSystem, MetamathTheory
from envgen.verifiers.proof_system import Known, ProofState, ProofSystem, WrongStepError
from envgen.verifiers.proof_verdict import ProofTextError, ProofVerdict
from envgen.verifiers.propositions import Sequent
from envgen.verifiers.terms import Equation, read_equation

SystemName = Literal["deduction", "equational", "metamath"]
_NUMBERED = re.compile(r"([| ]*)(\d{1,5}\.)?(.*)", re.DOTALL)


class LemmaText(Record):
    """A lemma of natural deduction, with its proof."""

    hypotheses: tuple[Label, ...]
    goal: Label
    proof: Label


class ProofTheory(Record):
    """What all proofs of an environment may cite: its blueprint."""

    system: SystemName
    lemmas: dict[Name, LemmaText] = {}
    """Of natural deduction; each may cite those before it."""
    signature: dict[Name, Annotated[int, Field(ge=0, le=8)]] = {}
    """Of an algebra: the number of arguments of each symbol."""
    equations: dict[Name, Label] = {}
    """Of an algebra: its axioms."""


class MetamathGoal(Record):
    """A statement of Metamath with what its proof may cite: each has its own."""

    theory: MetamathTheory
    statement: MetamathStatement


class ProofStatement(Record):
    """What is to be proven."""

    hypotheses: tuple[Label, ...] = ()
    goal: Label
    metamath: MetamathGoal | None = None
    """Of Metamath: all of it."""


def proof_system(theory: ProofTheory, statement: ProofStatement) -> ProofSystem:
    """The system in which a statement is proven.

    Raises:
        DatasetError: if theory or statement can't be read.
    """
    try:
        if theory.system == "deduction":
            lemmas = {
                name: Sequent.read(one.hypotheses, one.goal) for name, one in theory.lemmas.items()
            }
            return DeductionSystem(Sequent.read(statement.hypotheses, statement.goal), lemmas)
        if theory.system == "metamath":
            if statement.metamath is None:
                raise DatasetError("the statement says nothing of Metamath")
            return MetamathSystem(statement.metamath.theory, statement.metamath.statement)
        algebra = Algebra.read(theory.signature, theory.equations)
        return EquationalSystem(algebra, read_equation(statement.goal, algebra.signature))
    except ProofTextError as error:
        raise DatasetError(f"the statement can't be read: {error}") from error


class DeductionSystem:
    """Natural deduction, forward; see ``envgen.verifiers.deduction``."""

    def __init__(self, sequent: Sequent, lemmas: Mapping[str, Sequent]) -> None:
        self._sequent, self._lemmas = sequent, lemmas

    def follow(self, steps: Sequence[str]) -> ProofState:
        """See ``ProofSystem``. A step is a line, with or without its number."""
        lines = _numbered(steps, "")
        scope, verdict = deduction.follow(lines, self._sequent, self._lemmas)
        if not verdict.accepted:
            raise WrongStepError(verdict.line, verdict.reason)
        open_goals = [
            f"{scope.formulas[first]} |- ? (the sub-proof of line {first}: a line with one | less ends it)"
            for first in reversed(scope.open[1:])
        ]
        if scope.unfinished(self._sequent.goal):
            open_goals.append(str(self._sequent.goal))
        return ProofState(lines, tuple(open_goals))

    def text(self, steps: Sequence[str]) -> str:
        """See ``ProofSystem``."""
        return "\n".join(_numbered(steps, ""))

    def check(self, proof: str) -> ProofVerdict:
        """See ``ProofSystem``."""
        return deduction.check(proof, self._sequent, self._lemmas)

    def known(self) -> Sequence[Known]:
        """See ``ProofSystem``."""
        return [
            Known(name, f"{', '.join(map(str, one.hypotheses))} => {one.goal}")
            for name, one in self._lemmas.items()
        ]


class EquationalSystem:
    """Chains of equal terms (``envgen.verifiers.equational``); the first term is given."""

    def __init__(self, algebra: Algebra, goal: Equation) -> None:
        self._algebra, self._goal = algebra, goal

    def follow(self, steps: Sequence[str]) -> ProofState:
        """See ``ProofSystem``. A step is a term with its reason, with or without number and ``=``."""
        lines = self._lines(steps)
        term, verdict = equational.follow_chain(lines, self._algebra, self._goal)
        if not verdict.accepted:
            raise WrongStepError(max(1, verdict.line - 1), verdict.reason)
        rest = () if term == self._goal.right else (str(Equation(term, self._goal.right)),)
        return ProofState(lines, rest)

    def _lines(self, steps: Sequence[str]) -> tuple[str, ...]:
        return (f"1. {self._goal.left}", *_numbered(steps, "= ", first=2))

    def text(self, steps: Sequence[str]) -> str:
        """See ``ProofSystem``."""
        return "\n".join(self._lines(steps))

    def check(self, proof: str) -> ProofVerdict:
        """See ``ProofSystem``."""
        return equational.check_chain(proof, self._algebra, self._goal)

    def known(self) -> Sequence[Known]:
        """See ``ProofSystem``."""
        return [Known(name, str(one)) for name, one in self._algebra.equations.items()]


def _numbered(steps: Sequence[str], sign: str, first: int = 1) -> tuple[str, ...]:
    """Steps as lines of a proof: a number and a sign before each that has none."""
    lines = []
    for number, step in enumerate(steps, start=first):
        read = _NUMBERED.fullmatch(step)
        assert read is not None  # every text fits
        bars, given, rest = read.groups()
        rest = rest.strip()
        rest = rest if rest.startswith(sign.strip()) else sign + rest
        lines.append(f"{bars}{given or f'{number}.'} {rest}")
    return tuple(lines)
