"""The evaluator: expressions as Python closures, the reference of gates, tools, search and counting.

None is unknown; a closure never raises, whatever the rows and the frame hold. Slot values are hashable
here (``layout.frozen``): an interval is ``(start, end)``, a set a sorted tuple, a sequence and the
rows of a query a tuple, a map a tuple of pairs.

Choices where SQL leaves room: ``in`` is unknown when its left side is, even over an empty list; unlike
types are never equal and their order is unknown; aggregates skip unknown values; a negative operand or
a divisor <= 0 of ``//`` gives unknown.
"""

from __future__ import annotations

import datetime
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, Literal, NamedTuple

from envgen.core import ir
from envgen.core.errors import PipelineError
from envgen.core.ir import Node, Problem
from envgen.pipelines.general.semantics.dispatch import Dispatch
from envgen.pipelines.general.semantics.rewrite import (
    TRUE,
    column_equals,
    conjuncts,
    free_names,
    interned,
    kept,
    params_of,
    plain_form,
    reads_final,
    slots_of,
)
from envgen.pipelines.general.semantics.tables import Row, Tables

MAX_MEMO_CELLS = 3
"""A memo is kept for expressions that read at most so many slots and free parameters."""
MAX_MEMO_NAMES = 6
"""And for expressions about rows that read at most so many variables and free parameters."""


Reads = set[tuple[str, str | None]]
"""Rows that were read; key None: a whole relation."""
Memo = dict[tuple[Any, ...], tuple[Any, Reads]]
"""By closure and variables: the value, and the rows read for it where reads are noted."""


class Frame:
    """What a closure reads: slots by position, variables, arguments, parameters, two states."""

    __slots__ = ("args", "memo", "new", "old", "params", "reads", "slots", "vars")

    def __init__(self, num_slots: int, old: Tables, new: Tables, params: Mapping[str, Any]) -> None:
        self.slots: list[Any] = [None] * num_slots
        self.vars: dict[str, Any] = {}
        self.args: Mapping[str, Any] = {}
        self.params = params
        """Read by closures of a compiler with free parameters only."""
        self.old = old
        self.new = new
        self.reads: Reads | None = None
        """When a set: rows (key None: a whole relation) that were read."""
        self.memo: Memo | None = None
        """When a dict: what expressions that go through rows gave. Slots, parameters and both states must
        stay as they are while it serves. Frames of one compiler with the same of these may share it, if
        all note reads or none does."""


Closure = Callable[[Frame], Any]
"""A compiled expression."""


