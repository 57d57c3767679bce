"""The reference semantics of a problem: which of its rules an answer and a final state keep."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from pydantic import JsonValue

from envgen.core import ir
from envgen.core.ir import Node, Problem, Slot
from envgen.pipelines.general.interpret import Scope, clause_holds, equal, interpret, query_values
from envgen.pipelines.general.layout import match_layout
from envgen.pipelines.general.tables import Tables


class Cell(NamedTuple):
    """One place where two states differ; ``column`` is None for a whole row."""

    relation: str
    key: str
    column: str | None
    kind: str
    """insert | update | delete"""


def evaluate(
    p: Problem, initial: Tables, answer: JsonValue, final: Tables | None = None
) -> dict[str, bool]:
    """Which rules hold: every clause and effect id, ``layout``, and what the goal adds.

    ``goal`` stands for Equals, Optimise and the outcome of Reach, ``write_set`` for Reach's unchanged
    rest. The answer is accepted iff all are true. An answer that doesn't fit the layout, in structure
    or in a slot's type, makes all false. Never raises, whatever ``answer`` holds.
    """
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


def accepted(p: Problem, initial: Tables, answer: JsonValue, final: Tables | None = None) -> bool:
    """Whether every rule holds."""
    return all(evaluate(p, initial, answer, final).values())


def rule_ids(p: Problem) -> tuple[str, ...]:
    """The keys of ``evaluate``'s result, in order."""
    rules = ["layout", *(clause.id for clause in p.clauses)]
    if isinstance(p.goal, ir.Reach):
        rules += [effect.id for effect in p.goal.effects]
    if not isinstance(p.goal, ir.Satisfy):
        rules.append("goal")
    if isinstance(p.goal, ir.Reach):
        rules.append("write_set")
    return tuple(rules)


def _equals(goal: ir.Equals, scope: Scope) -> bool:
    value = scope.slots.get(goal.slot)
    target = interpret(goal.query, scope)
    if scope.problem.slot(goal.slot).kind == "set":
        if not isinstance(target, list):
            target = query_values(goal.query, scope)
        return isinstance(value, list) and _members(value) == _members(target)
    return equal(value, target) is True


def _members(values: list[Any]) -> set[tuple[type, Any]]:
    return {(int if isinstance(v, int) else type(v), v) for v in values}


def _optimal(goal: ir.Optimise, scope: Scope) -> bool:
    value = interpret(goal.expr, scope)
    if type(value) is not int:
        return False
    if goal.sense == "min":
        return value <= goal.bound + goal.eps
    return value >= goal.bound - goal.eps


def _reached(goal: ir.Reach, scope: Scope) -> dict[str, bool]:
    """Effects, outcome and write set; with an escalation due, effects are vacuous."""
    due = False if goal.escalate_when is None else interpret(goal.escalate_when, scope)
    held = {e.id: due is True or clause_holds(e, scope) for e in goal.effects}
    outcome = {True: "escalated", False: "done"}.get(due)
    held["goal"] = outcome is not None and _outcome(scope) in (outcome, None)
    changes = changed_cells(scope.initial, scope.final)
    if due is True:
        held["write_set"] = not any(changes)
    else:
        allowed = write_allowance(goal, scope)
        held["write_set"] = all(allowed.covers(cell, scope.problem) for cell in changes)
    return held


def _outcome(scope: Scope) -> Any:
    """The submitted outcome; None where the problem asks for none."""
    return scope.slots.get("outcome")


class Allowance(NamedTuple):
    """What a Reach goal lets change."""

    cells: frozenset[tuple[str, str, str]]
    inserts: frozenset[str]

    def covers(self, cell: Cell, p: Problem) -> bool:
        """Whether ``cell`` may change; a row may go only if its key column is listed."""
        if cell.kind == "insert":
            return cell.relation in self.inserts
        column = p.relation(cell.relation).key if cell.column is None else cell.column
        return (cell.relation, cell.key, column) in self.cells


