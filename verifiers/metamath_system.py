"""Prove a statement of Metamath backward: a step applies an assertion to the first open goal.

The assertion's hypotheses are open then, before the goals that are left. A step is a label: of an assertion
whose conclusion matches the goal, or of a hypothesis of the statement that equals it. Variables that stand in
the assertion's hypotheses only are given::

    ax-mp with ph := ( ps -> ps )
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Annotated, NamedTuple

from pydantic import Field

from envgen.core.limits import Label
from envgen.core.types import Record
from envgen.verifiers.metamath_grammar import Grammar, Tree
from envgen.verifiers.metamath_kernel import (
    MAX_SUBSTITUTED_CHARS,
    Assertion,
    Hypothesis,
    Pair,
    ProofStack,
    ordered,
)
from envgen.verifiers.proof_system import Known, ProofState, WrongStepError
from envgen.verifiers.proof_verdict import (
    MAX_LINE_CHARS,
    ProofTextError,
    ProofVerdict,
    clipped,
    proof_lines,
)

Symbol = Annotated[str, Field(pattern=r"^[!-#%-~]{1,64}$")]
StatementLabel = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,100}$")]
Expression = Annotated[Label, Field(pattern=r"^[!-#%-~]+( [!-#%-~]+)*$")]
"""A typecode and symbols, with one space between two."""
Disjoint = Annotated[tuple[tuple[Symbol, Symbol], ...], Field(max_length=2_000)]
Expressions = Annotated[dict[StatementLabel, Expression], Field(max_length=2_000)]

_STEP = re.compile(r"\s*([A-Za-z0-9._-]+)(?:\s+with\s+(\S.*))?\s*", re.ASCII)
_GIVEN = re.compile(r"(?:^|,\s*)(\S+)\s+:=\s+")


class VariableText(Record):
    """A variable, its type, and the label that a proof names it by."""

    label: StatementLabel
    typecode: Symbol
    variable: Symbol


class AssertionText(Record):
    """An axiom or a theorem that steps may cite."""

    hypotheses: Annotated[tuple[Expression, ...], Field(max_length=50)] = ()
    disjoint: Disjoint = ()
    conclusion: Expression


class MetamathTheory(Record):
    """What a proof may cite.

    A label takes the variables of its assertion, in the order of ``variables``, and then its hypotheses.
    """

    variables: Annotated[tuple[VariableText, ...], Field(max_length=500)]
    syntax: Expressions
    """Syntax axioms, like ``"wi": "wff ( ph -> ps )"``."""
    assertions: Annotated[dict[StatementLabel, AssertionText], Field(max_length=2_000)]


class MetamathStatement(Record):
    """What is to be proven. Variables that it does not have are apart from all others."""

    hypotheses: Annotated[Expressions, Field(max_length=50)] = {}
    disjoint: Disjoint = ()
    conclusion: Expression


class _Move(NamedTuple):
    """A step that was taken: what it opens, and what the proof's text has before its label."""

    label: str
    parts: tuple[Tree | str, ...] = ()
    """Of the hypotheses, in order: the tree of a variable, or a goal."""

    @property
    def goals(self) -> list[str]:
        return [one for one in self.parts if isinstance(one, str)]


