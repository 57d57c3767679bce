"""IR expressions as Python of the restricted solution language.

An expression is wanted as a value (None where unknown), or as the test that it is true or that it is
false. Negation turns "true" into "false" all the way down, so three-valued logic costs nothing where
nothing can be unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pydantic import JsonValue

from envgen.core import ir
from envgen.core.errors import PipelineError
from envgen.pipelines.general.programs.emit import python_literal
from envgen.pipelines.general.programs.python_text import Names, masked, rolled
from envgen.pipelines.general.programs.solution_reads import Pin, Reads
from envgen.pipelines.general.semantics.dispatch import Dispatch
from envgen.pipelines.general.semantics.rewrite import (
    OPPOSITE,
    conjuncts,
    free_names,
    plain_form,
)

IF, OR, AND, NOT, CMP, ADD, MUL, ATOM = range(1, 9)
"""How tightly a piece of Python binds."""

FIRST = '''def first(found, descending):
    """The last part of the row that sorts first, None if there is no row."""
    for i in reversed(range(len(descending))):
        found.sort(key=lambda row: row[i], reverse=descending[i])
    return found[0][-1] if found else None'''
REACHED = '''def reached(follow, start):
    """The keys that one link or more lead to, the nearest first; each once, so cycles end."""
    found, fresh = [], [] if start is None else [start]
    while fresh:
        nearby = {target for key in fresh for target in follow(key)}
        fresh = sorted(nearby - {None} - set(found))
        found = found + fresh
    return found'''


@dataclass(frozen=True)
class Py:
    """A piece of Python. Its value is None where one of ``needs`` is; only elsewhere can ``text`` run."""

    text: str
    level: int = ATOM
    nullable: bool = False
    """Whether ``text`` may be None; of a test, whether what it tests may be unknown."""
    needs: tuple[str, ...] = ()

    def at(self, level: int) -> str:
        """The text, in parentheses where its context binds tighter than it does."""
        return self.text if self.level >= level else f"({self.text})"

    @property
    def doubts(self) -> tuple[str, ...]:
        """What must not be None for the value not to be."""
        return (*self.needs, self.at(ADD)) if self.nullable else self.needs

    def value(self) -> Py:
        """The same without ``needs``."""
        if not self.needs:
            return self
        test = " or ".join(f"{need} is None" for need in self.needs)
        return Py(f"(None if {test} else {self.at(OR)})", nullable=True)


@dataclass(frozen=True)
class Variable:
    """What a variable stands for: a value, or a row of ``relation`` with its columns."""

    text: str
    relation: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    given: frozenset[str] = frozenset()
    solid: bool = True
    """False where the value may name no row."""
    nullable: bool = False


@dataclass(frozen=True)
class Context:
    """Where an expression stands."""

    p: ir.Problem
    reads: Reads
    names: Names
    slots: Mapping[str, str] = field(default_factory=dict)
    """What holds a slot's value: a key, a value, a pair of minutes, or a tuple of keys."""
    variables: Mapping[str, Variable] = field(default_factory=dict)
    acting: bool = False
    """Whether calls have changed rows: then a new value is asked for as it is."""

    def bind(self, name: str, item: Variable) -> Context:
        """This scope and one more variable."""
        return replace(self, variables={**self.variables, name: item})

    def at_work(self) -> Context:
        """Return the scope in force after one step's calls and before the next step's."""
        return replace(self, acting=True)

    @property
    def taken(self) -> frozenset[str]:
        """Names that loop variables must not hide."""
        rows = self.variables.values()
        listed = [text for row in rows for text in row.columns.values() if text.isidentifier()]
        return frozenset([*(row.text for row in rows), *listed, *self.slots.values()])


Wanted = bool | None
"""True or False: the test that the expression is that; None: its value."""
_TABLE: Dispatch[Callable[..., Py]] = Dispatch("solution")
_TESTS = (ir.Cmp, ir.And, ir.Or, ir.Not, ir.AllDifferent, ir.NoOverlap, ir.Before, ir.All, ir.Any)
"""Written as a test of (node, scope, wanted); the rest, but Old and If, as a value of (node, scope)."""


