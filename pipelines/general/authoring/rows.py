"""Rows from the distributions of a page: what a draw's text means, and the tables that come of it.

A draw is an expression in Python's grammar over the columns before it, rows they refer to, constants, lists
and the functions of ``_DRAWS``. ``ast`` parses it; a closure per node evaluates it. Rows are drawn without
looking at a question, so no row is a planted one; only their numbers depend on the task's structure.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from itertools import product
from random import Random
from typing import Any

from envgen.core.errors import ConfigError
from envgen.core.ir import Scalar
from envgen.pipelines.general.authoring import geo
from envgen.pipelines.general.authoring.names import FAMILY, GIVEN
from envgen.pipelines.general.authoring.page import Domain, TableDraw
from envgen.pipelines.general.authoring.rules import parsed
from envgen.pipelines.general.semantics.tables import Row, Tables

MAX_ROWS = 5_000
"""Rows of one table."""
_TRIES = 4
"""Draws of a row that finds no value, before it is left out."""


@dataclass
class Drawing:
    """What a draw reads: the row so far, what else there is, and what earlier rows used up."""

    rng: Random
    tables: Tables
    known: Mapping[str, Any]
    """Constants, lists and the numbers of the task's structure."""
    row: Row = field(default_factory=dict)
    per: dict[str, Scalar] = field(default_factory=dict)
    """The row or item in hand of each name in the table's ``per``."""
    pools: dict[Any, list[Any]] = field(default_factory=dict)
    """Draw (and owner) -> values not used yet."""
    spans: dict[Any, list[tuple[int, int]]] = field(default_factory=dict)
    """Draw and owner -> intervals taken."""


class NoRoomError(Exception):
    """Raised by a draw that finds no value for this row."""


Draw = Callable[[Drawing], Any]


class Draws:
    """Compiles the draws of one domain, once each."""

    def __init__(self, domain: Domain) -> None:
        self.domain = domain
        self._done: dict[tuple[str, str], Draw] = {}

    def draw(self, text: str, table: str = "") -> Draw:
        """The draw that ``text`` says, for a column of ``table``.

        Raises:
            ConfigError: if it holds an unknown name, or something that is no part of the language.
        """
        if (text, table) not in self._done:
            try:
                self._done[text, table] = _Compiler(self.domain, table).compile(parsed(text))[0]
            except ConfigError as error:
                raise ConfigError(f"in {text!r}: {error}", error.hint) from None
        return self._done[text, table]


class _Compiler:
    """One draw: each node as a closure, with the table whose keys it gives (or "")."""

    def __init__(self, domain: Domain, table: str) -> None:
        self.domain = domain
        self.table = table

    def compile(self, node: ast.AST) -> tuple[Draw, str]:
        """The closure of ``node`` and the table that its values refer to."""
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        if method is None:
            raise ConfigError(f"{type(node).__name__} is no part of the language of draws")
        found: tuple[Draw, str] = method(node)
        return found

    def _constant(self, node: ast.Constant) -> tuple[Draw, str]:
        value = node.value
        if not isinstance(value, bool | int | str | None):
            raise ConfigError(f"{value!r} is no value of the language of draws")
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
            return lambda d: list(d.tables[name]), name
        return lambda d: _known(d, name), ""

    def _attribute(self, node: ast.Attribute) -> tuple[Draw, str]:
        inner, table = self.compile(node.value)
        column = node.attr
        if table not in self.domain.tables or column not in self.domain.tables[table].columns:
            raise ConfigError(f"{ast.unparse(node)!r} is no cell of a row")
        to = self.domain.tables[table].columns[column].type.partition("entity:")[2]
        if isinstance(node.value, ast.Name) and node.value.id == table:
            return lambda d: [row[column] for row in d.tables[table].values()], to
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
        test = _TESTS.get(type(node.ops[0]))
        if len(node.ops) != 1 or test is None:
            raise ConfigError(f"{ast.unparse(node)!r} is no comparison of the language of draws")
        left, right = self.compile(node.left)[0], self.compile(node.comparators[0])[0]
        return lambda d: test(left(d), right(d)), ""

    def _binop(self, node: ast.BinOp) -> tuple[Draw, str]:
        fold = _FOLDS.get(type(node.op))
        if fold is None:
            raise ConfigError(f"{type(node.op).__name__} is no part of the language of draws")
        left, right = self.compile(node.left)[0], self.compile(node.right)[0]
        return lambda d: fold(left(d), right(d)), ""

    def _ifexp(self, node: ast.IfExp) -> tuple[Draw, str]:
        test, then, other = (self.compile(n)[0] for n in (node.test, node.body, node.orelse))
        return lambda d: then(d) if test(d) else other(d), ""

    def _call(self, node: ast.Call) -> tuple[Draw, str]:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name in ("said", "trait") and len(node.args) == 1:
            asked = self.compile(node.args[0])[0]
            return lambda d: _known(d, name)(asked(d)), ""
        if node.keywords or name not in _DRAWS:
            raise ConfigError(
                f"unknown draw {ast.unparse(node.func)!r}", f"known: {', '.join(_DRAWS)}"
            )
        run, least, most = _DRAWS[name]
        if not least <= len(node.args) <= most:
            raise ConfigError(f"{name} takes {least} to {most} arguments, not {len(node.args)}")
        compiled = [self.compile(item) for item in node.args]
        arguments = [draw for draw, _ in compiled]
        key, refers = ast.unparse(node), compiled[0][1] if compiled else ""
        if len(arguments) == 1:
            first = arguments[0]
            return lambda d: run(d, key, first(d)), refers
        if len(arguments) == 2:
            first, second = arguments
            return lambda d: run(d, key, first(d), second(d)), refers
        return lambda d: run(d, key, *[a(d) for a in arguments]), refers


