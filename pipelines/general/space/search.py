"""Solutions of a model in random order: guided draws that never meet a dead end, and backtracking."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any, NamedTuple

from envgen.core import ir
from envgen.core.ir import Node
from envgen.pipelines.general.semantics.evaluator import Closure
from envgen.pipelines.general.semantics.rewrite import compares_slots, kept, slots_of
from envgen.pipelines.general.space.elimination import Cheapest, Eliminator
from envgen.pipelines.general.space.model import (
    Linear,
    Model,
    OutOfStepsError,
    StepBudget,
    TooHardError,
)

MAX_TERM_VALUES = 20_000
RESTARTS_WITHOUT_NEWS = 12
DRAWS_WITHOUT_NEWS = 25
MAX_GUIDE_STEPS = 60_000
_BEYOND = 10**15
"""More than any sum."""


# --- backtracking ----------------------------------------------------------------------------


class _SlotTest(NamedTuple):
    """A constraint; ``takes_unknown``: None for a slot gives false only if every value would."""

    scope: tuple[int, ...]
    run: Closure
    takes_unknown: bool


def _takes_unknown(expr: Node, model: Model) -> bool:
    if not {model.p.slot(name).kind for name in slots_of(expr)} <= {"entity", "value", "interval"}:
        return False
    return not _selects_by_slots(expr)


@kept
def _selects_by_slots(expr: Node) -> bool:
    """Whether slots select the rows or numbers that it reads; an unknown slot then selects none."""
    return any(
        isinstance(n, ir.Query | ir.Range | ir.Reachable) and slots_of(n) for n in expr.walk()
    )


class _Sum:
    """A linear constraint with each term's values at hand."""

    def __init__(self, linear: Linear, model: Model) -> None:
        self.bound, self.exact = linear.bound, linear.exact
        self.unary: dict[int, dict[Any, int]] = {}
        self.large: list[tuple[tuple[int, ...], Closure, int, int]] = []
        for term in linear.terms:
            spread: tuple[int, int] | None = (-_BEYOND, _BEYOND)
            if model.size(term.scope) <= MAX_TERM_VALUES:
                if len(term.scope) == 1:
                    known = ((at[0], value) for at, value in model.table(term))
                    self.unary[term.scope[0]] = {
                        at: value for at, value in known if value is not None
                    }
                    continue
                spread = model.spread(term)
            if spread is not None:
                self.large.append((term.scope, term.run, *spread))


class Search:
    """Depth-first search for the solutions of a model: forward checking, bounds on sums."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.slots = model.frame.slots
        self.size = len(model.domains)
        tests = [
            _SlotTest(c.scope, c.run, _takes_unknown(c.expr, model)) for c in model.constraints
        ]
        self.tests = [[test for test in tests if i in test.scope] for i in range(self.size)]
        self.links: list[list[tuple[int, int, dict[Any, Any]]]] = [[] for _ in range(self.size)]
        for child, parent, _, _, key_of in model.links:
            self.links[child].append((child, parent, key_of))
            self.links[parent].append((child, parent, key_of))
        self.sums = [_Sum(linear, model) for linear in model.linears] if model.feasible else []
        self.domains = self._supported(tests) if model.feasible else [[]]
        self.equals = [c.scope for c in model.constraints if compares_slots(c.expr, "=")]
        self.parents = {link.parent for link in model.links}
        self.failures = [1] * self.size
        """By variable: 1 + how often a test on it ruled everything out."""

    def run(self, rng: Random, budget: StepBudget) -> Iterator[list[Any]]:
        """Every solution once, values and variables in random order; a fresh list each.

        Raises:
            OutOfStepsError: when the budget is spent before the search is complete.
        """
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
        if not all(self.domains):
            return 0.0
        free = set(range(self.size))
        domains = self._bounded(list(self.domains), free, budget)
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
        # A parent comes first because its value leaves only the children that belong to it, by a look-up and
        # without a test. Then size over failures (Boussemart et al. 2004, "dom/wdeg"): slots whose tests keep
        # failing rise to the top, where a failure cuts off more than it would deep in the tree.
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
            if not self._passes(domains, test, rest, budget):
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

    def _passes(
        self, domains: list[list[Any]], test: _SlotTest, rest: set[int], budget: StepBudget
    ) -> bool:
        """Whether a test may still hold; with one open variable, that one is narrowed.

        With more of them open they count as unknown: what is false then, stays false.
        """
        slots, frame, run = self.slots, self.model.frame, test.run
        open_ = [j for j in test.scope if j in rest]
        if len(open_) > 1 and not test.takes_unknown:
            return True
        for j in test.scope:
            slots[j] = None if j in open_ else domains[j][0]
        if len(open_) != 1:
            return run(frame) is not False if open_ else run(frame) is True
        kept, x = [], open_[0]
        budget.spend(len(domains[x]))
        for value in domains[x]:
            slots[x] = value
            if run(frame) is True:
                kept.append(value)
        domains[x] = kept
        return bool(kept)

    def _supported(self, tests: list[_SlotTest]) -> list[list[Any]]:
        """The model's domains without values that alone make a test false."""
        domains = [list(domain) for domain in self.model.domains]
        for test in tests:
            for i in test.scope if test.takes_unknown else ():
                for j in test.scope:
                    self.slots[j] = None
                kept = []
                for value in domains[i]:
                    self.slots[i] = value
                    if test.run(self.model.frame) is not False:
                        kept.append(value)
                domains[i] = kept
        return domains

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
                ceiling = total.bound - low + least  # the others at their least
                floor = total.bound - high + most if total.exact else -_BEYOND
                values = total.unary[i]
                domains[i] = [v for v in domains[i] if floor <= values[v] <= ceiling]
                if not domains[i]:
                    return None
        return domains


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