class Compiler:
    """Compiles the expressions of one problem.

    ``Compiler(p)`` reads rows from the frame: its closures serve any database. ``Compiler(p, db)`` is
    bound to initial rows that never change while its closures live: what depends on them alone is
    computed once, and what depends on one slot once per value.

    With ``params="bound"`` the problem's parameters are constants like any other. With ``params="free"``
    they are variables: ``frame.params`` gives their values (at first the problem's), so one compilation
    serves every binding. Then nothing that reads a parameter is folded; what also goes through rows
    is kept per value of the parameters and slots that it reads, and the rest is folded as ever.
    """

    def __init__(
        self, p: Problem, db: Tables | None = None, *, params: Literal["bound", "free"] = "bound"
    ) -> None:
        self.p = p
        self.db: Tables = {} if db is None else db
        self.position = {slot.name: i for i, slot in enumerate(p.slots)}
        self.free_params = params == "free"
        self.in_final = False
        self._bound = db is not None
        self._done: dict[tuple[int, bool], tuple[Node, Closure]] = {}
        self._columns: dict[tuple[str, str], dict[Any, Any]] = {}
        self.spreads: dict[tuple[Any, ...], tuple[int, int] | None] = {}
        """The cache of ``Model.spread``."""

    @property
    def fixed(self) -> bool:
        """Whether the rows that are read where the compiler stands never change."""
        return self._bound and not self.in_final

    @property
    def state(self) -> Callable[[Frame], Tables]:
        """Gives the rows that are read where the compiler stands."""
        return operator.attrgetter("new" if self.in_final else "old")

    def column(self, relation: str, column: str) -> dict[Any, Any]:
        """One column of the initial database, by key."""
        values = self._columns.get((relation, column))
        if values is None:
            rows = self.db.get(relation, {})
            values = {key: row.get(column) for key, row in rows.items()}
            self._columns[relation, column] = values
        return values

    def bind(self, params: Mapping[str, Any]) -> None:
        """Let new frames start with these parameters (of a compiler with free ones)."""
        self.p = self.p.model_copy(update={"params": dict(params)})

    def frame(self, old: Tables | None = None, new: Tables | None = None) -> Frame:
        """A frame without slot values; the states default to the initial database."""
        old = self.db if old is None else old
        return Frame(len(self.position), old, old if new is None else new, self.p.params)

    def compile(self, expr: Node) -> Closure:
        """``expr`` as a closure; the same node gives the same closure.

        Raises:
            PipelineError: for a combination that means nothing, such as a sum over a single value.
        """
        at = (id(expr), self.in_final)
        if at not in self._done:
            self._done[at] = (expr, self._compiled(expr))  # the node stays alive, its id taken
        return self._done[at][1]

    def _compiled(self, expr: Node) -> Closure:
        run = COMPILE[type(expr)](expr, self)
        if isinstance(expr, ir.Const | ir.Param | ir.SlotRef | ir.Var | ir.Arg):
            return run
        traits = _traits(expr)
        free, params = traits.free, traits.params if self.free_params else []
        if not self.fixed or traits.final:
            known = traits.through_rows and not traits.args and len(free) <= MAX_MEMO_NAMES
            return _memoised_in_frame(run, free) if known else run
        if free:  # of each row once, such as its rank among others
            known = traits.through_rows and not traits.args and not traits.slots
            few = len(free) + len(params) <= MAX_MEMO_NAMES
            return _memoised_rows(run, free, params) if known and few else run
        slots = [self.position[name] for name in traits.slots]
        if not slots and not params:
            value = run(self.frame())
            return lambda f: value
        if len(slots) == 1 and not params:
            return _memoised(run, slots[0])
        if len(slots) + len(params) <= MAX_MEMO_CELLS and traits.through_rows:
            return _memoised_many(run, slots, params)
        return run


class _Traits(NamedTuple):
    """What decides whether values of an expression are kept."""

    free: list[str]
    args: bool
    params: list[str]
    slots: list[str]
    final: bool
    through_rows: bool


@kept
def _traits(expr: Node) -> _Traits:
    free = sorted(free_names(expr))
    return _Traits(
        free=free,
        args=any(name.startswith("arg:") for name in free),
        params=sorted(params_of(expr)),
        slots=sorted(slots_of(expr)),
        final=reads_final(expr),
        through_rows=any(isinstance(node, ir.Query | ir.Reachable) for node in expr.walk()),
    )


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


def _memoised_many(run: Closure, positions: list[int], params: list[str]) -> Closure:
    """For expressions that go through rows: those are worth a larger memo."""
    memo: dict[tuple[Any, ...], Any] = {}

    def look_up(f: Frame) -> Any:
        values = tuple([f.slots[i] for i in positions] + [f.params.get(name) for name in params])
        try:
            return memo[values]
        except KeyError:
            memo[values] = result = run(f)
            return result

    return look_up


def _memoised_rows(run: Closure, names: list[str], params: list[str]) -> Closure:
    """For expressions about rows that variables stand for."""
    memo: dict[Any, Any] = {}
    if len(names) == 1 and not params:  # most, and they are looked up most
        name = names[0]

        def look_up_one(f: Frame) -> Any:
            value = f.vars.get(name)
            try:
                return memo[value]
            except KeyError:
                memo[value] = result = run(f)
                return result

        return look_up_one

    def look_up(f: Frame) -> Any:
        values = tuple([f.vars.get(name) for name in names] + [f.params.get(p) for p in params])
        try:
            return memo[values]
        except KeyError:
            memo[values] = result = run(f)
            return result

    return look_up