def emit(node: ir.Node, scope: Context, wanted: Wanted = None) -> Py:
    """``node`` in Python.

    Raises:
        PipelineError: if the tools don't give what it reads, or it has no form here.
    """
    make = _TABLE[type(node)]
    if isinstance(node, ir.Old | ir.If):
        return make(node, scope, wanted)
    if not isinstance(node, _TESTS):
        found = make(node, scope)
        return found if wanted is None else _is(found, wanted)
    true = make(node, scope, wanted is not False)
    if wanted is not None or not true.nullable:
        return true
    false = make(node, scope, False)
    return Py(f"(True if {true.at(OR)} else False if {false.at(OR)} else None)", nullable=True)


def value_text(node: ir.Node, scope: Context) -> str:
    """The value of ``node`` in Python, None where it is unknown."""
    return emit(node, scope).value().text


def truth_text(node: ir.Node, scope: Context) -> str:
    """The test that ``node`` is true."""
    return emit(node, scope, True).text


def _is(found: Py, wanted: bool) -> Py:
    """The test that a value is true, or false."""
    if found.nullable:
        test = Py(f"{found.at(ADD)} is {wanted}", CMP, nullable=True)
    else:
        test = Py(found.text, found.level) if wanted else Py(f"not {found.at(ATOM)}", NOT)
    return _known(found.needs, test)


def _known(doubts: Sequence[str], test: Py) -> Py:
    """``test`` where none of ``doubts`` is None."""
    parts = [Py(f"{text} is not None", CMP) for text in dict.fromkeys(doubts)]
    return replace(_join([*parts, test], "and"), nullable=test.nullable or bool(doubts))


def _join(items: list[Py], word: str) -> Py:
    """Tests joined by and / or."""
    neutral, zero = ("True", "False") if word == "and" else ("False", "True")
    nullable = any(item.nullable for item in items)
    items = [item for item in items if item.text != neutral]
    if any(item.text == zero for item in items):
        return Py(zero)
    if len(items) <= 1:
        return items[0] if items else Py(neutral)
    level = AND if word == "and" else OR
    return Py(f" {word} ".join(item.at(level) for item in items), level, nullable)


def _compare(left: Py, symbol: str, right: Py) -> Py:
    """A comparison that is False where a side is None."""
    test = Py(f"{left.at(ADD)} {symbol} {right.at(ADD)}", CMP)
    doubts = (*left.doubts, *right.doubts)
    if symbol == "==" and len(doubts) == 1 and not (left.needs or right.needs):
        return replace(test, nullable=True)
    return _known(doubts, test)


# --- terms ---------------------------------------------------------------------------------


@_TABLE.on(ir.Const)
def _const(node: ir.Const, scope: Context) -> Py:
    if isinstance(node.value, tuple):
        return Py(python_literal(list(node.value)))
    return Py(python_literal(node.value), nullable=node.value is None)


@_TABLE.on(ir.Var)
def _var(node: ir.Var, scope: Context) -> Py:
    if node.name not in scope.variables:
        raise PipelineError(f"the variable {node.name!r} is not bound")
    item = scope.variables[node.name]
    if item.relation is None:
        return Py(item.text, nullable=item.nullable)
    return Py(item.columns[scope.p.relation(item.relation).key])


def _slot_text(node: ir.Node, scope: Context, *kinds: str) -> str:
    """The value of a slot, which must be of one of ``kinds``."""
    if not isinstance(node, ir.SlotRef):
        raise PipelineError(f"{type(node).__name__} is not a slot of kind {kinds[0]}")
    if node.index is not None or node.slot not in scope.slots:
        raise PipelineError(f"the slot {node.slot!r} can't be used like this in a solution")
    if scope.p.slot(node.slot).kind not in kinds:
        raise PipelineError(f"the slot {node.slot!r} is not of the kind {kinds[0]}")
    return scope.slots[node.slot]


@_TABLE.on(ir.Get)
def _get(node: ir.Get, scope: Context) -> Py:
    column = scope.p.relation(node.relation).column(node.column)
    if isinstance(node.entity, ir.Var):
        item = scope.variables.get(node.entity.name)
        if item is not None and item.relation == node.relation and node.column in item.columns:
            nullable = column.nullable and node.column not in item.given
            return Py(item.columns[node.column], nullable=nullable)
    key = emit(node.entity, scope)
    text, missing = scope.reads.column(
        node.relation, key.text, node.column, solid=solid(node.entity, scope)
    )
    return Py(text, nullable=column.nullable or missing, needs=key.doubts)


