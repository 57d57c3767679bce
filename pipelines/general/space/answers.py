"""The accepted answers of a problem, found and counted without the reference semantics."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple

from envgen.core import ir
from envgen.core.errors import ConfigError, PipelineError
from envgen.core.ir import Problem
from envgen.pipelines.general.semantics.tables import Tables
from envgen.pipelines.general.space.build import Space, build_model
from envgen.pipelines.general.space.elimination import (
    MAX_STEPS,
    Eliminator,
    space_size,
)
from envgen.pipelines.general.space.model import OutOfStepsError, StepBudget, TooHardError
from envgen.pipelines.general.space.search import count_by_search, solutions
from envgen.pipelines.general.space.walks import Walks, plans


def solve(p: Problem, db: Tables, rng: Random, *, steps: int = 300_000) -> Iterator[Any]:
    """Distinct accepted answers in random order; for Reach ``Plan``s.

    Every answer comes from a fresh randomised search as long as those bring new ones, so the first few
    are diverse; then one complete search gives the rest. Plans come shortest first and hold no call that
    fails or changes nothing; the same calls in another order are another plan. Ends when all are found
    or after ``steps`` steps.

    Raises:
        NotEnumerableError: if the values of a slot can't be listed.
    """
    if not isinstance(p.goal, ir.Reach):
        model = build_model(p, db)
        yield from map(model.answer, solutions(model, rng, StepBudget(steps)))
        return
    try:
        yield from plans(Walks(p, db, StepBudget(steps)), rng)
    except (OutOfStepsError, ConfigError):
        return


class AnswerCount(NamedTuple):
    """A number of answers, between ``low`` and ``high``."""

    low: int
    high: int
    exact: bool


def count(
    p: Problem,
    db: Tables,
    cap: int = 10**6,
    space: Space = "conditioned",
    *,
    steps: int = MAX_STEPS,
) -> AnswerCount:
    """Count the answers that keep all rules; a set counts once, whatever its order.

    ``conditioned`` is the product of the slot domains given earlier slots, ``unconditioned`` that of all
    values of each slot's type. Exact by variable elimination where that takes at most ``steps`` steps,
    else by backtracking up to ``cap`` answers or as many steps.

    Raises:
        NotEnumerableError: if the values of a slot can't be listed.
        PipelineError: for Reach.
    """
    if isinstance(p.goal, ir.Reach):
        raise PipelineError(
            f"can't count the answers of the workflow {p.id!r}", "ask for its density, or for plans"
        )
    model = build_model(p, db, space=space)
    try:
        n = Eliminator(model, steps).count()
        return AnswerCount(n, n, True)
    except TooHardError:
        found, complete = count_by_search(model, cap, steps)
    bare = build_model(p, db, space=space, clauses=False)
    return AnswerCount(found, found if complete else space_size(bare), complete)
