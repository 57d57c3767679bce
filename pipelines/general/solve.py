"""Accepted answers of a problem, found without the reference semantics."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from envgen.core import ir
from envgen.core.ir import Problem
from envgen.pipelines.general.closures import Compiler, plain
from envgen.pipelines.general.layout import fill_layout
from envgen.pipelines.general.model import (
    Model,
    NotEnumerableError,
    build_model,
    equals_target,
)
from envgen.pipelines.general.plan_search import solve_plans
from envgen.pipelines.general.search import Budget, OutOfStepsError, Search
from envgen.pipelines.general.tables import Tables

RESTARTS_WITHOUT_NEWS = 12


def solve(p: Problem, db: Tables, rng: Random, *, steps: int = 300_000) -> Iterator[Any]:
    """Distinct accepted answers in random order; a ``Plan`` each for Reach.

    Every answer comes from a fresh randomised search as long as those bring new ones, so the first few
    are diverse; then one complete search gives the rest. Ends when all are found or after ``steps``
    steps.
    """
    if isinstance(p.goal, ir.Reach):
        yield from solve_plans(p, db, rng, steps=steps)
        return
    try:
        model = build_model(p, db)
    except NotEnumerableError:
        yield from _fixed_answer(p, db)
        return
    for values in solutions(model, rng, Budget(steps)):
        yield model.answer(values)


def solutions(model: Model, rng: Random, budget: Budget) -> Iterator[list[Any]]:
    """Distinct solutions of a model, the first ones from independent searches."""
    search, seen = Search(model), set[tuple[Any, ...]]()
    fruitless, allowance = 0, max(2_000, budget.steps // 50)
    while fruitless < RESTARTS_WITHOUT_NEWS and budget.steps > 0:
        attempt = Budget(min(allowance, budget.steps))
        granted = attempt.steps
        try:
            values = next(search.run(rng, attempt), None)
        except OutOfStepsError:
            values, fruitless = None, fruitless + 1
        else:
            if values is None:
                return  # a complete search found nothing
        budget.steps -= granted - max(attempt.steps, 0)
        if values is None:
            continue
        if tuple(values) in seen:
            fruitless += 1
            continue
        seen.add(tuple(values))
        fruitless = 0
        yield values
    try:
        for values in search.run(rng, budget):
            if tuple(values) not in seen:
                seen.add(tuple(values))
                yield values
    except OutOfStepsError:
        return


def _fixed_answer(p: Problem, db: Tables) -> Iterator[Any]:
    """The one answer of an Equals goal whose slot's values can't be listed."""
    if not isinstance(p.goal, ir.Equals) or len(p.slots) != 1 or p.clauses:
        return
    target = equals_target(p, p.goal, Compiler(p, db))
    slot = p.slots[0]
    too_long = slot.kind == "set" and slot.length is not None and len(target) > slot.length
    if target is not None and not too_long:
        yield fill_layout(p.layout, {slot.name: plain(slot, target)})
