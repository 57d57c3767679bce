"""Terms and conditions in SQL: everything that is no query and no fold."""

from __future__ import annotations

from dataclasses import dataclass, replace

from envgen.core import ir
from envgen.core.errors import PipelineError
from envgen.pipelines.general.programs.emit import Block, Doc, flat, identifier, sql_literal
from envgen.pipelines.general.programs.sql_base import (
    ADD,
    AND,
    ATOM,
    CMP,
    MUL,
    NOT,
    OR,
    Sql,
    SqlScope,
    bound_of,
    chain,
    choose,
    compare,
    emit_table,
    slot_of,
    sql,
)
from envgen.pipelines.general.programs.sql_folds import reachable, rows


@emit_table.on(ir.Const)
def _const(node: ir.Const, scope: SqlScope, truth: bool) -> Sql:
    if isinstance(node.value, tuple):
        raise PipelineError("a list constant only stands on the right of 'in'")
    return Sql(sql_literal(node.value), known=node.value is not None)


@emit_table.on(ir.Param)
def _param(node: ir.Param, scope: SqlScope, truth: bool) -> Sql:
    return Sql(f":param_{node.name}", known=True)


@emit_table.on(ir.Arg)
def _arg(node: ir.Arg, scope: SqlScope, truth: bool) -> Sql:
    return Sql(f":{node.name}", known=True)


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
        raise PipelineError(f"the slot {slot.name!r} ({slot.kind}) is no single value")
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


@emit_table.on(ir.Cmp)
def _cmp(node: ir.Cmp, scope: SqlScope, truth: bool) -> Sql:
    left = sql(node.left, scope)
    if node.fn == "in":
        return _member(left, node.right, scope, truth)
    right = sql(node.right, scope)
    symbol = {"!=": "<>"}.get(node.fn, node.fn)
    doc = Block("", (left.at(ADD), right.at(ADD)), f" {symbol} ")
    return Sql(doc, CMP, left.known and right.known)


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
        inside = reachable(over, scope)
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


@emit_table.on(ir.And)
def _and(node: ir.And, scope: SqlScope, truth: bool) -> Sql:
    return chain([sql(item, scope, truth=truth) for item in node.items], "AND", AND, "TRUE")


@emit_table.on(ir.Or)
def _or(node: ir.Or, scope: SqlScope, truth: bool) -> Sql:
    return chain([sql(item, scope, truth=truth) for item in node.items], "OR", OR, "FALSE")


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
    pairs = [
        Sql(Block("", (a.at(ADD), b.at(ADD)), " <> "), CMP, a.known and b.known)
        for i, a in enumerate(items)
        for b in items[i + 1 :]
    ]
    return chain(pairs, "AND", AND, "TRUE")


@dataclass(frozen=True)
class _Span:
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
    raise PipelineError(f"{type(node).__name__} is no interval")


@emit_table.on(ir.NoOverlap)
def _no_overlap(node: ir.NoOverlap, scope: SqlScope, truth: bool) -> Sql:
    spans = [_span(item, scope) for item in node.intervals]
    resources = [sql(item, scope) for item in node.resources]
    pairs = []
    for i, a in enumerate(spans):
        for j in range(i + 1, len(spans)):
            b = spans[j]
            ways = [compare(a.end, "<=", b.start), compare(b.end, "<=", a.start)]
            if resources:
                ways.append(compare(resources[i], "<>", resources[j]))
            pairs.append(chain(ways, "OR", OR, "FALSE"))
    return chain(pairs, "AND", AND, "TRUE")


@emit_table.on(ir.Before)
def _before(node: ir.Before, scope: SqlScope, truth: bool) -> Sql:
    left, right = _span(node.left, scope).end, _span(node.right, scope).start
    if node.lag != ir.Const(value=0):
        lag = sql(node.lag, scope)
        doc = Block("", (left.at(ADD), lag.at(MUL)), " + ")
        left = Sql(doc, ADD, left.known and lag.known)
    return compare(left, "<=", right)


@emit_table.on(ir.Start)
def _start(node: ir.Start, scope: SqlScope, truth: bool) -> Sql:
    return _span(node.interval, scope).start


@emit_table.on(ir.End)
def _end(node: ir.End, scope: SqlScope, truth: bool) -> Sql:
    return _span(node.interval, scope).end


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


@emit_table.on(ir.Old)
def _old(node: ir.Old, scope: SqlScope, truth: bool) -> Sql:
    return sql(node.item, replace(scope, state="initial"), truth=truth)


@emit_table.on(ir.New)
def _new(node: ir.New, scope: SqlScope, truth: bool) -> Sql:
    return sql(node.item, replace(scope, state="final"), truth=truth)
