"""A bound between what keeps it and what breaks it: the comparison that it stands in, its sense, its value.

Nothing meets such a bound exactly: a player that looks for the row at the bound, or for a sum that is the
bound, would find the answer without the other rules. The gates try what meets it, on changed rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, timedelta
from itertools import pairwise
from random import Random
from typing import Any

from envgen.core import ir

SMALL = 12
"""Whole numbers whose values lie no further apart are bounded without a look at the rows: there are few."""
_UNITS = [unit * 10**power for power in range(8, -1, -1) for unit in (5, 2, 1)]
_MINUTES = (60, 30, 15, 10, 5, 1)


def other_side(edge: ir.Cmp, name: str) -> ir.Node:
    """The side of a comparison that is not the parameter."""
    return edge.right if edge.left == ir.Param(name=name) else edge.left


def holds_below(edge: ir.Cmp, name: str) -> bool:
    """Whether the parameter bounds from above."""
    return (edge.fn in ("<=", "<")) == (edge.right == ir.Param(name=name))


def just_met(edge: ir.Cmp, name: str, value: Any) -> Any:
    """The bound that ``value``, a number or a date, just meets: the next one where the bound is strict."""
    if edge.fn not in ("<", ">"):
        return value
    step = 1 if holds_below(edge, name) else -1
    if isinstance(value, str):
        return (date.fromisoformat(value) + timedelta(days=step)).isoformat()
    return value + step


def between(kept: Any, broken: Any, rng: Random, *, clock: bool = False) -> Any:
    """A round number or a date between two, neither of them; None where there is none.

    Args:
        kept: what keeps the bound by least.
        broken: what breaks it by least.
        rng: the source of chance.
        clock: whether numbers are minutes, of which quarters of hours are round.
    """
    if isinstance(kept, str):
        found = between(
            date.fromisoformat(kept).toordinal(), date.fromisoformat(broken).toordinal(), rng
        )
        return None if found is None else date.fromordinal(found).isoformat()
    low, high = min(kept, broken) + 1, max(kept, broken) - 1
    for unit in _MINUTES if clock else _UNITS:
        first, last = -(-low // unit), high // unit
        if first <= last:
            return unit * rng.randint(first, last)
    return None


def bounds(
    edge: ir.Cmp, name: str, values: Iterable[Any], rng: Random, *, clock: bool = False
) -> list[Any]:
    """Bounds that some of these values keep and others break, in the order of the values.

    One lies in each gap. Where the values are few whole numbers or days in a row, it is each of those between
    the ends, whether something meets it or not.
    """
    ordered: list[Any] = sorted({value for value in values if value is not None})
    if len(ordered) < 2:
        return []
    if isinstance(ordered[0], str):
        days = [date.fromisoformat(value).toordinal() for value in ordered]
        found = bounds(edge, name, days, rng)
        return [date.fromordinal(day).isoformat() for day in found]
    low, high = ordered[0], ordered[-1]
    found = [
        one for pair in pairwise(ordered) if (one := between(*pair, rng, clock=clock)) is not None
    ]
    if high - low > SMALL and found:
        return found
    if holds_below(edge, name) == (edge.fn in ("<=", ">=")):
        return list(range(low, high))
    return list(range(low + 1, high + 1))


def nearest(edge: ir.Cmp, name: str, bound: Any, values: Iterable[Any]) -> Any:
    """Of these values the one that keeps a bound by least; None if none does."""
    below = holds_below(edge, name)
    kept = [
        value
        for value in values
        if value is not None
        and (value < bound if below else value > bound) | (value == bound and "=" in edge.fn)
    ]
    return (max if below else min)(kept, default=None)
