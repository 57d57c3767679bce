"""Queries, sums, counts and quantifiers in Python."""

from __future__ import annotations

from dataclasses import dataclass, replace

from envgen.core import ir
from envgen.core.errors import PipelineError
from envgen.pipelines.general.emit import Block, Doc, flat, glued, python_literal
from envgen.pipelines.general.solution_base import (
    ADD,
    AND,
    OR,
    Item,
    Py,
    Scope,
    Want,
    as_wanted,
    conjuncts,
    emit,
    emit_table,
    key_of,
    logic,
    slot_item,
    solid,
)
from envgen.pipelines.general.solution_data import Pin


def members(over: ir.Node, scope: Scope) -> Py:
    """The list on the right of "in"; ``known`` if no element can be None."""
    if isinstance(over, ir.Const):
        values = over.value if isinstance(over.value, tuple) else (over.value,)
        return Py(python_literal(list(values)), known=None not in values)
    if isinstance(over, ir.SlotRef):
        item = slot_item(over, scope)
        if item.relation is None:
            return Py(item.text)
        key = flat(key_of(replace(item, text="row", many=False), scope).doc)
        return Py(f"[{key} for row in {item.text}]")
    if isinstance(over, ir.Query):
        select = over.select or ir.Var(name=over.var)
        rows = rows_of(over, scope, [select])
        value = emit(select, rows.scope)
        return Py(rows.comprehension(value.doc), known=value.known)
    raise PipelineError(f"'in' needs a list, a set slot or a query, not {type(over).__name__}")


def pins_of(where: ir.Node, query: ir.Query, scope: Scope) -> dict[str, tuple[Pin, ir.Node]]:
    """Column -> what the conjuncts of ``where`` say it is, and the conjunct that says so."""
    pins: dict[str, tuple[Pin, ir.Node]] = {}
    for part in conjuncts(where):
        if not isinstance(part, ir.Cmp) or part.fn not in ("=", "in"):
            continue
        sides = [(part.left, part.right)] + ([(part.right, part.left)] if part.fn == "=" else [])
        for get, other in sides:
            if not isinstance(get, ir.Get) or get.entity != ir.Var(name=query.var):
                continue
            if get.relation != query.relation or get.column in pins or _mentions(other, query.var):
                continue
            if part.fn == "in":
                listed = members(other, scope)
                if not listed.known:
                    continue
                values = listed.doc
                if isinstance(other, ir.Query):
                    values = Block("sorted(set(", (values,), "", "))")
                pins[get.column] = (Pin(values, True, isinstance(other, ir.Query)), part)
            else:
                value = emit(other, scope)
                if value.known:
                    pins[get.column] = (Pin(value.doc, solid=solid(other, scope)), part)
    return pins


def _mentions(node: ir.Node, var: str) -> bool:
    return any(isinstance(inner, ir.Var) and inner.name == var for inner in node.walk())


def needs_of(var: str, relation: ir.Relation, roots: list[ir.Node]) -> set[str]:
    """Columns of the row of variable ``var`` that ``roots`` read."""
    needs: set[str] = set()
    for root in roots:
        covered = set()
        for node in root.walk():
            if isinstance(node, ir.Get) and node.entity == ir.Var(name=var):
                if node.relation == relation.name:
                    needs.add(node.column)
                    covered.add(id(node.entity))
            elif isinstance(node, ir.Var) and node.name == var and id(node) not in covered:
                needs.add(relation.key)
    return needs


@dataclass(frozen=True)
class Rows:
    """A run over rows: ``for`` clauses, conditions, and the scope in which the row is bound."""

    loops: tuple[Doc, ...]
    conditions: tuple[Doc, ...]
    scope: Scope
    item: Item

    def comprehension(self, value: Doc, opening: str = "[", closing: str = "]") -> Doc:
        """``[value for row in rows if condition]``."""
        tests: tuple[Doc, ...] = ()
        if self.conditions:
            tests = (Block("if ", (Block("", self.conditions, " and "),)),)
        return Block(opening, (value, *self.loops, *tests), " ", closing)