def solid(node: ir.Node, scope: Context) -> bool:
    """Whether a key is sure to name a row: it comes from one."""
    if isinstance(node, ir.Get):
        return _is_entity(scope.p.relation(node.relation).column(node.column))
    if isinstance(node, ir.Var):
        return scope.variables[node.name].solid
    return isinstance(node, ir.SlotRef)


@_TABLE.on(ir.New)
def _new(node: ir.New, scope: Context) -> Py:
    """A cell as it is now: only a step after others may ask for it."""
    if not scope.acting or not isinstance(node.item, ir.Get):
        raise PipelineError("a solution can't read the state that it is to reach")
    key, column = emit(node.item.entity, scope), node.item.column
    text = scope.reads.now(node.item.relation, key.text, column)
    nullable = scope.p.relation(node.item.relation).column(column).nullable
    return Py(text, nullable=nullable, needs=key.doubts)


@_TABLE.on(ir.Arith)
def _arith(node: ir.Arith, scope: Context) -> Py:
    left, right = emit(node.left, scope), emit(node.right, scope)
    symbol = "*" if node.fn == "convert" else node.fn
    level = ADD if symbol in "+-" else MUL
    tight = level if symbol == "+" else level + 1  # a - (b - c), a * (b // c)
    text = f"{left.at(level)} {symbol} {right.at(tight)}"
    return Py(text, level, needs=(*left.doubts, *right.doubts))


@_TABLE.on(ir.Days)
def _days(node: ir.Days, scope: Context) -> Py:
    left, right = emit(node.left, scope), emit(node.right, scope)
    return Py(f"days_between({left.text}, {right.text})", needs=(*left.doubts, *right.doubts))


def _span(node: ir.Node, scope: Context) -> str:
    return _slot_text(node, scope, "interval")


# --- tests ---------------------------------------------------------------------------------


@_TABLE.on(ir.Cmp)
def _cmp(node: ir.Cmp, scope: Context, wanted: bool) -> Py:
    if node.fn == "in":
        return _member(node, scope, wanted)
    for side, flag in ((node.left, node.right), (node.right, node.left)):
        if isinstance(flag, ir.Const) and isinstance(flag.value, bool) and node.fn in ("=", "!="):
            return emit(side, scope, (flag.value == (node.fn == "=")) == wanted)
    symbol = node.fn if wanted else OPPOSITE[node.fn]
    left, right = emit(node.left, scope), emit(node.right, scope)
    return _compare(left, "==" if symbol == "=" else symbol, right)


def _member(node: ir.Cmp, scope: Context, wanted: bool) -> Py:
    left, right = emit(node.left, scope), _members(node.right, scope)
    word = "in" if wanted else "not in"
    test = Py(f"{left.at(ADD)} {word} {right.text}", CMP, nullable=right.nullable)
    if right.nullable and not wanted:  # it might be the unknown one
        test = _join([test, Py(f"None not in {right.text}", CMP, nullable=True)], "and")
    return _known(left.doubts, test)


def _members(over: ir.Node, scope: Context) -> Py:
    """What stands where a list may, as a list; ``nullable`` if an element may be None."""
    if isinstance(over, ir.Const):
        values = over.value if isinstance(over.value, tuple) else (over.value,)
        return Py(python_literal(list(values)), nullable=None in values)
    if isinstance(over, ir.SlotRef):
        return Py(_slot_text(over, scope, "set"))
    if isinstance(over, ir.Query) and (over.agg != "none" or over.limit is not None):
        raise PipelineError("a solution can't list an aggregate or the first rows of a query")
    if isinstance(over, ir.Query):
        select = over.select or ir.Var(name=over.var)
        rows = rows_of(over, scope, [select])
        value = emit(select, rows.scope).value()
        return Py(rows.listed(value.text), nullable=value.nullable)
    if isinstance(over, ir.Range):
        step = f", {over.step}" if over.step != 1 else ""
        return Py(f"range({value_text(over.low, scope)}, {value_text(over.high, scope)} + 1{step})")
    if isinstance(over, ir.Reachable):
        return Py(_reached(over, scope))
    raise PipelineError(f"a solution can't run over or look into this {type(over).__name__}")


def _names_rows(over: ir.Node, scope: Context) -> bool:
    """Whether each member is sure to be the key of a row."""
    if isinstance(over, ir.Reachable):
        column = scope.p.relation(over.relation).column(over.target)
        return column.name == scope.p.relation(over.relation).key or _is_entity(column)
    if isinstance(over, ir.Query) and isinstance(over.select, ir.Get):
        return _is_entity(scope.p.relation(over.select.relation).column(over.select.column))
    return isinstance(over, ir.SlotRef) or (isinstance(over, ir.Query) and over.select is None)


