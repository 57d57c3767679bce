"""Accepted answers of a problem, found without the reference semantics."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from envgen.core import ir
from envgen.core.errors import ConfigError
from envgen.core.ir import Problem
from envgen.pipelines.general.semantics.evaluator import Compiler
from envgen.pipelines.general.semantics.layout import fill_layout, plain
from envgen.pipelines.general.semantics.plans import Plan
from envgen.pipelines.general.semantics.slot_values import NotEnumerableError
from envgen.pipelines.general.semantics.tables import Tables
from envgen.pipelines.general.space.guided import solutions
from envgen.pipelines.general.space.model import build_model, right_sets
from envgen.pipelines.general.space.search import OutOfStepsError, StepBudget
from envgen.pipelines.general.space.walks import Walks, plans


def solve(p: Problem, db: Tables, rng: Random, *, steps: int = 300_000) -> Iterator[Any]:
    """Distinct accepted answers in random order; a ``Plan`` each for Reach.

    Every answer comes from a fresh randomised search as long as those bring new ones, so the first few
    are diverse; then one complete search gives the rest. Ends when all are found or after ``steps``
    steps.

    Raises:
        NotEnumerableError: if the values of a slot can't be listed.
    """
    if isinstance(p.goal, ir.Reach):
        yield from _plans(p, db, rng, steps)
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


def _plans(p: Problem, db: Tables, rng: Random, steps: int) -> Iterator[Plan]:
    """Accepted plans, the shortest first; the same calls in another order are another plan.

    Plans hold no call that fails or changes nothing. Ends when there are no more within ``max_calls``
    calls, or after ``steps`` steps.
    """
    try:
        yield from plans(Walks(p, db, StepBudget(steps)), rng)
    except (OutOfStepsError, ConfigError):
        return
