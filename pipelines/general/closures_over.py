"""Closures of queries, and of what runs over rows, elements or numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from envgen.core import ir
from envgen.core.ir import Node
from envgen.pipelines.general.compiler import COMPILE, Compiler
from envgen.pipelines.general.frames import Closure, Frame


def _rank(value: Any) -> tuple[bool, Any]:
    return (value is not None, value if value is not None else 0)


def _rows(node: ir.Query, c: Compiler) -> Closure:
    """The selected values of a query, before any aggregate."""
    where, var, final = c.compile(node.where), node.var, c.in_final
    select = None if node.select is None else c.compile(node.select)
    orders = [(c.compile(order.by), order.descending) for order in node.order]

    def run(f: Frame) -> list[Any]:
        if f.reads is not None:
            f.reads.add((node.relation, None))
        outer = f.vars
        kept = []
        for key in sorted((f.new if final else f.old).get(node.relation, {})):
            f.vars = {**outer, var: key}
            if where(f) is True:
                ranks = [_rank(by(f)) for by, _ in orders]
                kept.append((ranks, key if select is None else select(f)))
        f.vars = outer
        for i in range(len(orders) - 1, -1, -1):
            kept.sort(key=lambda item: item[0][i], reverse=orders[i][1])
        values = [value for _, value in kept]
        return values if node.limit is None else values[: node.limit]

    return run


@COMPILE.on(ir.Query)
def _query(node: ir.Query, c: Compiler) -> Closure:
    rows, agg = _rows(node, c), node.agg

    def run(f: Frame) -> Any:
        values = rows(f)
        if agg == "none":
            return values if node.limit != 1 else (values[0] if values else None)
        known = [value for value in values if value is not None]
        if agg == "count":
            return len(known)
        if agg == "sum":
            return sum(known)
        if not known:
            return None
        if agg == "mean":
            return sum(known) // len(known)
        return min(known) if agg == "min" else max(known)

    return run


def _over(over: Node, c: Compiler) -> Closure:
    """The elements that an aggregate runs over."""
    if isinstance(over, ir.Query):
        if over.agg == "none":
            return _rows(over, c)
        one = c.compile(over)
        return lambda f: (one(f),)
    if isinstance(over, ir.Range):
        low, high, step = c.compile(over.low), c.compile(over.high), over.step

        def span(f: Frame) -> Any:
            a, b = low(f), high(f)
            return () if a is None or b is None else range(a, b + 1, step)

        return span
    assert isinstance(over, ir.SlotRef)
    value = c.compile(over)
    if c.p.slot(over.slot).kind == "map" and over.index is None:
        return lambda f: [key for key, _ in value(f)]
    return value


def _each(node: ir.Sum | ir.Count | ir.All | ir.Any, c: Compiler) -> Callable[[Frame], list[Any]]:
    over, body, var = _over(node.over, c), c.compile(node.body), node.var

    def run(f: Frame) -> list[Any]:
        outer, values = f.vars, []
        for element in over(f):
            f.vars = {**outer, var: element}
            values.append(body(f))
        f.vars = outer
        return values

    return run


@COMPILE.on(ir.Sum)
def _sum(node: ir.Sum, c: Compiler) -> Closure:
    each = _each(node, c)

    def run(f: Frame) -> Any:
        values = each(f)
        return None if None in values else sum(values)

    return run


@COMPILE.on(ir.Count)
def _count(node: ir.Count, c: Compiler) -> Closure:
    each = _each(node, c)

    def run(f: Frame) -> Any:
        values = each(f)
        return None if None in values else sum(1 for value in values if value)

    return run


@COMPILE.on(ir.All)
def _all(node: ir.All, c: Compiler) -> Closure:
    each = _each(node, c)

    def run(f: Frame) -> Any:
        values = each(f)
        return False if False in values else (None if None in values else True)

    return run


@COMPILE.on(ir.Any)
def _any(node: ir.Any, c: Compiler) -> Closure:
    each = _each(node, c)

    def run(f: Frame) -> Any:
        values = each(f)
        return True if True in values else (None if None in values else False)

    return run
