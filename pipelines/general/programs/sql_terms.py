"""Terms and conditions in SQL: pieces of SQL, scopes, the table of handlers; all but what runs over rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from envgen.core import ir
from envgen.core.errors import PipelineError
from envgen.pipelines.general.programs.emit import Block, Doc, flat, identifier, sql_literal
from envgen.pipelines.general.semantics.dispatch import Dispatch
from envgen.pipelines.general.semantics.rewrite import plain_form

OR, AND, NOT, CMP, ADD, MUL, ATOM = range(1, 8)


@dataclass(frozen=True)
class Sql:
    """A piece of SQL, how tightly it binds, and whether it is never NULL."""

    doc: Doc
    level: int = ATOM
    known: bool = False

    def at(self, level: int) -> Doc:
        """The text, in parentheses where its context binds tighter than it does."""
        return self.doc if self.level >= level else Block("(", (self.doc,), "", ")")


@dataclass(frozen=True)
class Bound:
    """What a variable stands for: an SQL text, and the row it is the key of, if it is one."""

    text: str
    alias: str | None = None
    relation: str | None = None
    state: str = "initial"
    known: bool = True
    names: str | None = None
    """The relation of which it is sure to be a key, in ``state``."""


@dataclass(frozen=True)
class SqlScope:
    """Where an expression stands.

    ``schemas`` maps the state ("initial", "final") to the prefix of its tables.
    """

    relations: Mapping[str, ir.Relation]
    slots: Mapping[str, ir.Slot] = field(default_factory=dict)
    schemas: Mapping[str, str] = field(default_factory=lambda: {"initial": ""})
    state: Literal["initial", "final"] = "initial"
    variables: Mapping[str, Bound] = field(default_factory=dict)

    def table(self, relation: str) -> str:
        """The name of a table in the current state."""
        if self.state not in self.schemas:
            raise PipelineError(f"the {self.state} database is not at hand here")
        return self.schemas[self.state] + identifier(relation)

    def alias(self, name: str) -> str:
        """A table alias for variable ``name`` that hides nothing."""
        taken = {bound.alias for bound in self.variables.values()} | set(self.relations)
        choice, n = name, 2
        while choice in taken:
            choice, n = f"{name}_{n}", n + 1
        return choice

    def bind(self, name: str, bound: Bound) -> SqlScope:
        """This scope and one more variable."""
        return replace(self, variables={**self.variables, name: bound})


emit_table: Dispatch[Callable[..., Sql]] = Dispatch("sql")


def sql(node: ir.Node, scope: SqlScope, *, truth: bool = False) -> Sql:
    """``node`` as an SQL expression in ``scope``.

    Raises:
        PipelineError: for a combination that has no SQL form.
    """
    return emit_table[type(node)](node, scope, truth)


def bound_of(node: ir.Var, scope: SqlScope) -> Bound:
    """What a variable stands for."""
    if node.name not in scope.variables:
        raise PipelineError(f"the variable {node.name!r} is not bound")
    return scope.variables[node.name]


def slot_of(node: ir.SlotRef, scope: SqlScope) -> ir.Slot:
    """The slot that is referred to."""
    if node.slot not in scope.slots:
        raise PipelineError(f"the slot {node.slot!r} does not exist here")
    return scope.slots[node.slot]


def chain(items: list[Sql], word: str, level: int, empty: str) -> Sql:
    """``items`` joined by AND or OR, but for what decides nothing; ``empty`` if there are none."""
    items = [item for item in items if item.doc != empty]
    if len(items) <= 1:
        return items[0] if items else Sql(empty, known=True)
    doc = Block("", tuple(item.at(level) for item in items), f" {word} ")
    return Sql(doc, level, all(item.known for item in items))


def compare(left: Sql, symbol: str, right: Sql) -> Sql:
    """A comparison."""
    doc = Block("", (left.at(ADD), right.at(ADD)), f" {symbol} ")
    return Sql(doc, CMP, left.known and right.known)


def choose(test: Sql, then: Sql, other: Sql) -> Sql:
    """CASE WHEN test THEN then ELSE other, unknown where the test is."""
    if test.known and other.doc == "TRUE":
        return chain(
            [Sql(Block("NOT ", (test.at(ATOM),)), NOT, known=True), then], "OR", OR, "FALSE"
        )
    if test.known and then.doc == "TRUE":
        return chain([test, other], "OR", OR, "FALSE")
    when: list[Doc] = [Block("WHEN ", (test.doc,), ""), Block("THEN ", (then.doc,), "")]
    if test.known:
        when.append(Block("ELSE ", (other.doc,), ""))
    else:
        when += [Block("WHEN NOT ", (test.at(ATOM),), ""), Block("THEN ", (other.doc,), "")]
    known = test.known and then.known and other.known
    return Sql(Block("CASE ", tuple(when), " ", " END"), known=known)


@emit_table.on(ir.Const)
def _const(node: ir.Const, scope: SqlScope, truth: bool) -> Sql:
    if isinstance(node.value, tuple):
        raise PipelineError("a list constant is allowed only on the right of 'in'")
    return Sql(sql_literal(node.value), known=node.value is not None)


@emit_table.on(ir.Var)
def _var(node: ir.Var, scope: SqlScope, truth: bool) -> Sql:
    bound = bound_of(node, scope)
    return Sql(bound.text, known=bound.known)


@emit_table.on(ir.SlotRef)
def _slot(node: ir.SlotRef, scope: SqlScope, truth: bool) -> Sql:
    slot = slot_of(node, scope)
    if node.index is not None:
        index = sql(node.index, scope)
        where: Doc = Block("WHERE key = ", (index.at(ADD),), "")
        return Sql(Block("(", (f"SELECT value FROM json_each(:{slot.name})", where), " ", ")"))
    if slot.kind not in ("entity", "value"):
        raise PipelineError(f"the slot {slot.name!r} ({slot.kind}) is not a single value")
    return Sql(f":{slot.name}", known=True)


@emit_table.on(ir.Get)
def _get(node: ir.Get, scope: SqlScope, truth: bool) -> Sql:
    relation = scope.relations[node.relation]
    column = relation.column(node.column)
    if isinstance(node.entity, ir.Var):
        bound = bound_of(node.entity, scope)
        if (bound.relation, bound.state) == (node.relation, scope.state):
            text = f"{identifier(bound.alias or '')}.{identifier(column.name)}"
            return Sql(text, known=not column.nullable)
    entity = sql(node.entity, scope)
    known = _names(node.entity, scope) == (node.relation, scope.state) and not column.nullable
    where = Block(f"WHERE {identifier(relation.key)} = ", (entity.at(ADD),), "")
    head = f"SELECT {identifier(column.name)} FROM {scope.table(node.relation)}"
    return Sql(Block("(", (head, where), " ", ")"), known=known)


def _names(node: ir.Node, scope: SqlScope) -> tuple[str, str] | None:
    """(relation, state) in which a key is sure to have a row: a form that fits has seen to it."""
    if isinstance(node, ir.Var):
        bound = bound_of(node, scope)
        return (bound.names, bound.state) if bound.names is not None else None
    if isinstance(node, ir.SlotRef) and node.index is None:
        slot = slot_of(node, scope)
        if (
            slot.kind == "entity"
            and isinstance(slot.domain, ir.Query)
            and slot.domain.select is None
        ):
            return slot.domain.relation, "initial"
    return None


@emit_table.on(ir.Arith)
def _arith(node: ir.Arith, scope: SqlScope, truth: bool) -> Sql:
    left, right = sql(node.left, scope), sql(node.right, scope)
    symbol = {"//": "/", "convert": "*"}.get(node.fn, node.fn)
    level = ADD if symbol in "+-" else MUL
    tight = level if symbol == "+" else level + 1  # a - (b - c), a * (b / c)
    doc = Block("", (left.at(level), right.at(tight)), f" {symbol} ")
    return Sql(doc, level, left.known and right.known)


@emit_table.on(ir.Not)
def _not(node: ir.Not, scope: SqlScope, truth: bool) -> Sql:
    item = sql(node.item, scope)
    return Sql(Block("NOT ", (item.at(ATOM),), ""), NOT, item.known)


@emit_table.on(ir.If)
def _if(node: ir.If, scope: SqlScope, truth: bool) -> Sql:
    test = sql(node.test, scope)
    then, other = sql(node.then, scope, truth=truth), sql(node.other, scope, truth=truth)
    return choose(test, then, other)


@emit_table.on(ir.AllDifferent)
def _all_different(node: ir.AllDifferent, scope: SqlScope, truth: bool) -> Sql:
    items = [sql(item, scope) for item in node.items]
    if len(items) > 2 and all(isinstance(i.doc, str) and i.doc.startswith(":") for i in items):
        values = Block("VALUES ", tuple(f"({flat(item.doc)})" for item in items), ", ", lead=False)
        doc = Block(f"(SELECT COUNT(DISTINCT column1) = {len(items)} FROM (", (values,), "", "))")
        return Sql(doc, known=True)
    return sql(plain_form(node), scope, truth=truth)


class _Span(NamedTuple):
    start: Sql
    end: Sql


def _span(node: ir.Node, scope: SqlScope) -> _Span:
    if isinstance(node, ir.SlotRef) and node.index is None:
        slot = slot_of(node, scope)
        if slot.kind == "interval":
            start, end = f":{slot.name}_start", f":{slot.name}_end"
            return _Span(Sql(start, known=True), Sql(end, known=True))
    if isinstance(node, ir.If):
        test, then, other = sql(node.test, scope), _span(node.then, scope), _span(node.other, scope)
        return _Span(choose(test, then.start, other.start), choose(test, then.end, other.end))
    raise PipelineError(f"{type(node).__name__} is not an interval")


@emit_table.on(ir.Days)
def _days(node: ir.Days, scope: SqlScope, truth: bool) -> Sql:
    left, right = sql(node.left, scope), sql(node.right, scope)
    parts = (_day(node.right, right, scope), _day(node.left, left, scope))
    return Sql(Block("CAST(", (Block("", parts, " - "),), "", " AS INTEGER)"))


def _day(node: ir.Node, value: Sql, scope: SqlScope) -> Doc:
    if isinstance(node, ir.Param | ir.Const | ir.Arg) or (
        isinstance(node, ir.Get)
        and scope.relations[node.relation].column(node.column).type == "date"
    ):
        return Block("julianday(", (value.doc,), "", ")")
    return Block("julianday(substr(", (value.doc,), "", ", 1, 10))")


@emit_table.on(ir.And, ir.Or)
def _junction(node: ir.And | ir.Or, scope: SqlScope, truth: bool) -> Sql:
    items = [sql(item, scope, truth=truth) for item in node.items]
    if isinstance(node, ir.And):
        return chain(items, "AND", AND, "TRUE")
    return chain(items, "OR", OR, "FALSE")


def _in(state: Literal["initial", "final"]) -> Callable[..., Sql]:
    return lambda node, scope, truth: sql(node.item, replace(scope, state=state), truth=truth)


emit_table.on(ir.Param)(lambda node, scope, truth: Sql(f":param_{node.name}", known=True))
emit_table.on(ir.Arg)(lambda node, scope, truth: Sql(f":{node.name}", known=True))
emit_table.on(ir.Start)(lambda node, scope, truth: _span(node.interval, scope).start)
emit_table.on(ir.End)(lambda node, scope, truth: _span(node.interval, scope).end)
emit_table.on(ir.NoOverlap, ir.Before)(
    lambda node, scope, truth: sql(plain_form(node), scope, truth=truth)
)
emit_table.on(ir.Old)(_in("initial"))
emit_table.on(ir.New)(_in("final"))
