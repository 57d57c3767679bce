"""The oracle: what a problem means, by a slow interpreter over rows and JSON.

Written apart from the product's evaluator, which must agree with it, as must the verifier's SQL. None
is unknown. Nothing here raises on a well-formed ``Problem``, whatever the answer holds.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from pydantic import JsonValue

from envgen.core import ir
from envgen.core.canonical import dumps
from envgen.core.ir import Node, Problem, Slot
from envgen.pipelines.general.semantics.dispatch import Dispatch
from envgen.pipelines.general.semantics.evaluate import query_type, rule_ids
from envgen.pipelines.general.semantics.layout import match_layout
from envgen.pipelines.general.semantics.tables import Row, Tables

Value = Any
"""A JSON value: a scalar, an interval object, a list (query, set, sequence), a dict (map)."""


@dataclass(slots=True)
class Scope:
    """What an expression may read."""

    problem: Problem
    initial: Tables
    final: Tables
    slots: Mapping[str, Value] = field(default_factory=dict)
    args: Mapping[str, Value] = field(default_factory=dict)
    variables: Mapping[str, Value] = field(default_factory=dict)
    in_final: bool = False

    def bind(self, var: str, value: Value) -> Scope:
        """This scope with one more variable."""
        variables = {**self.variables, var: value}
        return Scope(
            self.problem,
            self.initial,
            self.final,
            self.slots,
            self.args,
            variables,
            self.in_final,
        )

    def relation(self, name: str) -> dict[str, Row]:
        """The rows of a relation in the state that is being read."""
        return (self.final if self.in_final else self.initial).get(name, {})


def interpret(expr: Node, scope: Scope) -> Value:
    """The value of ``expr`` in ``scope``; None if it is unknown."""
    return _EVAL[type(expr)](expr, scope)


def clause_holds(clause: ir.Clause, scope: Scope) -> bool:
    """Whether ``guard -> expr`` is true; an unknown guard or expression makes it false."""
    if clause.guard is not None:
        guard = interpret(clause.guard, scope)
        if guard is False:
            return True
        if guard is not True:
            return False
    expr = clause.expr
    if clause.gives_way:  # held to the nearest there is
        assert isinstance(expr, ir.Cmp)
        sides = {"left": expr.left, "right": expr.right}
        own, nearest = ir.Param(name=clause.gives_way), ir.Param(name="nearest")
        expr = ir.Cmp(fn=expr.fn, **{k: nearest if v == own else v for k, v in sides.items()})
    return interpret(expr, scope) is True


_EVAL: Dispatch[Callable[[Any, Scope], Value]] = Dispatch("evaluate")


@_EVAL.on(ir.Const)
def _const(node: ir.Const, scope: Scope) -> Value:
    return list(node.value) if isinstance(node.value, tuple) else node.value


@_EVAL.on(ir.Param)
def _param(node: ir.Param, scope: Scope) -> Value:
    return scope.problem.params.get(node.name)


@_EVAL.on(ir.Var)
def _var(node: ir.Var, scope: Scope) -> Value:
    return scope.variables.get(node.name)


@_EVAL.on(ir.Arg)
def _arg(node: ir.Arg, scope: Scope) -> Value:
    return scope.args.get(node.name)


@_EVAL.on(ir.SlotRef)
def _slot(node: ir.SlotRef, scope: Scope) -> Value:
    value = scope.slots.get(node.slot)
    if isinstance(value, list) and scope.problem.slot(node.slot).kind == "set":
        value = sorted(value, key=_sort_key)  # the order in which they were submitted says nothing
    if node.index is None:
        return value
    index = interpret(node.index, scope)
    if isinstance(value, list) and type(index) is int:
        return value[index] if 0 <= index < len(value) else None
    if isinstance(value, dict) and isinstance(index, str):
        return value.get(index)
    return None


@_EVAL.on(ir.Get)
def _get(node: ir.Get, scope: Scope) -> Value:
    key = interpret(node.entity, scope)
    row = scope.relation(node.relation).get(key) if isinstance(key, str) else None
    return None if row is None else row.get(node.column)


@_EVAL.on(ir.Arith)
def _arith(node: ir.Arith, scope: Scope) -> Value:
    left, right = interpret(node.left, scope), interpret(node.right, scope)
    if type(left) is not int or type(right) is not int:
        return None
    if node.fn == "+":
        return left + right
    if node.fn == "-":
        return left - right
    if node.fn == "//":
        return left // right if left >= 0 and right > 0 else None
    return left * right


def equal(left: Value, right: Value) -> bool | None:
    """Three-valued equality of two values; lists and objects compare as JSON."""
    if left is None or right is None:
        return None
    if isinstance(left, int) and isinstance(right, int):
        return left == right  # a bool column is an INTEGER in SQLite
    return type(left) is type(right) and left == right


def less(left: Value, right: Value) -> bool | None:
    """Three-valued ``left < right``; unlike types have no order."""
    if isinstance(left, int) and isinstance(right, int):
        return left < right
    if isinstance(left, str) and isinstance(right, str):
        return left < right
    return None


def negate(value: bool | None) -> bool | None:
    """Three-valued negation."""
    return None if value is None else not value


def any_of(values: Iterable[Value]) -> bool | None:
    """True if one is true, else unknown if one is not false, else false."""
    unknown = False
    for value in values:
        if value is True:
            return True
        unknown = unknown or value is not False
    return None if unknown else False


def all_of(values: Iterable[Value]) -> bool | None:
    """False if one is false, else unknown if one is not true, else true."""
    unknown = False
    for value in values:
        if value is False:
            return False
        unknown = unknown or value is not True
    return None if unknown else True


def compare(fn: str, left: Value, right: Value) -> bool | None:
    """One comparison of the IR on two values."""
    if fn == "in":
        if left is None or not isinstance(right, list | dict):
            return None
        return any_of(equal(left, item) for item in right)
    if fn == "=":
        return equal(left, right)
    if fn == "!=":
        return negate(equal(left, right))
    if fn == "<":
        return less(left, right)
    if fn == ">":
        return less(right, left)
    return negate(less(right, left) if fn == "<=" else less(left, right))


@_EVAL.on(ir.Cmp)
def _cmp(node: ir.Cmp, scope: Scope) -> Value:
    left, right = interpret(node.left, scope), node.right
    if node.fn != "in":
        return compare(node.fn, left, interpret(right, scope))
    values = interpret(right, scope) if isinstance(right, ir.Const) else elements(right, scope)
    return compare("in", left, values if isinstance(values, list) else [values])


@_EVAL.on(ir.And)
def _and(node: ir.And, scope: Scope) -> Value:
    return all_of(interpret(item, scope) for item in node.items)


@_EVAL.on(ir.Or)
def _or(node: ir.Or, scope: Scope) -> Value:
    return any_of(interpret(item, scope) for item in node.items)


@_EVAL.on(ir.Not)
def _not(node: ir.Not, scope: Scope) -> Value:
    value = interpret(node.item, scope)
    return (not value) if isinstance(value, bool) else None


@_EVAL.on(ir.If)
def _if(node: ir.If, scope: Scope) -> Value:
    test = interpret(node.test, scope)
    if not isinstance(test, bool):
        return None
    return interpret(node.then if test else node.other, scope)


def _sort_key(value: Value) -> tuple[int, Any]:
    if value is None:  # SQLite sorts NULL first
        return (0, 0)
    return (1, int(value)) if isinstance(value, int) else (2, str(value))


def query_values(node: ir.Query, scope: Scope) -> list[Value]:
    """The selected values of a query's rows, in its order, before any aggregate."""
    keys = sorted(scope.relation(node.relation))
    keys = [k for k in keys if interpret(node.where, scope.bind(node.var, k)) is True]
    for order in reversed(node.order):  # stable sorts: the last key first, ties stay in key order
        ranks = {k: _sort_key(interpret(order.by, scope.bind(node.var, k))) for k in keys}
        keys.sort(key=ranks.__getitem__, reverse=order.descending)
    if node.limit is not None:
        keys = keys[: node.limit]
    if node.select is None:
        return list(keys)
    return [interpret(node.select, scope.bind(node.var, k)) for k in keys]


