"""Expressions taken apart: what they refer to, conjuncts, summands, a clause as one expression."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import combinations

from envgen.core import ir
from envgen.core.ir import Clause, Goal, Node

TRUE = ir.Const(value=True)
OPPOSITE = {"<=": ">", "<": ">=", ">=": "<", ">": "<=", "=": "!=", "!=": "="}
"""Comparisons by their negation (where both sides are known)."""


@lru_cache(maxsize=16_384)
def slots_of(expr: Node) -> frozenset[str]:
    """Names of the slots that ``expr`` reads."""
    names = {expr.slot} if isinstance(expr, ir.SlotRef) else set()
    return frozenset(names.union(*(slots_of(child) for child in expr.children())))


@lru_cache(maxsize=16_384)
def params_of(expr: Node) -> frozenset[str]:
    """Names of the parameters that ``expr`` reads."""
    return frozenset(node.name for node in expr.walk() if isinstance(node, ir.Param))


@lru_cache(maxsize=16_384)
def free_names(expr: Node) -> frozenset[str]:
    """Variables that ``expr`` reads but doesn't bind, and its arguments (as ``arg:name``)."""
    if isinstance(expr, ir.Var):
        return frozenset((expr.name,))
    if isinstance(expr, ir.Arg):
        return frozenset((f"arg:{expr.name}",))
    inner = frozenset[str]().union(*(free_names(child) for child in expr.children()))
    if isinstance(expr, ir.Query):
        return inner - {expr.var}
    if isinstance(expr, ir.Sum | ir.Count | ir.All | ir.Any):
        return free_names(expr.over) | (free_names(expr.body) - {expr.var})
    return inner


@lru_cache(maxsize=16_384)
def reads_final(expr: Node) -> bool:
    """Whether ``expr`` holds a ``New``."""
    return isinstance(expr, ir.New) or any(reads_final(child) for child in expr.children())


def nodes_of(clauses: Iterable[Clause], goal: Goal | None = None) -> Iterator[Node]:
    """Every node of a goal (its query, its effects, when to escalate) and of rules."""
    roots: list[Node | None] = []
    if isinstance(goal, ir.Reach):
        clauses, roots = (*goal.effects, *clauses), [goal.escalate_when]
    if isinstance(goal, ir.Equals):
        roots.append(goal.query)
    for clause in clauses:
        roots += [clause.expr, clause.guard]
    return (node for root in roots if root is not None for node in root.walk())


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


def column_equals(part: Node, query: ir.Query) -> tuple[str, Node] | tuple[None, None]:
    """``column`` and ``value`` of a condition ``column = value`` on the query's row."""
    if isinstance(part, ir.Cmp) and part.fn == "=":
        for cell, value in ((part.left, part.right), (part.right, part.left)):
            if (
                isinstance(cell, ir.Get)
                and cell.entity == ir.Var(name=query.var)
                and cell.relation == query.relation
                and query.var not in free_names(value)
            ):
                return cell.column, value
    return None, None
