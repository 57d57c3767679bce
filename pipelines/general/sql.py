"""IR expressions as SQL: one expression gives one SQL expression, SQLite's three-valued logic included.

The verifier's rules and the tools' preconditions and effects are written with it. An expression is
written in one of two ways: exactly (true, false, unknown), or, where only being true counts (a clause, a
WHERE), as ``truth``, which may read "false" for "unknown" and is then plainer: EXISTS for Any,
NOT EXISTS for All.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from envgen.core import ir
from envgen.core.errors import PipelineError
from envgen.pipelines.general.dispatch import Dispatch
from envgen.pipelines.general.emit import Block, Doc, flat, identifier, sql_literal

_OR, _AND, _NOT, _CMP, _ADD, _MUL, _ATOM = range(1, 8)


@dataclass(frozen=True)
class Sql:
    """A piece of SQL, how tightly it binds, and whether it is never NULL."""

    doc: Doc
    level: int = _ATOM
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


@dataclass(frozen=True)
class Scope:
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

    def bind(self, name: str, bound: Bound) -> Scope:
        """This scope and one more variable."""
        return replace(self, variables={**self.variables, name: bound})


Emitter = Callable[[ir.Node, Scope, bool], Sql]
_emit: Dispatch[Callable[..., Sql]] = Dispatch("sql")


def sql(node: ir.Node, scope: Scope, *, truth: bool = False) -> Sql:
    """``node`` as an SQL expression in ``scope``.

    Raises:
        PipelineError: for a combination that has no SQL form.
    """
    return _emit[type(node)](node, scope, truth)


def select_bool(clause: ir.Clause, scope: Scope) -> Doc:
    """``SELECT`` that gives 1 iff ``clause`` holds."""
    expr = sql(clause.expr, scope, truth=True)
    if clause.guard is None:
        return Block("SELECT ", (expr.doc,), "")
    guard = sql(clause.guard, scope)
    return Block(
        "SELECT CASE ",
        (
            Block("WHEN ", (guard.doc,), ""),
            Block("THEN ", (expr.doc,), ""),
            Block("WHEN NOT ", (guard.at(_ATOM),), ""),
            "THEN TRUE",
        ),
        " ",
        " END",
    )


@_emit.on(ir.Const)
def _const(node: ir.Const, scope: Scope, truth: bool) -> Sql:
    if isinstance(node.value, tuple):
        raise PipelineError("a list constant only stands on the right of 'in'")
    return Sql(sql_literal(node.value), known=node.value is not None)


@_emit.on(ir.Param)
def _param(node: ir.Param, scope: Scope, truth: bool) -> Sql:
    return Sql(f":param_{node.name}", known=True)


@_emit.on(ir.Arg)
def _arg(node: ir.Arg, scope: Scope, truth: bool) -> Sql:
    return Sql(f":{node.name}", known=True)


@_emit.on(ir.Var)
def _var(node: ir.Var, scope: Scope, truth: bool) -> Sql:
    bound = _bound(node, scope)
    return Sql(bound.text, known=bound.known)


def _bound(node: ir.Var, scope: Scope) -> Bound:
    if node.name not in scope.variables:
        raise PipelineError(f"the variable {node.name!r} is not bound")
    return scope.variables[node.name]


@_emit.on(ir.SlotRef)
def _slot(node: ir.SlotRef, scope: Scope, truth: bool) -> Sql:
    slot = _slot_of(node, scope)
    if node.index is not None:
        index = sql(node.index, scope)
        where: Doc = Block("WHERE key = ", (index.at(_ADD),), "")
        return Sql(Block("(", (f"SELECT value FROM json_each(:{slot.name})", where), " ", ")"))
    if slot.kind not in ("entity", "value"):
        raise PipelineError(f"the slot {slot.name!r} ({slot.kind}) is no single value")
    return Sql(f":{slot.name}", known=True)


def _slot_of(node: ir.SlotRef, scope: Scope) -> ir.Slot:
    if node.slot not in scope.slots:
        raise PipelineError(f"the slot {node.slot!r} does not exist here")
    return scope.slots[node.slot]


@_emit.on(ir.Get)
def _get(node: ir.Get, scope: Scope, truth: bool) -> Sql:
    relation = scope.relations[node.relation]
    column = relation.column(node.column)
    if isinstance(node.entity, ir.Var):
        bound = _bound(node.entity, scope)
        if (bound.relation, bound.state) == (node.relation, scope.state):
            text = f"{identifier(bound.alias or '')}.{identifier(column.name)}"
            return Sql(text, known=not column.nullable)
    entity = sql(node.entity, scope)
    where = Block(f"WHERE {identifier(relation.key)} = ", (entity.at(_ADD),), "")
    head = f"SELECT {identifier(column.name)} FROM {scope.table(node.relation)}"
    return Sql(Block("(", (head, where), " ", ")"))


@_emit.on(ir.Arith)
def _arith(node: ir.Arith, scope: Scope, truth: bool) -> Sql:
    left, right = sql(node.left, scope), sql(node.right, scope)
    symbol = {"//": "/", "convert": "*"}.get(node.fn, node.fn)
    level = _ADD if symbol in "+-" else _MUL
    tight = level if symbol == "+" else level + 1  # a - (b - c), a * (b / c)
    doc = Block("", (left.at(level), right.at(tight)), f" {symbol} ")
    return Sql(doc, level, left.known and right.known)


@_emit.on(ir.Cmp)
def _cmp(node: ir.Cmp, scope: Scope, truth: bool) -> Sql:
    left = sql(node.left, scope)
    if node.fn == "in":
        return _member(left, node.right, scope, truth)
    right = sql(node.right, scope)
    symbol = {"!=": "<>"}.get(node.fn, node.fn)
    doc = Block("", (left.at(_ADD), right.at(_ADD)), f" {symbol} ")
    return Sql(doc, _CMP, left.known and right.known)


def _member(left: Sql, over: ir.Node, scope: Scope, truth: bool) -> Sql:
    known = left.known
    if isinstance(over, ir.Const):
        values = over.value if isinstance(over.value, tuple) else (over.value,)
        known = known and None not in values
        inside: Doc = Block(
            "(", tuple(sql_literal(value) for value in values), ", ", ")", lead=False
        )
    elif isinstance(over, ir.SlotRef):
        inside = f"(SELECT value FROM json_each(:{_slot_of(over, scope).name}))"
    elif isinstance(over, ir.Query):
        inside, known = Block("(", (rows(over, scope),), "", ")"), False
    else:
        raise PipelineError(f"'in' needs a list, a set slot or a query, not {over.op!r}")  # type: ignore[attr-defined]  # every node has op
    doc: Doc = Block("", (left.at(_ADD), inside), " IN ")
    if truth or left.known:
        return Sql(doc, _CMP, known)
    # x IN () is false in SQL even where x is unknown
    return Sql(
        Block("CASE WHEN ", (Block("", (left.at(_ADD), "NOT NULL"), " IS "), doc), " THEN ", " END")
    )


@_emit.on(ir.And)
def _and(node: ir.And, scope: Scope, truth: bool) -> Sql:
    return _chain([sql(item, scope, truth=truth) for item in node.items], "AND", _AND, "TRUE")


@_emit.on(ir.Or)
def _or(node: ir.Or, scope: Scope, truth: bool) -> Sql:
    return _chain([sql(item, scope, truth=truth) for item in node.items], "OR", _OR, "FALSE")


def _chain(items: list[Sql], word: str, level: int, empty: str) -> Sql:
    if len(items) <= 1:
        return items[0] if items else Sql(empty, known=True)
    doc = Block("", tuple(item.at(level) for item in items), f" {word} ")
    return Sql(doc, level, all(item.known for item in items))


@_emit.on(ir.Not)
def _not(node: ir.Not, scope: Scope, truth: bool) -> Sql:
    item = sql(node.item, scope)
    return Sql(Block("NOT ", (item.at(_ATOM),), ""), _NOT, item.known)


@_emit.on(ir.If)
def _if(node: ir.If, scope: Scope, truth: bool) -> Sql:
    test = sql(node.test, scope)
    then, other = sql(node.then, scope, truth=truth), sql(node.other, scope, truth=truth)
    return _choose(test, then, other)


def _choose(test: Sql, then: Sql, other: Sql) -> Sql:
    when: list[Doc] = [Block("WHEN ", (test.doc,), ""), Block("THEN ", (then.doc,), "")]
    if test.known:
        when.append(Block("ELSE ", (other.doc,), ""))
    else:
        when += [Block("WHEN NOT ", (test.at(_ATOM),), ""), Block("THEN ", (other.doc,), "")]
    known = test.known and then.known and other.known
    return Sql(Block("CASE ", tuple(when), " ", " END"), known=known)


# --- queries and folds ---------------------------------------------------------------------


def _open(query: ir.Query, scope: Scope) -> tuple[str, Scope, list[Doc]]:
    """FROM clause, scope of the row, and conditions of a query."""
    alias = scope.alias(query.var)
    relation = scope.relations[query.relation]
    key = f"{identifier(alias)}.{identifier(relation.key)}"
    inner = scope.bind(query.var, Bound(key, alias, query.relation, scope.state))
    table = scope.table(query.relation)
    return f"FROM {table} AS {identifier(alias)}", inner, _where(query.where, inner)


def _where(where: ir.Node, scope: Scope) -> list[Doc]:
    if where == ir.Const(value=True):
        return []
    items = where.items if isinstance(where, ir.And) else (where,)
    return [sql(item, scope, truth=True).at(_AND) for item in items]


def _filter(conditions: list[Doc]) -> list[Doc]:
    return [Block("WHERE ", tuple(conditions), " AND ")] if conditions else []


def rows(query: ir.Query, scope: Scope, name: str = "") -> Doc:
    """``SELECT`` of the selected values of ``query``, in order, its ``agg`` left out.

    ``name`` names the column.
    """
    source, inner, where = _open(query, scope)
    key = ir.Var(name=query.var)
    value = sql(query.select or key, inner)
    shown = Block("SELECT ", (value.at(_ADD),), "", f" AS {name}" if name else "")
    lines: list[Doc] = [shown, source, *_filter(where)]
    if query.order or query.limit is not None:
        keys: list[Doc] = [
            Block("", (sql(o.by, inner).at(_ADD),), "", " DESC" if o.descending else "")
            for o in query.order
        ]
        lines.append(Block("ORDER BY ", (*keys, sql(key, inner).doc), ", ", lead=False))
    if query.limit is not None:
        lines.append(f"LIMIT {query.limit}")
    return Block("", tuple(lines), " ")


@_emit.on(ir.Query)
def _query(node: ir.Query, scope: Scope, truth: bool) -> Sql:
    if node.agg == "none":
        if node.limit != 1:
            raise PipelineError(f"the query over {node.relation!r} is a list, not one value")
        return Sql(Block("(", (rows(node, scope),), "", ")"))
    known = node.agg in ("count", "sum")
    if node.agg == "count" and node.select is None and node.limit is None:
        source, _, where = _open(node, scope)
        return Sql(Block("(", ("SELECT COUNT(*)", source, *_filter(where)), " ", ")"), known=known)
    if node.limit is not None:
        inner = Block("FROM (", (rows(node, scope, "value"),), "", ")")
        return Sql(Block("(", (_SELECTED[node.agg]("value"), inner), " ", ")"), known=known)
    source, inner_scope, where = _open(node, scope)
    value = sql(node.select or ir.Var(name=node.var), inner_scope)
    alias = inner_scope.variables[node.var].alias or ""
    return Sql(_aggregate(_SELECTED[node.agg], value, alias, source, where), known=known)


def _select(fold: str) -> Callable[[str], Doc]:
    return lambda value: "SELECT " + fold.replace("value", value)


_SELECTED: Mapping[str, Callable[[str], Doc]] = {
    "count": _select("COUNT(value)"),
    "sum": _select("COALESCE(SUM(value), 0)"),
    "min": _select("MIN(value)"),
    "max": _select("MAX(value)"),
    "mean": _select("SUM(value) / COUNT(value)"),
}


def _aggregate(
    select: Callable[[str], Doc], value: Sql, alias: str, source: Doc, conditions: list[Doc]
) -> Doc:
    """A fold of ``value`` over rows.

    Only a plain term over the rows' own columns stands inside the aggregate: SQL would take
    ``SUM(outer.column)`` for an aggregate of the outer query.
    """
    text = flat(value.doc)
    if "SELECT" not in text and f"{identifier(alias)}." in text:
        return Block("(", (select(text), source, *_filter(conditions)), " ", ")")
    named = Block("SELECT ", (value.doc,), "", " AS value")
    inner = Block("FROM (", (named, source, *_filter(conditions)), " ", ")")
    return Block("(", (select("value"), inner), " ", ")")


@dataclass(frozen=True)
class _Elements:
    """What a fold runs over: FROM clause and conditions, and the scope that binds its variable."""

    source: str
    where: list[Doc]
    scope: Scope
    var: str

    @property
    def alias(self) -> str:
        """The alias of the rows in SQL."""
        return self.scope.variables[self.var].alias or ""


def _elements(over: ir.Node, var: str, scope: Scope) -> _Elements:
    if isinstance(over, ir.Query):
        if over.agg != "none":
            raise PipelineError("a fold runs over rows, not over an aggregate")
        if over.limit is None and over.select is None:
            source, inner, where = _open(over, scope)
            row = inner.variables[over.var]
            return _Elements(source, where, scope.bind(var, row), var)
        if over.limit is None:
            source, inner, where = _open(over, scope)
            value = sql(over.select or ir.Var(name=over.var), inner)
            bound = Bound(flat(value.at(_ATOM)), inner.variables[over.var].alias, known=value.known)
            return _Elements(source, where, scope.bind(var, bound), var)
        alias = scope.alias(var)
        source = f"FROM ({flat(rows(over, scope, 'value'))}) AS {identifier(alias)}"
        bound = Bound(f"{identifier(alias)}.value", alias, known=False)
        return _Elements(source, [], scope.bind(var, bound), var)
    alias = scope.alias(var)
    bound = Bound(f"{identifier(alias)}.value", alias)
    if isinstance(over, ir.SlotRef):
        slot = _slot_of(over, scope)
        if slot.kind not in ("set", "sequence"):
            raise PipelineError(f"a fold can't run over the {slot.kind} slot {slot.name!r}")
        source = f"FROM json_each(:{slot.name}) AS {identifier(alias)}"
    elif isinstance(over, ir.Range):
        low, high = flat(sql(over.low, scope).at(_ADD)), flat(sql(over.high, scope).at(_ADD))
        source = (
            f"FROM (WITH RECURSIVE n(value) AS (SELECT {low} WHERE {low} <= {high} UNION ALL "
            f"SELECT value + {over.step} FROM n WHERE value + {over.step} <= {high}) "
            f"SELECT value FROM n) AS {identifier(alias)}"
        )
    else:
        raise PipelineError(f"a fold can't run over {type(over).__name__}")
    return _Elements(source, [], scope.bind(var, bound), var)


_UNLESS_UNKNOWN = "CASE WHEN COUNT(*) = COUNT(value) THEN COALESCE(SUM(value), 0) END"
_ALL = "CASE WHEN MIN(value) = 0 THEN 0 WHEN COUNT(*) = COUNT(value) THEN 1 END"
_ANY = "CASE WHEN MAX(value) = 1 THEN 1 WHEN COUNT(*) = COUNT(value) THEN 0 END"


def _folded(fold: str, body: Sql, elements: _Elements, *, known: bool = False) -> Sql:
    doc = _aggregate(_select(fold), body, elements.alias, elements.source, elements.where)
    return Sql(doc, known=known)


@_emit.on(ir.Sum, ir.Count)
def _sum(node: ir.Sum | ir.Count, scope: Scope, truth: bool) -> Sql:
    elements = _elements(node.over, node.var, scope)
    body = sql(node.body, elements.scope)
    if body.known:
        return _folded("COALESCE(SUM(value), 0)", body, elements, known=True)
    return _folded(_UNLESS_UNKNOWN, body, elements)


@_emit.on(ir.All)
def _all(node: ir.All, scope: Scope, truth: bool) -> Sql:
    elements = _elements(node.over, node.var, scope)
    body = sql(node.body, elements.scope)
    if truth or body.known:
        broken: Doc = Block("", (body.at(_ADD), "NOT TRUE"), " IS ")
        if body.known:
            broken = Block("NOT ", (body.at(_ATOM),), "")
        return Sql(_exists("NOT EXISTS (", elements, broken), _NOT, known=True)
    return _folded(_ALL, body, elements)


@_emit.on(ir.Any)
def _any(node: ir.Any, scope: Scope, truth: bool) -> Sql:
    elements = _elements(node.over, node.var, scope)
    body = sql(node.body, elements.scope, truth=truth)
    if truth or body.known:
        return Sql(_exists("EXISTS (", elements, body.at(_AND)), known=True)
    return _folded(_ANY, body, elements)


def _exists(opening: str, elements: _Elements, condition: Doc) -> Doc:
    conditions = _filter([*elements.where, condition])
    return Block(opening, ("SELECT 1", elements.source, *conditions), " ", ")")


# --- differences, intervals, dates, states -------------------------------------------------


@_emit.on(ir.AllDifferent)
def _all_different(node: ir.AllDifferent, scope: Scope, truth: bool) -> Sql:
    items = [sql(item, scope) for item in node.items]
    if len(items) > 2 and all(isinstance(i.doc, str) and i.doc.startswith(":") for i in items):
        values = Block("VALUES ", tuple(f"({flat(item.doc)})" for item in items), ", ", lead=False)
        doc = Block(f"(SELECT COUNT(DISTINCT column1) = {len(items)} FROM (", (values,), "", "))")
        return Sql(doc, known=True)
    pairs = [
        Sql(Block("", (a.at(_ADD), b.at(_ADD)), " <> "), _CMP, a.known and b.known)
        for i, a in enumerate(items)
        for b in items[i + 1 :]
    ]
    return _chain(pairs, "AND", _AND, "TRUE")


@dataclass(frozen=True)
class _Span:
    start: Sql
    end: Sql


def _span(node: ir.Node, scope: Scope) -> _Span:
    if isinstance(node, ir.SlotRef) and node.index is None:
        slot = _slot_of(node, scope)
        if slot.kind == "interval":
            start, end = f":{slot.name}_start", f":{slot.name}_end"
            return _Span(Sql(start, known=True), Sql(end, known=True))
    if isinstance(node, ir.If):
        test, then, other = sql(node.test, scope), _span(node.then, scope), _span(node.other, scope)
        return _Span(_choose(test, then.start, other.start), _choose(test, then.end, other.end))
    raise PipelineError(f"{type(node).__name__} is no interval")


@_emit.on(ir.NoOverlap)
def _no_overlap(node: ir.NoOverlap, scope: Scope, truth: bool) -> Sql:
    spans = [_span(item, scope) for item in node.intervals]
    resources = [sql(item, scope) for item in node.resources]
    pairs = []
    for i, a in enumerate(spans):
        for j in range(i + 1, len(spans)):
            b = spans[j]
            ways = [_compare(a.end, "<=", b.start), _compare(b.end, "<=", a.start)]
            if resources:
                ways.append(_compare(resources[i], "<>", resources[j]))
            pairs.append(_chain(ways, "OR", _OR, "FALSE"))
    return _chain(pairs, "AND", _AND, "TRUE")


def _compare(left: Sql, symbol: str, right: Sql) -> Sql:
    doc = Block("", (left.at(_ADD), right.at(_ADD)), f" {symbol} ")
    return Sql(doc, _CMP, left.known and right.known)


@_emit.on(ir.Before)
def _before(node: ir.Before, scope: Scope, truth: bool) -> Sql:
    left, right = _span(node.left, scope).end, _span(node.right, scope).start
    if node.lag != ir.Const(value=0):
        lag = sql(node.lag, scope)
        doc = Block("", (left.at(_ADD), lag.at(_MUL)), " + ")
        left = Sql(doc, _ADD, left.known and lag.known)
    return _compare(left, "<=", right)


@_emit.on(ir.Start)
def _start(node: ir.Start, scope: Scope, truth: bool) -> Sql:
    return _span(node.interval, scope).start


@_emit.on(ir.End)
def _end(node: ir.End, scope: Scope, truth: bool) -> Sql:
    return _span(node.interval, scope).end


@_emit.on(ir.Days)
def _days(node: ir.Days, scope: Scope, truth: bool) -> Sql:
    left, right = sql(node.left, scope), sql(node.right, scope)
    parts = (_day(node.right, right, scope), _day(node.left, left, scope))
    return Sql(Block("CAST(", (Block("", parts, " - "),), "", " AS INTEGER)"))


def _day(node: ir.Node, value: Sql, scope: Scope) -> Doc:
    if isinstance(node, ir.Param | ir.Const | ir.Arg) or (
        isinstance(node, ir.Get)
        and scope.relations[node.relation].column(node.column).type == "date"
    ):
        return Block("julianday(", (value.doc,), "", ")")
    return Block("julianday(substr(", (value.doc,), "", ", 1, 10))")


@_emit.on(ir.Old)
def _old(node: ir.Old, scope: Scope, truth: bool) -> Sql:
    return sql(node.item, replace(scope, state="initial"), truth=truth)


@_emit.on(ir.New)
def _new(node: ir.New, scope: Scope, truth: bool) -> Sql:
    return sql(node.item, replace(scope, state="final"), truth=truth)


_emit.complete()