def fold(agg: str, values: list[Value]) -> Value:
    """An aggregate of the known values."""
    known = [value for value in values if value is not None]
    if agg == "count":
        return len(known)
    if agg in ("sum", "mean") and not all(isinstance(value, int) for value in known):
        return None
    if agg == "sum":
        return sum(known)
    if not known:
        return None
    if agg == "mean":
        return sum(known) // len(known)
    return (min if agg == "min" else max)(known, key=_sort_key)


@_EVAL.on(ir.Query)
def _query(node: ir.Query, scope: Scope) -> Value:
    values = query_values(node, scope)
    if node.agg != "none":
        return fold(node.agg, values)
    if node.limit == 1:
        return values[0] if values else None
    return values


@_EVAL.on(ir.Reachable)
def _reachable(node: ir.Reachable, scope: Scope) -> Value:
    """The least set that holds what edges from the start or from a member lead to."""
    rows = scope.relation(node.relation).values()
    edges = {(row.get(node.source), row.get(node.target)) for row in rows}
    start, found = interpret(node.start, scope), set[Any]()
    for _, (source, target) in product(edges, edges):  # as many rounds as there are edges
        if None not in (source, target) and source in (start, *found):
            found.add(target)
    return sorted(found, key=_sort_key)


def elements(over: Node, scope: Scope) -> list[Value]:
    """What a Sum, Count, All or Any runs over; a map gives its keys."""
    if isinstance(over, ir.Query):
        return query_values(over, scope) if over.agg == "none" else [interpret(over, scope)]
    if isinstance(over, ir.Range):
        low, high = interpret(over.low, scope), interpret(over.high, scope)
        if type(low) is not int or type(high) is not int or over.step < 1:
            return []
        return list(range(low, high + 1, over.step))
    value = interpret(over, scope)
    return list(value) if isinstance(value, list | dict) else []


