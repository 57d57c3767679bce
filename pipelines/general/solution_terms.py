"""Terms and conditions in Python: everything that is no query and no fold."""

from __future__ import annotations

from dataclasses import dataclass

from envgen.core import ir
from envgen.core.errors import PipelineError
from envgen.pipelines.general.emit import Block, Doc, flat, python_literal
from envgen.pipelines.general.solution_base import (
    ADD,
    AND,
    CMP,
    MUL,
    OR,
    Item,
    Py,
    Scope,
    Want,
    as_wanted,
    compare,
    emit,
    emit_table,
    if_known,
    join,
    key_of,
    logic,
    slot_item,
    solid,
)
from envgen.pipelines.general.solution_data import Index
from envgen.pipelines.general.solution_rows import members

_OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


@emit_table.on(ir.Const)
def _const(node: ir.Const, scope: Scope, want: Want) -> Py:
    if isinstance(node.value, tuple):
        return Py(python_literal(list(node.value)))
    if want != "value":
        return Py(str(node.value is (want == "true")))
    return Py(python_literal(node.value), known=node.value is not None)


@emit_table.on(ir.Param)
def _param(node: ir.Param, scope: Scope, want: Want) -> Py:
    return as_wanted(Py(f'PARAMS["{node.name}"]'), want)


@emit_table.on(ir.Arg)
def _arg(node: ir.Arg, scope: Scope, want: Want) -> Py:
    raise PipelineError("an argument only has a meaning inside a tool")


@emit_table.on(ir.Var)
def _var(node: ir.Var, scope: Scope, want: Want) -> Py:
    if node.name not in scope.variables:
        raise PipelineError(f"the variable {node.name!r} is not bound")
    return as_wanted(key_of(scope.variables[node.name], scope), want)


@emit_table.on(ir.SlotRef)
def _slot(node: ir.SlotRef, scope: Scope, want: Want) -> Py:
    item = slot_item(node, scope)
    if item.length is not None or item.many:
        raise PipelineError(f"the slot {node.slot!r} is no single value")
    return as_wanted(key_of(item, scope), want)


@emit_table.on(ir.Get)
def _get(node: ir.Get, scope: Scope, want: Want) -> Py:
    column = scope.p.relation(node.relation).column(node.column)
    name = scope.data.field(node.relation, node.column)
    item: Item | None = None
    if isinstance(node.entity, ir.Var):
        item = scope.variables.get(node.entity.name)
    elif isinstance(node.entity, ir.SlotRef) and node.entity.index is None:
        item = scope.slots.get(node.entity.slot)
    if item is not None and item.relation == node.relation and not item.many:
        if item.source is not None:
            item.source.want(node.column)
        return as_wanted(Py(f'{item.text}["{name}"]', known=not column.nullable), want)
    entity = emit(node.entity, scope)
    source = scope.data.row(node.relation, node.column)
    firm = solid(node.entity, scope)
    text = scope.data.get(source, flat(entity.doc), node.column, solid=firm)
    if entity.known:
        only = isinstance(source, Index) and source.only
        return as_wanted(Py(text, known=not column.nullable and (firm or only)), want)
    key = flat(entity.at(ADD))
    return as_wanted(Py(f"(None if {key} is None else {text})", known=False), want)


@emit_table.on(ir.Arith)
def _arith(node: ir.Arith, scope: Scope, want: Want) -> Py:
    left, right = emit(node.left, scope), emit(node.right, scope)
    symbol = {"convert": "*"}.get(node.fn, node.fn)
    level = ADD if symbol in "+-" else MUL
    tight = level if symbol == "+" else level + 1  # a - (b - c), a * (b // c)
    doc = Block("", (left.at(level), right.at(tight)), f" {symbol} ")
    return if_known(Py(doc, level), [left, right])


@emit_table.on(ir.Cmp)
def _cmp(node: ir.Cmp, scope: Scope, want: Want) -> Py:
    left = emit(node.left, scope)
    if node.fn == "in":
        right = members(node.right, scope)

        def member(wanted: Want) -> Py:
            word = " in " if wanted == "true" else " not in "
            tests = [Py(Block("", (left.at(ADD), right.doc), word), CMP)]
            if not left.known:
                tests.insert(0, Py(Block("", (left.at(ADD), "None"), " is not "), CMP))
            if wanted == "false" and not right.known:
                tests.append(Py(Block("", ("None", right.doc), " not in "), CMP))
            return join(tests, "and", AND, "True")

        return logic(node, want, member, left.known and right.known)
    for side, flag in ((node.left, node.right), (node.right, node.left)):
        if isinstance(flag, ir.Const) and isinstance(flag.value, bool) and node.fn in ("=", "!="):
            same = flag.value == (node.fn == "=")
            opposite: Want = "false" if want == "true" else "true"
            if want != "value":
                return emit(side, scope, want if same else opposite)
    other = emit(node.right, scope)
    symbol = {"=": "=="}.get(node.fn, node.fn)

    def test(wanted: Want) -> Py:
        return compare(left, symbol if wanted == "true" else _OPPOSITE[symbol], other)

    return logic(node, want, test, left.known and other.known)


def _many(node: ir.And | ir.Or, scope: Scope, want: Want, word: str) -> Py:
    known = all(emit(item, scope).known for item in node.items)

    def make(wanted: Want) -> Py:
        items = [emit(item, scope, wanted) for item in node.items]
        if (word == "and") == (wanted == "true"):
            return join(items, "and", AND, "True")
        return join(items, "or", OR, "False")

    return logic(node, want, make, known)