def _is_entity(column: ir.Column) -> bool:
    return column.type.startswith("entity:")


@_TABLE.on(ir.And)
def _and(node: ir.And, scope: Context, wanted: bool) -> Py:
    span = _between(*node.items, scope=scope) if len(node.items) == 2 else None
    if span is not None:
        return span if wanted else Py(f"not {span.text}", NOT)
    return _junction(node, scope, wanted)


def _junction(node: ir.And | ir.Or, scope: Context, wanted: bool) -> Py:
    word = "and" if isinstance(node, ir.And) == wanted else "or"
    return _join([emit(item, scope, wanted) for item in node.items], word)


def _between(low: ir.Node, high: ir.Node, scope: Context) -> Py | None:
    """``low <= x < high`` for two comparisons of the same x, if nothing of it may be unknown."""
    if not isinstance(low, ir.Cmp) or not isinstance(high, ir.Cmp) or low.left != high.left:
        return None
    symbols = {">=": "<=", ">": "<"}.get(low.fn, ""), high.fn if high.fn in ("<", "<=") else ""
    if not all(symbols):
        return None
    parts = [emit(node, scope) for node in (low.right, low.left, high.right)]
    if any(part.doubts for part in parts):
        return None
    first, middle, last = (part.at(ADD) for part in parts)
    return Py(f"{first} {symbols[0]} {middle} {symbols[1]} {last}", CMP)


@_TABLE.on(ir.If)
def _if(node: ir.If, scope: Context, wanted: Wanted) -> Py:
    yes, no = emit(node.test, scope, True), emit(node.test, scope, False)
    then, other = emit(node.then, scope, wanted).value(), emit(node.other, scope, wanted).value()
    nullable = yes.nullable or then.nullable or other.nullable
    if wanted is None:
        rest = f"{other.at(OR)} if {no.at(OR)} else None" if yes.nullable else other.at(OR)
        return Py(f"({then.at(OR)} if {yes.at(OR)} else {rest})", nullable=nullable)
    ways = [_join([yes, then], "and"), _join([no, other], "and")]
    if then.text == "True" and not yes.nullable:
        ways = [yes, other]
    elif other.text == "True" and not yes.nullable:
        ways = [no, then]
    return replace(_join(ways, "or"), nullable=nullable)


# --- rows ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rows:
    """A run over rows: clauses of a comprehension, and the scope in which the row is bound."""

    loops: tuple[str, ...]
    tests: tuple[Py, ...]
    scope: Context

    def each(self, value: str) -> str:
        """``value for row in rows if test``."""
        test = _join(list(self.tests), "and")
        tests = [] if test.text == "True" else [f"if {test.at(OR)}"]
        return " ".join([value, *self.loops, *tests])

    def listed(self, value: str) -> str:
        """The list of ``value`` of each row."""
        return f"[{self.each(value)}]"


def rows_of(
    query: ir.Query, scope: Context, also: Sequence[ir.Node], name: str | None = None
) -> Rows:
    """The rows of ``query``, without order and limit.

    Args:
        query: whose rows.
        scope: where it stands.
        also: expressions that read its variable.
        name: what they call that variable, if not as the query does.
    """
    relation, name = scope.p.relation(query.relation), name or query.var
    var, parts = scope.names.local(name, scope.taken), list(conjuncts(query.where))
    pins = _pins(parts, query, scope)
    own = [query.where, *(order.by for order in query.order)]
    needs = _needs(query.var, relation, own) | _needs(name, relation, also)
    known = {column: pin for column, (pin, _) in pins.items()}
    scan = scope.reads.scan(query.relation, needs, known, var, scope.taken)
    row = Variable(var, query.relation, scan.columns, scan.given)
    kept = [part for column, (_, part) in pins.items() if column in scan.pinned]
    inner = scope.bind(query.var, row)
    tests = [emit(part, inner, True) for part in parts if part not in kept]
    return Rows(scan.loops, tuple(tests), scope.bind(name, row))


