"""What share of a task's answer space its rules accept, with method and interval."""

from __future__ import annotations

from fractions import Fraction
from math import sqrt
from random import Random
from typing import Any

from envgen.core import ir
from envgen.core.ir import Problem
from envgen.core.types import Density
from envgen.pipelines.general.semantics.evaluator import Compiler
from envgen.pipelines.general.semantics.tables import Tables
from envgen.pipelines.general.space.build import build_model
from envgen.pipelines.general.space.elimination import (
    MAX_STEPS,
    Eliminator,
    draw_weights,
    space_size,
)
from envgen.pipelines.general.space.model import (
    Link,
    Model,
    OutOfStepsError,
    StepBudget,
    TooHardError,
)
from envgen.pipelines.general.space.search import Search, count_by_search
from envgen.pipelines.general.space.walks import Z, walk_density, wilson

MIN_EFFECTIVE = 100
"""Draws that weighted ones must be worth; else their interval would be too narrow."""


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
    if isinstance(p.goal, ir.Reach):
        return walk_density(p, db, rng, steps=steps, samples=samples)
    compiler = Compiler(p, db)
    space = build_model(p, db, space="conditioned", clauses=False, compiler=compiler)
    size = float(min(space_size(space), 10**300))
    model = build_model(p, db, space="conditioned", compiler=compiler)
    value = _exact_share(model, space, steps)
    if value is None:
        return sampled_share(model, space, rng, size, steps=steps, samples=samples)
    return Density(value=value, low=value, high=value, method="exact", space=size)


def _exact_share(model: Model, space: Model, steps: int) -> float | None:
    """The chance that a draw from ``space`` solves ``model``; None where that takes too many steps."""
    weights = draw_weights(space)
    try:
        total = Eliminator(model, steps, weights.messages).count()
    except TooHardError:
        # A search gives each solution the weight 1: it can tell 0, or the share of an even space.
        total, complete = count_by_search(model, 1 if weights.messages else 10**6, steps // 2)
        if not complete:
            return None
    return float(Fraction(total, weights.scale))


def sampled_share(
    model: Model, space: Model, rng: Random, size: float, *, steps: int, samples: int
) -> Density:
    """An estimate by importance sampling: draws that look ahead, weighted by what they skipped."""
    drawer = Drawer(space)
    weights = _look_ahead_weights(model, drawer, rng, steps, samples)
    n = len(weights)
    total, squares = sum(weights), sum(weight * weight for weight in weights)
    if total and total * total / squares >= MIN_EFFECTIVE:
        mean = total / n
        half = Z * sqrt(max(squares / n - mean * mean, 0.0) / n)
        low, high, method = max(mean - half, 0.0), min(mean + half, 1.0), "importance"
        return Density(value=mean, low=low, high=high, method=method, space=size, n=n)
    accepts = model.acceptor()
    hits = sum(accepts(drawer.draw(rng)) for _ in range(samples))
    low, high = wilson(hits, samples)
    return Density(
        value=hits / samples, low=low, high=high, method="sampled", space=size, n=samples
    )


def _look_ahead_weights(
    model: Model, drawer: Drawer, rng: Random, steps: int, samples: int
) -> list[float]:
    search, budget = Search(model), StepBudget(steps)
    weights: list[float] = []
    try:
        for _ in range(samples):
            weights.append(search.weighted_draw(rng, budget, drawer.chance))
    except OutOfStepsError:
        pass
    return weights or [0.0]


class Drawer:
    """Draws answers slot by slot, each uniform over its values given earlier slots."""

    def __init__(self, space: Model) -> None:
        self.links: list[list[Link]] = [[] for _ in space.domains]
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
