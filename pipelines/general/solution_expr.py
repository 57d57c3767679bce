"""IR expressions as Python of the restricted solution language.

An expression is wanted as a ``value`` (None where unknown), or as the condition that it is ``true`` or
``false``. Negation turns "true" into "false" all the way down, so three-valued logic costs nothing
where nothing can be unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from envgen.core import ir
from envgen.core.errors import PipelineError
from envgen.pipelines.general.dispatch import Dispatch
from envgen.pipelines.general.emit import Block, Doc, flat, glued, python_literal
from envgen.pipelines.general.names import Names
from envgen.pipelines.general.solution_data import Data, Index, Pin, Source

Want = Literal["value", "true", "false"]
_IF, _OR, _AND, _NOT, _CMP, _ADD, _MUL, _ATOM = range(1, 9)
_OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


@dataclass(frozen=True)
class Py:
    """A piece of Python, how tightly it binds, and whether it is never None."""

    doc: Doc
    level: int = _ATOM
    known: bool = True
    where: tuple[Py, ...] = ()
    """What must not be None for ``inner``, where the whole is "None if ... else inner"."""
    inner: Py | None = None

    def at(self, level: int) -> Doc:
        """The text, in parentheses where its context binds tighter than it does."""
        return self.doc if self.level >= level else Block("(", (self.doc,), "", ")")


@dataclass(frozen=True)
class Item:
    """What a variable or slot stands for in the code.

    A row (``relation``: its dict is ``text``), an interval (``text`` is its start), a list of rows
    (``many``) or a plain value.
    """

    text: str
    relation: str | None = None
    source: Source | None = None
    length: int | None = None
    many: bool = False


@dataclass(frozen=True)
class Scope:
    """Where an expression stands."""

    p: ir.Problem
    data: Data
    names: Names
    slots: Mapping[str, Item] = field(default_factory=dict)
    variables: Mapping[str, Item] = field(default_factory=dict)

    def bind(self, name: str, item: Item) -> Scope:
        """This scope and one more variable."""
        return replace(self, variables={**self.variables, name: item})

    def variable(self, wish: str) -> str:
        """A name for a loop variable that hides none in scope."""
        return self.names.free(wish, self.taken)

    @property
    def taken(self) -> frozenset[str]:
        """Names that loop variables must not hide."""
        return frozenset(item.text for item in (*self.variables.values(), *self.slots.values()))


_emit: Dispatch[Callable[..., Py]] = Dispatch("solution")


def emit(node: ir.Node, scope: Scope, want: Want = "value") -> Py:
    """``node`` in Python.

    Raises:
        PipelineError: if the tools don't give what it reads, or it has no form here.
    """
    return _emit[type(node)](node, scope, want)


def holds(clause_expr: ir.Node, guard: ir.Node | None, scope: Scope) -> Py:
    """The condition that a clause holds."""
    expr = emit(clause_expr, scope, "true")
    if guard is None:
        return expr
    if not emit(guard, scope).known:
        expr = _join([emit(guard, scope, "true"), expr], "and", _AND, "True")
    return _join([emit(guard, scope, "false"), expr], "or", _OR, "False")


def _plain(py: Py, want: Want) -> Py:
    """A value where a condition may be wanted."""
    if want == "value":
        return py
    if py.known:
        return py if want == "true" else Py(Block("not ", (py.at(_ATOM),)), _NOT)
    word = "True" if want == "true" else "False"
    return Py(Block("", (py.at(_ADD), word), " is "), _CMP)


def _logic(node: ir.Node, want: Want, make: Callable[[Want], Py], known: bool) -> Py:
    """A boolean node: ``make`` gives its true and its false condition."""
    if want != "value":
        return make(want)
    true = make("true")
    if known:
        return true
    false = make("false")
    inner = Block("", (Block("False if ", (false.at(_OR),)), "else None"), " ")
    return Py(Block("(True if ", (true.at(_OR), Block("else ", (inner,))), " ", ")"), known=False)


def _join(items: list[Py], word: str, level: int, empty: str) -> Py:
    items = [item for item in items if item.doc != {"and": "True", "or": "False"}[word]]
    if len(items) <= 1:
        return items[0] if items else Py(empty)
    return Py(Block("", tuple(item.at(level) for item in items), f" {word} "), level)


@_emit.on(ir.Const)
def _const(node: ir.Const, scope: Scope, want: Want) -> Py:
    if isinstance(node.value, tuple):
        return Py(python_literal(list(node.value)))
    if want != "value":
        return Py(str(node.value is (want == "true")))
    return Py(python_literal(node.value), known=node.value is not None)


@_emit.on(ir.Param)
def _param(node: ir.Param, scope: Scope, want: Want) -> Py:
    return _plain(Py(f'PARAMS["{node.name}"]'), want)


@_emit.on(ir.Arg)
def _arg(node: ir.Arg, scope: Scope, want: Want) -> Py:
    raise PipelineError("an argument only has a meaning inside a tool")


@_emit.on(ir.Var)
def _var(node: ir.Var, scope: Scope, want: Want) -> Py:
    if node.name not in scope.variables:
        raise PipelineError(f"the variable {node.name!r} is not bound")
    return _plain(_key(scope.variables[node.name], scope), want)


@_emit.on(ir.SlotRef)
def _slot(node: ir.SlotRef, scope: Scope, want: Want) -> Py:
    item = slot_item(node, scope)
    if item.length is not None or item.many:
        raise PipelineError(f"the slot {node.slot!r} is no single value")
    return _plain(_key(item, scope), want)


def slot_item(node: ir.SlotRef, scope: Scope) -> Item:
    """What a slot stands for."""
    if node.index is not None or node.slot not in scope.slots:
        raise PipelineError(f"the slot {node.slot!r} can't be used like this in a solution")
    return scope.slots[node.slot]


def _key(item: Item, scope: Scope) -> Py:
    """The value of a variable: for a row, its key."""
    if item.relation is None:
        return Py(item.text)
    key = scope.p.relation(item.relation).key
    if item.source is not None:
        item.source.want(key)
    return Py(f'{item.text}["{scope.data.field(item.relation, key)}"]')


@_emit.on(ir.Get)
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
        return _plain(Py(f'{item.text}["{name}"]', known=not column.nullable), want)
    entity = emit(node.entity, scope)
    source = scope.data.row(node.relation, node.column)
    firm = solid(node.entity, scope)
    text = scope.data.get(source, flat(entity.doc), node.column, solid=firm)
    if entity.known:
        only = isinstance(source, Index) and source.only
        return _plain(Py(text, known=not column.nullable and (firm or only)), want)
    key = flat(entity.at(_ADD))
    return _plain(Py(f"(None if {key} is None else {text})", known=False), want)


def solid(node: ir.Node, scope: Scope) -> bool:
    """Whether a key is sure to name a row: it comes from one."""
    if isinstance(node, ir.Get):
        return scope.p.relation(node.relation).column(node.column).type.startswith("entity:")
    return isinstance(node, ir.Var | ir.SlotRef)


@_emit.on(ir.Arith)
def _arith(node: ir.Arith, scope: Scope, want: Want) -> Py:
    left, right = emit(node.left, scope), emit(node.right, scope)
    symbol = {"convert": "*"}.get(node.fn, node.fn)
    level = _ADD if symbol in "+-" else _MUL
    tight = level if symbol == "+" else level + 1  # a - (b - c), a * (b // c)
    doc = Block("", (left.at(level), right.at(tight)), f" {symbol} ")
    return _if_known(Py(doc, level), [left, right])


def _if_known(py: Py, parts: list[Py]) -> Py:
    """``py``, or None if one of ``parts`` is None."""
    doubtful = [part for part in parts if not part.known]
    if not doubtful:
        return py
    tests = [Block("", (part.at(_ADD), "None"), " is ") for part in doubtful]
    test: Doc = Block("", tuple(tests), " or ") if len(tests) > 1 else tests[0]
    doc = Block("(None if ", (test, Block("else ", (py.at(_OR),))), " ", ")")
    return Py(doc, known=False, where=tuple(doubtful), inner=py)


def _compare(left: Py, symbol: str, right: Py) -> Py:
    """A comparison that is False where a side is None."""
    shown = [part.inner or part for part in (left, right)]
    test = Py(Block("", tuple(part.at(_ADD) for part in shown), f" {symbol} "), _CMP)
    doubtful = [p for part in (left, right) if not part.known for p in part.where or (part,)]
    if symbol == "==" and len(doubtful) == 1 and shown == [left, right]:
        return test
    known = [Py(Block("", (part.at(_ADD), "None"), " is not "), _CMP) for part in doubtful]
    return _join([*known, test], "and", _AND, "True")


@_emit.on(ir.Cmp)
def _cmp(node: ir.Cmp, scope: Scope, want: Want) -> Py:
    left = emit(node.left, scope)
    if node.fn == "in":
        right = _members(node.right, scope)

        def member(wanted: Want) -> Py:
            word = " in " if wanted == "true" else " not in "
            tests = [Py(Block("", (left.at(_ADD), right.doc), word), _CMP)]
            if not left.known:
                tests.insert(0, Py(Block("", (left.at(_ADD), "None"), " is not "), _CMP))
            if wanted == "false" and not right.known:
                tests.append(Py(Block("", ("None", right.doc), " not in "), _CMP))
            return _join(tests, "and", _AND, "True")

        return _logic(node, want, member, left.known and right.known)
    for side, flag in ((node.left, node.right), (node.right, node.left)):
        if isinstance(flag, ir.Const) and isinstance(flag.value, bool) and node.fn in ("=", "!="):
            same = flag.value == (node.fn == "=")
            opposite: Want = "false" if want == "true" else "true"
            if want != "value":
                return emit(side, scope, want if same else opposite)
    other = emit(node.right, scope)
    symbol = {"=": "=="}.get(node.fn, node.fn)

    def test(wanted: Want) -> Py:
        return _compare(left, symbol if wanted == "true" else _OPPOSITE[symbol], other)

    return _logic(node, want, test, left.known and other.known)


def _members(over: ir.Node, scope: Scope) -> Py:
    """The list on the right of "in"; ``known`` if no element can be None."""
    if isinstance(over, ir.Const):
        values = over.value if isinstance(over.value, tuple) else (over.value,)
        return Py(python_literal(list(values)), known=None not in values)
    if isinstance(over, ir.SlotRef):
        item = slot_item(over, scope)
        if item.relation is None:
            return Py(item.text)
        key = flat(_key(replace(item, text="row", many=False), scope).doc)
        return Py(f"[{key} for row in {item.text}]")
    if isinstance(over, ir.Query):
        select = over.select or ir.Var(name=over.var)
        rows = rows_of(over, scope, [select])
        value = emit(select, rows.scope)
        return Py(rows.comprehension(value.doc), known=value.known)
    raise PipelineError(f"'in' needs a list, a set slot or a query, not {type(over).__name__}")


def _many(node: ir.And | ir.Or, scope: Scope, want: Want, word: str) -> Py:
    known = all(emit(item, scope).known for item in node.items)

    def make(wanted: Want) -> Py:
        items = [emit(item, scope, wanted) for item in node.items]
        if (word == "and") == (wanted == "true"):
            return _join(items, "and", _AND, "True")
        return _join(items, "or", _OR, "False")

    return _logic(node, want, make, known)


@_emit.on(ir.And)
def _and(node: ir.And, scope: Scope, want: Want) -> Py:
    return _many(node, scope, want, "and")


@_emit.on(ir.Or)
def _or(node: ir.Or, scope: Scope, want: Want) -> Py:
    return _many(node, scope, want, "or")


@_emit.on(ir.Not)
def _not(node: ir.Not, scope: Scope, want: Want) -> Py:
    def make(wanted: Want) -> Py:
        return emit(node.item, scope, "false" if wanted == "true" else "true")

    return _logic(node, want, make, emit(node.item, scope).known)


@_emit.on(ir.If)
def _if(node: ir.If, scope: Scope, want: Want) -> Py:
    test = emit(node.test, scope, "true")
    test_known = emit(node.test, scope).known
    then, other = emit(node.then, scope, want), emit(node.other, scope, want)
    if want != "value" and test_known:
        no = emit(node.test, scope, "false")
        if then.doc == "True":
            return _join([test, other], "or", _OR, "False")
        if then.doc == "False":
            return _join([no, other], "and", _AND, "True")
        if other.doc == "True":
            return _join([no, then], "or", _OR, "False")
        if other.doc == "False":
            return _join([test, then], "and", _AND, "True")
    last = other.at(_OR)
    if not test_known:
        no = emit(node.test, scope, "false")
        unknown = "None" if want == "value" else "False"
        last = Block("", (other.at(_OR), Block("if ", (no.at(_OR),)), f"else {unknown}"), " ")
    parts: tuple[Doc, ...] = (then.at(_OR), Block("if ", (test.at(_OR),)), Block("else ", (last,)))
    known = test_known and then.known and other.known
    return Py(Block("(", parts, " ", ")"), known=known)


# --- queries and folds ---------------------------------------------------------------------


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
                members = _members(other, scope)
                if not members.known:
                    continue
                values = members.doc
                if isinstance(other, ir.Query):
                    values = Block("sorted(set(", (values,), "", "))")
                pins[get.column] = (Pin(values, True, isinstance(other, ir.Query)), part)
            else:
                value = emit(other, scope)
                if value.known:
                    pins[get.column] = (Pin(value.doc, solid=solid(other, scope)), part)
    return pins


def conjuncts(node: ir.Node) -> list[ir.Node]:
    """Expressions that are all true iff ``node`` is."""
    if isinstance(node, ir.And):
        return [part for item in node.items for part in conjuncts(item)]
    return [] if node == ir.Const(value=True) else [node]


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
        emit(part, inner, "true").at(_AND) for part in conjuncts(query.where) if part not in done
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
        keys.append((_key(rows.item, rows.scope), False))
    for py, descending in reversed(keys):
        value = py.at(_OR)
        if not py.known:  # rows without a value come first, as in the database
            value = Block(
                "(",
                (Block("", (py.at(_ADD), "None"), " is not "), Block("", (value, "0"), " or ")),
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


@_emit.on(ir.Query)
def _query(node: ir.Query, scope: Scope, want: Want) -> Py:
    if node.agg == "none" and node.limit == 1:
        return _plain(_best_row(node, scope), want)
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
        test = Block("", (value.at(_ADD), "None"), " is not ")
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
        low, high = flat(emit(over.low, scope).doc), flat(emit(over.high, scope).at(_ADD))
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


@_emit.on(ir.Sum)
def _sum(node: ir.Sum, scope: Scope, want: Want) -> Py:
    rows = _elements(node.over, node.var, scope, node.body)
    body = emit(node.body, rows.scope)
    values = rows.comprehension(body.doc)
    if body.known:
        return Py(Block("sum(", (values,), "", ")"))
    text = flat(values)
    return Py(f"(None if None in {text} else sum({text}))", known=False)


@_emit.on(ir.Count)
def _count(node: ir.Count, scope: Scope, want: Want) -> Py:
    rows = _elements(node.over, node.var, scope, node.body)
    true = replace(
        rows, conditions=(*rows.conditions, emit(node.body, rows.scope, "true").at(_AND))
    )
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
        return Py(rows.comprehension(body.at(_OR), word, ")"))

    return _logic(node, want, make, emit(node.body, rows.scope).known)


@_emit.on(ir.All)
def _all(node: ir.All, scope: Scope, want: Want) -> Py:
    return _quantified(node, scope, want)


@_emit.on(ir.Any)
def _any(node: ir.Any, scope: Scope, want: Want) -> Py:
    return _quantified(node, scope, want)


# --- differences, intervals, dates, states -------------------------------------------------


@_emit.on(ir.AllDifferent)
def _all_different(node: ir.AllDifferent, scope: Scope, want: Want) -> Py:
    items = [emit(item, scope) for item in node.items]
    known = all(item.known for item in items)

    def make(wanted: Want) -> Py:
        if known and len(items) > 2:
            symbol = "==" if wanted == "true" else "<"
            values = Block("len({", tuple(item.doc for item in items), ", ", "})", lead=False)
            return Py(Block("", (values, str(len(items))), f" {symbol} "), _CMP)
        pairs = [
            _compare(a, "!=" if wanted == "true" else "==", b)
            for i, a in enumerate(items)
            for b in items[i + 1 :]
        ]
        if wanted == "true":
            return _join(pairs, "and", _AND, "True")
        return _join(pairs, "or", _OR, "False")

    return _logic(node, want, make, known)


@dataclass(frozen=True)
class _Span:
    start: Py
    end: Py


def _span(node: ir.Node, scope: Scope) -> _Span:
    if isinstance(node, ir.SlotRef):
        item = slot_item(node, scope)
        if item.length is not None:
            return _Span(Py(item.text), Py(f"{item.text} + {item.length}", _ADD))
    raise PipelineError(f"{type(node).__name__} is no interval of a slot")


@_emit.on(ir.NoOverlap)
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
                first = _compare(a.end, "<=" if yes else ">", b.start)
                second = _compare(b.end, "<=" if yes else ">", a.start)
                ways = [first, second]
                if places:
                    ways.append(_compare(places[i], "!=" if yes else "==", places[j]))
                pairs.append(_join(ways, "or" if yes else "and", _OR if yes else _AND, "True"))
        if yes:
            return _join(pairs, "and", _AND, "True")
        return _join(pairs, "or", _OR, "False")

    return _logic(node, want, make, known)


@_emit.on(ir.Before)
def _before(node: ir.Before, scope: Scope, want: Want) -> Py:
    end, start, lag = (
        _span(node.left, scope).end,
        _span(node.right, scope).start,
        emit(node.lag, scope),
    )
    if lag.doc != "0":
        end = _if_known(Py(Block("", (end.doc, lag.at(_MUL)), " + "), _ADD), [lag])

    def make(wanted: Want) -> Py:
        return _compare(end, "<=" if wanted == "true" else ">", start)

    return _logic(node, want, make, end.known)


@_emit.on(ir.Start)
def _start(node: ir.Start, scope: Scope, want: Want) -> Py:
    return _span(node.interval, scope).start


@_emit.on(ir.End)
def _end(node: ir.End, scope: Scope, want: Want) -> Py:
    return _span(node.interval, scope).end


@_emit.on(ir.Days)
def _days(node: ir.Days, scope: Scope, want: Want) -> Py:
    left, right = emit(node.left, scope), emit(node.right, scope)
    days = Block("days_between(", (left.doc, right.doc), ", ", ")", lead=False)
    return _if_known(Py(days), [left, right])


@_emit.on(ir.Old)
def _old(node: ir.Old, scope: Scope, want: Want) -> Py:
    return emit(node.item, scope, want)


@_emit.on(ir.New)
def _new(node: ir.New, scope: Scope, want: Want) -> Py:
    raise PipelineError("a solution can't read the state that it is to reach")


_emit.complete()