def _pins(parts: list[ir.Node], query: ir.Query, scope: Context) -> dict[str, tuple[Pin, ir.Node]]:
    """Column -> what a conjunct says that it is, and that conjunct."""
    pins: dict[str, tuple[Pin, ir.Node]] = {}
    row = ir.Var(name=query.var)
    for part in parts:
        if not isinstance(part, ir.Cmp) or part.fn not in ("=", "in"):
            continue
        sides = [(part.left, part.right)] + ([(part.right, part.left)] if part.fn == "=" else [])
        for get, other in sides:
            if not isinstance(get, ir.Get) or (get.relation, get.entity) != (query.relation, row):
                continue
            if get.column in pins or query.var in free_names(other):
                continue
            if part.fn == "=":
                value = emit(other, scope).value()
                pin = Pin(value.text, known=not value.nullable, solid=solid(other, scope))
                pins[get.column] = (pin, part)
            elif not (listed := _members(other, scope)).nullable:
                text = f"sorted(set({listed.text}))"
                pins[get.column] = (Pin(text, True, solid=_names_rows(other, scope)), part)
    return pins


def _needs(var: str, relation: ir.Relation, roots: Sequence[ir.Node]) -> set[str]:
    """Columns of the row of variable ``var`` that ``roots`` read; its key, where it stands alone."""
    row, nodes = ir.Var(name=var), [node for root in roots for node in root.walk()]
    gets = [node for node in nodes if isinstance(node, ir.Get) and node.entity == row]
    needs = [get.column for get in gets if get.relation == relation.name]
    if nodes.count(row) > len(needs):
        needs.append(relation.key)
    return set(needs)


@_TABLE.on(ir.Query)
def _query(node: ir.Query, scope: Context) -> Py:
    if node.agg == "none" and node.limit == 1:
        return _first(node, scope)
    if node.limit is not None:
        raise PipelineError(
            f"a solution can't cut the query over {node.relation!r} to {node.limit}"
        )
    if node.agg == "count" and node.select is None:
        return Py(f"len({rows_of(node, scope, []).listed('1')})")
    select = node.select or ir.Var(name=node.var)
    rows = rows_of(node, scope, [select])
    value = emit(select, rows.scope)
    if value.doubts:  # an aggregate leaves out what is unknown
        rows = replace(rows, tests=(*rows.tests, _known(value.doubts, Py("True"))))
    fold = _FOLDS[node.agg].replace("{}", rows.listed(value.text))
    return Py(fold, nullable=node.agg in ("min", "max", "mean"))


_FOLDS = {
    "none": "{}",
    "count": "len({})",
    "sum": "sum({})",
    "min": "min({}, default=None)",
    "max": "max({}, default=None)",
    "mean": "(sum({}) // len({}) if {} else None)",
}


def _first(query: ir.Query, scope: Context) -> Py:
    """The selected value of the first row in order; ties by key where the tools give one."""
    select, key = query.select or ir.Var(name=query.var), ir.Var(name=query.var)
    try:
        rows = rows_of(query, scope, [select, key])
        orders = [*query.order, ir.Order(by=key)]
    except PipelineError:
        rows, orders = rows_of(query, scope, [select]), list(query.order)
    parts = [_sort_key(emit(order.by, rows.scope).value()) for order in orders]
    value = emit(select, rows.scope).value().text
    if not parts or parts[-1] != value:
        parts.append(value)
    row = f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
    descending = ", ".join(str(order.descending) for order in orders)
    return Py(f"first({rows.listed(row)}, [{descending}])", nullable=True)


def _sort_key(value: Py) -> str:
    """What rows are sorted by; those without a value come first, as in the database."""
    return f"({value.at(ADD)} is not None, {value.at(OR)} or 0)" if value.nullable else value.text


def _elements(over: ir.Node, var: str, scope: Context, body: ir.Node) -> Rows:
    """A run of ``var`` over the rows of a query, or over what else stands where a list may."""
    if isinstance(over, ir.Query) and (over.select, over.agg, over.limit) == (None, "none", None):
        return rows_of(over, scope, [body], var)
    name, members = scope.names.local(var, scope.taken), _members(over, scope)
    item = Variable(name, solid=_names_rows(over, scope), nullable=members.nullable)
    return Rows((f"for {name} in {members.text}",), (), scope.bind(var, item))


