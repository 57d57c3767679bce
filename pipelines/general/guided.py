"""Random solutions of a model without backtracking, where elimination is feasible.

Eliminating the variables for the least sum of a linear constraint leaves tables that say, for every
partial assignment, whether and how cheaply it can be completed. Assigning the variables in the reverse
order then never meets a dead end.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from envgen.pipelines.general.elimination import Eliminator
from envgen.pipelines.general.model import Linear, Model
from envgen.pipelines.general.rings import Cheapest


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
