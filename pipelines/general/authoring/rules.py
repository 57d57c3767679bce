"""From the text of a rule to the constraint IR.

The text is an expression in Python's grammar. ``ast`` parses it and nothing runs it: each kind of node
below has a meaning here, and any other is refused by name. Names stand for what the task has: its
fields (known when the task is stated, so that ``range(1, n + 1)`` and ``sense == 'highest'`` are worked
out here), slots, parameters, tables, macros, variables that ``for`` binds. A dot follows a reference:
``room[k].floor`` is a cell. An index names one of several slots or parameters: ``time[2]`` is the slot
``time_2``.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import lru_cache, partialmethod
from itertools import combinations, islice
from typing import Any, NamedTuple

from envgen.core import ir
from envgen.core.errors import ConfigError
from envgen.core.ir import Expr, Relation
from envgen.pipelines.general.authoring.page import plain
from envgen.pipelines.general.semantics.rewrite import free_names

MAX_DEPTH = 40
MAX_NODES = 6_000
"""Nodes of what one text means, macros expanded."""
MAX_NUMBER = 10**12
MAX_LIST = 1_000
_ASCENDING = frozenset("lowest least first earliest shortest smallest cheapest".split())
_DESCENDING = frozenset("highest most last latest longest largest dearest".split())
COMPARISONS: Mapping[type, tuple[Any, Callable[[Any, Any], Any]]] = {
    ast.Eq: ("=", operator.eq),
    ast.NotEq: ("!=", operator.ne),
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
    ast.In: ("in", lambda left, right: left in right),
}
"""Comparison -> its name in the IR, and what it is of known values."""
_ARITHMETIC: Mapping[type, tuple[Any, Callable[[int, int], int]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.FloorDiv: ("//", operator.floordiv),
}


_ARGUMENTS = {"range": (1, 2, 3), "best": (2,), "day": (2,), "apart": (1, 2), "reachable": (3,)}
"""Function -> how many arguments it takes, where that isn't one."""
_FORMS: Mapping[str, tuple[Any, tuple[str, ...], str]] = {
    "start": (ir.Start, ("interval",), "minutes"),
    "end": (ir.End, ("interval",), "minutes"),
    "days": (ir.Days, ("left", "right"), "int"),
    "before": (ir.Before, ("left", "right", "lag"), "bool"),
    "old": (ir.Old, ("item",), ""),
    "new": (ir.New, ("item",), ""),
}
"""Function -> the construct that it stands for, its parts, and what it gives ("": what its part gives)."""


class Typed(NamedTuple):
    """An IR expression and what it gives: a column type, ``interval``, ``rows:TABLE``, ``set:TYPE``."""

    expr: Any
    type: str


