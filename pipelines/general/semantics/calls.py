"""Write calls: their records, and the values that their arguments may have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pydantic import JsonValue

from envgen.core import ir
from envgen.core.ir import Access, Problem
from envgen.pipelines.general.semantics.tables import Row, Tables

Call = tuple[str, Mapping[str, Any]]
"""(tool, arguments)"""


class Plan(NamedTuple):
    """Write calls, then the submission."""

    calls: tuple[Call, ...]
    answer: JsonValue


def new_row(p: Problem, relation: str, key: str, values: Mapping[str, Any]) -> Row:
    """An inserted row; columns that the effect doesn't set are None."""
    table = p.relation(relation)
    row: Row = {column.name: values.get(column.name) for column in table.columns}
    row[table.key] = key
    return row


def argument_type(p: Problem, target: str) -> str:
    """The IR type of a write tool's argument from its target: "relation.column" or a bare type."""
    if "." not in target:
        return target
    relation, _, column = target.partition(".")
    if column == p.relation(relation).key:
        return f"entity:{relation}"
    return p.relation(relation).column(column).type


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