def rows_of(query: ir.Query, scope: Scope, also: list[ir.Node], need_key: bool = False) -> Rows:
    """The rows of ``query``; ``also`` are further expressions that read its variable."""
    relation = scope.p.relation(query.relation)
    var = scope.variable(query.var)
    pins = pins_of(query.where, query, scope)
    roots = [query.where, *(order.by for order in query.order), *also]
    needs = needs_of(query.var, relation, roots) | ({relation.key} if need_key else set())
    known = {column: pin for column, (pin, _) in pins.items()}
    scan = scope.data.scan(query.relation, needs, known, var, scope.taken)
    item = Item(var, query.relation, scan.source)
    inner = scope.bind(query.var, item)
    done = [part for column, (_, part) in pins.items() if column in scan.pinned]
    tests = [
        emit(part, inner, "true").at(AND) for part in conjuncts(query.where) if part not in done
    ]
    return Rows(scan.loops, tuple(tests), inner, item)


def values_of(query: ir.Query, scope: Scope) -> Doc:
    """The list of a query's selected values, without order, limit and aggregate."""
    select = query.select or ir.Var(name=query.var)
    rows = rows_of(query, scope, [select])
    return rows.comprehension(emit(select, rows.scope).doc)


def ordered_rows(query: ir.Query, scope: Scope, indent: int, target: str) -> tuple[list[Doc], Rows]:
    """Statements that put the rows of ``query`` into ``target``, in order, ties by key."""
    select = query.select or ir.Var(name=query.var)
    needs_key = query.limit is not None and _has_key(query, scope)
    rows = rows_of(query, scope, [select], need_key=needs_key)
    lines: list[Doc] = [glued(f"{target} = ", rows.comprehension(rows.item.text))]
    keys: list[tuple[Py, bool]] = [
        (emit(order.by, rows.scope), order.descending) for order in query.order
    ]
    if needs_key:
        keys.append((key_of(rows.item, rows.scope), False))
    for py, descending in reversed(keys):
        value = py.at(OR)
        if not py.known:  # rows without a value come first, as in the database
            value = Block(
                "(",
                (Block("", (py.at(ADD), "None"), " is not "), Block("", (value, "0"), " or ")),
                ", ",
                ")",
            )
        more = ", reverse=True" if descending else ""
        lines.append(
            Block(f"{target}.sort(key=lambda {rows.item.text}: ", (value,), "", f"{more})")
        )
    return lines, rows


def _has_key(query: ir.Query, scope: Scope) -> bool:
    select = query.select or ir.Var(name=query.var)
    try:
        rows_of(query, scope, [select], need_key=True)
    except PipelineError:
        return False
    return True


@emit_table.on(ir.Query)
def _query(node: ir.Query, scope: Scope, want: Want) -> Py:
    if node.agg == "none" and node.limit == 1:
        return as_wanted(_best_row(node, scope), want)
    if node.limit is not None:
        raise PipelineError(
            f"a solution can't cut the query over {node.relation!r} to {node.limit}"
        )
    select = node.select or ir.Var(name=node.var)
    if node.agg == "count" and node.select is None:
        rows = rows_of(node, scope, [])
        return Py(Block("len(", (rows.comprehension(rows.item.text),), "", ")"))
    rows = rows_of(node, scope, [select])
    value = emit(select, rows.scope)
    if not value.known:
        test = Block("", (value.at(ADD), "None"), " is not ")
        rows = replace(rows, conditions=(*rows.conditions, test))
    values = rows.comprehension(value.doc)
    if node.agg == "count":
        return Py(Block("len(", (values,), "", ")"))
    if node.agg == "sum":
        return Py(Block("sum(", (values,), "", ")"))
    if node.agg in ("min", "max"):
        return Py(Block(f"{node.agg}(", (values, "default=None"), ", ", ")"), known=False)
    if node.agg == "mean":
        text = flat(values)
        return Py(f"(sum({text}) // len({text}) if {text} else None)", known=False)
    return Py(values)


