"""Expressions taken apart: clauses as one expression, conjuncts, summands."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from envgen.core import ir
from envgen.core.ir import Clause, Node
from envgen.pipelines.general.slot_values import TRUE

OPPOSITE = {"<=": ">", "<": ">=", ">=": "<", ">": "<=", "=": "!=", "!=": "="}
"""Comparisons by their negation (where both sides are known)."""


def truth(clause: Clause) -> Node:
    """A clause as one expression: true iff the clause holds."""
    if clause.guard is None:
        return clause.expr
    return ir.If(test=clause.guard, then=clause.expr, other=TRUE)


def conjuncts(expr: Node) -> Iterator[Node]:
    """Expressions that are all true iff ``expr`` is; branches of an If are split too."""
    if isinstance(expr, ir.And):
        for item in expr.items:
            yield from conjuncts(item)
    elif isinstance(expr, ir.If):
        for part in conjuncts(expr.then):
            yield ir.If(test=expr.test, then=part, other=TRUE)
        for part in conjuncts(expr.other):
            yield ir.If(test=expr.test, then=TRUE, other=part)
        if expr.then == TRUE and expr.other == TRUE:
            yield expr
    elif isinstance(expr, ir.NoOverlap):
        yield from _overlap_pairs(expr)
    elif expr != TRUE:
        yield expr


def _overlap_pairs(expr: ir.NoOverlap) -> Iterator[Node]:
    for i, j in combinations(range(len(expr.intervals)), 2):
        pair = ir.NoOverlap(intervals=(expr.intervals[i], expr.intervals[j]))
        if expr.resources:
            places = (expr.resources[i], expr.resources[j])
            pair = pair.model_copy(update={"resources": places})
        yield pair


def summands(expr: Node, sign: int) -> Iterator[tuple[int, Node]]:
    """Signed expressions whose sum is ``expr``; sums times constants stay whole."""
    if isinstance(expr, ir.Arith) and expr.fn in ("+", "-"):
        yield from summands(expr.left, sign)
        yield from summands(expr.right, sign if expr.fn == "+" else -sign)
    else:
        yield sign, expr
