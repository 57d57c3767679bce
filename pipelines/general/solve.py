"""Accepted answers of a problem, found without the reference semantics."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from random import Random
from typing import Any

from envgen.core import ir
from envgen.core.ir import Problem
from envgen.pipelines.general.evaluator import Compiler
from envgen.pipelines.general.guided import Guide
from envgen.pipelines.general.layout import fill_layout, plain
from envgen.pipelines.general.model import Model, build_model, right_sets
from envgen.pipelines.general.plan_search import solve_plans
from envgen.pipelines.general.rings import TooHardError
from envgen.pipelines.general.search import OutOfStepsError, Search, StepBudget
from envgen.pipelines.general.slot_values import NotEnumerableError
from envgen.pipelines.general.tables import Tables

RESTARTS_WITHOUT_NEWS = 12
DRAWS_WITHOUT_NEWS = 25
MAX_GUIDE_STEPS = 60_000


def solve(p: Problem, db: Tables, rng: Random, *, steps: int = 300_000) -> Iterator[Any]:
    """Distinct accepted answers in random order; a ``Plan`` each for Reach.

    Every answer comes from a fresh randomised search as long as those bring new ones, so the first few
    are diverse; then one complete search gives the rest. Ends when all are found or after ``steps``
    steps.

    Raises:
        NotEnumerableError: if the values of a slot can't be listed.
    """
    if isinstance(p.goal, ir.Reach):
        yield from solve_plans(p, db, rng, steps=steps)
        return
    try:
        model = build_model(p, db)
    except NotEnumerableError:
        found = right_sets(p, Compiler(p, db))
        if found is None:
            raise
        for target in found:
            yield fill_layout(p.layout, {p.slots[0].name: plain(p.slots[0], target)})
        return
    for values in solutions(model, rng, StepBudget(steps)):
        yield model.answer(values)


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
