"""Expressions as Python closures: the fast form that search, counting and walks run on.

Written apart from ``interpret`` so that each can check the other. Slot values are hashable here: an
interval is ``(start, end)``, a set a sorted tuple, a sequence a tuple, a map a tuple of pairs
(``plain`` turns them into JSON). Expressions are taken to be well typed.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Hashable, Mapping
from functools import cache
from typing import Any

from pydantic import JsonValue

from envgen.core import ir
from envgen.core.ir import Node, Problem, Slot
from envgen.pipelines.general.dispatch import Dispatch
from envgen.pipelines.general.tables import Tables

MAX_MEMO_SLOTS = 3


class Frame:
    """What a closure reads: slot values by position, bound variables, arguments, two states."""

    __slots__ = ("args", "new", "old", "reads", "slots", "vars")

    def __init__(self, num_slots: int, old: Tables, new: Tables | None = None) -> None:
        self.slots: list[Any] = [None] * num_slots
        self.vars: dict[str, Any] = {}
        self.args: Mapping[str, Any] = {}
        self.old = old
        self.new = old if new is None else new
        self.reads: set[tuple[str, str | None]] | None = None
        """When a set: rows (key None: a whole relation) that were read."""


Closure = Callable[[Frame], Any]


def frozen(slot: Slot, value: JsonValue) -> Hashable:
    """The hashable form of a slot's JSON value."""
    if slot.kind == "interval" and isinstance(value, dict):
        return (value["start"], value["end"])
    if slot.kind == "set" and isinstance(value, list):
        return tuple(sorted(value, key=lambda item: (str(type(item)), item)))
    if slot.kind == "sequence" and isinstance(value, list):
        return tuple(value)
    if slot.kind == "map" and isinstance(value, dict):
        return tuple(sorted(value.items()))
    return value if not isinstance(value, list | dict) else None


def plain(slot: Slot, value: Any) -> JsonValue:
    """The JSON form of a slot's hashable value."""
    if slot.kind == "interval":
        return {"start": value[0], "end": value[1]}
    if slot.kind in ("set", "sequence"):
        return list(value)
    return dict(value) if slot.kind == "map" else value


@cache
def slots_of(expr: Node) -> frozenset[str]:
    """Names of the slots that ``expr`` reads."""
    names = {expr.slot} if isinstance(expr, ir.SlotRef) else set()
    return frozenset(names.union(*(slots_of(child) for child in expr.children())))


_BINDERS = (ir.Query, ir.Sum, ir.Count, ir.All, ir.Any)


@cache
def free_names(expr: Node) -> frozenset[str]:
    """Variables that ``expr`` reads but doesn't bind, and its arguments (as ``arg:name``)."""
    if isinstance(expr, ir.Var):
        return frozenset((expr.name,))
    if isinstance(expr, ir.Arg):
        return frozenset((f"arg:{expr.name}",))
    inner = frozenset[str]().union(*(free_names(child) for child in expr.children()))
    if isinstance(expr, ir.Query):
        return inner - {expr.var}
    if isinstance(expr, _BINDERS):
        return free_names(expr.over) | (free_names(expr.body) - {expr.var})
    return inner


@cache
def reads_final(expr: Node) -> bool:
    """Whether ``expr`` holds a ``New``."""
    return isinstance(expr, ir.New) or any(reads_final(child) for child in expr.children())


class Compiler:
    """Compiles the expressions of one problem over one initial database.

    ``static``: the initial database never changes while closures live, so whatever depends on it alone
    is computed once, and what depends on one slot once per value.
    """

    def __init__(self, p: Problem, db: Tables, *, static: bool = True) -> None:
        self.p = p
        self.db = db
        self.static = static
        self.position = {slot.name: i for i, slot in enumerate(p.slots)}
        self.in_final = False
        self._done: dict[tuple[int, bool], tuple[Node, Closure]] = {}
        self._columns: dict[tuple[str, str], dict[str, Any]] = {}

    def column(self, relation: str, column: str) -> dict[str, Any]:
        """One column of the initial database, by key."""
        values = self._columns.get((relation, column))
        if values is None:
            rows = self.db.get(relation, {})
            values = {key: row.get(column) for key, row in rows.items()}
            self._columns[relation, column] = values
        return values

    def frame(self, new: Tables | None = None) -> Frame:
        """An empty frame over the initial database."""
        return Frame(len(self.p.slots), self.db, new)

    def compile(self, expr: Node) -> Closure:
        """``expr`` as a closure; the same node gives the same closure."""
        at = (id(expr), self.in_final)
        if at not in self._done:
            self._done[at] = (expr, self._compiled(expr))  # the node stays alive, its id taken
        return self._done[at][1]

    def _compiled(self, expr: Node) -> Closure:
        run = _COMPILE[type(expr)](expr, self)
        fixed = self.static and not self.in_final and not reads_final(expr)
        if not fixed or isinstance(expr, ir.Const | ir.Param | ir.SlotRef) or free_names(expr):
            return run
        slots = slots_of(expr)
        if not slots:
            value = run(self.frame())
            return lambda f: value
        positions = [self.position[name] for name in sorted(slots)]
        if len(slots) == 1:
            return _memoised(run, positions[0])
        if len(slots) <= MAX_MEMO_SLOTS and any(isinstance(n, ir.Query) for n in expr.walk()):
            return _memoised_many(run, positions)
        return run