# --- guided draws ----------------------------------------------------------------------------


class Guide:
    """Draws solutions that keep all constraints, and sums but for ``unchecked``.

    Eliminating the variables for the least sum of a linear constraint leaves tables that say, for every
    partial assignment, whether and how cheaply it can be completed. Assigning the variables in the
    reverse order then never meets a dead end.

    Raises:
        TooHardError: when elimination would take more than ``max_steps`` steps.
    """

    def __init__(self, model: Model, max_steps: int) -> None:
        self.model = model
        self.accepts = model.acceptor()
        linears = model.linears
        # One sum only: a bound on two at once would take a table of pairs of sums.
        first = next((linear for linear in linears if not linear.exact), None)
        self.unchecked = [linear for linear in linears if linear is not first]
        model.linears = [] if first is None else [first]
        try:
            self.eliminator = Eliminator(model, max_steps, ring_type=Cheapest)
            self.least = self.eliminator.run()
        finally:
            model.linears = linears

    @property
    def feasible(self) -> bool:
        """Whether there is a solution (of all but ``unchecked``)."""
        return self.least > 0

    def draw(self, rng: Random) -> list[Any] | None:
        """A solution; None where one was drawn that breaks an unchecked sum."""
        slots = self.model.frame.slots
        values: list[Any] = [None] * len(slots)
        # Tables were made over one value of each group: look-ups go by those, members are drawn.
        representatives: list[Any] = [None] * len(slots)
        least, slack = self.least, self.eliminator.ring.slack
        for bucket in reversed(self.eliminator.buckets):
            slots[:] = representatives
            here = bucket.table[tuple(slots[j] for j in bucket.scope)]
            last, x = len(bucket.order) - 1, bucket.x
            choices: list[tuple[Any, Any, int]] = []
            for group in bucket.candidates(last):
                slots[x] = group.value
                rest = bucket.factor(last, 1)
                if not rest:
                    continue
                for value, own in group.members:
                    # The least sum of the whole with this value for the best one of this bucket.
                    total = least - here + rest + own - 1
                    if total - 1 <= slack:
                        choices.append((value, group.value, total))
            values[x], representatives[x], least = rng.choice(choices)
        return values if not self.unchecked or self.accepts(values) else None


class _CompleteError(Exception):
    """Raised when it is known that there are no more solutions."""


def solutions(
    model: Model, rng: Random, budget: StepBudget, *, searches_first: bool = False
) -> Iterator[list[Any]]:
    """Distinct solutions of a model: independent draws while those bring new ones, then the rest.

    ``searches_first``: look for easy ones by search before spending steps on guidance.
    """
    if not model.feasible:
        return
    seen = set[tuple[Any, ...]]()
    quick = (_restarts, _draws) if searches_first else (_draws, _restarts)
    try:
        for source in (*quick, _all):
            for values in source(model, rng, budget):
                if tuple(values) not in seen:
                    seen.add(tuple(values))
                    yield values
    except (_CompleteError, OutOfStepsError):
        return


def _all(model: Model, rng: Random, budget: StepBudget) -> Iterator[list[Any]]:
    return Search(model).run(rng, budget)


def _draws(model: Model, rng: Random, budget: StepBudget) -> Iterator[list[Any]]:
    """Guided draws until they bring nothing new; none where guidance costs too much."""
    try:
        guide = Guide(model, min(budget.steps, MAX_GUIDE_STEPS))
    except TooHardError:
        budget.steps -= min(budget.steps, MAX_GUIDE_STEPS) // 4
        return
    budget.steps -= guide.eliminator.steps // 4
    if not guide.feasible:
        raise _CompleteError
    seen, fruitless = set[tuple[Any, ...]](), 0
    while fruitless < DRAWS_WITHOUT_NEWS and budget.steps > 0:
        budget.steps -= len(model.domains)
        values = guide.draw(rng)
        if values is None or tuple(values) in seen:
            fruitless += 1
            continue
        seen.add(tuple(values))
        fruitless = 0
        yield values


def _restarts(model: Model, rng: Random, budget: StepBudget) -> Iterator[list[Any]]:
    """The first solution of one randomised search after another."""
    search, seen = Search(model), set[tuple[Any, ...]]()
    fruitless, allowance = 0, max(2_000, budget.steps // 50)
    while fruitless < RESTARTS_WITHOUT_NEWS and budget.steps > 0:
        attempt = StepBudget(min(allowance, budget.steps))
        granted = attempt.steps
        try:
            values = next(search.run(rng, attempt), None)
        except OutOfStepsError:
            values = None
        else:
            if values is None:
                raise _CompleteError
        budget.steps -= granted - max(attempt.steps, 0)
        if values is None or tuple(values) in seen:
            fruitless += 1
            continue
        seen.add(tuple(values))
        fruitless = 0
        yield values