def _memoised_in_frame(run: Closure, names: list[str]) -> Closure:
    """For expressions about rows that may change: what they give is kept with the frame, if it keeps any."""

    def look_up(f: Frame) -> Any:
        memo = f.memo
        if memo is None:
            return run(f)
        at = (run, *[f.vars.get(name) for name in names])
        found = memo.get(at)
        if found is not None:
            if f.reads is not None:
                f.reads |= found[1]
            return found[0]
        outer = f.reads
        own: Reads = set()
        f.reads = None if outer is None else own
        value = run(f)
        f.reads = outer
        memo[at] = value, own
        if outer is not None:
            outer |= own
        return value

    return look_up


COMPILE: Dispatch[Callable[[Any, Compiler], Closure]] = Dispatch("evaluator")


# --- terms -----------------------------------------------------------------------------------


@COMPILE.on(ir.Const)
def _const(node: ir.Const, c: Compiler) -> Closure:
    value = node.value
    return lambda f: value


@COMPILE.on(ir.Param)
def _param(node: ir.Param, c: Compiler) -> Closure:
    name, value = node.name, c.p.params.get(node.name)
    return (lambda f: f.params.get(name)) if c.free_params else (lambda f: value)


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
    index, kind = c.compile(node.index), c.p.slot(node.slot).kind
    if kind == "map":
        return lambda f: dict(f.slots[i] or ()).get(index(f))
    if kind not in ("set", "sequence"):
        raise PipelineError(f"the {kind} slot {node.slot!r} has no elements")

    def element(f: Frame) -> Any:
        value, at = f.slots[i] or (), index(f)
        return value[at] if type(at) is int and 0 <= at < len(value) else None

    return element


@COMPILE.on(ir.Get)
def _get(node: ir.Get, c: Compiler) -> Closure:
    entity, relation, column = c.compile(node.entity), node.relation, node.column
    if c.fixed:
        values = c.column(relation, column)
        if isinstance(node.entity, ir.Var):  # most: a call less for each
            name = node.entity.name
            return lambda f: values.get(f.vars.get(name))
        return lambda f: values.get(entity(f))
    final = c.in_final
    var = node.entity.name if isinstance(node.entity, ir.Var) else None

    def look_up(f: Frame) -> Any:
        key: Any = entity(f) if var is None else f.vars.get(var)
        if f.reads is not None:
            f.reads.add((relation, key))
        row = (f.new if final else f.old).get(relation, {}).get(key)
        return None if row is None else row.get(column)

    return look_up


def _floored(a: int, b: int) -> int | None:
    return a // b if a >= 0 and b > 0 else None


_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "convert": operator.mul,
    "//": _floored,
}


@COMPILE.on(ir.Arith)
def _arith(node: ir.Arith, c: Compiler) -> Closure:
    left, right, result = c.compile(node.left), c.compile(node.right), _ARITHMETIC[node.fn]

    def run(f: Frame) -> Any:
        a, b = left(f), right(f)
        return result(a, b) if type(a) is int and type(b) is int else None

    return run


def _span(node: Node, c: Compiler) -> Closure:
    """An interval's bounds, None for what is none; ``frozen`` has seen to those of a slot."""
    run = c.compile(node)
    if isinstance(node, ir.SlotRef) and isinstance(c.p.slot(node.slot).domain, ir.Intervals):
        return run

    def checked(f: Frame) -> Any:
        value = run(f)
        return value if isinstance(value, tuple) and len(value) == 2 else None

    return checked


@COMPILE.on(ir.Start, ir.End)
def _bound(node: ir.Start | ir.End, c: Compiler) -> Closure:
    interval, at = _span(node.interval, c), 0 if isinstance(node, ir.Start) else 1
    return lambda f: None if (value := interval(f)) is None else value[at]


@lru_cache(maxsize=16_384)
def _ordinal(value: Any) -> int | None:
    """The day of a date or datetime, None for anything else."""
    try:
        return datetime.date.fromisoformat(value[:10]).toordinal()
    except (TypeError, ValueError):
        return None


