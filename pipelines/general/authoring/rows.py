"""Rows from the distributions of a page: draws compiled from their texts, and the tables that they fill.

A draw is an expression in Python's grammar over the columns before it, rows they refer to, constants, lists
and the functions of ``draws``. ``ast`` parses it; a closure per node evaluates it. Rows are drawn without
looking at a question, so no row is a planted one; only their numbers depend on the task's structure.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from functools import partial
from itertools import product
from math import prod
from random import Random
from typing import Any

from envgen.core.errors import ConfigError
from envgen.pipelines.general.authoring.draws import DRAWS, REGISTERED, Drawing, NoRoomError
from envgen.pipelines.general.authoring.page import ColumnDraw, Domain
from envgen.pipelines.general.authoring.rules import COMPARISONS, MAX_NUMBER, arithmetic, parsed
from envgen.pipelines.general.semantics.tables import Row, Tables

MAX_ROWS = 3_000
"""Rows that the tables of one task may have together."""
MAX_CELLS = 20_000
MAX_TEXT = 200
"""Characters of a cell."""
_TRIES = 4
"""Draws of a row that finds no value, before it is left out."""

Draw = Callable[[Drawing], Any]


class Draws:
    """Compiles the draws of one domain, once each."""

    def __init__(self, domain: Domain) -> None:
        self.domain = domain
        self.calls: set[str] = set()
        """The registered functions that the draws compiled so far call."""
        self._done: dict[tuple[str, str], Draw] = {}

    def draw(self, text: str, table: str = "") -> Draw:
        """The draw that ``text`` says, for a column of ``table``.

        Raises:
            ConfigError: if it holds an unknown name, or something that is no part of the language.
        """
        if (text, table) not in self._done:
            try:
                compiler = _Compiler(self.domain, table, self.calls)
                self._done[text, table] = compiler.compile(parsed(text))[0]
            except ConfigError as error:
                raise ConfigError(f"in {text!r}: {error}", error.hint) from None
        return self._done[text, table]


class _Compiler:
    """One draw: each node as a closure, with the table whose keys it gives (or "")."""

    def __init__(self, domain: Domain, table: str, calls: set[str]) -> None:
        self.domain = domain
        self.table = table
        self.calls = calls

    def compile(self, node: ast.AST) -> tuple[Draw, str]:
        """The closure of ``node`` and the table that its values refer to."""
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        if method is None:
            raise ConfigError(f"{type(node).__name__} is not part of the language of draws")
        found: tuple[Draw, str] = method(node)
        return found

    def _constant(self, node: ast.Constant) -> tuple[Draw, str]:
        value = node.value
        return lambda d: value, ""

    def _name(self, node: ast.Name) -> tuple[Draw, str]:
        name = node.id
        columns = self.domain.tables[self.table].columns if self.table else {}
        per = self.domain.tables[self.table].per if self.table else {}
        if name in per:
            return lambda d: d.per[name], per[name] if per[name] in self.domain.tables else ""
        if name in columns:
            return lambda d: d.row[name], columns[name].type.partition("entity:")[2]
        if name in self.domain.tables:
            return lambda d: _listed(d, d.tables[name]), name
        return lambda d: d.named(name), ""

    def _attribute(self, node: ast.Attribute) -> tuple[Draw, str]:
        inner, table = self.compile(node.value)
        column = node.attr
        if table not in self.domain.tables or column not in self.domain.tables[table].columns:
            raise ConfigError(f"{ast.unparse(node)!r} is not a cell of a row")
        to = self.domain.tables[table].columns[column].type.partition("entity:")[2]
        if isinstance(node.value, ast.Name) and node.value.id == table:
            return lambda d: [
                d.tables[table][key][column] for key in _listed(d, d.tables[table])
            ], to
        return lambda d: d.tables[table][inner(d)][column], to

    def _list(self, node: ast.List | ast.Tuple) -> tuple[Draw, str]:
        if all(isinstance(item, ast.Constant) for item in node.elts):
            values = [item.value for item in node.elts if isinstance(item, ast.Constant)]
            return lambda d: values, ""
        items = [self.compile(item)[0] for item in node.elts]
        return lambda d: [item(d) for item in items], ""

    _tuple = _list

    def _boolop(self, node: ast.BoolOp) -> tuple[Draw, str]:
        items = [self.compile(item)[0] for item in node.values]
        fold = all if isinstance(node.op, ast.And) else any
        return lambda d: fold(item(d) for item in items), ""

    def _unaryop(self, node: ast.UnaryOp) -> tuple[Draw, str]:
        inner, _ = self.compile(node.operand)
        if isinstance(node.op, ast.USub):
            return lambda d: -inner(d), ""
        return lambda d: not inner(d), ""

    def _compare(self, node: ast.Compare) -> tuple[Draw, str]:
        if len(node.ops) != 1 or type(node.ops[0]) not in COMPARISONS:
            raise ConfigError(f"{ast.unparse(node)!r} is not a comparison of the language of draws")
        _, test = COMPARISONS[type(node.ops[0])]
        left, right = self.compile(node.left)[0], self.compile(node.comparators[0])[0]
        return lambda d: test(left(d), right(d)), ""

    def _binop(self, node: ast.BinOp) -> tuple[Draw, str]:
        name, run = arithmetic(node.op)
        fold = _plus(run) if name == "+" else run
        left, right = self.compile(node.left)[0], self.compile(node.right)[0]
        return lambda d: fold(left(d), right(d)), ""

    def _ifexp(self, node: ast.IfExp) -> tuple[Draw, str]:
        test, then, other = (self.compile(n)[0] for n in (node.test, node.body, node.orelse))
        return lambda d: then(d) if test(d) else other(d), ""

    def _call(self, node: ast.Call) -> tuple[Draw, str]:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name in ("said", "trait") and len(node.args) == 1:
            asked = self.compile(node.args[0])[0]
            return lambda d: d.named(name)(asked(d)), ""
        function = DRAWS.get(name) or REGISTERED.get(name)
        if node.keywords or function is None:
            known = ", ".join([*DRAWS, *REGISTERED])
            raise ConfigError(f"unknown draw {ast.unparse(node.func)!r}", f"known: {known}")
        if not function.least <= len(node.args) <= function.most:
            counts = f"{function.least} to {function.most}"
            raise ConfigError(f"{name} takes {counts} arguments, not {len(node.args)}")
        self.calls |= {name} & REGISTERED.keys()
        compiled = [self.compile(item) for item in node.args]
        run, key, arguments = function.run, ast.unparse(node), [draw for draw, _ in compiled]
        # Rows are drawn by the ten thousand: arguments that are literals are evaluated once.
        if all(map(_is_literal, node.args)):
            literals = [ast.literal_eval(item) for item in node.args]
            return lambda d: run(d, key, *literals), ""
        if len(arguments) == 1:
            first = arguments[0]
            return lambda d: run(d, key, first(d)), compiled[0][1]
        if len(arguments) == 2:
            first, second = arguments
            return lambda d: run(d, key, first(d), second(d)), compiled[0][1]
        return lambda d: run(d, key, *[a(d) for a in arguments]), compiled[0][1]


def _is_literal(node: ast.expr) -> bool:
    """Whether a draw's argument is a number or text, or a list of them."""
    items = node.elts if isinstance(node, ast.List | ast.Tuple) else [node]
    return all(isinstance(item, ast.Constant) for item in items)