@dataclass(frozen=True)
class RuleNames:
    """The meaning of the names in a rule."""

    relations: Mapping[str, Relation]
    macros: Mapping[str, tuple[tuple[str, ...], str]] = field(default_factory=dict)
    """Name -> its arguments and its text."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    slots: Mapping[str, str] = field(default_factory=dict)
    """Slot name (with its index) -> type."""
    params: Mapping[str, str] = field(default_factory=dict)
    """Parameter (without index) -> type."""
    args: Mapping[str, str] = field(default_factory=dict)
    """Argument of a tool call -> type."""
    predicates: Mapping[str, Callable[[str], Any]] = field(default_factory=dict)
    """Name of a question about the structure, such as ``said`` -> its answer for a word."""


@lru_cache(maxsize=4_096)
def parsed(text: str) -> ast.expr:
    """The syntax tree of an expression, no deeper than ``MAX_DEPTH``, its constants checked.

    Raises:
        ConfigError: if it is none.
    """
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        reason = f"{text!r} is not an expression: {error}"
        raise ConfigError(reason, "write an expression in Python's grammar") from None
    level: list[ast.AST] = [tree]
    for _ in range(MAX_DEPTH):
        for node in level:
            if isinstance(node, ast.Constant):
                _check_constant(node.value)
        level = [child for node in level for child in ast.iter_child_nodes(node)]
    if level:
        raise ConfigError(f"{text!r} is nested too deep", "write a shorter expression")
    return tree


def _check_constant(value: Any) -> None:
    """Refuse floats, huge numbers and invisible characters, which escapes write with plain letters."""
    if isinstance(value, str):
        try:
            plain(value)
        except ValueError as error:
            raise ConfigError(f"the text {value!r} {error}", "leave it out") from None
    elif not isinstance(value, int | None) or abs(value or 0) > MAX_NUMBER:
        raise ConfigError(
            f"{str(value)[:40]!r} is not a value that a page may use",
            f"write a whole number of at most {MAX_NUMBER}, a text, True, False or None",
        )


def read_rule(text: str, names: RuleNames) -> Any:
    """The meaning of ``text``: a ``Typed`` expression, or a plain value where it is known already.

    Raises:
        ConfigError: if the text holds an unknown name, or something that is no part of the language.
    """
    try:
        return _RuleReader(names).read(parsed(text), {})
    except ConfigError as error:
        raise ConfigError(f"in {text!r}: {error}", error.hint) from None


def expression(text: str, names: RuleNames) -> Expr:
    """The IR expression of ``text``."""
    return lifted(read_rule(text, names)).expr  # type: ignore[no-any-return]  # an IR node


def constant(text: str, names: RuleNames) -> Any:
    """The value of ``text``, which the structure alone decides.

    Raises:
        ConfigError: if it depends on rows, slots or parameters.
    """
    value = read_rule(text, names)
    if isinstance(value, Typed):
        raise ConfigError(f"{text!r} can't depend on rows, slots or parameters")
    return value


def lifted(value: Any) -> Typed:
    """A plain value as an expression."""
    if isinstance(value, Typed):
        return value
    if isinstance(value, bool | int | str):
        return Typed(ir.Const(value=value), type(value).__name__)
    if isinstance(value, tuple) and all(isinstance(item, bool | int | str) for item in value):
        return Typed(ir.Const(value=value), "set")
    raise ConfigError(f"a value was expected, not {value!r}")


def arithmetic(operation: ast.operator) -> tuple[Any, Callable[[Any, Any], int]]:
    """Return the name of an operation in the IR, and what it makes of known numbers.

    Raises:
        ConfigError: if it is no part of the language of pages.
    """
    if type(operation) not in _ARITHMETIC:
        raise ConfigError(f"{type(operation).__name__} is not part of the language of rules")
    name, run = _ARITHMETIC[type(operation)]

    def bounded(left: Any, right: Any) -> int:
        if not isinstance(left, int) or not isinstance(right, int) or (right == 0 and name == "//"):
            reason = f"{left!r:.40} {name} {right!r:.40} can't be worked out"
            raise ConfigError(reason, "use whole numbers, and divide by none that is 0")
        value = run(left, right)
        if abs(value) > MAX_NUMBER:
            raise ConfigError(f"a number beyond {MAX_NUMBER}", "use smaller ones")
        return value

    return name, bounded


class _RuleReader:
    """Walks a syntax tree; one reader per text, so that what macros expand to is bounded."""

    def __init__(self, names: RuleNames) -> None:
        self.names = names
        self.nodes = 0
        self.depth = 0

    def read(self, node: ast.AST, bound: Mapping[str, Any]) -> Any:
        """The meaning of ``node``; ``bound`` holds the variables around it."""
        self.nodes += 1
        self.depth += 1
        self._within_bounds()
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        if method is None:
            raise ConfigError(f"{type(node).__name__} is not part of the language of rules")
        value = method(node, bound)
        self.depth -= 1
        return value

    def typed(self, node: ast.AST, bound: Mapping[str, Any]) -> Typed:
        """The meaning of ``node`` as an expression."""
        return lifted(self.read(node, bound))

    # --- names -----------------------------------------------------------------------------------

    def _constant(self, node: ast.Constant, bound: Mapping[str, Any]) -> Any:
        if not isinstance(node.value, bool | int | str):
            raise ConfigError(f"{node.value!r} is not a value of the language of rules")
        return node.value

    def _name(self, node: ast.Name, bound: Mapping[str, Any]) -> Any:
        name, names = node.id, self.names
        if name in bound:
            return self._charged(bound[name])
        if name in names.fields:
            return names.fields[name]
        if name in names.slots:
            return Typed(ir.SlotRef(slot=name), names.slots[name])
        if name in names.args:
            return Typed(ir.Arg(name=name), names.args[name])
        if name in names.relations:
            relation = names.relations[name]
            return Typed(ir.Query(var=f"{name}_row", relation=name), f"rows:{relation.name}")
        known = sorted({*bound, *names.fields, *names.slots, *names.args, *names.relations})
        raise ConfigError(f"unknown name {name!r}", f"known here: {', '.join(known)}")

    def _charged(self, value: Any) -> Any:
        """``value``, its size counted once more: what macros repeat grows with each of them."""
        for item in value if type(value) is tuple else (value,):
            if isinstance(item, Typed):
                self.nodes += sum(1 for _ in islice(item.expr.walk(), MAX_NODES))
                self._within_bounds()
        return value

    def _within_bounds(self) -> None:
        if self.nodes > MAX_NODES or self.depth > MAX_DEPTH:
            raise ConfigError(
                "the text says too much", "write a shorter rule, with fewer macros in macros"
            )

    def _param(self, name: str, suffix: str = "") -> Typed:
        if name not in self.names.params:
            raise ConfigError(f"parameter {name!r} has no domain", "add it to [params]")
        return Typed(ir.Param(name=name + suffix), self.names.params[name])

    def _attribute(self, node: ast.Attribute, bound: Mapping[str, Any]) -> Typed:
        if _is_param(node):
            return self._param(node.attr)
        return self._cell(self.typed(node.value, bound), node.attr)

    def _cell(self, of: Typed, column: str) -> Typed:
        if isinstance(of.expr, ir.Old | ir.New):  # the state goes with the cell: Old(Get(...))
            inner = self._cell(Typed(of.expr.item, of.type), column)
            return Typed(of.expr.model_copy(update={"item": inner.expr}), inner.type)
        kind, _, name = of.type.partition(":")
        if kind not in ("entity", "rows") or name not in self.names.relations:
            raise ConfigError(f"{column!r} is not a column: the part before the dot is a {of.type}")
        relation = self.names.relations[name]
        types = {found.name: found.type for found in relation.columns}
        if column not in types:
            reason = f"table {name!r} has no column {column!r}"
            raise ConfigError(reason, f"it has: {', '.join(types)}")
        get = ir.Get(relation=name, entity=of.expr, column=column)
        # The key of a row is the row itself wherever it is compared with a reference.
        return Typed(get, f"entity:{name}" if column == relation.key else types[column])

    def _subscript(self, node: ast.Subscript, bound: Mapping[str, Any]) -> Any:
        index = self.read(node.slice, bound)
        suffix = "".join(f"_{i}" for i in (index if isinstance(index, tuple) else (index,)))
        base = node.value
        if isinstance(base, ast.Attribute) and _is_param(base):
            return self._param(base.attr, suffix)
        if isinstance(base, ast.Name) and base.id not in bound:
            name = base.id + suffix
            if name in self.names.slots:
                return Typed(ir.SlotRef(slot=name), self.names.slots[name])
            if name in self.names.fields:
                return self.names.fields[name]
        if isinstance(index, str):  # a column that a field names: r[attribute]
            return self._cell(self.typed(base, bound), index)
        raise ConfigError(f"{ast.unparse(node)!r}: no such slot", "its index is out of range")

    # --- logic and arithmetic ----------------------------------------------------------------------

    def _boolop(self, node: ast.BoolOp, bound: Mapping[str, Any]) -> Any:
        values = [self.read(item, bound) for item in node.values]
        ends = isinstance(node.op, ast.Or)  # the value that decides alone
        if any(value is ends for value in values):
            return ends
        rest = [value for value in values if value is not (not ends)]
        if not rest:
            return not ends
        items = tuple(lifted(value).expr for value in rest)
        return Typed(_joined(ir.Or if ends else ir.And, items), "bool")

    def _unaryop(self, node: ast.UnaryOp, bound: Mapping[str, Any]) -> Any:
        value = self.read(node.operand, bound)
        if isinstance(node.op, ast.USub) and isinstance(value, int):
            return -value
        if not isinstance(node.op, ast.Not):
            raise ConfigError(f"{type(node.op).__name__} is not part of the language of rules")
        return Typed(ir.Not(item=value.expr), "bool") if isinstance(value, Typed) else not value

    def _compare(self, node: ast.Compare, bound: Mapping[str, Any]) -> Any:
        sides = [self.read(side, bound) for side in (node.left, *node.comparators)]
        parts = [
            _compared(op, left, right)
            for op, left, right in zip(node.ops, sides, sides[1:], strict=False)
        ]
        if not any(isinstance(part, Typed) for part in parts):
            return all(parts)
        return Typed(_joined(ir.And, tuple(lifted(part).expr for part in parts)), "bool")

    def _binop(self, node: ast.BinOp, bound: Mapping[str, Any]) -> Any:
        left, right = self.read(node.left, bound), self.read(node.right, bound)
        if isinstance(node.op, ast.Add) and type(left) is type(right) is tuple:
            if len(left) + len(right) > MAX_LIST:
                raise ConfigError(f"a list of more than {MAX_LIST} values", "write a shorter one")
            return left + right
        fn, run = arithmetic(node.op)
        if not isinstance(left, Typed) and not isinstance(right, Typed):
            return run(left, right)
        return Typed(ir.Arith(fn=fn, left=lifted(left).expr, right=lifted(right).expr), "int")

    def _ifexp(self, node: ast.IfExp, bound: Mapping[str, Any]) -> Any:
        test = self.read(node.test, bound)
        if not isinstance(test, Typed):
            return self.read(node.body if test else node.orelse, bound)
        then, other = self.typed(node.body, bound), self.typed(node.orelse, bound)
        return Typed(ir.If(test=test.expr, then=then.expr, other=other.expr), then.type)

    def _tuple(self, node: ast.Tuple | ast.List, bound: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(self.read(item, bound) for item in node.elts)

    _list = _tuple

    # --- for ---------------------------------------------------------------------------------------

    def _listcomp(self, node: ast.ListComp | ast.GeneratorExp, bound: Mapping[str, Any]) -> Any:
        """A list over known values, or the query of the rows that ``for ... if`` names."""
        variable, source, inner, where = self._source(node, bound)
        if not isinstance(source, Typed):
            return tuple(self._each(node, source, bound))
        if self.read(node.elt, inner) != inner[_target(node)]:
            raise ConfigError("only rows themselves make a list of rows", "write (x for x in ...)")
        return self._query(source, variable, where)

    _generatorexp = _listcomp

    def _source(
        self, node: ast.ListComp | ast.GeneratorExp, bound: Mapping[str, Any]
    ) -> tuple[str, Any, Mapping[str, Any], Expr | None]:
        """The variable, what it runs over, the names inside, and the condition on rows."""
        if len(node.generators) != 1:
            raise ConfigError("one for is enough", "nest a second rule instead")
        loop, variable = node.generators[0], _target(node)
        source = self.read(loop.iter, bound)
        if not isinstance(source, Typed):
            return variable, source, bound, None
        taken = [value.expr for value in bound.values() if isinstance(value, Typed)]
        while any(variable in free_names(expr) for expr in taken):
            variable += "_"  # a macro's variable must not catch one of its arguments
        kind, _, name = source.type.partition(":")
        if kind not in ("rows", "set"):
            raise ConfigError(f"nothing can run over a {source.type}")
        element = f"entity:{name}" if kind == "rows" else name or "str"
        inner = {**bound, _target(node): Typed(ir.Var(name=variable), element)}
        tests = [self.typed(test, inner).expr for test in loop.ifs]
        return variable, source, inner, _joined(ir.And, tuple(tests)) if tests else None

    def _each(
        self, node: ast.ListComp | ast.GeneratorExp, source: Iterable[Any], bound: Mapping[str, Any]
    ) -> Iterable[Any]:
        loop = node.generators[0]
        for value in source:
            inner = {**bound, _target(node): value}
            tests = [self.read(test, inner) for test in loop.ifs]
            if any(isinstance(test, Typed) for test in tests):
                raise ConfigError("a condition on a list of known values must be known, too")
            if all(tests):
                yield self.read(node.elt, inner)

    def _query(self, source: Typed, variable: str, where: Expr | None) -> Typed:
        query = source.expr
        if not isinstance(query, ir.Query):
            raise ConfigError("rows come from a table")
        if query.where == ir.Const(value=True):
            found = ir.Query(var=variable, relation=query.relation, where=where or query.where)
        elif where is None and query.var == variable:
            found = query
        else:
            raise ConfigError(
                f"rows that a macro chose take no condition and keep their name {query.var!r}",
                "state the condition in the macro",
            )
        return Typed(found, source.type)

    # --- calls -------------------------------------------------------------------------------------

    def _call(self, node: ast.Call, bound: Mapping[str, Any]) -> Any:
        if not isinstance(node.func, ast.Name) or node.keywords:
            raise ConfigError(f"{ast.unparse(node.func)!r} can't be called")
        name = node.func.id
        if name in self.names.macros:
            return self._macro(name, [self.read(item, bound) for item in node.args])
        if name in _FORMS:
            return self._form(node, name, bound)
        if name in self.names.predicates and len(node.args) == 1:
            return self.names.predicates[name](str(self.read(node.args[0], bound)))
        method = getattr(self, f"_call_{name}", None)
        if method is None:
            known = sorted(
                [*self.names.macros, *_FORMS, *(m[6:] for m in dir(self) if m.startswith("_call_"))]
            )
            raise ConfigError(f"unknown function {name!r}", f"known here: {', '.join(known)}")
        if len(node.args) not in _ARGUMENTS.get(name, (1,)):
            raise ConfigError(f"{name} takes other arguments than {ast.unparse(node)!r}")
        return method(node, bound)

    def _macro(self, name: str, values: list[Any]) -> Any:
        arguments, text = self.names.macros[name]
        if len(values) != len(arguments):
            raise ConfigError(f"{name} takes {len(arguments)} arguments, not {len(values)}")
        return self.read(parsed(text), dict(zip(arguments, values, strict=True)))

    def _form(self, node: ast.Call, name: str, bound: Mapping[str, Any]) -> Typed:
        kind, parts, gives = _FORMS[name]
        if len(node.args) != len(parts):
            raise ConfigError(f"{ast.unparse(node)!r} takes {len(parts)} arguments: {parts}")
        values = [self.typed(item, bound) for item in node.args]
        inner = {part: value.expr for part, value in zip(parts, values, strict=True)}
        return Typed(kind(**inner), gives or values[0].type)

    def _call_range(self, node: ast.Call, bound: Mapping[str, Any]) -> range:
        ends = [self.read(item, bound) for item in node.args]
        if not all(isinstance(end, int) and abs(end) <= 1_000 for end in ends):
            raise ConfigError("a range runs between known numbers")
        return range(*ends)

    def _call_table(self, node: ast.Call, bound: Mapping[str, Any]) -> Typed:
        """The table that a field names."""
        name = self.read(node.args[0], bound)
        if not isinstance(name, str) or name not in self.names.relations:
            raise ConfigError(f"{name!r} is not a table")
        return self.typed(ast.Name(id=name), {})

    def _call_day(self, node: ast.Call, bound: Mapping[str, Any]) -> str:
        """The date some days after a known one."""
        start, days = (self.read(item, bound) for item in node.args)
        try:
            return (date.fromisoformat(start) + timedelta(days=days)).isoformat()
        except (TypeError, ValueError, OverflowError):
            given = f"{start!r}, {days!r}"
            raise ConfigError(f"day takes a known date and a number, not {given}") from None

    def _loop(self, node: ast.Call) -> ast.GeneratorExp | ast.ListComp:
        """The last argument of a function that runs over rows or values."""
        if not isinstance(node.args[-1], ast.GeneratorExp | ast.ListComp):
            raise ConfigError(f"{ast.unparse(node)!r} runs over nothing", "write 'x for y in rows'")
        return node.args[-1]

    def _over(self, node: ast.Call, bound: Mapping[str, Any], known: type, fold: type) -> Any:
        """``all`` and ``any``: of known values an And or Or, of rows a fold."""
        item = self._loop(node)
        variable, source, inner, where = self._source(item, bound)
        if not isinstance(source, Typed):
            items = tuple(lifted(value).expr for value in self._each(item, source, bound))
            return Typed(_joined(known, items), "bool")
        over, body = source.expr, self.typed(item.elt, inner).expr
        if where is not None and _is_set(source):
            body = ir.If(test=where, then=body, other=ir.Const(value=fold is ir.All))
        elif where is not None:
            over = self._query(source, variable, where).expr
        return Typed(fold(var=variable, over=over, body=body), "bool")

    _call_all = partialmethod(_over, known=ir.And, fold=ir.All)
    _call_any = partialmethod(_over, known=ir.Or, fold=ir.Any)

    def _folded(self, node: ast.Call, bound: Mapping[str, Any], agg: str) -> Any:
        item = self._loop(node)
        variable, source, inner, where = self._source(item, bound)
        if not isinstance(source, Typed):
            if agg != "sum":
                raise ConfigError(f"{agg} can't be taken of known values", "take it of rows")
            return _total([lifted(value) for value in self._each(item, source, bound)])
        if _is_set(source):
            if agg != "sum":
                hint = f"write {agg}(x.column for x in TABLE if x in ...)"
                raise ConfigError(f"{agg} can't be taken of a set", hint)
            part = self.typed(item.elt, inner).expr
            if where is not None:
                part = ir.If(test=where, then=part, other=ir.Const(value=0))
            return Typed(ir.Sum(var=variable, over=source.expr, body=part), "int")
        query = self._query(source, variable, where).expr
        body = self.typed(item.elt, inner)
        return Typed(query.model_copy(update={"select": body.expr, "agg": agg}), "int")

    _call_sum = partialmethod(_folded, agg="sum")
    _call_min = partialmethod(_folded, agg="min")
    _call_max = partialmethod(_folded, agg="max")

    def _call_count(self, node: ast.Call, bound: Mapping[str, Any]) -> Typed:
        (item,) = node.args
        if isinstance(item, ast.GeneratorExp) and _is_set(
            self.read(item.generators[0].iter, bound)
        ):
            variable, source, _, where = self._source(item, bound)
            body = where or ir.Const(value=True)
            return Typed(ir.Count(var=variable, over=source.expr, body=body), "int")
        rows = self.typed(item, bound)
        if not isinstance(rows.expr, ir.Query):
            raise ConfigError("count takes rows: count(x for x in ... if ...)")
        return Typed(rows.expr.model_copy(update={"agg": "count"}), "int")

    def _call_best(self, node: ast.Call, bound: Mapping[str, Any]) -> Typed:
        """``best('highest', (r.seats for r in rooms if ...))``: the row that comes first in that order."""
        item, sense = self._loop(node), self.read(node.args[0], bound)
        if sense not in _ASCENDING | _DESCENDING:
            raise ConfigError(f"{sense!r} is not an order", "say highest, lowest, first, last, ...")
        variable, source, inner, where = self._source(item, bound)
        if not isinstance(source, Typed):
            raise ConfigError("best chooses among rows")
        query = self._query(source, variable, where).expr
        order = ir.Order(by=self.typed(item.elt, inner).expr, descending=sense in _DESCENDING)
        found = query.model_copy(update={"order": (order,), "limit": 1})
        return Typed(found, f"entity:{query.relation}")

    def _call_reachable(self, node: ast.Call, bound: Mapping[str, Any]) -> Typed:
        """``reachable(c, needs.course, needs.needed)``: the rows to which that table's rows lead from c."""
        start, (relation, source), (same, target) = (
            self.typed(node.args[0], bound), *map(self._column, node.args[1:]),
        )  # fmt: skip
        if relation != same:
            raise ConfigError("both ends of a step are columns of one table")
        kind = relation.column(target).type
        if not start.type == relation.column(source).type == kind or not kind.startswith("entity"):
            raise ConfigError("a step leads from a row to a row of the same table")
        found = ir.Reachable(start=start.expr, relation=relation.name, source=source, target=target)
        return Typed(found, f"set:{kind}")

    def _column(self, node: ast.AST) -> tuple[Relation, str]:
        """A column, written ``table.column``."""
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            relation = self.names.relations.get(node.value.id)
            if relation is not None and any(c.name == node.attr for c in relation.columns):
                return relation, node.attr
        raise ConfigError(f"{ast.unparse(node)!r} is not a column", "write table.column")

    def _call_apart(self, node: ast.Call, bound: Mapping[str, Any]) -> Typed:
        lists = [self._expressions(item, bound) for item in node.args]
        intervals, resources = (*lists, ())[:2]
        return Typed(ir.NoOverlap(intervals=intervals, resources=resources), "bool")

    def _call_different(self, node: ast.Call, bound: Mapping[str, Any]) -> Typed:
        (item,) = node.args
        return Typed(ir.AllDifferent(items=self._expressions(item, bound)), "bool")

    def _call_disjoint(self, node: ast.Call, bound: Mapping[str, Any]) -> Typed:
        """``disjoint([pays[1], pays[2]])``: no row is in two of the sets."""
        sets = self.read(node.args[0], bound)
        if not isinstance(sets, tuple) or not all(map(_is_set, sets)):
            raise ConfigError(f"{ast.unparse(node.args[0])!r} is not a list of sets")
        apart = []
        for one, other in combinations(sets, 2):
            name = "shared"
            while name in free_names(other.expr):
                name += "_"
            shared = ir.Cmp(fn="in", left=ir.Var(name=name), right=other.expr)
            apart.append(ir.All(var=name, over=one.expr, body=ir.Not(item=shared)))
        return Typed(_joined(ir.And, tuple(apart)), "bool")

    def _expressions(self, node: ast.AST, bound: Mapping[str, Any]) -> tuple[Expr, ...]:
        values = self.read(node, bound)
        if not isinstance(values, tuple) or isinstance(values, Typed):
            raise ConfigError(f"{ast.unparse(node)!r} is not a list")
        if any(map(_is_set, values)):
            raise ConfigError("sets are not compared as a whole", "write disjoint([...])")
        return tuple(lifted(value).expr for value in values)


