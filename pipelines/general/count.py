"""How many answers of a space a problem accepts."""

from __future__ import annotations

from typing import Literal, NamedTuple

from envgen.core import ir
from envgen.core.ir import Problem
from envgen.pipelines.general.elimination import Eliminator
from envgen.pipelines.general.evaluator import Compiler
from envgen.pipelines.general.model import Model, build_model, right_sets
from envgen.pipelines.general.rings import MAX_STEPS, TooHardError
from envgen.pipelines.general.search import count_by_search
from envgen.pipelines.general.slot_values import NotEnumerableError
from envgen.pipelines.general.tables import Tables
from envgen.pipelines.general.walks import count_states

Space = Literal["conditioned", "unconditioned"]


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
    """Count the accepted answers; a set counts once, whatever its order.

    ``conditioned`` is the product of the slot domains given earlier slots, ``unconditioned`` that of all
    values of each slot's type. Exact by variable elimination where that takes at most ``steps`` steps,
    else by backtracking up to ``cap`` answers or as many steps. For Reach the answers counted are the
    accepted final states (with their submissions) that ``max_calls`` write calls can reach.

    Raises:
        NotEnumerableError: if the values of a slot can't be listed.
    """
    if isinstance(p.goal, ir.Reach):
        return AnswerCount(*count_states(p, db, steps))
    try:
        model = build_model(p, db, space=space)
    except NotEnumerableError:
        found = right_sets(p, Compiler(p, db))
        if found is None:
            raise
        return AnswerCount(len(found), len(found), True)
    return count_model(model, build_model(p, db, space=space, clauses=False), cap, steps)


def count_model(model: Model, space: Model, cap: int, steps: int) -> AnswerCount:
    """The number of solutions of a model inside ``space``."""
    try:
        n = Eliminator(model, steps).count()
        return AnswerCount(n, n, True)
    except TooHardError:
        found, complete = count_by_search(model, cap, steps)
    return AnswerCount(found, found if complete else space_size(space), complete)


def space_size(space: Model) -> int:
    """Number of answers in a bare model (one without clauses)."""
    return Eliminator(space, 10**7).count()