def _memoised(run: Closure, position: int) -> Closure:
    memo: dict[Any, Any] = {}

    def look_up(f: Frame) -> Any:
        value = f.slots[position]
        try:
            return memo[value]
        except KeyError:
            memo[value] = result = run(f)
            return result

    return look_up


def _memoised_many(run: Closure, positions: list[int]) -> Closure:
    """For expressions that go through rows: those are worth a larger memo."""
    memo: dict[tuple[Any, ...], Any] = {}

    def look_up(f: Frame) -> Any:
        values = tuple([f.slots[i] for i in positions])
        try:
            return memo[values]
        except KeyError:
            memo[values] = result = run(f)
            return result

    return look_up


_COMPILE: Dispatch[Callable[[Any, Compiler], Closure]] = Dispatch("closures")


@_COMPILE.on(ir.Const)
def _const(node: ir.Const, c: Compiler) -> Closure:
    value = node.value
    return lambda f: value


@_COMPILE.on(ir.Param)
def _param(node: ir.Param, c: Compiler) -> Closure:
    value = c.p.params.get(node.name)
    return lambda f: value


@_COMPILE.on(ir.Var)
def _var(node: ir.Var, c: Compiler) -> Closure:
    name = node.name
    return lambda f: f.vars.get(name)


@_COMPILE.on(ir.Arg)
def _arg(node: ir.Arg, c: Compiler) -> Closure:
    name = node.name
    return lambda f: f.args.get(name)


@_COMPILE.on(ir.SlotRef)
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


@_COMPILE.on(ir.Get)
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


@_COMPILE.on(ir.Arith)
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


@_COMPILE.on(ir.Cmp)
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


@_COMPILE.on(ir.And)
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


@_COMPILE.on(ir.Or)
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


@_COMPILE.on(ir.Not)
def _not(node: ir.Not, c: Compiler) -> Closure:
    item = c.compile(node.item)

    def run(f: Frame) -> bool | None:
        value = item(f)
        return None if value is None else not value

    return run


@_COMPILE.on(ir.If)
def _if(node: ir.If, c: Compiler) -> Closure:
    test, then, other = c.compile(node.test), c.compile(node.then), c.compile(node.other)

    def run(f: Frame) -> Any:
        value = test(f)
        return None if value is None else (then(f) if value else other(f))

    return run


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


@_COMPILE.on(ir.Query)
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


@_COMPILE.on(ir.Sum)
def _sum(node: ir.Sum, c: Compiler) -> Closure:
    each = _each(node, c)

    def run(f: Frame) -> Any:
        values = each(f)
        return None if None in values else sum(values)

    return run


@_COMPILE.on(ir.Count)
def _count(node: ir.Count, c: Compiler) -> Closure:
    each = _each(node, c)

    def run(f: Frame) -> Any:
        values = each(f)
        return None if None in values else sum(1 for value in values if value)

    return run


@_COMPILE.on(ir.All)
def _all(node: ir.All, c: Compiler) -> Closure:
    each = _each(node, c)

    def run(f: Frame) -> Any:
        values = each(f)
        return False if False in values else (None if None in values else True)

    return run


@_COMPILE.on(ir.Any)
def _any(node: ir.Any, c: Compiler) -> Closure:
    each = _each(node, c)

    def run(f: Frame) -> Any:
        values = each(f)
        return True if True in values else (None if None in values else False)

    return run


@_COMPILE.on(ir.AllDifferent)
def _all_different(node: ir.AllDifferent, c: Compiler) -> Closure:
    items = [c.compile(item) for item in node.items]

    def run(f: Frame) -> bool | None:
        values = [item(f) for item in items]
        known = [value for value in values if value is not None]
        if len(set(known)) < len(known):
            return False
        return True if len(known) == len(values) or len(values) < 2 else None

    return run


@_COMPILE.on(ir.NoOverlap)
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


@_COMPILE.on(ir.Before)
def _before(node: ir.Before, c: Compiler) -> Closure:
    left, right, lag = c.compile(node.left), c.compile(node.right), c.compile(node.lag)

    def run(f: Frame) -> bool | None:
        a, b, gap = left(f), right(f), lag(f)
        return None if a is None or b is None or gap is None else a[1] + gap <= b[0]

    return run


@_COMPILE.on(ir.Start, ir.End)
def _bound(node: ir.Start | ir.End, c: Compiler) -> Closure:
    interval, at = c.compile(node.interval), 0 if isinstance(node, ir.Start) else 1

    def run(f: Frame) -> int | None:
        value = interval(f)
        return None if value is None else value[at]

    return run


@cache
def _ordinal(text: str) -> int | None:
    try:
        return datetime.date.fromisoformat(text[:10]).toordinal()
    except ValueError:
        return None


@_COMPILE.on(ir.Days)
def _days(node: ir.Days, c: Compiler) -> Closure:
    left, right = c.compile(node.left), c.compile(node.right)

    def run(f: Frame) -> int | None:
        a, b = left(f), right(f)
        start = None if a is None else _ordinal(a)
        end = None if b is None else _ordinal(b)
        return None if start is None or end is None else end - start

    return run


@_COMPILE.on(ir.Old, ir.New)
def _state(node: ir.Old | ir.New, c: Compiler) -> Closure:
    outer, c.in_final = c.in_final, isinstance(node, ir.New)
    try:
        return c.compile(node.item)
    finally:
        c.in_final = outer


_COMPILE.complete()