def _known(d: Drawing, name: str) -> Any:
    if name not in d.known:
        raise ConfigError(f"unknown name {name!r}", f"known here: {', '.join(sorted(d.known))}")
    return d.known[name]


_TESTS: Mapping[type, Callable[[Any, Any], bool]] = {
    ast.Eq: lambda a, b: bool(a == b),
    ast.NotEq: lambda a, b: bool(a != b),
    ast.Lt: lambda a, b: bool(a < b),
    ast.LtE: lambda a, b: bool(a <= b),
    ast.Gt: lambda a, b: bool(a > b),
    ast.GtE: lambda a, b: bool(a >= b),
    ast.In: lambda a, b: a in b,
}
_FOLDS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
}


# --- the functions of draws ----------------------------------------------------------------------


def _one(d: Drawing, key: str, values: Sequence[Any], weights: Sequence[int] | None = None) -> Any:
    return d.rng.choices(values, weights)[0] if weights else d.rng.choice(values)


def _ints(d: Drawing, key: str, low: int, high: int, step: int = 1) -> int:
    return d.rng.randrange(low, high + 1, step)


def _chance(d: Drawing, key: str, percent: int) -> bool:
    return d.rng.random() * 100 < percent


def _pooled(d: Drawing, key: Any, values: Callable[[], list[Any]]) -> Any:
    """A value that no earlier row of the pool has."""
    pool = d.pools.get(key)
    if pool is None:
        pool = d.pools[key] = values()
        d.rng.shuffle(pool)
    if not pool:
        raise NoRoomError
    return pool.pop()


def _distinct(d: Drawing, key: str, values: Sequence[Any], owner: Any = None) -> Any:
    return _pooled(d, (key, owner), lambda: list(values))


def _distinct_ints(d: Drawing, key: str, low: int, high: int) -> int:
    found: int = _pooled(d, key, lambda: list(range(low, high + 1)))
    return found


def _member(d: Drawing, key: str, rows: Sequence[Any], owner: Any, first: Any = None) -> Any:
    """A row that the owner doesn't have yet; ``first`` comes first."""
    if first is not None and (key, owner) not in d.pools:
        d.pools[key, owner] = rest = [row for row in rows if row != first]
        d.rng.shuffle(rest)
        return first
    return _pooled(d, (key, owner), lambda: list(rows))


def _code(d: Drawing, key: str, prefix: str, digits: int) -> str:
    low = 10 ** (digits - 1)
    used = d.pools.setdefault(key, [])
    while True:  # pages hold far fewer rows than there are numbers (checked at load)
        number = d.rng.randrange(low, 10 * low)
        if number not in used:
            used.append(number)
            return f"{prefix}-{number}"


def _person(d: Drawing, key: str, locale: str) -> str:
    given = _pooled(d, (key, "given"), lambda: list(GIVEN[locale]))
    return f"{given} {_pooled(d, (key, 'family'), lambda: list(FAMILY[locale]))}"


def _gap(d: Drawing, key: str, low: int, high: int, step: int, length: int, owner: Any) -> int:
    """A start such that ``length`` from it on touches no earlier interval of ``owner``."""
    taken = d.spans.setdefault((key, owner), [])
    start = d.rng.randrange(low, high, step)
    if start + length > high or any(start + length > a and start < b for a, b in taken):
        raise NoRoomError
    taken.append((start, start + length))
    return start


def _few(d: Drawing, key: str, values: Sequence[Any], count: int) -> Sequence[Any]:
    """The same few of the values for every row."""
    if key not in d.pools:
        d.pools[key] = d.rng.sample(list(values), count)
    return d.pools[key]


