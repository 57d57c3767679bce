"""Short names for the expressions that domains write again and again."""

from __future__ import annotations

from typing import Literal

from envgen.core.ir import (
    And,
    Any,
    Arith,
    Cmp,
    Const,
    Expr,
    Get,
    New,
    Not,
    Old,
    Or,
    Param,
    Query,
    Scalar,
    SlotRef,
    Var,
)

Comparison = Literal["=", "!=", "<", "<=", ">", ">=", "in"]


def const(value: Scalar) -> Const:
    """A literal."""
    return Const(value=value)


def param(name: str) -> Param:
    """A parameter."""
    return Param(name=name)


def var(name: str) -> Var:
    """A bound variable."""
    return Var(name=name)


def slot(name: str) -> SlotRef:
    """A slot's value."""
    return SlotRef(slot=name)


def get(relation: str, entity: Expr, column: str) -> Get:
    """A cell."""
    return Get(relation=relation, entity=entity, column=column)


def cmp(left: Expr, fn: Comparison, right: Expr) -> Cmp:
    """A comparison."""
    return Cmp(fn=fn, left=left, right=right)


def eq(left: Expr, right: Expr) -> Cmp:
    """Equality."""
    return Cmp(fn="=", left=left, right=right)


def both(*items: Expr) -> Expr:
    """Conjunction; a single item stays bare."""
    return items[0] if len(items) == 1 else And(items=items)


def either(*items: Expr) -> Or:
    """Disjunction."""
    return Or(items=items)


def negate(item: Expr) -> Not:
    """Negation."""
    return Not(item=item)


def old(item: Expr) -> Old:
    """``item`` in the initial database."""
    return Old(item=item)


def new(item: Expr) -> New:
    """``item`` in the final database."""
    return New(item=item)


def times(left: Expr, right: Expr) -> Arith:
    """Product."""
    return Arith(fn="*", left=left, right=right)


def minus(left: Expr, right: Expr) -> Arith:
    """Difference."""
    return Arith(fn="-", left=left, right=right)


def none_of(query: Query) -> Not:
    """No row is in ``query``."""
    return Not(item=Any(var=query.var, over=query, body=Const(value=True)))
