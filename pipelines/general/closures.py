"""Expressions as Python closures: the fast form that search, counting and walks run on.

Written apart from ``interpret`` so that each can check the other. Slot values are hashable here: an
interval is ``(start, end)``, a set a sorted tuple, a sequence a tuple, a map a tuple of pairs
(``plain`` turns them into JSON). Expressions are taken to be well typed.
"""

from __future__ import annotations

import datetime
from functools import lru_cache
from typing import Any

from envgen.core import ir
from envgen.pipelines.general import closures_over
from envgen.pipelines.general.compiler import COMPILE, Compiler
from envgen.pipelines.general.frames import (
    Closure,
    Frame,
    free_names,
    frozen,
    plain,
    reads_final,
    slots_of,
)


@COMPILE.on(ir.Const)
def _const(node: ir.Const, c: Compiler) -> Closure:
    value = node.value
    return lambda f: value


@COMPILE.on(ir.Param)
def _param(node: ir.Param, c: Compiler) -> Closure:
    value = c.p.params.get(node.name)
    return lambda f: value


@COMPILE.on(ir.Var)
def _var(node: ir.Var, c: Compiler) -> Closure:
    name = node.name
    return lambda f: f.vars.get(name)


@COMPILE.on(ir.Arg)
def _arg(node: ir.Arg, c: Compiler) -> Closure:
    name = node.name
    return lambda f: f.args.get(name)


@COMPILE.on(ir.SlotRef)
def _slot(node: ir.SlotRef, c: Compiler) -> Closure:
    i = c.position[node.slot]
    if node.index is None:
        return lambda f: f.slots[i]
    index = c.compile(node.index)
    if c.p.slot(node.slot).kind == "map":
        return lambda f: dict(f.slots[i]).get(index(f))

    def element(f: Frame) -> Any:
        value, at = f.slots[i], index(f)
        return value[at] if isinstance(at, int) and 0 <= at < len(value) else None

    return element


@COMPILE.on(ir.Get)
def _get(node: ir.Get, c: Compiler) -> Closure:
    entity, relation, column = c.compile(node.entity), node.relation, node.column
    if c.static and not c.in_final:
        values = c.column(relation, column)
        return lambda f: values.get(entity(f))
    final = c.in_final

    def look_up(f: Frame) -> Any:
        key = entity(f)
        if f.reads is not None:
            f.reads.add((relation, key))
        row = (f.new if final else f.old).get(relation, {}).get(key)
        return None if row is None else row.get(column)

    return look_up


@COMPILE.on(ir.Arith)
def _arith(node: ir.Arith, c: Compiler) -> Closure:
    left, right, fn = c.compile(node.left), c.compile(node.right), node.fn

    def run(f: Frame) -> Any:
        a, b = left(f), right(f)
        if a is None or b is None:
            return None
        if fn == "+":
            return a + b
        if fn == "-":
            return a - b
        if fn == "//":
            return a // b if a >= 0 and b > 0 else None
        return a * b

    return run


@COMPILE.on(ir.Cmp)
def _cmp(node: ir.Cmp, c: Compiler) -> Closure:
    left, right = c.compile(node.left), c.compile(node.right)
    if node.fn == "in":
        return lambda f: _contains(left(f), right(f))
    return lambda f: _compared(node.fn, left(f), right(f))


def _contains(item: Any, values: Any) -> bool | None:
    if item is None or values is None:
        return None
    return True if item in values else (None if None in values else False)


def _compared(fn: str, a: Any, b: Any) -> bool | None:
    if a is None or b is None:
        return None
    if fn == "=":
        return bool(a == b)
    if fn == "!=":
        return bool(a != b)
    if fn == "<":
        return bool(a < b)
    if fn == "<=":
        return bool(a <= b)
    return bool(a > b) if fn == ">" else bool(a >= b)


@COMPILE.on(ir.And)
def _and(node: ir.And, c: Compiler) -> Closure:
    items = [c.compile(item) for item in node.items]

    def run(f: Frame) -> bool | None:
        known: bool | None = True
        for item in items:
            value = item(f)
            if value is False:
                return False
            if value is None:
                known = None
        return known

    return run