@COMPILE.on(ir.Days)
def _days(node: ir.Days, c: Compiler) -> Closure:
    left, right = c.compile(node.left), c.compile(node.right)

    def run(f: Frame) -> int | None:
        start, end = _ordinal(left(f)), _ordinal(right(f))
        return None if start is None or end is None else end - start

    return run


@COMPILE.on(ir.Old, ir.New)
def _state(node: ir.Old | ir.New, c: Compiler) -> Closure:
    outer, c.in_final = c.in_final, isinstance(node, ir.New)
    try:
        return c.compile(node.item)
    finally:
        c.in_final = outer


# --- conditions ------------------------------------------------------------------------------


_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@COMPILE.on(ir.Cmp)
def _cmp(node: ir.Cmp, c: Compiler) -> Closure:
    left = c.compile(node.left)
    if node.fn == "in":
        return _membership(left, node.right, c)
    right, result = c.compile(node.right), _COMPARISONS[node.fn]

    def run(f: Frame) -> bool | None:
        a, b = left(f), right(f)
        if a is None or b is None:
            return None
        try:
            return result(a, b)
        except TypeError:  # unlike types have no order
            return None

    return run


def _membership(left: Closure, over: Node, c: Compiler) -> Closure:
    if isinstance(over, ir.Const) and not isinstance(over.value, tuple):
        over = ir.Const(value=(over.value,))
    values = c.compile(over) if isinstance(over, ir.Const) else elements(over, c)

    def run(f: Frame) -> bool | None:
        item, inside = left(f), values(f)
        if item is None:
            return None
        return True if item in inside else (None if None in inside else False)

    return run


@COMPILE.on(ir.And, ir.Or)
def _junction(node: ir.And | ir.Or, c: Compiler) -> Closure:
    items = [c.compile(item) for item in node.items]
    decisive = isinstance(node, ir.Or)  # one true item decides an Or, one false an And

    def run(f: Frame) -> bool | None:
        known: bool | None = not decisive
        for item in items:
            value = item(f)
            if value is decisive:
                known = decisive
                break
            if not isinstance(value, bool):
                known = None
        return known

    return run


@COMPILE.on(ir.Not)
def _not(node: ir.Not, c: Compiler) -> Closure:
    item = c.compile(node.item)
    return lambda f: (not value) if isinstance(value := item(f), bool) else None


@COMPILE.on(ir.If)
def _if(node: ir.If, c: Compiler) -> Closure:
    test, then, other = c.compile(node.test), c.compile(node.then), c.compile(node.other)

    def run(f: Frame) -> Any:
        value = test(f)
        if value is True:
            return then(f)
        return other(f) if value is False else None

    return run


@COMPILE.on(ir.AllDifferent, ir.NoOverlap, ir.Before)
def _pairwise(node: ir.AllDifferent | ir.NoOverlap | ir.Before, c: Compiler) -> Closure:
    return c.compile(plain_form(node))


# --- rows, and what runs over them -----------------------------------------------------------


def _rank(value: Any) -> tuple[int, Any]:
    if value is None:  # SQLite sorts NULL first
        return (0, 0)
    return (1, value) if isinstance(value, int) else (2, str(value))


def _rows(node: ir.Query, c: Compiler) -> Closure:
    """The selected values of a query, before any aggregate."""
    relation, var, limit, state = node.relation, node.var, node.limit, c.state
    fixed = c.fixed
    among, left = _index(node, c)
    where = None if left == TRUE else c.compile(left)
    equal, more = (None, left) if fixed else _index_of_state(node, c)
    rest = None if more == TRUE else c.compile(more)
    select = None if node.select is None else c.compile(node.select)
    orders = [(c.compile(order.by), order.descending) for order in node.order]

    def run(f: Frame) -> tuple[Any, ...]:
        if f.reads is not None and not fixed:
            f.reads.add((relation, None))
        keys, holds = None if equal is None or f.memo is None else equal(f), rest
        if keys is None:
            keys = sorted(state(f).get(relation, {})) if among is None else among(f)
            holds = where
        outer, kept, plain = f.vars, [], []
        f.vars = inner = {**outer}
        for key in keys:
            inner[var] = key
            if holds is not None and holds(f) is not True:
                continue
            value = key if select is None else select(f)
            if orders:
                kept.append(([_rank(by(f)) for by, _ in orders], value))
            else:
                plain.append(value)
        f.vars = outer
        if not orders:
            return tuple(plain[:limit])
        for i in range(len(orders) - 1, -1, -1):  # stable: the last key first, ties in key order
            kept.sort(key=lambda item: item[0][i], reverse=orders[i][1])
        return tuple([value for _, value in kept[:limit]])

    return run