@emit_table.on(ir.And)
def _and(node: ir.And, scope: Scope, want: Want) -> Py:
    return _many(node, scope, want, "and")


@emit_table.on(ir.Or)
def _or(node: ir.Or, scope: Scope, want: Want) -> Py:
    return _many(node, scope, want, "or")


@emit_table.on(ir.Not)
def _not(node: ir.Not, scope: Scope, want: Want) -> Py:
    def make(wanted: Want) -> Py:
        return emit(node.item, scope, "false" if wanted == "true" else "true")

    return logic(node, want, make, emit(node.item, scope).known)


@emit_table.on(ir.If)
def _if(node: ir.If, scope: Scope, want: Want) -> Py:
    test = emit(node.test, scope, "true")
    test_known = emit(node.test, scope).known
    then, other = emit(node.then, scope, want), emit(node.other, scope, want)
    if want != "value" and test_known:
        no = emit(node.test, scope, "false")
        if then.doc == "True":
            return join([test, other], "or", OR, "False")
        if then.doc == "False":
            return join([no, other], "and", AND, "True")
        if other.doc == "True":
            return join([no, then], "or", OR, "False")
        if other.doc == "False":
            return join([test, then], "and", AND, "True")
    last = other.at(OR)
    if not test_known:
        no = emit(node.test, scope, "false")
        unknown = "None" if want == "value" else "False"
        last = Block("", (other.at(OR), Block("if ", (no.at(OR),)), f"else {unknown}"), " ")
    parts: tuple[Doc, ...] = (then.at(OR), Block("if ", (test.at(OR),)), Block("else ", (last,)))
    known = test_known and then.known and other.known
    return Py(Block("(", parts, " ", ")"), known=known)


@emit_table.on(ir.AllDifferent)
def _all_different(node: ir.AllDifferent, scope: Scope, want: Want) -> Py:
    items = [emit(item, scope) for item in node.items]
    known = all(item.known for item in items)

    def make(wanted: Want) -> Py:
        if known and len(items) > 2:
            symbol = "==" if wanted == "true" else "<"
            values = Block("len({", tuple(item.doc for item in items), ", ", "})", lead=False)
            return Py(Block("", (values, str(len(items))), f" {symbol} "), CMP)
        pairs = [
            compare(a, "!=" if wanted == "true" else "==", b)
            for i, a in enumerate(items)
            for b in items[i + 1 :]
        ]
        if wanted == "true":
            return join(pairs, "and", AND, "True")
        return join(pairs, "or", OR, "False")

    return logic(node, want, make, known)


@dataclass(frozen=True)
class _Span:
    start: Py
    end: Py


def _span(node: ir.Node, scope: Scope) -> _Span:
    if isinstance(node, ir.SlotRef):
        item = slot_item(node, scope)
        if item.length is not None:
            return _Span(Py(item.text), Py(f"{item.text} + {item.length}", ADD))
    raise PipelineError(f"{type(node).__name__} is no interval of a slot")


@emit_table.on(ir.NoOverlap)
def _no_overlap(node: ir.NoOverlap, scope: Scope, want: Want) -> Py:
    spans = [_span(item, scope) for item in node.intervals]
    places = [emit(item, scope) for item in node.resources]
    known = all(place.known for place in places)

    def make(wanted: Want) -> Py:
        yes = wanted == "true"
        pairs = []
        for i, a in enumerate(spans):
            for j in range(i + 1, len(spans)):
                b = spans[j]
                first = compare(a.end, "<=" if yes else ">", b.start)
                second = compare(b.end, "<=" if yes else ">", a.start)
                ways = [first, second]
                if places:
                    ways.append(compare(places[i], "!=" if yes else "==", places[j]))
                pairs.append(join(ways, "or" if yes else "and", OR if yes else AND, "True"))
        if yes:
            return join(pairs, "and", AND, "True")
        return join(pairs, "or", OR, "False")

    return logic(node, want, make, known)


@emit_table.on(ir.Before)
def _before(node: ir.Before, scope: Scope, want: Want) -> Py:
    end, start, lag = (
        _span(node.left, scope).end,
        _span(node.right, scope).start,
        emit(node.lag, scope),
    )
    if lag.doc != "0":
        end = if_known(Py(Block("", (end.doc, lag.at(MUL)), " + "), ADD), [lag])

    def make(wanted: Want) -> Py:
        return compare(end, "<=" if wanted == "true" else ">", start)

    return logic(node, want, make, end.known)


@emit_table.on(ir.Start)
def _start(node: ir.Start, scope: Scope, want: Want) -> Py:
    return _span(node.interval, scope).start


@emit_table.on(ir.End)
def _end(node: ir.End, scope: Scope, want: Want) -> Py:
    return _span(node.interval, scope).end


@emit_table.on(ir.Days)
def _days(node: ir.Days, scope: Scope, want: Want) -> Py:
    left, right = emit(node.left, scope), emit(node.right, scope)
    days = Block("days_between(", (left.doc, right.doc), ", ", ")", lead=False)
    return if_known(Py(days), [left, right])


@emit_table.on(ir.Old)
def _old(node: ir.Old, scope: Scope, want: Want) -> Py:
    return emit(node.item, scope, want)


@emit_table.on(ir.New)
def _new(node: ir.New, scope: Scope, want: Want) -> Py:
    raise PipelineError("a solution can't read the state that it is to reach")
