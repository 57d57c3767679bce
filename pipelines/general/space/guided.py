"""Solutions of a model in random order, without backtracking where elimination is feasible.

Eliminating the variables for the least sum of a linear constraint leaves tables that say, for every
partial assignment, whether and how cheaply it can be completed. Assigning the variables in the reverse
order then never meets a dead end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from random import Random
from typing import Any

from envgen.pipelines.general.space.elimination import Eliminator
from envgen.pipelines.general.space.model import Linear, Model
from envgen.pipelines.general.space.rings import Cheapest, TooHardError
from envgen.pipelines.general.space.search import OutOfStepsError, Search, StepBudget

RESTARTS_WITHOUT_NEWS = 12
DRAWS_WITHOUT_NEWS = 25
MAX_GUIDE_STEPS = 60_000


class Guide:
    """Draws solutions that keep all constraints but ``unchecked``.

    Raises:
        TooHardError: when elimination would take more than ``max_steps`` steps.
    """

    def __init__(self, model: Model, max_steps: int) -> None:
        self.model = model
        self.accepts = acceptor(model)
        self.unchecked = guiding = list(model.linears)
        first = next((linear for linear in guiding if not linear.exact), None)
        model.linears = [] if first is None else [first]
        try:
            self.eliminator = Eliminator(model, max_steps, ring_type=Cheapest)
            self.least = self.eliminator.run()
        finally:
            model.linears = guiding
        self.unchecked = [linear for linear in guiding if linear is not first]

    @property
    def feasible(self) -> bool:
        """Whether there is a solution (of all but ``unchecked``)."""
        return self.least > 0

    def draw(self, rng: Random) -> list[Any] | None:
        """A solution; None where one was drawn that breaks an unchecked sum."""
        slots = self.model.frame.slots
        values: list[Any] = [None] * len(slots)
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
                    total = least - here + rest + own - 1
                    if total - 1 <= slack:
                        choices.append((value, group.value, total))
            values[x], representatives[x], least = rng.choice(choices)
        return values if not self.unchecked or self.accepts(values) else None


def linear_holds(linear: Linear, model: Model) -> bool:
    """Whether the assignment in the model's frame keeps a linear constraint."""
    total = 0
    for term in linear.terms:
        value = term.run(model.frame)
        if value is None:
            return False
        total += value
    return total == linear.bound if linear.exact else total <= linear.bound


def acceptor(model: Model) -> Callable[[list[Any] | None], bool]:
    """Whether a full assignment solves the model; None is no assignment."""
    domains = [set(domain) for domain in model.domains]
    frame = model.frame

    def test(values: list[Any] | None) -> bool:
        if values is None or not model.feasible:
            return False
        if any(v not in domain for v, domain in zip(values, domains, strict=True)):
            return False
        frame.slots[:] = values
        if any(link.key_of.get(values[link.child]) != values[link.parent] for link in model.links):
            return False
        if any(constraint.run(frame) is not True for constraint in model.constraints):
            return False
        return all(linear_holds(linear, model) for linear in model.linears)

    return test


def solutions(
    model: Model, rng: Random, budget: StepBudget, *, searches_first: bool = False
) -> Iterator[list[Any]]:
    """Distinct solutions of a model: independent draws while those bring new ones, then the rest.

    ``searches_first``: look for easy ones by search before spending steps on guidance.
    """
    if not model.feasible:
        return
    seen = set[tuple[Any, ...]]()
    sources = [_draws(model, rng, budget), _restarts(model, rng, budget), _all(model, rng, budget)]
    if searches_first:
        sources[:2] = reversed(sources[:2])
    try:
        for values in chain.from_iterable(sources):
            if tuple(values) not in seen:
                seen.add(tuple(values))
                yield values
    except (_CompleteError, OutOfStepsError):
        return


class _CompleteError(Exception):
    """Raised when it is known that there are no more solutions."""


def _all(model: Model, rng: Random, budget: StepBudget) -> Iterator[list[Any]]:
    yield from Search(model).run(rng, budget)


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
            values, fruitless = None, fruitless + 1
        else:
            if values is None:
                raise _CompleteError
        budget.steps -= granted - max(attempt.steps, 0)
        if values is None:
            continue
        if tuple(values) in seen:
            fruitless += 1
            continue
        seen.add(tuple(values))
        fruitless = 0
        yield values