def _index(node: ir.Query, c: Compiler) -> tuple[Callable[[Frame], Sequence[Any]] | None, Node]:
    """Where the rows never change: the keys to look at, in order, and what is left of the condition.

    A condition ``column = value`` is looked up instead of being tried on each row: rules that go from a
    row to those that refer to it would cost the square of the rows.
    """
    if not c.fixed:
        return None, node.where
    rows, parts = c.db.get(node.relation, {}), list(conjuncts(node.where))
    for i, part in enumerate(parts):
        column, value = column_equals(part, node)
        if column is None or value is None:
            continue
        keys: dict[Any, list[str]] = {}
        for key in sorted(rows):
            keys.setdefault(rows[key].get(column), []).append(key)
        keys.pop(None, None)  # an unknown value equals nothing
        wanted, rest = c.compile(value), (*parts[:i], *parts[i + 1 :])
        left = rest[0] if len(rest) == 1 else interned(ir.And(items=rest)) if rest else TRUE
        return partial(_looked_up, keys, wanted), left
    every = sorted(rows)
    return lambda f: every, node.where


def _index_of_state(
    node: ir.Query, c: Compiler
) -> tuple[Callable[[Frame], Sequence[Any] | None] | None, Node]:
    """The same where rows change, kept with a frame that keeps anything; None if every row is to be tried.

    Only of the first condition, and where no value is unknown: the cells and rows that count as read are
    then those that trying it on each row reads.
    """
    parts = node.where.items if isinstance(node.where, ir.And) else (node.where,)
    column, value = column_equals(parts[0], node)
    if column is None or value is None:
        return None, node.where
    wanted, state, relation, at = (
        c.compile(value),
        c.state,
        node.relation,
        (c.in_final, node.relation, column),
    )

    def look_up(f: Frame) -> Sequence[Any] | None:
        assert f.memo is not None
        if at not in f.memo:
            rows, keys = state(f).get(relation, {}), dict[Any, list[str]]()
            for key in sorted(rows):
                keys.setdefault(rows[key].get(column), []).append(key)
            f.memo[at] = keys, {(relation, key) for key in rows}
        keys, read = f.memo[at]
        value = wanted(f) if keys else None
        if keys and (value is None or None in keys):
            return None
        if f.reads is not None:
            f.reads |= read
        found: Sequence[Any] = keys.get(value, ())
        return found

    return look_up, interned(ir.And(items=parts[1:])) if len(parts) > 1 else TRUE


def _looked_up(keys: dict[Any, list[str]], wanted: Closure, frame: Frame) -> Sequence[Any]:
    return keys.get(wanted(frame), ())


def _folded(agg: str, values: tuple[Any, ...]) -> Any:
    """An aggregate of the known values."""
    known = [value for value in values if value is not None]
    if agg == "count":
        return len(known)
    if agg in ("min", "max"):
        return (min if agg == "min" else max)(known, key=_rank, default=None)
    if not all(isinstance(value, int) for value in known):
        return None
    if agg == "sum":
        return sum(known)
    return sum(known) // len(known) if known else None


@COMPILE.on(ir.Query)
def _query(node: ir.Query, c: Compiler) -> Closure:
    rows, agg = _rows(node, c), node.agg
    if agg != "none":
        return lambda f: _folded(agg, rows(f))
    if node.limit != 1:
        return rows

    def first(f: Frame) -> Any:
        values = rows(f)
        return values[0] if values else None

    return first


