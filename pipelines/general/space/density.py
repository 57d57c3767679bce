"""How many answers a task's rules accept, and what share of its answer space, with method and interval."""

from __future__ import annotations

from fractions import Fraction
from math import comb, sqrt
from random import Random
from typing import Any, Literal, NamedTuple

from envgen.core import ir
from envgen.core.ir import Problem
from envgen.core.types import Density
from envgen.pipelines.general.semantics.evaluator import Compiler
from envgen.pipelines.general.semantics.slot_values import (
    NotEnumerableError,
    element_values,
    fixed_columns,
)
from envgen.pipelines.general.semantics.tables import Tables
from envgen.pipelines.general.space.elimination import (
    DrawWeights,
    Eliminator,
    draw_weights,
)
from envgen.pipelines.general.space.guided import acceptor
from envgen.pipelines.general.space.model import Model, build_model, right_sets
from envgen.pipelines.general.space.rings import MAX_STEPS, TooHardError
from envgen.pipelines.general.space.search import (
    OutOfStepsError,
    Search,
    StepBudget,
    count_by_search,
)
from envgen.pipelines.general.space.walks import Z, count_states, walk_density, wilson

MIN_EFFECTIVE = 100
Space = Literal["conditioned", "unconditioned"]


def density(
    p: Problem,
    db: Tables,
    rng: Random,
    *,
    steps: int = MAX_STEPS,
    samples: int = 4_000,
) -> Density:
    """The chance that an answer drawn slot by slot, each uniformly given earlier slots, is accepted.

    That is what a policy does that fills in the submission at random from the tools' rows; where every
    choice has equally many continuations it is the accepted share of the space. Exact where variable
    elimination or a complete search fits in ``steps``; else sampled, with a 99.9 % interval. For Reach it
    is the chance of a random walk (``walks``).

    Raises:
        NotEnumerableError: if the values of a slot can't be listed.
    """
    return measure(p, db, rng, steps=steps, samples=samples).density


class SpaceMeasure(NamedTuple):
    """How many answers are accepted, and how likely a random one is."""

    counted: AnswerCount
    density: Density


def measure(
    p: Problem,
    db: Tables,
    rng: Random,
    *,
    steps: int = MAX_STEPS,
    samples: int = 4_000,
    cap: int = 10**6,
) -> SpaceMeasure:
    """``count`` (conditioned) and ``density`` in one go, at about the price of one."""
    if isinstance(p.goal, ir.Reach):
        share = walk_density(p, db, rng, steps=steps, samples=samples)
        return SpaceMeasure(count(p, db, cap, steps=steps), share)
    compiler = Compiler(p, db)
    try:
        space = build_model(p, db, space="conditioned", clauses=False, compiler=compiler)
        model = build_model(p, db, space="conditioned", compiler=compiler)
    except NotEnumerableError:
        return SpaceMeasure(count(p, db, cap), _set_density(p, compiler))
    size = space_size(space)
    weights = draw_weights(model, space)
    total, complete = _total(model, weights, cap, steps)
    if not weights.messages:
        counted = AnswerCount(total, total if complete else size, complete)
    else:
        counted = count_model(model, space, cap, steps)
        complete = complete or (counted.exact and counted.low == 0)
    if complete:
        value = float(Fraction(total, weights.scale)) if weights.scale else 0.0
        share = Density(
            value=value, low=value, high=value, method="exact", space=float(min(size, 10**300))
        )
    else:
        share = sampled_share(
            model, space, rng, float(min(size, 10**300)), steps=steps, samples=samples
        )
    return SpaceMeasure(counted, share)


def _total(model: Model, weights: DrawWeights, cap: int, steps: int) -> tuple[int, bool]:
    """(total weight of the solutions of a model, whether it is exact)."""
    try:
        return Eliminator(model, steps, weights.messages).count(), True
    except TooHardError:
        if weights.messages:
            return 0, False
        return count_by_search(model, cap, steps // 2)


def sampled_share(
    model: Model, space: Model, rng: Random, size: float, *, steps: int, samples: int
) -> Density:
    """An estimate by importance sampling: draws that look ahead, weighted by what they skipped."""
    weights = _look_ahead_weights(model, space, rng, steps, samples)
    n = len(weights)
    total, squares = sum(weights), sum(weight * weight for weight in weights)
    if total and total * total / squares >= MIN_EFFECTIVE:
        mean = total / n
        half = Z * sqrt(max(squares / n - mean * mean, 0.0) / n)
        return Density(
            value=mean,
            low=max(mean - half, 0.0),
            high=min(mean + half, 1.0),
            method="importance",
            space=size,
            n=n,
        )
    return _plain_share(model, space, rng, size, samples)


def _look_ahead_weights(
    model: Model, space: Model, rng: Random, steps: int, samples: int
) -> list[float]:
    search, budget = Search(model), StepBudget(steps)
    drawer = Drawer(space)
    weights: list[float] = []
    try:
        for _ in range(samples):
            weights.append(search.weighted_draw(rng, budget, drawer.chance))
    except OutOfStepsError:
        pass
    return weights or [0.0]


def _plain_share(model: Model, space: Model, rng: Random, size: float, samples: int) -> Density:
    drawer, test = Drawer(space), acceptor(model)
    hits = sum(1 for _ in range(samples) if test(drawer.draw(rng)))
    low, high = wilson(hits, samples)
    return Density(
        value=hits / samples, low=low, high=high, method="sampled", space=size, n=samples
    )


class Drawer:
    """Draws answers slot by slot, each uniform over its values given earlier slots."""

    def __init__(self, space: Model) -> None:
        self.space = space
        self.links: list[list[Any]] = [[] for _ in space.domains]
        for link in space.links:
            self.links[link.child].append(link)
        self.index: list[dict[tuple[Any, ...], list[Any]]] = []
        for i, domain in enumerate(space.domains):
            index: dict[tuple[Any, ...], list[Any]] = {}
            for value in domain:
                key = tuple(link.key_of[value] for link in self.links[i])
                index.setdefault(key, []).append(value)
            self.index.append(index)

    def _choices(self, i: int, values: list[Any]) -> list[Any]:
        key = tuple(values[link.parent] for link in self.links[i])
        return self.index[i].get(key, [])

    def draw(self, rng: Random) -> list[Any] | None:
        """One answer, None if a slot has no value left."""
        values: list[Any] = []
        for i in range(len(self.index)):
            choices = self._choices(i, values)
            if not choices:
                return None
            values.append(rng.choice(choices))
        return values

    def chance(self, values: list[Any]) -> float:
        """The probability that ``draw`` gives ``values``."""
        result = 1.0
        for i in range(len(values)):
            result /= max(len(self._choices(i, values)), 1)
        return result


def _set_density(p: Problem, compiler: Compiler) -> Density:
    """One answer in a space too large to list: every allowed subset is equally likely."""
    found, slot = right_sets(p, compiler) or [], p.slots[0]
    items, fixed = element_values(slot, compiler), fixed_columns(p, slot)
    if fixed and isinstance(slot.domain, ir.Query):
        rows = compiler.db.get(slot.domain.relation, {})
        items = [v for v in items if all(rows[v].get(c) == x for c, x in fixed.items())]
    longest = len(items) if slot.length is None else min(len(items), slot.length)
    subsets = sum(comb(len(items), k) for k in range(longest + 1))
    right = sum(1 for target in found if set(target) <= set(items))
    share = float(Fraction(right, subsets))
    space = float(min(subsets, 10**300))
    return Density(value=share, low=share, high=share, method="exact", space=space)


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
