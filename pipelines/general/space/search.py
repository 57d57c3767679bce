"""Randomised backtracking over a model: forward checking, bounds on sums, a step budget."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from random import Random
from typing import Any, NamedTuple

from envgen.core import ir
from envgen.core.ir import Node
from envgen.pipelines.general.semantics.evaluator import Closure
from envgen.pipelines.general.semantics.rewrite import slots_of
from envgen.pipelines.general.space.model import Linear, Model

MAX_TERM_VALUES = 20_000


class OutOfStepsError(Exception):
    """Raised inside a search when its step budget is spent."""


@dataclass
class StepBudget:
    """Steps left; one step is one value tried or tested."""

    steps: int

    def spend(self, n: int = 1) -> None:
        """Take ``n`` steps.

        Raises:
            OutOfStepsError: when none are left.
        """
        self.steps -= n
        if self.steps < 0:
            raise OutOfStepsError


class _ConstraintTest(NamedTuple):
    """A constraint; ``takes_unknown``: None for a slot gives false only if every value would."""

    scope: tuple[int, ...]
    run: Closure
    takes_unknown: bool


def _takes_unknown(expr: Node, model: Model) -> bool:
    kinds = {model.p.slot(name).kind for name in slots_of(expr)}
    if not kinds <= {"entity", "value", "interval"}:
        return False
    # a row or number is left out, not unknown, where what selects it is unknown
    return not any(
        isinstance(n, ir.Query | ir.Range | ir.Reachable) and slots_of(n) for n in expr.walk()
    )


class _Sum:
    """A linear constraint with each term's values at hand."""

    def __init__(self, linear: Linear, model: Model) -> None:
        self.bound, self.exact = linear.bound, linear.exact
        self.unary: dict[int, dict[Any, int]] = {}
        self.large: list[tuple[tuple[int, ...], Closure, int, int]] = []
        slots = model.frame.slots
        for term in linear.terms:
            size = 1
            for i in term.scope:
                size *= len(model.domains[i])
            if size > MAX_TERM_VALUES:
                self.large.append((term.scope, term.run, -(10**15), 10**15))
                continue
            values: dict[Any, int] = {}
            for choice in product(*(model.domains[i] for i in term.scope)):
                for i, value in zip(term.scope, choice, strict=True):
                    slots[i] = value
                result = term.run(model.frame)
                if result is not None:
                    values[choice[0] if len(choice) == 1 else choice] = result
            if len(term.scope) == 1:
                self.unary[term.scope[0]] = values
            elif values:
                self.large.append(
                    (term.scope, term.run, min(values.values()), max(values.values()))
                )