def _successors(rows: dict[str, Row], source: str, target: str) -> dict[Any, list[Any]]:
    """Where the edges of a relation lead, by where they start."""
    found: dict[Any, list[Any]] = {}
    for row in rows.values():
        start, end = row.get(source), row.get(target)
        if start is not None and end is not None:
            found.setdefault(start, []).append(end)
    return found


@COMPILE.on(ir.Reachable)
def _reachable(node: ir.Reachable, c: Compiler) -> Closure:
    start, relation, state = c.compile(node.start), node.relation, c.state
    edge = (node.source, node.target)
    fixed = _successors(c.db.get(relation, {}), *edge) if c.fixed else None

    def run(f: Frame) -> tuple[Any, ...]:
        if f.reads is not None and fixed is None:
            f.reads.add((relation, None))
        after = _successors(state(f).get(relation, {}), *edge) if fixed is None else fixed
        found, todo = set[Any](), [start(f)]
        while todo:
            fresh = [item for item in after.get(todo.pop(), ()) if item not in found]
            found.update(fresh)
            todo += fresh
        return tuple(sorted(found, key=_rank))

    return run


def elements(over: Node, c: Compiler) -> Closure:
    """What a fold runs over and ``in`` looks into, as a closure that gives a tuple or range.

    A map gives its keys, an aggregate its one value.

    Raises:
        PipelineError: for what has no elements.
    """
    if isinstance(over, ir.Query):
        if over.agg == "none":
            return _rows(over, c)
        one = c.compile(over)
        return lambda f: (one(f),)
    if isinstance(over, ir.Range):
        return _range(over, c)
    if isinstance(over, ir.Reachable):
        return c.compile(over)
    if isinstance(over, ir.SlotRef) and over.index is None:
        value, kind = c.compile(over), c.p.slot(over.slot).kind
        if kind == "map":
            return lambda f: tuple([key for key, _ in value(f) or ()])
        if kind in ("set", "sequence"):
            return lambda f: value(f) or ()
        raise PipelineError(f"a rule can't run over the {kind} slot {over.slot!r}")
    raise PipelineError(f"a rule can't run over {type(over).__name__}")


def _range(node: ir.Range, c: Compiler) -> Closure:
    low, high, step = c.compile(node.low), c.compile(node.high), max(node.step, 1)

    def run(f: Frame) -> range:
        a, b = low(f), high(f)
        return range(a, b + 1, step) if type(a) is int and type(b) is int else range(0)

    return run


def _each(node: ir.Sum | ir.Count, c: Compiler) -> Callable[[Frame], list[Any]]:
    """The body's value for each element."""
    over, body, var = elements(node.over, c), c.compile(node.body), node.var

    def run(f: Frame) -> list[Any]:
        outer, found, values = f.vars, over(f), []
        f.vars = inner = {**outer}
        for element in found:
            inner[var] = element
            values.append(body(f))
        f.vars = outer
        return values

    return run


@COMPILE.on(ir.Sum, ir.Count)
def _sum(node: ir.Sum | ir.Count, c: Compiler) -> Closure:
    each, kind = _each(node, c), int if isinstance(node, ir.Sum) else bool

    def run(f: Frame) -> int | None:
        values = each(f)
        return sum(values) if all(isinstance(value, kind) for value in values) else None

    return run


@COMPILE.on(ir.All, ir.Any)
def _quantified(node: ir.All | ir.Any, c: Compiler) -> Closure:
    over, body, var = elements(node.over, c), c.compile(node.body), node.var
    decisive = isinstance(node, ir.Any)

    def run(f: Frame) -> bool | None:
        outer, found = f.vars, over(f)
        result: bool | None = not decisive
        f.vars = inner = {**outer}
        for element in found:
            inner[var] = element
            value = body(f)
            if value is decisive:
                result = decisive
                break
            if not isinstance(value, bool):
                result = None  # unless a later element decides
        f.vars = outer
        return result

    return run


COMPILE.complete()