def _best_row(node: ir.Query, scope: Scope) -> Py:
    """The selected value of the first row, as one expression: sorted by the keys from last to first."""
    lines, rows = ordered_rows(node, scope, 0, "x")
    select = node.select or ir.Var(name=node.var)
    value = emit(select, rows.scope)
    text = flat(rows.comprehension(rows.item.text))
    for line in lines[1:]:
        inner = flat(line).removeprefix("x.sort(").removesuffix(")")
        text = f"sorted({text}, {inner})"
    first = f"[{flat(value.doc)} for {rows.item.text} in {text}[:1]]"
    return Py(f"({first} or [None])[0]", known=False)


def _elements(over: ir.Node, var: str, scope: Scope, body: ir.Node) -> Rows:
    if isinstance(over, ir.Query) and over.agg == "none":
        if over.select is None and over.limit is None:
            renamed = over if over.var == var else _rename(over, var)
            return rows_of(renamed, scope, [body])
        name = scope.variable(var)
        values = flat(values_of(over, scope)) if over.limit is None else None
        if values is None:
            raise PipelineError("a solution can't run over a query with a limit")
        return Rows((f"for {name} in {values}",), (), scope.bind(var, Item(name)), Item(name))
    if isinstance(over, ir.SlotRef):
        item = slot_item(over, scope)
        if not item.many:
            raise PipelineError(f"the slot {over.slot!r} is no set")
        name = scope.variable(var)
        one = replace(item, text=name, many=False)
        return Rows((f"for {name} in {item.text}",), (), scope.bind(var, one), one)
    if isinstance(over, ir.Range):
        name = scope.variable(var)
        low, high = flat(emit(over.low, scope).doc), flat(emit(over.high, scope).at(ADD))
        step = f", {over.step}" if over.step != 1 else ""
        loop = f"for {name} in range({low}, {high} + 1{step})"
        return Rows((loop,), (), scope.bind(var, Item(name)), Item(name))
    raise PipelineError(f"a solution can't run over {type(over).__name__}")


def _rename(query: ir.Query, var: str) -> ir.Query:
    """``query`` with its variable called ``var``, so that the body's variable is its row."""

    def walk(node: object) -> object:
        if isinstance(node, ir.Var) and node.name == query.var:
            return ir.Var(name=var)
        if isinstance(node, tuple):
            return tuple(walk(item) for item in node)
        if isinstance(node, ir.Node):
            return node.model_copy(
                update={name: walk(getattr(node, name)) for name in type(node).model_fields}
            )
        return node

    renamed = walk(query)
    assert isinstance(renamed, ir.Query)
    return renamed.model_copy(update={"var": var})


@emit_table.on(ir.Sum)
def _sum(node: ir.Sum, scope: Scope, want: Want) -> Py:
    rows = _elements(node.over, node.var, scope, node.body)
    body = emit(node.body, rows.scope)
    values = rows.comprehension(body.doc)
    if body.known:
        return Py(Block("sum(", (values,), "", ")"))
    text = flat(values)
    return Py(f"(None if None in {text} else sum({text}))", known=False)


@emit_table.on(ir.Count)
def _count(node: ir.Count, scope: Scope, want: Want) -> Py:
    rows = _elements(node.over, node.var, scope, node.body)
    true = replace(rows, conditions=(*rows.conditions, emit(node.body, rows.scope, "true").at(AND)))
    number = Block("len(", (true.comprehension(true.item.text),), "", ")")
    if emit(node.body, rows.scope).known:
        return Py(number)
    values = flat(rows.comprehension(emit(node.body, rows.scope).doc))
    return Py(
        Block("(None if ", (f"None in {values}", Block("else ", (number,))), " ", ")"), known=False
    )


def _quantified(node: ir.All | ir.Any, scope: Scope, want: Want) -> Py:
    rows = _elements(node.over, node.var, scope, node.body)
    every = isinstance(node, ir.All)

    def make(wanted: Want) -> Py:
        word = "all(" if every == (wanted == "true") else "any("
        body = emit(node.body, rows.scope, wanted)
        return Py(rows.comprehension(body.at(OR), word, ")"))

    return logic(node, want, make, emit(node.body, rows.scope).known)


@emit_table.on(ir.All)
def _all(node: ir.All, scope: Scope, want: Want) -> Py:
    return _quantified(node, scope, want)


@emit_table.on(ir.Any)
def _any(node: ir.Any, scope: Scope, want: Want) -> Py:
    return _quantified(node, scope, want)
