"""Recipes: one way of choosing for each kind of slot, fitted on some re-seeds and tried on others.

"The first restaurant rated 32 or more, the cheapest hotel, the first attraction": a recipe reads no rule and
no prompt. Where a domain's tasks come from one narrow distribution, one recipe solves most of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from envgen.core import ir
from envgen.core.ir import Problem, Relation
from envgen.pipelines.general.difficulty.answers import AnswerGame, Values
from envgen.pipelines.general.semantics.layout import ordered
from envgen.pipelines.general.semantics.tables import Row, Tables

_QUANTILES = 6
"""The bounds tried for a number stand between so many equal shares of its values."""
_ROUNDS = 2
Part = TypeVar("Part")
Game = TypeVar("Game")


class RowFilter(NamedTuple):
    """A condition on a row: what a path of columns leads to is at least, at most or equal to a value."""

    path: tuple[str, ...] = ()
    """Columns; all but the last refer to rows of other tables. Empty: no condition."""
    fn: str = ""
    value: Any = None

    def holds(self, row: Row, relation: Relation, tables: Tables, problem: Problem) -> bool:
        """Whether a row keeps the condition."""
        found = _at(self.path, row, relation, tables, problem) if self.path else None
        if not self.path or found is None:
            return not self.path
        if self.fn == "=":
            return bool(found == self.value)
        return bool(found >= self.value if self.fn == ">=" else found <= self.value)


def _at(
    path: Sequence[str], row: Row | None, relation: Relation, tables: Tables, problem: Problem
) -> Any:
    value: Any = None
    for name in path:
        if row is None:
            return None
        value, kind = row.get(name), relation.column(name).type
        if kind.startswith("entity:"):
            relation = problem.relation(kind[7:])
            row = tables.get(relation.name, {}).get(value)
    return value


def filters_of(
    relation: Relation, problem: Problem, databases: Sequence[Tables]
) -> Iterator[RowFilter]:
    """Conditions on a table's rows worth trying: none, and some on each column and on those of references."""
    yield RowFilter()
    for path in _paths(relation, problem):
        values = (
            _at(path, row, relation, tables, problem)
            for tables in databases
            for row in tables[relation.name].values()
        )
        known = sorted({v for v in values if v is not None}, key=lambda v: (str(type(v)), v))
        if len(known) > 1 and type(known[0]) is int:
            at = sorted({len(known) * q // _QUANTILES for q in range(1, _QUANTILES)})
            yield from (RowFilter(path, fn, known[i]) for i in at for fn in (">=", "<="))
        elif 1 < len(known) <= 8:
            yield from (RowFilter(path, "=", value) for value in known)


def _paths(relation: Relation, problem: Problem) -> Iterator[tuple[str, ...]]:
    for column in relation.columns:
        if column.name != relation.key:
            yield (column.name,)
        if column.type.startswith("entity:"):
            other = problem.relation(column.type[7:])
            yield from ((column.name, c.name) for c in other.columns if c.name != other.key)


class Pick(NamedTuple):
    """The first value of a slot among rows that a filter leaves, in the order of a column."""

    column: str = ""
    """"" for listing order."""
    descending: bool = False
    filter: RowFilter = RowFilter()
    nth: int = 0
    """Of a slot whose values are no rows: the place among its values."""
    members: int = 1
    """Of a set: how many rows that follow each other in that order."""


Recipe = Mapping[str, Pick]
"""By kind of slot (its name without the item's number)."""


def fitted(games: Sequence[AnswerGame]) -> Callable[[AnswerGame], Values]:
    """The player of the recipe that passes most of ``games``; what rules it keeps breaks ties."""
    slots, choices = games[0].problem.slots, dict[str, list[Pick]]()
    for i, slot in enumerate(slots):
        if _stem(slot) not in choices:
            choices[_stem(slot)] = list(_choices(i, games))
    recipe = ascended(dict.fromkeys(choices, Pick()), choices, lambda recipe: _score(recipe, games))
    return lambda game: _played(recipe, game)


def ascended(
    start: dict[str, Part],
    options: Mapping[str, Iterable[Part]],
    score: Callable[[dict[str, Part]], tuple[int, int]],
) -> dict[str, Part]:
    """The best assignment of options that changing one part at a time leads to."""
    best, reached = start, score(start)
    for _ in range(_ROUNDS):
        before = reached
        for name in options:
            for option in options[name]:
                tried = {**best, name: option}
                if (now := score(tried)) > reached:
                    best, reached = tried, now
        if reached == before:
            break
    return best


def _stem(slot: ir.Slot) -> str:
    return re.sub(r"_\d+$", "", slot.name)


def _score(recipe: Recipe, games: Sequence[AnswerGame]) -> tuple[int, int]:
    broken = [len(game.broken(_played(recipe, game))) for game in games]
    return sum(not n for n in broken), -sum(broken)


def _played(recipe: Recipe, game: AnswerGame) -> Values:
    values: Values = [None] * game.size
    for i, slot in enumerate(game.problem.slots):
        values[i] = game.untaken(i, values, _kept(recipe[_stem(slot)], i, game, values))
    return values


def _kept(choice: Pick, i: int, game: AnswerGame, values: Values) -> Sequence[Any]:
    """The values of a slot that a choice leaves, best first."""
    slot = game.problem.slots[i]
    if slot.kind not in ("entity", "set") or not isinstance(slot.domain, ir.Query):
        return game.choices(i, values)[choice.nth :]
    rows = _ordered(choice, game.rows(i, values), game, slot.domain)
    if slot.kind == "entity":
        return rows
    size = max(slot.least, min(choice.members, slot.length or choice.members))
    return [ordered(rows[at : at + size]) for at in range(len(rows) - size + 1)]


def _ordered(
    choice: Pick, found: tuple[Any, ...], game: AnswerGame, domain: ir.Query
) -> Sequence[Any]:
    """The rows that a choice leaves, best first; remembered, as the ascent asks again for each recipe."""
    key = (domain.relation, choice.column, choice.descending, choice.filter, found)
    if key not in game.orders:
        game.orders[key] = _order(choice, found, game, domain)
    return game.orders[key]


def _order(choice: Pick, found: Sequence[Any], game: AnswerGame, domain: ir.Query) -> Sequence[Any]:
    relation, tables = game.problem.relation(domain.relation), game.tables
    rows = tables[relation.name]
    if choice.filter.path:
        found = [v for v in found if choice.filter.holds(rows[v], relation, tables, game.problem)]
    if not choice.column:
        return found
    cells: dict[Any, Any] = {v: rows[v].get(choice.column) for v in found}
    known = [v for v in found if cells[v] is not None]
    return sorted(known, key=lambda v: cells[v], reverse=choice.descending)


def _choices(i: int, games: Sequence[AnswerGame]) -> Iterator[Pick]:
    """Every way of choosing a slot's value that is tried."""
    problem, slot = games[0].problem, games[0].problem.slots[i]
    if slot.kind not in ("entity", "set") or not isinstance(slot.domain, ir.Query):
        size = len(games[0].domains[i])
        yield from (Pick(nth=n) for n in range(0, size, max(1, size // 16)))
        return
    relation = problem.relation(slot.domain.relation)
    numbers = [c.name for c in relation.columns if not c.type.startswith(("entity", "str", "bool"))]
    orders = [("", False), *((name, down) for name in numbers for down in (False, True))]
    tried = list(filters_of(relation, problem, [game.tables for game in games]))
    own = [one for one in tried if len(one.path) == 1]
    most = (slot.length or 1) if slot.kind == "set" else 1
    for members in range(max(slot.least, 1), most + 1):
        yield from (Pick(*order, members=members) for order in orders)
        yield from (Pick(filter=one, members=members) for one in tried)
        yield from (Pick(*order, one, members=members) for order in orders[1:] for one in own)
