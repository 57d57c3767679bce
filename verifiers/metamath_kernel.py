"""The kernel of Metamath: what one label of a proof does (Megill and Wheeler, Metamath, 2019, section 4.2).

A proof is a list of labels, a program for a stack machine: a hypothesis puts its expression on the stack; an
assertion takes its mandatory hypotheses, with expressions for the variables, and puts its conclusion.

An expression is one text in which every symbol is followed by a space: ``"|- ( ph -> ph ) "``. So
substitution is concatenation, and equal texts are equal expressions.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal, NamedTuple

from envgen.verifiers.proof_verdict import ProofTextError, clipped

MAX_SUBSTITUTED_CHARS = 1 << 26
"""Of what one step may write, as an upper bound: set.mm needs a quarter of it."""
MAX_WRITTEN_CHARS = 1 << 24
"""Of what all steps of one proof may write: a few doublings would fill any memory."""
PROVABLE = "|-"
"""The typecode of what is proven; all others are types of syntax."""
Pair = tuple[str, str]
"""Two variables, in the order of their names, that share no variable when they are substituted."""


def ordered(one: str, two: str) -> Pair:
    """A pair, in the order of names."""
    return (one, two) if one < two else (two, one)


class Hypothesis(NamedTuple):
    """A ``$f`` (the type of a variable) or an ``$e`` (what an assertion takes as given)."""

    label: str
    expression: str
    floating: bool
    position: int = 0

    @property
    def variable(self) -> str:
        """The variable whose type a ``$f`` gives."""
        return self.expression.split()[1]


@dataclass(frozen=True, slots=True)
class Assertion:
    """A ``$a`` or ``$p`` with its frame; ``make`` prepares what the stack machine needs."""

    label: str
    kind: Literal["axiom", "theorem"]
    hypotheses: tuple[Hypothesis, ...]
    """The mandatory ones, in order."""
    expression: str
    disjoint: frozenset[Pair]
    """Pairs of mandatory variables that whoever cites it must keep apart."""
    scope: frozenset[Pair]
    """All pairs that its own proof may take to be apart."""
    proof: str
    position: int
    floating: tuple[tuple[int, str], ...]
    """Where a ``$f`` stands among the hypotheses, and its typecode with a space."""
    essential: tuple[tuple[int, str], ...]
    """Where an ``$e`` stands, and its expression with ``{0}`` for the variable of the first ``$f``."""
    conclusion: str
    apart: tuple[tuple[int, int, Pair], ...]
    """``disjoint`` by the numbers of variables."""
    weight: int

    @classmethod
    def make(
        cls,
        label: str,
        hypotheses: Sequence[Hypothesis],
        expression: str,
        scope: frozenset[Pair],
        *,
        proof: str | None = None,
        position: int = 0,
    ) -> Assertion:
        """The assertion with its mandatory hypotheses; without a proof an axiom."""
        types = [(at, one) for at, one in enumerate(hypotheses) if one.floating]
        numbers = {one.variable: number for number, (_, one) in enumerate(types)}
        essential = tuple(
            (at, _template(one.expression, numbers))
            for at, one in enumerate(hypotheses)
            if not one.floating
        )
        disjoint = scope.intersection(combinations(sorted(numbers), 2)) if scope else scope
        conclusion = _template(expression, numbers)
        return cls(
            label,
            "axiom" if proof is None else "theorem",
            tuple(hypotheses),
            expression,
            disjoint,
            scope,
            proof or "",
            position,
            tuple((at, one.expression.split(" ")[0] + " ") for at, one in types),
            essential,
            conclusion,
            tuple((numbers[one], numbers[two], (one, two)) for one, two in sorted(disjoint)),
            len(conclusion) + sum(len(template) for _, template in essential),
        )


def _template(expression: str, numbers: Mapping[str, int]) -> str:
    """An expression for ``str.format``, in which variables are their numbers."""
    return "".join(
        f"{{{numbers[one]}}}" if one in numbers else one.replace("{", "{{").replace("}", "}}") + " "
        for one in expression.split()
    )


class ProofStack:
    """The kernel: what stands on the stack was derived.

    Args:
        apart: the pairs of variables that the proof may take to be apart.
        variables: all symbols that are variables.
    """

    def __init__(self, apart: Container[Pair], variables: set[str]) -> None:
        self.entries: list[str] = []
        self._apart, self._variables = apart, variables
        self._written = 0

    def apply(self, one: Assertion) -> None:
        """Take an assertion's hypotheses from the stack, and put its conclusion there.

        Raises:
            ProofTextError: if it does not apply; the stack is as before.
        """
        start = len(self.entries) - len(one.hypotheses)
        if start < 0:
            raise ProofTextError(
                f"{one.label} takes {len(one.hypotheses)} hypotheses, the stack has {len(self.entries)}"
            )
        taken = self.entries[start:]
        bodies = []
        for at, typecode in one.floating:
            if not taken[at].startswith(typecode):
                raise ProofTextError(
                    self._unlike(one, at, taken[at], one.hypotheses[at].expression)
                )
            bodies.append(taken[at][len(typecode) :])
        if one.weight * sum(map(len, bodies)) > MAX_SUBSTITUTED_CHARS:
            raise ProofTextError(f"{one.label} makes an expression that is too long")
        for at, template in one.essential:
            if (wanted := template.format(*bodies)) != taken[at]:
                raise ProofTextError(self._unlike(one, at, taken[at], wanted))
        for first, second, pair in one.apart:
            self._keep_apart(one.label, pair, bodies[first], bodies[second])
        conclusion = one.conclusion.format(*bodies)
        self._written += len(conclusion)
        if self._written > MAX_WRITTEN_CHARS:
            raise ProofTextError("the proof's expressions are too long")
        self.entries[start:] = [conclusion]

    @staticmethod
    def _unlike(one: Assertion, at: int, got: str, wanted: str) -> str:
        return (
            f"{one.label} needs {clipped(wanted.strip(), 200)!r} as {one.hypotheses[at].label}, "
            f"got {clipped(got.strip(), 200)!r}"
        )

    def _keep_apart(self, label: str, pair: Pair, first: str, second: str) -> None:
        """Refuse expressions with a variable in common, or two that nothing keeps apart."""
        others = sorted(self._variables.intersection(second.split()))
        for one in sorted(self._variables.intersection(first.split())):
            for two in others:
                if one == two or ordered(one, two) not in self._apart:
                    raise ProofTextError(
                        f"{label} keeps {pair[0]} and {pair[1]} apart, but {one} and {two} need not be"
                    )

    def finish(self, goal: str) -> None:
        """Raise ``ProofTextError`` unless the goal, and nothing else, stands on the stack."""
        if len(self.entries) != 1:
            raise ProofTextError(
                f"the proof leaves {len(self.entries)} entries on the stack, not 1"
            )
        if self.entries[0] != goal:
            shown = clipped(self.entries[0].strip(), 200)
            raise ProofTextError(f"the proof shows {shown!r}, not {clipped(goal.strip(), 200)!r}")