def _listed(d: Drawing, values: Mapping[str, Any]) -> list[str]:
    d.may_list(len(values))
    return list(values)


def _plus(add: Callable[[Any, Any], int]) -> Callable[[Any, Any], Any]:
    """Extend the sum of numbers to texts, which are put behind each other."""

    def run(a: Any, b: Any) -> Any:
        if not (isinstance(a, str) and isinstance(b, str)):
            return add(a, b)
        if len(a) + len(b) > MAX_TEXT:
            raise ConfigError(f"a text of more than {MAX_TEXT} characters", "draw shorter parts")
        return a + b

    return run


# --- tables --------------------------------------------------------------------------------------


class TooFewRowsError(ConfigError):
    """Raised when most rows of a table find no values that are left."""


def draw_table(
    draws: Draws, name: str, tables: Tables, known: Mapping[str, Any], rng: Random,
    *, rows: str, columns: Mapping[str, str],
) -> dict[str, Row]:  # fmt: skip
    """The rows of one table over those drawn before it.

    Args:
        draws: the domain's draws.
        name: of the table.
        tables: the tables before it.
        known: constants, lists and the numbers of the task's structure.
        rng: the source of chance.
        rows: how many rows there are, in all or for each owner.
        columns: column -> its draw; hidden ones included, in order.

    Raises:
        TooFewRowsError: if most rows find no values that are left, as may happen by chance.
        ConfigError: if a draw fails, gives what its column can't hold, or there are too many rows.
    """
    table, fail = draws.domain.tables[name], partial(_failed, draws.domain, name)
    d = Drawing(rng=rng, tables=tables, known=known)
    number = draws.draw(rows, name)
    cells = [
        (column, draws.draw(text, name), _check(table.columns[column], tables))
        for column, text in columns.items()
    ]
    sources = [list(draws.draw(text)(d)) for text in table.per.values()]
    most, asked = min(MAX_ROWS - sum(map(len, tables.values())), MAX_CELLS // len(cells)), 0
    if prod(map(len, sources)) > most:
        raise fail("per", ConfigError("it has too many owners", "list fewer"))
    found: dict[str, Row] = {}
    for choice in product(*sources):
        d.per = dict(zip(table.per, choice, strict=True))
        try:
            count = max(int(number(d)), 0)
        except MISTAKES as error:
            raise fail("rows", error) from None
        asked += count
        if asked > most:
            problem = f"tables of more than {MAX_ROWS} rows or {MAX_CELLS} cells"
            raise fail("rows", ConfigError(problem, "draw fewer rows"))
        drawn = [row for _ in range(count) if (row := _draw_row(d, cells, fail)) is not None]
        found |= _keyed(drawn, table.key, found, fail)
    if 2 * len(found) < asked:
        lost = f"only {len(found)} of {asked} rows find values that are not taken"
        column, hint = list(d.row)[-1], "draw fewer rows, or from more values"
        raise TooFewRowsError(str(fail(column, ConfigError(lost))), hint)
    return found


MISTAKES = (ArithmeticError, LookupError, TypeError, ValueError, AttributeError)
"""The exceptions of a draw whose names or numbers don't fit its functions."""
_Fail = Callable[[str, Exception], ConfigError]
_Cells = Sequence[tuple[str, Draw, Callable[[Any], bool]]]


def _failed(domain: Domain, table: str, column: str, error: Exception) -> ConfigError:
    reason = str(error) if isinstance(error, ConfigError) else f"{type(error).__name__}: {error}"
    hint = getattr(error, "hint", "") or "check the names and numbers of its draw"
    return ConfigError(f"domain {domain.id!r}, table {table!r}, {column!r}: {reason}", hint)


def _keyed(rows: list[Row], key: str, found: Mapping[str, Row], fail: _Fail) -> dict[str, Row]:
    """The rows by their keys, none of which is there twice."""
    keyed = {str(row[key]): row for row in rows}
    if len(keyed) < len(rows) or keyed.keys() & found.keys():
        raise fail(key, ConfigError("a key comes twice", "draw keys with distinct, code or fresh"))
    return keyed


def _draw_row(d: Drawing, cells: _Cells, fail: _Fail) -> Row | None:
    """A row, hidden columns included; None if no values are left for it."""
    for _ in range(_TRIES):
        d.row = {}
        try:
            for column, draw, fits in cells:
                d.row[column] = value = draw(d)
                if not fits(value):
                    raise ConfigError(f"{value!r:.60} is of another type", "draw what it says")
        except NoRoomError:
            continue
        except MISTAKES as error:
            raise fail(column, error) from None
        return d.row
    return None


_KINDS: Mapping[str, Any] = {"int": int, "minutes": int, "decimal": int, "bool": bool}


def _check(column: ColumnDraw, tables: Tables) -> Callable[[Any], bool]:
    """Tells whether a column can hold a value."""
    kind, _, target = column.type.partition(":")
    type_, rows = _KINDS.get(kind, str), tables.get(target) if kind == "entity" else None

    def fits(value: Any) -> bool:
        if value is None:
            return column.nullable
        if isinstance(value, str):
            if kind == "date":
                return date.fromisoformat(value).isoformat() == value
            of_rows = rows is None or value in rows
            return type_ is str and 0 < len(value) <= MAX_TEXT and of_rows
        return type(value) is type_ and bool(abs(value) <= MAX_NUMBER)

    return fits