def _once(d: Drawing, key: str, value: Any, owner: Any = None) -> Any:
    """The value that the first row (of an owner) drew."""
    return d.pools.setdefault((key, owner), [value])[0]


def _number(d: Drawing, key: str, owner: Any) -> int:
    """How many rows of the owner came before this one."""
    seen = d.pools.setdefault((key, owner), [-1])
    seen[0] += 1
    return int(seen[0])


def _first(d: Drawing, key: str, values: Sequence[Any], count: int) -> Sequence[Any]:
    """The first so many of the values: of rows those that were drawn first."""
    return values[:count]


def _at(d: Drawing, key: str, values: Sequence[Any], at: int, rest: Any) -> Any:
    """The value in that place; ``rest`` beyond the last."""
    return values[at] if at < len(values) else rest


def _deal(d: Drawing, key: str, values: Sequence[Any], rest: Any) -> Any:
    """The values in turn, each to one row; then ``rest``."""
    left = d.pools.setdefault(key, list(values))
    return left.pop(0) if left else rest


def _fresh(d: Drawing, key: str, value: str) -> str:
    """A value that no earlier row has."""
    taken = d.pools.setdefault(key, [])
    if value in taken:
        raise NoRoomError
    taken.append(value)
    return value


def _entries(d: Drawing, key: str, name: str) -> Sequence[str]:
    """The list of that name."""
    found: Sequence[str] = _known(d, name)
    return found


def _city(d: Drawing, key: str, country: str, home: str) -> str:
    """A city that no earlier row has, never ``home``."""
    found: str = _pooled(d, key, lambda: [n for n in geo.city_names(country) if n != home])
    return found


def _pairs(d: Drawing, key: str, left: Sequence[str], right: Sequence[str]) -> list[str]:
    return [f"{a} {b}" for a in left for b in right]


def _day(d: Drawing, key: str, start: str, days: int) -> str:
    return (date.fromisoformat(start) + timedelta(days=days)).isoformat()


def _days(d: Drawing, key: str, start: str, end: str) -> int:
    return (date.fromisoformat(end) - date.fromisoformat(start)).days


def _latest(d: Drawing, key: str, *columns: Sequence[str | None]) -> str:
    return max(value for column in columns for value in column if value)


_DRAWS: Mapping[str, tuple[Callable[..., Any], int, int]] = {
    "one": (_one, 1, 2),
    "ref": (_one, 1, 1),
    "ints": (_ints, 2, 3),
    "chance": (_chance, 1, 1),
    "distinct": (_distinct, 1, 2),
    "distinct_ints": (_distinct_ints, 2, 2),
    "member": (_member, 2, 3),
    "code": (_code, 2, 2),
    "person": (_person, 1, 1),
    "gap": (_gap, 5, 5),
    "few": (_few, 2, 2),
    "once": (_once, 1, 2),
    "number": (_number, 1, 1),
    "first": (_first, 2, 2),
    "at": (_at, 3, 3),
    "deal": (_deal, 2, 2),
    "fresh": (_fresh, 1, 1),
    "city": (_city, 2, 2),
    "city_fact": (lambda d, key, name, fact: geo.city_fact(name, fact), 2, 2),
    "kilometres": (lambda d, key, left, right: geo.kilometres(left, right), 2, 2),
    "entries": (_entries, 1, 1),
    "join": (lambda d, key, *parts: " ".join(parts), 2, 3),
    "pairs": (_pairs, 2, 2),
    "day": (_day, 2, 2),
    "days": (_days, 2, 2),
    "latest": (_latest, 1, 4),
    "min": (lambda d, key, *values: min(values), 2, 4),
    "max": (lambda d, key, *values: max(values), 2, 4),
}
"""Function -> what it does, fewest and most arguments."""


# --- tables --------------------------------------------------------------------------------------


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
    """
    table: TableDraw = draws.domain.tables[name]
    d = Drawing(rng=rng, tables=tables, known=known)
    number = draws.draw(rows, name)
    cells = [(column, draws.draw(text, name)) for column, text in columns.items()]
    sources = [list(draws.draw(text)(d)) for text in table.per.values()]
    found: dict[str, Row] = {}
    for choice in product(*sources):
        d.per = dict(zip(table.per, choice, strict=True))
        for _ in range(min(int(number(d)), MAX_ROWS - len(found))):
            row = _draw_row(d, cells)
            if row is not None:
                found[str(row[table.key])] = row
    return found


def _draw_row(d: Drawing, cells: Sequence[tuple[str, Draw]]) -> Row | None:
    """A row, hidden columns included; None if no values are left for it."""
    for _ in range(_TRIES):
        d.row = {}
        try:
            for column, draw in cells:
                d.row[column] = draw(d)
        except NoRoomError:
            continue
        return d.row
    return None