def _reached(node: ir.Reachable, scope: Context) -> str:
    """The list of what is reachable. The links read nothing else, so a function of the start remembers it."""
    names, relation = scope.names, scope.p.relation(node.relation)
    start, key = names.local("start"), names.local("node")
    known = solid(node.start, scope) and _names_rows(node, scope)
    inner = replace(scope, slots={}, variables={key: Variable(key, solid=known)})
    if node.source == relation.key:  # one row at most: no need to run over it
        one = ir.Get(relation=node.relation, entity=ir.Var(name=key), column=node.target)
        linked = f"[{value_text(one, inner)}]"
    else:
        ends = [
            ir.Get(relation=node.relation, entity=ir.Var(name="link"), column=column)
            for column in (node.source, node.target)
        ]
        here = ir.Cmp(fn="=", left=ends[0], right=ir.Var(name=key))
        links = ir.Query(var="link", relation=node.relation, where=here, select=ends[1])
        linked = _members(links, inner).text
    value = f"reached(lambda {key}: {linked}, {start})"
    name = scope.reads.function(f"reached_in_{node.relation}", start, value)
    return f"{name}({value_text(node.start, scope)})"


@_TABLE.on(ir.Sum)
def _sum(node: ir.Sum, scope: Context) -> Py:
    rows = _elements(node.over, node.var, scope, node.body)
    body = emit(node.body, rows.scope).value()
    values = rows.listed(body.text)
    if not body.nullable:
        return Py(f"sum({values})")
    return Py(f"(None if None in {values} else sum({values}))", nullable=True)


@_TABLE.on(ir.Count)
def _count(node: ir.Count, scope: Context) -> Py:
    rows = _elements(node.over, node.var, scope, node.body)
    body = emit(node.body, rows.scope, True)
    number = f"len({replace(rows, tests=(*rows.tests, body)).listed('1')})"
    if not body.nullable:
        return Py(number)
    values = rows.listed(emit(node.body, rows.scope).value().text)
    return Py(f"(None if None in {values} else {number})", nullable=True)


@_TABLE.on(ir.All, ir.Any)
def _quantified(node: ir.All | ir.Any, scope: Context, wanted: bool) -> Py:
    rows = _elements(node.over, node.var, scope, node.body)
    body = emit(node.body, rows.scope, wanted)
    word = "all" if isinstance(node, ir.All) == wanted else "any"
    return Py(f"{word}({rows.each(body.at(OR))})", nullable=body.nullable)


def _no(message: str) -> Callable[..., Py]:
    def refuse(node: ir.Node, scope: Context) -> Py:
        raise PipelineError(message)

    return refuse


_TABLE.on(ir.Param)(lambda node, scope: Py(f'PARAMS["{node.name}"]'))
_TABLE.on(ir.SlotRef)(lambda node, scope: Py(_slot_text(node, scope, "entity", "value")))
_TABLE.on(ir.Start)(lambda node, scope: Py(f"{_span(node.interval, scope)}[0]"))
_TABLE.on(ir.End)(lambda node, scope: Py(f"{_span(node.interval, scope)}[1]"))
_TABLE.on(ir.Old)(lambda node, scope, wanted: emit(node.item, scope, wanted))
_TABLE.on(ir.Or)(_junction)
_TABLE.on(ir.AllDifferent, ir.NoOverlap, ir.Before)(
    lambda node, scope, wanted: emit(plain_form(node), scope, wanted)
)
_TABLE.on(ir.Not)(lambda node, scope, wanted: emit(node.item, scope, not wanted))
_TABLE.on(ir.Arg)(_no("an argument only has a meaning inside a tool"))
_TABLE.on(ir.Reachable)(_no("what is reachable is a list, not one value"))
_TABLE.complete()


def answer_text(p: ir.Problem, value: Callable[[str], str], names: Names) -> str:
    """The submission; ``value`` gives the text of a slot."""

    def walk(layout: JsonValue) -> str:
        if isinstance(layout, list):
            items = [walk(item) for item in layout]
            if len(items) > 1 and len(set(map(masked, items))) == 1:
                head, each, text = rolled(items, names)
                return f"[{text} for {head} in {each}]" if head else f"[{', '.join(items)}]"
            return f"[{', '.join(items)}]"
        if isinstance(layout, dict):
            if set(layout) == {"$slot"}:
                return value(str(layout["$slot"]))
            pairs = [f"{python_literal(k)}: {walk(item)}" for k, item in layout.items()]
            return f"{{{', '.join(pairs)}}}"
        return python_literal(layout)

    return walk(p.layout)