def _bodies(node: ir.Sum | ir.Count | ir.All | ir.Any, scope: Scope) -> Iterable[Value]:
    for element in elements(node.over, scope):
        yield interpret(node.body, scope.bind(node.var, element))


@_EVAL.on(ir.Sum)
def _sum(node: ir.Sum, scope: Scope) -> Value:
    values = list(_bodies(node, scope))
    return sum(values) if all(isinstance(value, int) for value in values) else None


@_EVAL.on(ir.Count)
def _count(node: ir.Count, scope: Scope) -> Value:
    values = list(_bodies(node, scope))
    return values.count(True) if all(isinstance(value, bool) for value in values) else None


@_EVAL.on(ir.All)
def _all(node: ir.All, scope: Scope) -> Value:
    return all_of(_bodies(node, scope))


@_EVAL.on(ir.Any)
def _any(node: ir.Any, scope: Scope) -> Value:
    return any_of(_bodies(node, scope))


@_EVAL.on(ir.AllDifferent)
def _all_different(node: ir.AllDifferent, scope: Scope) -> Value:
    values = [interpret(item, scope) for item in node.items]
    return all_of(negate(equal(a, b)) for i, a in enumerate(values) for b in values[i + 1 :])


def bounds(interval: Value) -> tuple[int, int] | None:
    """(start, end) of an interval value, None if it is none."""
    if not isinstance(interval, dict):
        return None
    start, end = interval.get("start"), interval.get("end")
    return (start, end) if type(start) is int and type(end) is int else None


def disjoint(left: Value, right: Value) -> bool | None:
    """Whether two intervals, half-open, share no minute."""
    a, b = bounds(left), bounds(right)
    return None if a is None or b is None else a[1] <= b[0] or b[1] <= a[0]


