"""A bound that something just meets: the comparison that it stands in, its sense, its value."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

from envgen.core import ir


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
