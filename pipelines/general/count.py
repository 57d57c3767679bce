"""How many answers of a space a problem accepts."""

from __future__ import annotations

from typing import Literal, NamedTuple

from envgen.core import ir
from envgen.core.ir import Problem
from envgen.pipelines.general.elimination import Eliminator
from envgen.pipelines.general.model import Model, build_model
from envgen.pipelines.general.rings import MAX_STEPS, TooHardError
from envgen.pipelines.general.search import count_by_search
from envgen.pipelines.general.slot_values import NotEnumerableError
from envgen.pipelines.general.tables import Tables
from envgen.pipelines.general.walks import count_states

Space = Literal["conditioned", "unconditioned"]


class Count(NamedTuple):
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
) -> Count:
    """Count the accepted answers; a set counts once, whatever its order.

    ``conditioned`` is the product of the slot domains given earlier slots, ``unconditioned`` that of all
    values of each slot's type. Exact by variable elimination where that takes at most ``steps`` steps,
    else by backtracking up to ``cap`` answers or as many steps. For Reach the answers counted are the
    accepted final states (with their submissions) that ``max_calls`` write calls can reach.
    """
    if isinstance(p.goal, ir.Reach):
        return Count(*count_states(p, db, steps))
    try:
        model = build_model(p, db, space=space)
    except NotEnumerableError:
        return _without_domain(p, db)
    return count_model(model, build_model(p, db, space=space, clauses=False), cap, steps)


def count_model(model: Model, space: Model, cap: int, steps: int) -> Count:
    """The number of solutions of a model inside ``space``."""
    try:
        n = Eliminator(model, steps).count()
        return Count(n, n, True)
    except TooHardError:
        found, complete = count_by_search(model, cap, steps)
    return Count(found, found if complete else space_size(space), complete)


def space_size(space: Model) -> int:
    """Number of answers in a bare model (one without clauses)."""
    return Eliminator(space, 10**7).count()


def _without_domain(p: Problem, db: Tables) -> Count:
    """A slot can't be listed: an Equals goal still fixes one answer."""
    if isinstance(p.goal, ir.Equals) and len(p.slots) == 1 and not p.clauses:
        return Count(1, 1, True)
    return Count(0, 2**63, False)