class MetamathSystem:
    """The proof system of a statement; see ``ProofSystem`` and this module's text.

    Raises:
        ProofTextError: if a label is used twice, or an expression can't be read.
    """

    def __init__(self, theory: MetamathTheory, statement: MetamathStatement) -> None:
        self._theory = theory
        self._floating = {
            one.variable: Hypothesis(one.label, f"{one.typecode} {one.variable} ", True)
            for one in theory.variables
        }
        self._variables = set(self._floating)
        self._given = {label: f"{text} " for label, text in statement.hypotheses.items()}
        self._goal = f"{statement.conclusion} "
        self._assertions = {
            label: self._assertion(label, AssertionText(conclusion=text))
            for label, text in theory.syntax.items()
        }
        self._assertions |= {
            label: self._assertion(label, one) for label, one in theory.assertions.items()
        }
        self._types = {one.label: one.expression for one in self._floating.values()}
        num = len(theory.variables) + len(theory.syntax) + len(theory.assertions)
        if num != len(self._types) + len(self._assertions) or (
            num + len(self._given) != len({*self._types, *self._assertions, *self._given})
        ):
            raise ProofTextError("a label or a variable of the theory is used twice")
        syntax = [self._assertions[label] for label in theory.syntax]
        self._grammar = Grammar(self._floating.values(), syntax)
        for text in (*self._given.values(), self._goal):
            self._grammar.parse_statement(text)
        self._apart = self._kept_apart(statement)

    def _assertion(self, label: str, one: AssertionText) -> Assertion:
        used = set(" ".join((*one.hypotheses, one.conclusion)).split())
        types = [floating for symbol, floating in self._floating.items() if symbol in used]
        essential = [
            Hypothesis(f"{label}.{number}", f"{text} ", False)
            for number, text in enumerate(one.hypotheses, start=1)
        ]
        scope = frozenset(ordered(*pair) for pair in one.disjoint)
        return Assertion.make(label, [*types, *essential], f"{one.conclusion} ", scope)

    def _kept_apart(self, statement: MetamathStatement) -> set[Pair]:
        """The statement's pairs, and those with a variable that it does not have."""
        used = set(" ".join((*self._given.values(), self._goal)).split())
        return {ordered(*pair) for pair in statement.disjoint} | {
            ordered(one, two)
            for one, two in combinations(self._floating, 2)
            if one not in used or two not in used
        }

    def follow(self, steps: Sequence[str]) -> ProofState:
        """See ``ProofSystem``."""
        _, goals = self._moves(steps)
        return ProofState(tuple(steps), tuple(goal.strip() for goal in goals))

    def _moves(self, steps: Sequence[str]) -> tuple[list[_Move], list[str]]:
        """The steps that were taken, and the open goals."""
        goals, moves = [self._goal], list[_Move]()
        for number, step in enumerate(steps, start=1):
            try:
                if not goals:
                    raise ProofTextError("no goal is open: the proof is whole without this step")
                moves.append(self._move(step, goals[0]))
            except ProofTextError as error:
                raise WrongStepError(number, clipped(str(error), 600)) from error
            goals[:1] = moves[-1].goals
        return moves, goals

    def _move(self, step: str, goal: str) -> _Move:
        """Apply a step to a goal. The kernel judges it: it has to make the goal of what is opened."""
        read = _STEP.fullmatch(step) if len(step) <= MAX_LINE_CHARS else None
        if read is None:
            raise ProofTextError("this is no step; one looks like: LABEL with ph := ( ps -> ps )")
        label, given = read[1], read[2] or ""
        if label in self._given and not given:
            if self._given[label] != goal:
                raise ProofTextError(
                    f"{label} is {self._given[label].strip()}, the goal is {goal.strip()}"
                )
            return _Move(label)
        if label not in self._theory.assertions:
            raise ProofTextError(f"there is no assertion or hypothesis {clipped(label, 80)!r}")
        one = self._assertions[label]
        bound = self._substitution(one, goal, given)
        bodies = [bound[hyp.variable].body for hyp in one.hypotheses if hyp.floating]
        if one.weight * sum(map(len, bodies)) > MAX_SUBSTITUTED_CHARS:
            raise ProofTextError("the new goals are too long")
        goals = {at: template.format(*bodies) for at, template in one.essential}
        parts = tuple(
            goals[at] if at in goals else bound[hyp.variable]
            for at, hyp in enumerate(one.hypotheses)
        )
        stack = ProofStack(self._apart, self._variables)
        stack.entries += [
            part if isinstance(part, str) else f"{part.typecode} {part.body}" for part in parts
        ]
        stack.apply(one)
        stack.finish(goal)
        for new in goals.values():
            self._grammar.parse_statement(new)  # it refuses what is too long or too deep
        return _Move(label, parts)

    def _substitution(self, one: Assertion, goal: str, given: str) -> dict[str, Tree]:
        """A tree for each variable of an assertion, so that its conclusion is the goal."""
        mandatory = {hyp.variable: hyp for hyp in one.hypotheses if hyp.floating}
        bound = self._chosen(one.label, given, mandatory)
        pattern = self._grammar.parse_statement(one.expression)
        tree = self._grammar.parse_statement(goal)
        typecode = one.expression.split(" ")[0]
        if typecode != goal.split(" ")[0] or not self._grammar.match(pattern, tree, bound):
            where = f" with {given}" if given else ""
            raise ProofTextError(
                f"{one.label}{where} concludes {one.expression.strip()}, which does not match {goal.strip()}"
            )
        if missing := [name for name in mandatory if name not in bound]:
            raise ProofTextError(
                f"{one.label} leaves {', '.join(missing)} open; add: with {missing[0]} := ..."
            )
        return bound

    def _chosen(
        self, label: str, given: str, mandatory: Mapping[str, Hypothesis]
    ) -> dict[str, Tree]:
        """The trees that ``with`` gives."""
        bound: dict[str, Tree] = {}
        before, *chosen = _GIVEN.split(given)
        if before.strip():
            raise ProofTextError(
                f"{clipped(given, 80)!r} gives nothing; write: with ph := ( ps -> ps )"
            )
        for name, text in zip(chosen[::2], chosen[1::2], strict=True):
            if name not in mandatory or name in bound:
                raise ProofTextError(
                    f"{clipped(name, 40)!r} is no variable of {label}, or is given twice"
                )
            bound[name] = self._grammar.parse(text, mandatory[name].expression.split()[0])
        return bound

    def text(self, steps: Sequence[str]) -> str:
        """See ``ProofSystem``: the labels in reverse Polish order; a goal that is open is ``?``."""
        moves, goals = self._moves(steps)
        proofs = [["?"] for _ in goals]
        for move in reversed(moves):  # the proof of a move's first goal is the last one made
            labels: list[str] = []
            for part in move.parts:
                labels += proofs.pop() if isinstance(part, str) else part.labels()
            proofs.append([*labels, move.label])
        return textwrap.fill(
            " ".join(proofs[0]), 100, break_long_words=False, break_on_hyphens=False
        )

    def check(self, proof: str) -> ProofVerdict:
        """See ``ProofSystem``. What is counted is labels."""
        labels = " ".join(proof_lines(proof)).split()
        stack, num_read = ProofStack(self._apart, self._variables), 0
        try:
            for label in labels:
                num_read += 1
                if label in self._assertions:
                    stack.apply(self._assertions[label])
                elif (found := self._types.get(label) or self._given.get(label)) is not None:
                    stack.entries.append(found)
                else:
                    raise ProofTextError(f"there is no label {clipped(label, 80)!r}")
            stack.finish(self._goal)
        except ProofTextError as error:
            return ProofVerdict(num_read - 1, num_read, clipped(str(error), 600))
        return ProofVerdict(num_read)

    def known(self) -> Sequence[Known]:
        """See ``ProofSystem``."""
        return [
            Known(label, " => ".join(filter(None, (" & ".join(one.hypotheses), one.conclusion))))
            for label, one in self._theory.assertions.items()
        ]
