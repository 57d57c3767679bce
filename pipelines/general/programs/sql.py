"""IR expressions as SQL: one expression gives one SQL expression, SQLite's three-valued logic included.

The verifier's rules and the tools' preconditions and effects are written with it. An expression is
written in one of two ways: exactly (true, false, unknown), or, where only being true counts (a clause, a
WHERE), as ``truth``, which may read "false" for "unknown" and is then plainer: EXISTS for Any,
NOT EXISTS for All.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from envgen.core import ir
from envgen.core.errors import PipelineError
from envgen.pipelines.general.programs.emit import Block, Doc, flat, identifier, sql_literal
from envgen.pipelines.general.programs.sql_terms import (
    ADD,
    AND,
    ATOM,
    CMP,
    NOT,
    Bound,
    Sql,
    SqlScope,
    choose,
    compare,
    emit_table,
    slot_of,
    sql,
)  # fmt: skip
from envgen.pipelines.general.semantics.rewrite import truth

__all__ = ["SqlScope", "rows", "select_bool", "sql"]


def select_bool(clause: ir.Clause, scope: SqlScope) -> Doc:
    """``SELECT`` that gives 1 iff ``clause`` holds."""
    expr = sql(truth(clause) if clause.gives_way else clause.expr, scope, truth=True)
    if clause.guard is None:
        return Block("SELECT ", (expr.doc,), "")
    guard = sql(clause.guard, scope)
    held = Sql("TRUE", known=True)
    return Block("SELECT ", (choose(guard, expr, held).doc,), "")


# --- rows ----------------------------------------------------------------------------------


def _open(query: ir.Query, scope: SqlScope) -> tuple[str, SqlScope, list[Doc]]:
    """FROM clause, scope of the row, and conditions of a query."""
    alias = scope.alias(query.var)
    relation = scope.relations[query.relation]
    key = f"{identifier(alias)}.{identifier(relation.key)}"
    inner = scope.bind(
        query.var, Bound(key, alias, query.relation, scope.state, names=query.relation)
    )
    table = scope.table(query.relation)
    return f"FROM {table} AS {identifier(alias)}", inner, _where(query.where, inner)


def _where(where: ir.Node, scope: SqlScope) -> list[Doc]:
    if where == ir.Const(value=True):
        return []
    items = where.items if isinstance(where, ir.And) else (where,)
    return [sql(item, scope, truth=True).at(AND) for item in items]


def _filter(conditions: list[Doc]) -> list[Doc]:
    return [Block("WHERE ", tuple(conditions), " AND ")] if conditions else []


def rows(query: ir.Query, scope: SqlScope, name: str = "") -> Doc:
    """``SELECT`` of the selected values of ``query``, in order, its ``agg`` left out.

    ``name`` names the column.
    """
    source, inner, where = _open(query, scope)
    key = ir.Var(name=query.var)
    value = sql(query.select or key, inner)
    shown = Block("SELECT ", (value.at(ADD),), "", f" AS {name}" if name else "")
    lines: list[Doc] = [shown, source, *_filter(where)]
    if query.order or query.limit is not None:
        keys: list[Doc] = [
            Block("", (sql(o.by, inner).at(ADD),), "", " DESC" if o.descending else "")
            for o in query.order
        ]
        lines.append(Block("ORDER BY ", (*keys, sql(key, inner).doc), ", ", lead=False))
    if query.limit is not None:
        lines.append(f"LIMIT {query.limit}")
    return Block("", tuple(lines), " ")


@emit_table.on(ir.Query)
def _query(node: ir.Query, scope: SqlScope, truth: bool) -> Sql:
    if node.agg == "none":
        if node.limit != 1:
            raise PipelineError(f"the query over {node.relation!r} is a list, not one value")
        return Sql(Block("(", (rows(node, scope),), "", ")"))
    known = node.agg in ("count", "sum")
    if node.agg == "count" and node.select is None and node.limit is None:
        source, _, where = _open(node, scope)
        return Sql(Block("(", ("SELECT COUNT(*)", source, *_filter(where)), " ", ")"), known=known)
    listed = node.model_copy(update={"agg": "none"})
    elements = _elements(listed, node.var, scope)
    value = sql(ir.Var(name=node.var), elements.scope)
    return _folded(_FOLDS[node.agg], value, elements, known=known)


_FOLDS: Mapping[str, str] = {
    "count": "COUNT(value)",
    "sum": "COALESCE(SUM(value), 0)",
    "min": "MIN(value)",
    "max": "MAX(value)",
    "mean": "SUM(value) / COUNT(value)",
}
# Folds that stay unknown where an element is: COUNT(value) leaves out NULL, COUNT(*) doesn't.
_UNLESS_UNKNOWN = "CASE WHEN COUNT(*) = COUNT(value) THEN {} END"
_ALL = "CASE WHEN MIN(value) = 0 THEN 0 WHEN COUNT(*) = COUNT(value) THEN 1 END"
_ANY = "CASE WHEN MAX(value) = 1 THEN 1 WHEN COUNT(*) = COUNT(value) THEN 0 END"


def _aggregate(fold: str, value: Sql, alias: str, source: Doc, conditions: list[Doc]) -> Doc:
    """A fold of ``value`` over rows.

    Only a plain term over the rows' own columns stands inside the aggregate: SQL would take
    ``SUM(outer.column)`` for an aggregate of the outer query.
    """
    text = flat(value.doc)
    if "SELECT" not in text and f"{identifier(alias)}." in text:
        return Block(
            "(", (f"SELECT {fold.replace('value', text)}", source, *_filter(conditions)), " ", ")"
        )
    named = Block("SELECT ", (value.doc,), "", " AS value")
    inner = Block("FROM (", (named, source, *_filter(conditions)), " ", ")")
    return Block("(", (f"SELECT {fold}", inner), " ", ")")


@dataclass(frozen=True)
class _Elements:
    """What a fold runs over: FROM clause and conditions, and the scope that binds its variable."""

    source: str
    where: list[Doc]
    scope: SqlScope
    var: str

    @property
    def alias(self) -> str:
        """The alias of the rows in SQL."""
        return self.scope.variables[self.var].alias or ""


def _elements(over: ir.Node, var: str, scope: SqlScope) -> _Elements:
    if isinstance(over, ir.Query):
        if over.agg != "none":
            raise PipelineError("a fold runs over rows, not over an aggregate")
        if over.limit is None:
            source, inner, where = _open(over, scope)
            row = inner.variables[over.var]
            if over.select is not None:
                value = sql(over.select, inner)
                row = Bound(flat(value.at(ATOM)), row.alias, known=value.known)
            return _Elements(source, where, scope.bind(var, row), var)
        alias = scope.alias(var)
        source = f"FROM ({flat(rows(over, scope, 'value'))}) AS {identifier(alias)}"
        bound = Bound(f"{identifier(alias)}.value", alias, known=False)
        return _Elements(source, [], scope.bind(var, bound), var)
    alias = scope.alias(var)
    bound = Bound(f"{identifier(alias)}.value", alias)
    if isinstance(over, ir.SlotRef):
        slot = slot_of(over, scope)
        if slot.kind not in ("set", "sequence"):
            raise PipelineError(f"a fold can't run over the {slot.kind} slot {slot.name!r}")
        source = f"FROM json_each(:{slot.name}) AS {identifier(alias)}"
        if isinstance(slot.domain, ir.Query) and slot.domain.select is None:
            bound = replace(bound, names=slot.domain.relation)
    elif isinstance(over, ir.Reachable):
        source = f"FROM {flat(_reached(over, scope))} AS {identifier(alias)}"
    elif isinstance(over, ir.Range):
        low, high = flat(sql(over.low, scope).at(ADD)), flat(sql(over.high, scope).at(ADD))
        source = (
            f"FROM (WITH RECURSIVE n(value) AS (SELECT {low} WHERE {low} <= {high} UNION ALL "
            f"SELECT value + {over.step} FROM n WHERE value + {over.step} <= {high}) "
            f"SELECT value FROM n) AS {identifier(alias)}"
        )
    else:
        raise PipelineError(f"a fold can't run over {type(over).__name__}")
    return _Elements(source, [], scope.bind(var, bound), var)


def _reached(node: ir.Reachable, scope: SqlScope) -> Doc:
    """A recursive query of one column ``value``; UNION drops what was found before, so cycles end."""
    edge, table = identifier(scope.alias("edge")), scope.table(node.relation)
    source, target = (f"{edge}.{identifier(name)}" for name in (node.source, node.target))
    first = f"SELECT {target} FROM {table} AS {edge} WHERE {source} = "
    more = f"SELECT {target} FROM reached JOIN {table} AS {edge} ON {source} = reached.value"
    start = sql(node.start, scope).at(ADD)
    empty = scope.relations[node.relation].column(node.target).nullable
    some, where = (f" {word} {target} IS NOT NULL" if empty else "" for word in ("AND", "WHERE"))
    body = (Block(first, (start,), "", some), f"UNION {more}{where}")
    return Block("(WITH RECURSIVE reached(value) AS (", body, " ", ") SELECT value FROM reached)")


@emit_table.on(ir.Reachable)
def _reachable(node: ir.Reachable, scope: SqlScope, truth: bool) -> Sql:
    """Only lists may be made of it: see ``_reached``."""
    raise PipelineError(f"what is reachable in {node.relation!r} is a list, not one value")


def _folded(fold: str, body: Sql, elements: _Elements, *, known: bool = False) -> Sql:
    doc = _aggregate(fold, body, elements.alias, elements.source, elements.where)
    return Sql(doc, known=known)


@emit_table.on(ir.Sum, ir.Count)
def _sum(node: ir.Sum | ir.Count, scope: SqlScope, truth: bool) -> Sql:
    elements = _elements(node.over, node.var, scope)
    body = sql(node.body, elements.scope)
    some = isinstance(node.over, ir.SlotRef) and slot_of(node.over, scope).least > 0
    fold = "SUM(value)" if some else "COALESCE(SUM(value), 0)"
    if not body.known:
        fold = _UNLESS_UNKNOWN.format(fold)
    return _folded(fold, body, elements, known=body.known)


@emit_table.on(ir.All)
def _all(node: ir.All, scope: SqlScope, truth: bool) -> Sql:
    elements = _elements(node.over, node.var, scope)
    body = sql(node.body, elements.scope)
    if truth or body.known:
        broken: Doc = Block("", (body.at(ADD), "NOT TRUE"), " IS ")
        if body.known:
            broken = Block("NOT ", (body.at(ATOM),), "")
        return Sql(_exists("NOT EXISTS (", elements, broken), NOT, known=True)
    return _folded(_ALL, body, elements)


@emit_table.on(ir.Any)
def _any(node: ir.Any, scope: SqlScope, truth: bool) -> Sql:
    elements = _elements(node.over, node.var, scope)
    body = sql(node.body, elements.scope, truth=truth)
    if truth or body.known:
        return Sql(_exists("EXISTS (", elements, body.at(AND)), known=True)
    return _folded(_ANY, body, elements)


def _exists(opening: str, elements: _Elements, condition: Doc) -> Doc:
    kept = [part for part in (*elements.where, condition) if part != "TRUE"]
    return Block(opening, ("SELECT 1", elements.source, *_filter(kept)), " ", ")")


@emit_table.on(ir.Cmp)
def _cmp(node: ir.Cmp, scope: SqlScope, truth: bool) -> Sql:
    left = sql(node.left, scope)
    if node.fn == "in":
        return _member(left, node.right, scope, truth)
    right = sql(node.right, scope)
    symbol = {"!=": "<>"}.get(node.fn, node.fn)
    return compare(left, symbol, right)


def _member(left: Sql, over: ir.Node, scope: SqlScope, truth: bool) -> Sql:
    known = left.known
    if isinstance(over, ir.Const):
        values = over.value if isinstance(over.value, tuple) else (over.value,)
        known = known and None not in values
        inside: Doc = Block(
            "(", tuple(sql_literal(value) for value in values), ", ", ")", lead=False
        )
    elif isinstance(over, ir.SlotRef):
        inside = f"(SELECT value FROM json_each(:{slot_of(over, scope).name}))"
    elif isinstance(over, ir.Reachable):
        inside = _reached(over, scope)
    elif isinstance(over, ir.Query):
        if over.agg != "none":
            raise PipelineError("'in' looks into rows, not into an aggregate")
        inside, known = Block("(", (rows(over, scope),), "", ")"), False
    else:
        raise PipelineError(f"'in' needs a list, a set slot, a Query or Reachable, not {over.op!r}")  # type: ignore[attr-defined]  # every node has op
    doc: Doc = Block("", (left.at(ADD), inside), " IN ")
    if truth or left.known:
        return Sql(doc, CMP, known)
    # x IN () is false in SQL even where x is unknown
    return Sql(
        Block("CASE WHEN ", (Block("", (left.at(ADD), "NOT NULL"), " IS "), doc), " THEN ", " END")
    )


emit_table.complete()
