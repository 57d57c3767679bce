"""Shortcuts of tasks that ask for an answer."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from random import Random
from typing import Any, NamedTuple

from envgen.core import ir
from envgen.core.ir import Node, Problem
from envgen.pipelines.general.semantics.evaluate import subsets
from envgen.pipelines.general.semantics.evaluator import Closure, Compiler, elements
from envgen.pipelines.general.semantics.layout import ordered
from envgen.pipelines.general.semantics.rewrite import (
    TRUE,
    conjuncts,
    pairwise,
    slots_of,
    summands,
    truth,
)
from envgen.pipelines.general.semantics.tables import Tables
from envgen.pipelines.general.space.build import bare_model, goal_truth

STARTS = 5
_NEAR = 0.5
"""Chance of a local search to change one member of a set rather than all."""
_WORSE = 0.02
"""Chance of a local search to keep a change that breaks more."""
Values = list[Any]
"""A value for each slot, in the problem's order."""


class RulePart(NamedTuple):
    """One conjunct of a rule, and the slots that it reads."""

    scope: tuple[int, ...]
    run: Closure
    expr: Node


class AnswerGame:
    """A problem over rows, for players that give an answer."""

    def __init__(self, problem: Problem, tables: Tables, compiler: Compiler | None = None) -> None:
        self.problem, self.tables = problem, tables
        self.compiler = compiler or Compiler(problem, tables)
        self.model = bare_model(problem, tables, self.compiler)
        self.domains, self.frame = self.model.domains, self.model.frame
        self.size = len(self.domains)
        rules = [truth(clause) for clause in problem.clauses]
        goal = goal_truth(problem, self.compiler)
        self.parts = [
            RulePart(self.model.scope_of(part), self.compiler.compile(part), part)
            for expr in (*rules, *([] if goal is None else [goal]))
            for part in pairwise(expr)
        ]
        self.about = [[part for part in self.parts if i in part.scope] for i in range(self.size)]
        self.costs = self._costs(rules)
        self._sets: dict[tuple[int, tuple[Any, ...]], list[Any]] = {}
        self._about: dict[tuple[int, ...], list[bool]] = {}
        self.orders: dict[Hashable, Sequence[Any]] = {}
        """Rows as recipes order them (``recipes``)."""
        self.needs = [self._needs(slot) for slot in problem.slots]
        """By slot the slots that its domain reads."""

    def _needs(self, slot: ir.Slot) -> set[int]:
        domain = slot.domain
        return set(self.model.scope_of(domain)) if isinstance(domain, ir.Query) else set()

    def _costs(self, rules: Sequence[Node]) -> list[list[tuple[Closure, int]]]:
        """By slot its terms in bounded sums over several slots, with the sign that makes more worse."""
        found: list[list[tuple[Closure, int]]] = [[] for _ in range(self.size)]
        for side, sign in self._bounded(rules):
            terms = [(s, term) for s, term in summands(side, sign) if slots_of(term)]
            if len({name for _, term in terms for name in slots_of(term)}) < 2:
                continue
            for s, term in terms:
                scope = self.model.scope_of(term)
                if len(scope) == 1:
                    found[scope[0]].append((self.compiler.compile(term), s))
        return found

    def _bounded(self, rules: Sequence[Node]) -> list[tuple[Node, int]]:
        """Both sides of each comparison, with the sign that makes more worse."""
        found: list[tuple[Node, int]] = []
        for part in (part for rule in rules for part in conjuncts(rule)):
            if isinstance(part, ir.Cmp) and part.fn in ("<", "<=", ">", ">="):
                sign = 1 if part.fn in ("<", "<=") else -1
                found += [(part.left, sign), (part.right, -sign)]
        goal = self.problem.goal
        if isinstance(goal, ir.Optimise):
            found.append((goal.expr, 1 if goal.sense == "min" else -1))
        return found

    def choices(self, i: int, values: Values) -> Sequence[Any]:
        """The values of a slot in listing order, given the slots before it."""
        slot = self.problem.slots[i]
        if slot.kind not in ("entity", "set") or not isinstance(slot.domain, ir.Query):
            return self.domains[i]
        rows = self.rows(i, values)
        if slot.kind == "entity":
            return rows
        if (i, rows) not in self._sets:
            self._sets[i, rows] = subsets(slot, rows)
        return self._sets[i, rows]

    def rows(self, i: int, values: Values) -> tuple[Any, ...]:
        """The rows that a slot chooses from, given the slots before it."""
        domain = self.problem.slots[i].domain
        if not isinstance(domain, ir.Query):
            raise TypeError(f"slot {i} chooses among no rows")
        self.frame.slots[:] = values
        rows: tuple[Any, ...] = self.compiler.compile(domain)(self.frame)
        return rows

    def untaken(self, i: int, values: Values, found: Iterable[Any]) -> Any:
        """The first value that shares nothing with slots of the same kind before it, else the first."""
        slots, first = self.problem.slots, None
        taken = {
            one
            for j in range(i)
            if _kind(slots[j]) == _kind(slots[i])
            for one in _members(slots[j], values[j])
        }
        for value in found:
            if taken.isdisjoint(_members(slots[i], value)):
                return value
            first = value if first is None else first
        return first

    def broken(self, values: Values) -> list[RulePart]:
        """The parts of rules that an answer breaks."""
        self.frame.slots[:] = values
        return [part for part in self.parts if part.run(self.frame) is not True]

    def passes(self, values: Values | None) -> bool:
        """Whether an answer keeps every rule."""
        return values is not None and not self.broken(values)

    # --- players ------------------------------------------------------------------------------------

    def first_row(self) -> Values | None:
        """Fill each slot with its first value that no other slot has."""
        values: Values = [None] * self.size
        for i in range(self.size):
            values[i] = self.untaken(i, values, self.choices(i, values))
        return values

    def first_fit(self) -> Values | None:
        """Fill slots in order, each with the first value that fits; None where none does."""
        if (question := self.question) is not None:
            return [self._first_that_meets(question)]
        values: Values = [None] * self.size
        for i in range(self.size):
            values[i] = next(iter(self._fitting(i, values, set(range(i + 1)), 1)), None)
            if values[i] is None:
                return None
        return values

    def greedy(self) -> Values | None:
        """Fill the slot with the fewest fitting values next, with the cheapest of them."""
        if (question := self.question) is not None:
            plain = question.model_copy(update={"where": TRUE})
            return [self.compiler.compile(plain)(self.compiler.frame())]
        values: Values = [None] * self.size
        filled: set[int] = set()
        while len(filled) < self.size:
            ready = [i for i in range(self.size) if i not in filled and self.needs[i] <= filled]
            fitting = {i: self._fitting(i, values, filled | {i}) for i in ready}
            i = min(ready, key=lambda i: len(fitting[i]))
            if not fitting[i]:
                return None
            values[i] = min(fitting[i], key=lambda value: self._cost(i, value))
            filled.add(i)
        return values

    def local_search(self, rng: Random, steps: int) -> int | None:
        """Evaluated answers until one is right, the fewest of some starts; None if more than ``steps``."""
        best: int | None = None
        for _ in range(STARTS):
            found = self._one_start(rng, steps if best is None else best - 1)
            best = best if found is None else found
        return best

    @property
    def question(self) -> ir.Query | None:
        """What is asked, where one value of the rows is."""
        goal = self.problem.goal
        return goal.query if isinstance(goal, ir.Equals) and not self.problem.clauses else None

    def _first_that_meets(self, query: ir.Query) -> Any:
        frame = self.compiler.frame()
        if query.agg != "none":
            first = next(conjuncts(query.where), TRUE)
            return self.compiler.compile(query.model_copy(update={"where": first}))(frame)
        every = query.model_copy(update={"order": (), "limit": None})
        return next(iter(elements(every, self.compiler)(frame)), None)

    def _fitting(self, i: int, values: Values, filled: set[int], most: int = 10**9) -> list[Any]:
        """Values of a slot that keep the rules about filled slots."""
        found: list[Any] = []
        rules = [part.run for part in self.about[i] if filled.issuperset(part.scope)]
        for value in self.choices(i, values):
            self.frame.slots[:] = values
            self.frame.slots[i] = value
            if all(run(self.frame) is True for run in rules):
                found.append(value)
                if len(found) == most:
                    break
        return found

    def _cost(self, i: int, value: Any) -> int:
        self.frame.slots[i] = value
        return sum(sign * (run(self.frame) or 0) for run, sign in self.costs[i])

    def _one_start(self, rng: Random, steps: int) -> int | None:
        values = self._drawn([None] * self.size, range(self.size), rng)
        broken = self.broken(values)
        for step in range(1, steps + 1):
            if not broken:
                return step
            scope = rng.choice(broken).scope
            if not scope:
                return None  # whatever the answer, this rule is broken
            i = rng.choice(scope)
            redrawn = (i, *(j for j in range(self.size) if i in self.needs[j]))
            changed = self._drawn(values, redrawn, rng)
            if self.problem.slots[i].kind == "set" and rng.random() < _NEAR:
                changed[i] = self._near(i, values, rng)
            now = self._broken_after(redrawn, changed, broken)
            if len(now) <= len(broken) or rng.random() < _WORSE:
                values, broken = changed, now
        return None

    def _broken_after(
        self, redrawn: tuple[int, ...], values: Values, before: list[RulePart]
    ) -> list[RulePart]:
        """``broken(values)``, where only some slots are others than when ``before`` were broken."""
        if redrawn not in self._about:
            self._about[redrawn] = [not set(part.scope).isdisjoint(redrawn) for part in self.parts]
        self.frame.slots[:] = values
        still = set(map(id, before))
        return [
            part
            for part, asked in zip(self.parts, self._about[redrawn], strict=True)
            if (part.run(self.frame) is not True if asked else id(part) in still)
        ]

    def _near(self, i: int, values: Values, rng: Random) -> Any:
        """The value of a set slot with one member dropped, added or swapped."""
        slot, rows = self.problem.slots[i], self.rows(i, values)
        here = [row for row in values[i] if row in rows]
        others = [row for row in rows if row not in here]
        kept = [[row for row in here if row != gone] for gone in here]
        near = [[*some, row] for some in kept for row in others]
        near += kept if len(here) > slot.least else []
        near += [[*here, row] for row in others] if len(here) < (slot.length or len(rows)) else []
        return ordered(rng.choice(near)) if near else values[i]

    def _drawn(self, values: Values, which: Sequence[int], rng: Random) -> Values:
        """``values`` with some slots drawn anew, each given those before it."""
        drawn = list(values)
        for i in which:
            drawn[i] = rng.choice(self.choices(i, drawn) or self.domains[i])
        return drawn


def _members(slot: ir.Slot, value: Any) -> tuple[Any, ...]:
    return tuple(value or ()) if slot.kind == "set" else (value,)


def _kind(slot: ir.Slot) -> object:
    """The table whose rows a slot's values are, or their type."""
    return slot.domain.relation if isinstance(slot.domain, ir.Query) else slot.domain
