"""Theorems of a Metamath database as tasks: a theory, a statement, and backward steps that show it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property
from random import Random
from typing import NamedTuple

from pydantic import ValidationError

from envgen.core.errors import PipelineError
from envgen.verifiers.metamath import MetamathDatabase
from envgen.verifiers.metamath_grammar import Grammar, Tree
from envgen.verifiers.metamath_kernel import PROVABLE, Assertion, Hypothesis, ProofStack
from envgen.verifiers.metamath_system import (
    AssertionText,
    MetamathStatement,
    MetamathSystem,
    MetamathTheory,
    VariableText,
)
from envgen.verifiers.proof_system import WrongStepError
from envgen.verifiers.proof_verdict import ProofTextError

LEVELS = range(1, 9)
MAX_STEPS = 200
MAX_TEXT_CHARS = 400
"""Of hypotheses and conclusion of a statement together."""
MATHBOX = "mathbox"
"""The label at which set.mm's users begin to keep their own theorems; metamath.exe knows it, too."""


class MetamathTheorem(NamedTuple):
    """What is to be shown, from what, and backward steps that show it."""

    label: str
    theory: MetamathTheory
    statement: MetamathStatement
    steps: tuple[str, ...]


class _Node(NamedTuple):
    """A step of a proof tree: what it cites, and what it shows."""

    cited: Assertion | Hypothesis
    expression: str
    args: tuple[_Node, ...] = ()