@_EVAL.on(ir.NoOverlap)
def _no_overlap(node: ir.NoOverlap, scope: Scope) -> Value:
    spans = [interpret(item, scope) for item in node.intervals]
    places = [interpret(item, scope) for item in node.resources]
    pairs = [(i, j) for i in range(len(spans)) for j in range(i + 1, len(spans))]
    if not places:
        return all_of(disjoint(spans[i], spans[j]) for i, j in pairs)
    return all_of(
        any_of((negate(equal(places[i], places[j])), disjoint(spans[i], spans[j])))
        for i, j in pairs
    )


@_EVAL.on(ir.Before)
def _before(node: ir.Before, scope: Scope) -> Value:
    left, right = (bounds(interpret(item, scope)) for item in (node.left, node.right))
    lag = interpret(node.lag, scope)
    if left is None or right is None or type(lag) is not int:
        return None
    return left[1] + lag <= right[0]


@_EVAL.on(ir.Start)
def _start(node: ir.Start, scope: Scope) -> Value:
    span = bounds(interpret(node.interval, scope))
    return None if span is None else span[0]


@_EVAL.on(ir.End)
def _end(node: ir.End, scope: Scope) -> Value:
    span = bounds(interpret(node.interval, scope))
    return None if span is None else span[1]


def day_number(value: Value) -> int | None:
    """The ordinal of a date or datetime text, None if it is neither."""
    if not isinstance(value, str):
        return None
    try:
        return datetime.date.fromisoformat(value[:10]).toordinal()
    except ValueError:
        return None


@_EVAL.on(ir.Days)
def _days(node: ir.Days, scope: Scope) -> Value:
    left = day_number(interpret(node.left, scope))
    right = day_number(interpret(node.right, scope))
    return None if left is None or right is None else right - left


@_EVAL.on(ir.Old)
def _old(node: ir.Old, scope: Scope) -> Value:
    return interpret(node.item, replace(scope, in_final=False))


@_EVAL.on(ir.New)
def _new(node: ir.New, scope: Scope) -> Value:
    return interpret(node.item, replace(scope, in_final=True))


_EVAL.complete()


def evaluate(
    p: Problem, initial: Tables, answer: JsonValue, final: Tables | None = None
) -> dict[str, bool]:
    """What the product's ``evaluate`` must say: which rules hold."""
    final = initial if final is None else final
    rules = rule_ids(p)
    slots = match_layout(p.layout, answer)
    scope = Scope(p, initial, final, slots or {})
    if slots is None or not all(fits(slot, slots.get(slot.name), scope) for slot in p.slots):
        return dict.fromkeys(rules, False)
    held = {"layout": True}
    held |= {clause.id: clause_holds(clause, scope) for clause in p.clauses}
    if isinstance(p.goal, ir.Equals):
        held["goal"] = _equals(p.goal, scope)
    elif isinstance(p.goal, ir.Optimise):
        held["goal"] = _optimal(p.goal, scope)
    elif isinstance(p.goal, ir.Reach):
        held |= _reached(p.goal, scope)
    return {rule: held[rule] for rule in rules}


def _equals(goal: ir.Equals, scope: Scope) -> bool:
    value = scope.slots.get(goal.slot)
    target = interpret(goal.query, scope)
    if scope.problem.slot(goal.slot).kind == "set":
        if not isinstance(target, list):
            target = query_values(goal.query, scope)
        return isinstance(value, list) and _within(value, target) and _within(target, value)
    return equal(value, target) is True


def _same(left: Value, right: Value) -> bool:
    return (left is None and right is None) or equal(left, right) is True


def _within(values: list[Any], others: list[Any]) -> bool:
    return all(any(_same(value, other) for other in others) for value in values)


def _optimal(goal: ir.Optimise, scope: Scope) -> bool:
    value = interpret(goal.expr, scope)
    if type(value) is not int:
        return False
    bound = interpret(goal.bound, scope)
    if goal.sense == "min":
        return bool(value <= bound + goal.eps)
    return bool(value >= bound - goal.eps)


