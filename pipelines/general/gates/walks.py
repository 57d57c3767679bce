"""Rows on both sides of where a rule's verdict turns, found by small steps from rows on which it holds.

``perturbed`` sets many cells at once and ``turns`` one: a rule such as "same play, and their scenes
overlap" needs the plays equal first and then two numbers side by side, which neither comes upon. A walk
changes one cell after the other among those that the rule reads, keeps to rows on which the rule still
holds, and gives each step at which it would cease to. So every part of a rule comes to decide alone (the
condition of MC/DC coverage), and a verifier that treats this part differently gives itself away.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import date, timedelta
from random import Random
from typing import NamedTuple

from pydantic import JsonValue

from envgen.core.ir import Column, Get, Problem, Query, Scalar
from envgen.pipelines.general.gates.perturb import DAY
from envgen.pipelines.general.semantics.evaluate import rules_of
from envgen.pipelines.general.semantics.evaluator import Frame
from envgen.pipelines.general.semantics.rewrite import nodes_of
from envgen.pipelines.general.semantics.tables import Tables, sql_type

WALKS, STEPS = 120, 80
"""Walks for each rule, and the cells that one tries to change."""
ALIKE = 12
"""TurnedRowsing steps that are kept of those that change one cell of one row."""


FEW = 6
"""Rows that are left, in every other walk, of relations to which none refers."""


class TurnedRows(NamedTuple):
    """An answer, and rows before and after one cell was changed: the rule holds on the first alone."""

    answer: JsonValue
    before: Tables
    after: Tables


class _Spot(NamedTuple):
    relation: str
    key: str
    column: Column


def walks(
    problem: Problem, tables: Tables, answers: Sequence[JsonValue], rule: str, rand: Random
) -> Iterator[TurnedRows]:
    """Steps at which ``rule`` ceases to hold, of walks over rows on which it holds.

    They begin at ``tables`` with one of ``answers`` each, drawn, and go anywhere until the rule holds. Keys
    stay, and every reference names a row. Where a number turned the rule, both sides are one apart.
    """
    rules, found = rules_of(problem), dict[tuple[str, str, str], int]()
    for n in range(WALKS if answers else 0):
        answer = rand.choice(answers)
        now = _thinned(problem, tables, rand) if n % 2 else tables
        frame = rules.frame(now, answer, now)
        if frame is None:
            continue
        frame.reads = reads = set[tuple[str, str | None]]()
        held, places, known = rules.holds(rule, frame), list[list[_Spot]](), 0

        def holds(tables: Tables, frame: Frame = frame) -> bool:
            frame.old = frame.new = tables
            return rules.holds(rule, frame)

        for _ in range(STEPS):
            if len(reads) > known:  # a part that has come to matter may read more rows
                cells, known = _places(problem, rule, now, reads), len(reads)
                values, places = _values(problem, now, cells), _by_column(now, cells, reads)
            if not places:
                break
            place = rand.choice(rand.choice(places))
            value = now[place.relation][place.key][place.column.name]
            other = _another(place.column, value, values[_kind(place.column)], rand)
            then = _with(now, place, other)
            after = holds(then)
            if after or not held:
                now, held = then, after
                continue
            at = (place.relation, place.key, place.column.name)
            found[at] = found.get(at, 0) + 1
            if found[at] <= ALIKE:
                yield TurnedRows(answer, *_narrowed(now, place, value, other, holds))


def _thinned(problem: Problem, tables: Tables, rand: Random) -> Tables:
    """The rows with few in each relation to which none refers: what many rows decide, no cell turns alone."""
    named = {column.type for relation in problem.relations for column in relation.columns}
    named |= {f"entity:{s.domain.relation}" for s in problem.slots if isinstance(s.domain, Query)}
    few = {
        name: {key: rows[key] for key in sorted(rand.sample(sorted(rows), min(len(rows), FEW)))}
        for name, rows in tables.items()
        if f"entity:{name}" not in named
    }
    return {**tables, **few}


def _with(tables: Tables, place: _Spot, value: Scalar) -> Tables:
    """The rows with one cell set."""
    rows = tables[place.relation]
    row = {**rows[place.key], place.column.name: value}
    return {**tables, place.relation: {**rows, place.key: row}}


def _narrowed(
    tables: Tables, place: _Spot, right: Scalar, wrong: Scalar, holds: Callable[[Tables], bool]
) -> tuple[Tables, Tables]:
    """The rows with a cell at two values between ``right`` and ``wrong``, as near as can be, that differ."""
    while type(right) is int and type(wrong) is int and abs(right - wrong) > 1:
        middle = (right + wrong) // 2
        right, wrong = (middle, wrong) if holds(_with(tables, place, middle)) else (right, middle)
    return _with(tables, place, right), _with(tables, place, wrong)


def _places(
    problem: Problem, rule: str, tables: Tables, reads: Iterable[tuple[str, str | None]]
) -> list[_Spot]:
    """The cells of columns that the rule names, but for keys, of rows that it read."""
    (clause,) = (clause for clause in problem.clauses if clause.id == rule)
    named = {(n.relation, n.column) for n in nodes_of((clause,)) if isinstance(n, Get)}
    rows = set[tuple[str, str]]()
    for name, key in reads:
        rows.update((name, one) for one in (tables[name] if key is None else (key,)))
    return [
        _Spot(name, key, column)
        for name, key in sorted(rows)
        if key in tables[name]
        for column in problem.relation(name).columns
        if column.name != problem.relation(name).key and (name, column.name) in named
    ]


def _by_column(
    tables: Tables, places: Sequence[_Spot], reads: Collection[tuple[str, str | None]]
) -> list[list[_Spot]]:
    """The cells of each column; twice, where some stand in rows that name what was looked up by its key.

    A rule goes through all rows of a relation for the few of them that matter to an answer: those that name
    a row of the answer or of a parameter, or hold what such a row holds.
    """
    looked_up = {(name, key) for name, key in reads if key and (name, None) not in reads}
    named = {key for _, key in looked_up}
    named |= {
        v for at, key in looked_up for v in tables[at].get(key, {}).values() if type(v) is str
    }
    columns: dict[tuple[str, str], list[_Spot]] = {}
    linked: dict[tuple[str, str], list[_Spot]] = {}
    for place in places:
        at = (place.relation, place.column.name)
        columns.setdefault(at, []).append(place)
        if not named.isdisjoint(tables[place.relation][place.key].values()):
            linked.setdefault(at, []).append(place)
    return [*columns.values(), *linked.values()]


def _kind(column: Column) -> str:
    """Columns of one kind hold values that can be compared: all numbers are of one."""
    return column.type if sql_type(column) == "TEXT" or column.type == "bool" else "number"


def _values(problem: Problem, tables: Tables, places: Sequence[_Spot]) -> dict[str, list[Scalar]]:
    """What cells of each kind may be set to: what those that are read, or parameters, hold."""
    found: dict[str, set[Scalar]] = {}
    for place in places:
        value = tables[place.relation][place.key][place.column.name]
        found.setdefault(_kind(place.column), set()).add(value)
    for value in problem.params.values():
        if type(value) is int and "number" in found:
            found["number"].add(value)
        if isinstance(value, str) and "str" in found:
            found["str"].add(value)
    return {kind: sorted(values, key=str) for kind, values in found.items()}


def _another(column: Column, value: Scalar, values: Sequence[Scalar], rand: Random) -> Scalar:
    """Another value for a cell: one of its kind, or a number or day beside one."""
    other = rand.choice(values)
    if other is None and not column.nullable:
        return value
    if isinstance(value, bool):
        return not value
    if type(other) is int and type(value) is int:
        return max(0, other + rand.choice((-1, 0, 0, 1)))
    if isinstance(other, str) and DAY.fullmatch(other):
        day = date.fromisoformat(other) + timedelta(days=rand.choice((-1, 0, 0, 1)))
        return day.isoformat()
    return other