class MetamathTheorems:
    """Draws theorems of a database.

    Args:
        database: whose proofs were verified.
    """

    def __init__(self, database: MetamathDatabase) -> None:
        self._database = database
        types = [one for one in database.hypotheses.values() if one.floating]
        self._types = {one.variable: one for one in types}
        syntax = [
            one
            for one in database.assertions.values()
            if one.kind == "axiom" and _typecode(one) != PROVABLE
        ]
        self._grammar = Grammar(self._types.values(), syntax)
        self._citable = [one for one in database.assertions.values() if _typecode(one) == PROVABLE]

    def candidates(self, level: int) -> list[str]:
        """Labels of theorems whose proofs have ``2 * level`` to ``2 * level + 3`` steps, in order.

        Without those whose use is discouraged (deprecated parts are), other proofs of a theorem, mathboxes,
        and theorems that conclude what an earlier assertion does.

        Raises:
            PipelineError: if there is no such level.
        """
        if level not in LEVELS:
            raise PipelineError(f"levels are 1 to {LEVELS[-1]}, got {level}")
        sizes = self._sizes
        return [one for one, size in sizes.items() if 2 * level <= size <= 2 * level + 3]

    @cached_property
    def _sizes(self) -> dict[str, int]:
        """The steps of each theorem that may be drawn."""
        sizes: dict[str, int] = {}
        seen: set[tuple[str, ...]] = set()
        for one in self._citable:
            if one.label == MATHBOX:
                break
            shape, text = self._shape(one.expression), _text(one)
            if (
                one.kind == "theorem"
                and shape not in seen
                and one.label not in self._database.discouraged
                and not re.search("OLD|ALT", one.label)
                and len(text) <= MAX_TEXT_CHARS
            ):
                sizes[one.label] = self._size(one)
            seen.add(shape)
        return sizes

    def _shape(self, expression: str) -> tuple[str, ...]:
        """An expression with its variables numbered: equal for those that differ in names only."""
        numbers: dict[str, str] = {}
        return tuple(
            numbers.setdefault(symbol, f"{_typecode(self._types[symbol])} {len(numbers)}")
            if symbol in self._types
            else symbol
            for symbol in expression.split()
        )

    def _size(self, theorem: Assertion) -> int:
        """The steps of a proof that are no syntax, with what is cited twice counted twice."""
        stack: list[int] = []
        saved: list[int] = []
        for step in self._database.steps(theorem):
            if isinstance(step.cited, int):
                stack.append(saved[step.cited])
            else:
                num = len(step.cited.hypotheses) if isinstance(step.cited, Assertion) else 0
                inner = sum(stack[len(stack) - num :])
                del stack[len(stack) - num :]
                stack.append(inner + (_typecode(step.cited) == PROVABLE))
            if step.saved:
                saved.append(stack[-1])
        return stack[-1]

    def draw(self, label: str, rng: Random, distractors: int = 60) -> MetamathTheorem:
        """A theorem with what its proof cites, and the assertions before it that are most like it.

        Args:
            label: one of ``candidates``.
            rng: chooses among the nearest assertions.
            distractors: how many that the proof does not cite; fewer where there are no more.

        Raises:
            PipelineError: if there is no such theorem, or its expressions can't be read by the syntax axioms.
        """
        theorem = self._database.assertions.get(label)
        if theorem is None or theorem.kind != "theorem":
            raise PipelineError(f"there is no theorem {label!r}", "take one of candidates()")
        try:
            nodes = self._nodes(theorem)
            steps = tuple(map(self._step, nodes))
            cited = {
                one.cited.label: one.cited for one in nodes if isinstance(one.cited, Assertion)
            }
            near = self._nearest(theorem, cited, 2 * distractors)
            chosen = rng.sample(near, min(distractors, len(near)))
            chosen = sorted([*cited.values(), *chosen], key=lambda one: one.position)
            shown = [theorem.expression, *(one.expression for one in theorem.hypotheses)]
            shown += [one.expression for node in nodes for one in (node, *node.args)]
            drawn = MetamathTheorem(label, self._theory(chosen, shown), _statement(theorem), steps)
            system = MetamathSystem(drawn.theory, drawn.statement)
            verdict = system.check(system.text(steps))
        except (ProofTextError, WrongStepError, ValidationError) as error:
            raise PipelineError(f"theorem {label!r} can't be drawn: {error}") from error
        if not verdict.accepted:
            raise PipelineError(f"the proof of {label!r} is refused: {verdict.reason}")
        return drawn

    def _nodes(self, theorem: Assertion) -> list[_Node]:
        """The steps of a proof that are no syntax, in the order of backward steps."""
        if (size := self._size(theorem)) > MAX_STEPS:
            raise ProofTextError(f"the proof has {size} steps", f"at most {MAX_STEPS} are drawn")
        nodes, todo = list[_Node](), [self._tree(theorem)]
        while todo:
            nodes.append(todo.pop())
            todo += [one for one in reversed(nodes[-1].args) if _typecode(one.cited) == PROVABLE]
        return nodes

    def _tree(self, theorem: Assertion) -> _Node:
        """The tree of a proof, syntax and all; what is cited twice is one node."""
        stack = ProofStack(theorem.scope, self._database.variables)
        nodes: list[_Node] = []
        saved: list[_Node] = []
        for step in self._database.steps(theorem):
            if isinstance(step.cited, int):
                nodes.append(saved[step.cited])
                stack.entries.append(nodes[-1].expression)
            elif isinstance(step.cited, Hypothesis):
                nodes.append(_Node(step.cited, step.cited.expression))
                stack.entries.append(step.cited.expression)
            else:
                stack.apply(step.cited)
                start = len(nodes) - len(step.cited.hypotheses)
                nodes[start:] = [_Node(step.cited, stack.entries[-1], tuple(nodes[start:]))]
            if step.saved:
                saved.append(nodes[-1])
        stack.finish(theorem.expression)
        return nodes[-1]

    def _step(self, node: _Node) -> str:
        """A node as a backward step: its label, with the variables that its conclusion does not have."""
        if isinstance(node.cited, Hypothesis):
            return node.cited.label
        given = [
            f"{hyp.variable} := {arg.expression.partition(' ')[2].strip()}"
            for hyp, arg in zip(node.cited.hypotheses, node.args, strict=True)
            if hyp.floating and hyp.variable not in node.cited.expression.split()
        ]
        return node.cited.label + (f" with {', '.join(given)}" if given else "")

    def _nearest(self, theorem: Assertion, cited: Iterable[str], num: int) -> list[Assertion]:
        """Assertions before a theorem that share most symbols with it, none of which shows it in one step."""
        goal = self._grammar.parse_statement(theorem.expression)
        symbols, left = set(_text(theorem).split()) - self._types.keys(), set(cited)
        ranked = []
        for one in self._citable:
            if one.position >= theorem.position:
                break
            if one.label in left or one.label in self._database.discouraged:
                continue
            if len(_text(one)) > MAX_TEXT_CHARS:
                continue
            others = set(_text(one).split()) - self._types.keys()
            ranked.append((-len(symbols & others) / len(symbols | others), -one.position, one))
        near: list[Assertion] = []
        for *_, one in sorted(ranked, key=lambda row: row[:2]):
            if len(near) == num:
                break
            pattern = self._grammar.parse_statement(one.expression)
            shows = not one.essential and self._grammar.match(pattern, goal, {})
            if not shows and self._shape(one.expression) != self._shape(theorem.expression):
                near.append(one)
        return near

    def _theory(self, chosen: Iterable[Assertion], shown: Iterable[str]) -> MetamathTheory:
        """Assertions with the variables and syntax axioms that they, and what is shown, are built by."""
        chosen = list(chosen)
        texts = {*shown, *(one.expression for one in chosen)}
        texts.update(hyp.expression for one in chosen for hyp in one.hypotheses)
        trees: list[Tree] = [self._grammar.parse_statement(text) for text in sorted(texts)]
        labels = {label for tree in trees for label in tree.labels()}
        syntax = [one for one in self._database.assertions.values() if one.label in labels]
        variables = {symbol for one in syntax for symbol in one.expression.split()}
        return MetamathTheory(
            variables=tuple(
                VariableText(label=one.label, typecode=_typecode(one), variable=one.variable)
                for one in self._types.values()
                if one.label in labels or one.variable in variables
            ),
            syntax={one.label: one.expression.strip() for one in syntax},
            assertions={
                one.label: AssertionText(
                    hypotheses=tuple(
                        hyp.expression.strip() for hyp in one.hypotheses if not hyp.floating
                    ),
                    disjoint=tuple(sorted(one.disjoint)),
                    conclusion=one.expression.strip(),
                )
                for one in chosen
            },
        )


def _typecode(one: Assertion | Hypothesis) -> str:
    return one.expression.split(" ", 1)[0]


def _text(one: Assertion) -> str:
    """All that an assertion says."""
    hypotheses = "".join(hyp.expression for hyp in one.hypotheses if not hyp.floating)
    return hypotheses + one.expression


def _statement(theorem: Assertion) -> MetamathStatement:
    return MetamathStatement(
        hypotheses={
            one.label: one.expression.strip() for one in theorem.hypotheses if not one.floating
        },
        disjoint=tuple(sorted(theorem.disjoint)),
        conclusion=theorem.expression.strip(),
    )