def _reached(goal: ir.Reach, scope: Scope) -> dict[str, bool]:
    """Effects, outcome and write set; with an escalation due, effects are vacuous."""
    due = False if goal.escalate_when is None else interpret(goal.escalate_when, scope)
    held = {e.id: due is True or clause_holds(e, scope) for e in goal.effects}
    outcome = {True: "escalated", False: "done"}.get(due)
    held["goal"] = outcome is not None and scope.slots.get("outcome", outcome) == outcome
    held["write_set"] = _intact(() if due is True else goal.write_set, scope)
    return held


def _intact(write_set: Sequence[ir.WriteSet], scope: Scope) -> bool:
    """Whether the states are equal but for what may change."""
    cells, inserts = set(), set()
    for item in write_set:
        cells |= {
            (item.relation, k, c) for k in query_values(item.rows, scope) for c in item.columns
        }
        inserts |= {item.relation} if item.inserts else set()

    def may_change(relation: str, key: str) -> bool:
        old, new = (state.get(relation, {}).get(key) for state in (scope.initial, scope.final))
        if old is None:
            return relation in inserts
        if new is None:
            return (relation, key, scope.problem.relation(relation).key) in cells
        changed = [column for column in old if not _same(old[column], new.get(column))]
        return all((relation, key, column) in cells for column in changed)

    def as_asked(relation: str, key: str) -> bool:
        """Each changed cell is named by a part of the write set that lets it be so."""
        old, new = (state.get(relation, {}).get(key) for state in (scope.initial, scope.final))
        if old is None or new is None:
            return True
        changed = [column for column in old if not _same(old[column], new.get(column))]
        return all(
            any(
                item.relation == relation
                and column in item.columns
                and key in query_values(item.rows, scope)
                and (
                    item.only is None
                    or interpret(item.only, scope.bind(item.rows.var, key)) is True
                )
                for item in write_set
            )
            for column in changed
        )

    states = (scope.initial, scope.final)
    return all(
        may_change(r, key) and as_asked(r, key)
        for state in states
        for r in state
        for key in state[r]
    )


def fits(slot: Slot, value: JsonValue, scope: Scope) -> bool:
    """Whether ``value`` has the type of ``slot`` (a domain's ``where`` plays no part)."""
    if slot.kind == "set":
        if not isinstance(value, list) or (slot.length is not None and len(value) > slot.length):
            return False
        if len(value) < slot.least:
            return False
        if not all(_element_fits(slot.domain, item, scope) for item in value):
            return False
        return not any(_same(a, b) for i, a in enumerate(value) for b in value[:i])
    if slot.kind == "sequence":
        if not isinstance(value, list) or slot.length not in (None, len(value)):
            return False
        return all(_element_fits(slot.domain, item, scope) for item in value)
    if slot.kind == "map":
        if not isinstance(value, dict) or slot.key_domain is None:
            return False
        if set(value) != {str(key) for key in query_values(slot.key_domain, scope)}:
            return False
        return all(_element_fits(slot.domain, item, scope) for item in value.values())
    return _element_fits(slot.domain, value, scope)


def _element_fits(domain: ir.Query | ir.ValueType, value: JsonValue, scope: Scope) -> bool:
    """Whether a value is of a domain: as JSON, so that 1, 1.0 and true are three values."""
    match domain:
        case ir.Choice():
            return dumps(value) in map(dumps, domain.values)
        case ir.IntRange():
            steps, off = divmod(value - domain.low, domain.step) if type(value) is int else (-1, 0)
            return off == 0 and 0 <= steps <= (domain.high - domain.low) // domain.step
        case ir.Intervals():
            return _interval_fits(domain, value)
    name, _, relation = query_type(domain, scope.problem).partition(":")
    python = {"entity": str, "str": str, "date": str, "datetime": str, "bool": bool}.get(name, int)
    return type(value) is python and (name != "entity" or value in scope.initial.get(relation, {}))


def _interval_fits(domain: ir.Intervals, value: JsonValue) -> bool:
    if not isinstance(value, dict) or set(value) != {"start", "end"}:
        return False
    start, end = value["start"], value["end"]
    if type(start) is not int or type(end) is not int:
        return False
    starts = range(domain.low, domain.high - domain.length + 1, domain.step)
    return start in starts and end == start + domain.length