def _is_set(value: Any) -> bool:
    """Whether a value is a slot with several rows, or what can be reached."""
    return isinstance(value, Typed) and value.type.startswith("set:")


def _is_param(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id == "param"


def _target(node: ast.ListComp | ast.GeneratorExp) -> str:
    target = node.generators[0].target
    if not isinstance(target, ast.Name):
        raise ConfigError("a for binds one name")
    return target.id


def _joined(kind: Any, items: tuple[Expr, ...]) -> Expr:
    """One item stays itself."""
    return items[0] if len(items) == 1 else kind(items=items)


def _compared(op: ast.cmpop, left: Any, right: Any) -> Any:
    if type(op) not in COMPARISONS:
        raise ConfigError(f"{type(op).__name__} is not a comparison of the language of rules")
    fn, test = COMPARISONS[type(op)]
    if _is_set(left) or (_is_set(right) and fn != "in"):
        raise ConfigError(
            "sets are not compared as a whole", "say it of each: all(... for x in ...)"
        )
    if isinstance(left, Typed) or isinstance(right, Typed):
        return Typed(ir.Cmp(fn=fn, left=lifted(left).expr, right=lifted(right).expr), "bool")
    if fn not in ("in", "=", "!=") and not (isinstance(left, int) and isinstance(right, int)):
        raise ConfigError(f"{left!r} and {right!r} have no order")
    return test(left, right)


def _total(items: list[Typed]) -> Typed:
    if not items:
        raise ConfigError("the sum of nothing")
    left = items[0].expr
    for item in items[1:]:
        left = ir.Arith(fn="+", left=left, right=item.expr)
    return Typed(left, "int")