@COMPILE.on(ir.Or)
def _or(node: ir.Or, c: Compiler) -> Closure:
    items = [c.compile(item) for item in node.items]

    def run(f: Frame) -> bool | None:
        known: bool | None = False
        for item in items:
            value = item(f)
            if value is True:
                return True
            if value is None:
                known = None
        return known

    return run


@COMPILE.on(ir.Not)
def _not(node: ir.Not, c: Compiler) -> Closure:
    item = c.compile(node.item)

    def run(f: Frame) -> bool | None:
        value = item(f)
        return None if value is None else not value

    return run


@COMPILE.on(ir.If)
def _if(node: ir.If, c: Compiler) -> Closure:
    test, then, other = c.compile(node.test), c.compile(node.then), c.compile(node.other)

    def run(f: Frame) -> Any:
        value = test(f)
        return None if value is None else (then(f) if value else other(f))

    return run


@COMPILE.on(ir.AllDifferent)
def _all_different(node: ir.AllDifferent, c: Compiler) -> Closure:
    items = [c.compile(item) for item in node.items]

    def run(f: Frame) -> bool | None:
        values = [item(f) for item in items]
        known = [value for value in values if value is not None]
        if len(set(known)) < len(known):
            return False
        return True if len(known) == len(values) or len(values) < 2 else None

    return run


@COMPILE.on(ir.NoOverlap)
def _no_overlap(node: ir.NoOverlap, c: Compiler) -> Closure:
    spans = [c.compile(item) for item in node.intervals]
    places = [c.compile(item) for item in node.resources]

    def run(f: Frame) -> bool | None:
        when = [span(f) for span in spans]
        where = [place(f) for place in places] or [0] * len(when)
        known: bool | None = True
        for i, (a, here) in enumerate(zip(when, where, strict=True)):
            for b, there in zip(when[i + 1 :], where[i + 1 :], strict=True):
                clash = here is None or there is None or here == there
                late = None if a is None or b is None else a[1] <= b[0] or b[1] <= a[0]
                if late is True or not clash:
                    continue
                if late is None or here is None or there is None:
                    known = None
                else:
                    return False
        return known

    return run


@COMPILE.on(ir.Before)
def _before(node: ir.Before, c: Compiler) -> Closure:
    left, right, lag = c.compile(node.left), c.compile(node.right), c.compile(node.lag)

    def run(f: Frame) -> bool | None:
        a, b, gap = left(f), right(f), lag(f)
        return None if a is None or b is None or gap is None else a[1] + gap <= b[0]

    return run


@COMPILE.on(ir.Start, ir.End)
def _bound(node: ir.Start | ir.End, c: Compiler) -> Closure:
    interval, at = c.compile(node.interval), 0 if isinstance(node, ir.Start) else 1

    def run(f: Frame) -> int | None:
        value = interval(f)
        return None if value is None else value[at]

    return run


@lru_cache(maxsize=16_384)
def _ordinal(text: str) -> int | None:
    try:
        return datetime.date.fromisoformat(text[:10]).toordinal()
    except ValueError:
        return None


@COMPILE.on(ir.Days)
def _days(node: ir.Days, c: Compiler) -> Closure:
    left, right = c.compile(node.left), c.compile(node.right)

    def run(f: Frame) -> int | None:
        a, b = left(f), right(f)
        start = None if a is None else _ordinal(a)
        end = None if b is None else _ordinal(b)
        return None if start is None or end is None else end - start

    return run


@COMPILE.on(ir.Old, ir.New)
def _state(node: ir.Old | ir.New, c: Compiler) -> Closure:
    outer, c.in_final = c.in_final, isinstance(node, ir.New)
    try:
        return c.compile(node.item)
    finally:
        c.in_final = outer


COMPILE.complete()

__all__ = [
    "Closure",
    "Compiler",
    "Frame",
    "closures_over",
    "free_names",
    "frozen",
    "plain",
    "reads_final",
    "slots_of",
]