def write_allowance(goal: ir.Reach, scope: Scope) -> Allowance:
    """The cells and relations that ``goal``'s write set names in the initial state."""
    cells = set()
    for item in goal.write_set:
        keys = query_values(item.rows, scope)
        cells |= {(item.relation, k, c) for k in keys if k is not None for c in item.columns}
    return Allowance(
        frozenset(cells), frozenset(item.relation for item in goal.write_set if item.inserts)
    )


def changed_cells(initial: Tables, final: Tables) -> Iterator[Cell]:
    """Every cell or row in which the two states differ, in key order."""
    for relation in sorted({*initial, *final}):
        before, after = initial.get(relation, {}), final.get(relation, {})
        if before is after:
            continue
        for key in sorted({*before, *after}):
            if key not in after:
                yield Cell(relation, key, None, "delete")
            elif key not in before:
                yield Cell(relation, key, None, "insert")
            elif before[key] is not after[key]:
                old, new = before[key], after[key]
                for column in old:
                    if not _same(old[column], new.get(column)):
                        yield Cell(relation, key, column, "update")


def _same(left: Any, right: Any) -> bool:
    return (left is None and right is None) or equal(left, right) is True


def fits(slot: Slot, value: JsonValue, scope: Scope) -> bool:
    """Whether ``value`` has the type of ``slot`` (a domain's ``where`` plays no part)."""
    if slot.kind == "set":
        if not isinstance(value, list) or (slot.length is not None and len(value) > slot.length):
            return False
        if not all(_element_fits(slot.domain, item, scope) for item in value):
            return False
        return len(_members(value)) == len(value)
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
    if isinstance(domain, ir.Choice):
        return any(type(item) is type(value) and item == value for item in domain.values)
    if isinstance(domain, ir.IntRange):
        return type(value) is int and value in range(domain.low, domain.high + 1, domain.step)
    if isinstance(domain, ir.Intervals):
        return _interval_fits(domain, value)
    kind = query_type(domain, scope.problem)
    if kind.startswith("entity:"):
        return isinstance(value, str) and value in scope.initial.get(kind[7:], {})
    if kind == "bool":
        return isinstance(value, bool)
    if kind in ("str", "date", "datetime"):
        return isinstance(value, str)
    return type(value) is int


def _interval_fits(domain: ir.Intervals, value: JsonValue) -> bool:
    if not isinstance(value, dict) or set(value) != {"start", "end"}:
        return False
    start, end = value["start"], value["end"]
    if type(start) is not int or type(end) is not int:
        return False
    starts = range(domain.low, domain.high - domain.length + 1, domain.step)
    return start in starts and end == start + domain.length


def query_type(query: ir.Query, p: Problem) -> str:
    """The IR type of what a query selects or computes."""
    if query.agg in ("count", "sum", "mean"):
        return "int"
    if query.select is None:
        return f"entity:{query.relation}"
    return expr_type(query.select, p, {query.var: f"entity:{query.relation}"})


def expr_type(expr: Node, p: Problem, variables: dict[str, str]) -> str:
    """The IR type of a query's ``select``; ``int`` for everything computed."""
    if isinstance(expr, ir.Get):
        relation = p.relation(expr.relation)
        if expr.column == relation.key:
            return f"entity:{relation.name}"
        return relation.column(expr.column).type
    if isinstance(expr, ir.Var):
        return variables.get(expr.name, "int")
    if isinstance(expr, ir.If):
        return expr_type(expr.then, p, variables)
    if isinstance(expr, ir.Old | ir.New):
        return expr_type(expr.item, p, variables)
    if isinstance(expr, ir.Const) and isinstance(expr.value, str):
        return "str"
    truths = (ir.Cmp, ir.And, ir.Or, ir.Not, ir.All, ir.Any, ir.AllDifferent, ir.Before)
    return "bool" if isinstance(expr, (*truths, ir.NoOverlap)) else "int"