class Search:
    """Depth-first search for the solutions of a model, in random order."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.slots = model.frame.slots
        self.size = len(model.domains)
        self.tests: list[list[_ConstraintTest]] = [[] for _ in range(self.size)]
        tests = [
            _ConstraintTest(c.scope, c.run, _takes_unknown(c.expr, model))
            for c in model.constraints
        ]
        for test in tests:
            for i in test.scope:
                self.tests[i].append(test)
        self.links: list[list[tuple[int, int, dict[Any, Any]]]] = [[] for _ in range(self.size)]
        for link in model.links:
            item = (link.child, link.parent, link.key_of)
            self.links[link.child].append(item)
            self.links[link.parent].append(item)
        self.sums = [_Sum(linear, model) for linear in model.linears] if model.feasible else []
        self.domains = self._supported(tests) if model.feasible else []
        self.equals = [c.scope for c in model.constraints if _is_equality(c.expr)]
        self.parents = {link.parent for link in model.links}
        self.failures = [1] * self.size
        """By variable: 1 + how often a test on it ruled everything out."""

    def run(self, rng: Random, budget: StepBudget) -> Iterator[list[Any]]:
        """Every solution once, values and variables in random order; a fresh list each.

        Raises:
            OutOfStepsError: when the budget is spent before the search is complete.
        """
        if not self.model.feasible:
            return
        domains = [list(domain) for domain in self.domains]
        if not all(domains):
            return
        for domain in domains:
            rng.shuffle(domain)
        free = set(range(self.size))
        pruned = self._bounded(domains, free, budget)
        if pruned is not None:
            yield from self._descend(pruned, free, rng, budget)

    def _descend(
        self, domains: list[list[Any]], free: set[int], rng: Random, budget: StepBudget
    ) -> Iterator[list[Any]]:
        if not free:
            yield [domain[0] for domain in domains]
            return
        i = self._next(domains, free)
        rest = free - {i}
        for value in domains[i]:
            budget.spend()
            narrowed = self._assign(domains, rest, i, value, budget)
            if narrowed is not None:
                yield from self._descend(narrowed, rest, rng, budget)

    def weighted_draw(
        self, rng: Random, budget: StepBudget, chance: Callable[[list[Any]], float]
    ) -> float:
        """One random dive: ``chance(solution)`` over the dive's own probability, 0 at a dead end.

        The mean over many dives estimates the chance that a draw is a solution (Knuth 1975).
        """
        if not self.model.feasible:
            return 0.0
        if not all(self.domains):
            return 0.0
        domains = self._bounded(list(self.domains), set(range(self.size)), budget)
        free = set(range(self.size))
        inverse = 1.0
        while domains is not None and free:
            i = self._next(domains, free)
            free.remove(i)
            inverse *= len(domains[i])
            budget.spend()
            domains = self._assign(domains, free, i, rng.choice(domains[i]), budget)
        return 0.0 if domains is None else inverse * chance([d[0] for d in domains])

    def _next(self, domains: list[list[Any]], free: set[int]) -> int:
        """The variable to branch on: a forced one, a parent, else few values and many failures."""
        return min(
            free,
            key=lambda j: (
                len(domains[j]) > 1 and j not in self.parents,
                len(domains[j]) / self.failures[j],
                j,
            ),
        )

    def _assign(
        self, domains: list[list[Any]], rest: set[int], i: int, value: Any, budget: StepBudget
    ) -> list[list[Any]] | None:
        """Domains after ``i = value``; None if a domain becomes empty or a test fails."""
        domains = list(domains)
        domains[i] = [value]
        for child, parent, key_of in self.links[i]:
            if child == i and parent in rest:
                domains[parent] = [v for v in domains[parent] if v == key_of[value]]
            elif parent == i and child in rest:
                domains[child] = [v for v in domains[child] if key_of[v] == value]
            elif key_of[domains[child][0]] != domains[parent][0]:
                return None
            if not domains[child] or not domains[parent]:
                return None
        for test in self.tests[i]:
            open_ = [j for j in test.scope if j in rest]
            if len(open_) > 1:
                ok = not self._hopeless(domains, test, rest)
            else:
                ok = self._tested(domains, test, open_, budget)
            if not ok:
                for j in test.scope:
                    self.failures[j] += 1
                return None
        for a, b in self.equals:
            if a in rest or b in rest:
                common = set(domains[a]).intersection(domains[b])
                if not common:
                    return None
                domains[a] = [value for value in domains[a] if value in common]
                domains[b] = [value for value in domains[b] if value in common]
        return self._bounded(domains, rest, budget)

    def _hopeless(self, domains: list[list[Any]], test: _ConstraintTest, rest: set[int]) -> bool:
        """Whether a test is false whatever its open variables will be: unknown in, false out."""
        if not test.takes_unknown:
            return False
        for j in test.scope:
            self.slots[j] = None if j in rest else domains[j][0]
        return test.run(self.model.frame) is False

    def _supported(self, tests: list[_ConstraintTest]) -> list[list[Any]]:
        """The model's domains without values that alone make a test false."""
        domains = [list(domain) for domain in self.model.domains]
        for test in tests:
            if not test.takes_unknown:
                continue
            for i in test.scope:
                for j in test.scope:
                    self.slots[j] = None
                kept = []
                for value in domains[i]:
                    self.slots[i] = value
                    if test.run(self.model.frame) is not False:
                        kept.append(value)
                domains[i] = kept
        return domains

    def _tested(
        self, domains: list[list[Any]], test: _ConstraintTest, open_: list[int], budget: StepBudget
    ) -> bool:
        """Run a test that has at most one open variable; narrow that variable."""
        slots, frame, run = self.slots, self.model.frame, test.run
        for j in test.scope:
            slots[j] = domains[j][0]
        if not open_:
            return run(frame) is True
        kept, x = [], open_[0]
        budget.spend(len(domains[x]))
        for value in domains[x]:
            slots[x] = value
            if run(frame) is True:
                kept.append(value)
        domains[x] = kept
        return bool(kept)

    def _bounded(
        self, domains: list[list[Any]], free: set[int], budget: StepBudget
    ) -> list[list[Any]] | None:
        """Drop values with which a sum can't keep its bound any more."""
        for total in self.sums:
            low = high = 0
            ranges: dict[int, tuple[int, int]] = {}
            for i, values in total.unary.items():
                found = [values[v] for v in domains[i]]
                ranges[i] = (min(found), max(found))
                low, high = low + ranges[i][0], high + ranges[i][1]
            for scope, run, least, most in total.large:
                if free.isdisjoint(scope):
                    for j in scope:
                        self.slots[j] = domains[j][0]
                    least = most = run(self.model.frame)
                low, high = low + least, high + most
            if low > total.bound or (total.exact and high < total.bound):
                return None
            if high <= total.bound and not total.exact:
                continue
            domains = list(domains)
            for i, (least, most) in ranges.items():
                if i not in free:
                    continue
                ceiling = total.bound - low + least
                floor = total.bound - high + most if total.exact else -(10**18)
                values = total.unary[i]
                domains[i] = [v for v in domains[i] if floor <= values[v] <= ceiling]
                if not domains[i]:
                    return None
        return domains


def _is_equality(expr: Node) -> bool:
    """Whether ``expr`` says that two slots are equal."""
    if not isinstance(expr, ir.Cmp) or expr.fn != "=":
        return False
    sides = (expr.left, expr.right)
    return (
        all(isinstance(s, ir.SlotRef) and s.index is None for s in sides) and sides[0] != sides[1]
    )


def count_by_search(model: Model, cap: int, steps: int) -> tuple[int, bool]:
    """(solutions found, complete): backtracking until ``cap`` solutions or ``steps`` steps."""
    found, budget = 0, StepBudget(steps)
    try:
        for _ in Search(model).run(Random(0), budget):
            found += 1
            if found >= cap:
                return found, False
    except OutOfStepsError:
        return found, False
    return found, True
