"""Plans of write calls, and what they do to the rows: the reference semantics of write tools."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import JsonValue

from envgen.core import ir
from envgen.core.ir import Access, Problem
from envgen.pipelines.general.semantics.evaluate import evaluate, rules_of
from envgen.pipelines.general.semantics.tables import Row, Tables

Call = tuple[str, Mapping[str, Any]]
"""(tool, arguments)"""


class Plan(NamedTuple):
    """Write calls, then the submission."""

    calls: tuple[Call, ...]
    answer: JsonValue


class Applied(NamedTuple):
    """The state after a plan, and for each call "ok" or the error's code."""

    final: Tables
    replies: list[str]


def apply_plan(p: Problem, db: Tables, plan: Plan | Sequence[Call]) -> Applied:
    """Run the write calls of ``plan`` on a copy of ``db``; a call that fails changes nothing."""
    calls = plan.calls if isinstance(plan, Plan) else plan
    tools = {access.tool: access for access in p.access if access.mode == "write"}
    state, replies = db, []
    for tool, args in calls:
        access = tools.get(tool)
        if access is None:
            replies.append("unknown_tool")
            continue
        reply = apply_call(p, state, access, args)
        replies.append(reply if isinstance(reply, str) else "ok")
        state = state if isinstance(reply, str) else reply
    return Applied(state, replies)


def evaluate_plan(p: Problem, db: Tables, plan: Plan) -> dict[str, bool]:
    """Which rules hold after ``plan``."""
    return evaluate(p, db, plan.answer, apply_plan(p, db, plan).final)


def apply_call(p: Problem, state: Tables, access: Access, args: Mapping[str, Any]) -> Tables | str:
    """The state after one call, or the code of its error.

    Arguments are checked first, then ``pre`` in order (unknown is not enough), then all keys and values
    are computed, and only then is anything written. An insert of a present key is ``already_exists``; an
    update or delete of an absent one does nothing.
    """
    wrong = _bad_arguments(p, state, access, args)
    if wrong:
        return wrong
    rules = rules_of(p)
    frame = rules.compiler.frame(state)
    frame.args = args
    for pre in access.pre:
        if rules.value(pre.expr, frame) is not True:
            return pre.code
    writes = []
    for effect in access.effects:
        values = {column: rules.value(expr, frame) for column, expr in effect.set.items()}
        writes.append((effect, rules.value(effect.key, frame), values))
    final = dict(state)
    for effect, key, values in writes:
        rows = dict(final.get(effect.relation, {}))
        if effect.kind == "insert":
            if not isinstance(key, str) or key in rows:
                return "already_exists"
            rows[key] = new_row(p, effect.relation, key, values)
        elif isinstance(key, str) and key in rows:
            if effect.kind == "delete":
                del rows[key]
            else:
                rows[key] = {**rows[key], **values}
        final[effect.relation] = rows
    return final


def new_row(p: Problem, relation: str, key: str, values: Mapping[str, Any]) -> Row:
    """An inserted row; columns that the effect doesn't set are None."""
    table = p.relation(relation)
    row: Row = {column.name: values.get(column.name) for column in table.columns}
    row[table.key] = key
    return row


def _bad_arguments(p: Problem, state: Tables, access: Access, args: Mapping[str, Any]) -> str:
    if set(args) != set(access.args):
        return "bad_argument"
    for name, target in access.args.items():
        kind = argument_type(p, target)
        value = args[name]
        if not _has_type(kind, value):
            return "bad_argument"
        if kind.startswith("entity:") and value not in state.get(kind[7:], {}):
            return "not_found"
    return ""


def argument_type(p: Problem, target: str) -> str:
    """The IR type of a write tool's argument from its target: "relation.column" or a bare type."""
    if "." not in target:
        return target
    relation, _, column = target.partition(".")
    if column == p.relation(relation).key:
        return f"entity:{relation}"
    return p.relation(relation).column(column).type


def _has_type(kind: str, value: Any) -> bool:
    if kind == "bool":
        return isinstance(value, bool)
    if kind in ("str", "date", "datetime") or kind.startswith("entity:"):
        return isinstance(value, str)
    return type(value) is int


class IntSpan(NamedTuple):
    """An int argument's values."""

    low: int
    high: int


def argument_values(
    p: Problem, access: Access, name: str, db: Tables
) -> IntSpan | tuple[Any, ...] | None:
    """What a random call draws an argument from, uniformly; None if the tool sets no limits.

    The keys (initial state) of the relation it names; for a bare type what ``pre`` says of the argument
    alone: ``arg in (...)``, ``arg = ...``, ``arg >= ...`` with constants.
    """
    kind = argument_type(p, access.args[name])
    if kind.startswith("entity:"):
        return tuple(sorted(db.get(kind[7:], {})))
    if kind == "bool":
        return (False, True)
    low: int | None = None
    high: int | None = None
    for fn, value in _limits(access, name):
        if fn == "in":
            return tuple(value)
        if fn == "=":
            return (value,)
        if type(value) is not int:
            continue
        if fn in (">", ">="):
            low = value + (fn == ">")
        elif fn in ("<", "<="):
            high = value - (fn == "<")
    return None if low is None or high is None else IntSpan(low, high)


_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


def _limits(access: Access, name: str) -> Iterator[tuple[str, Any]]:
    """(comparison, constant) for each conjunct of ``pre`` that compares the argument with a constant."""
    todo = [pre.expr for pre in access.pre]
    while todo:
        expr = todo.pop(0)
        if isinstance(expr, ir.And):
            todo = [*expr.items, *todo]
        elif isinstance(expr, ir.Cmp):
            left, right = expr.left, expr.right
            if left == ir.Arg(name=name) and isinstance(right, ir.Const):
                yield expr.fn, right.value
            elif right == ir.Arg(name=name) and isinstance(left, ir.Const) and expr.fn in _FLIPPED:
                yield _FLIPPED[expr.fn], left.value
