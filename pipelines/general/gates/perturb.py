"""Other rows for the same problem, chosen to sit where its comparisons turn."""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import date, timedelta
from pathlib import Path
from random import Random
from typing import Literal, NamedTuple

from envgen.core.ir import Cmp, Column, Const, Get, Node, Param, Problem, Reach, Relation, Scalar
from envgen.pipelines.general.semantics.tables import Row, Tables

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


def perturbed(problem: Problem, tables: Tables, rand: Random, marks: Sequence[int] = ()) -> Tables:
    """Rows like ``tables``: some columns shuffled, some values set to a bound of ``problem`` or one off it.

    Others become equal to another row's, so that there are ties. Keys and the sets of values of references
    stay, so every foreign key still holds. ``marks`` are numbers of answers, near which times are put.
    """
    bounds = _bounds(problem)._replace(marks=sorted(set(marks)))
    result: Tables = {}
    for relation in problem.relations:
        rows = {key: dict(row) for key, row in tables.get(relation.name, {}).items()}
        for column in relation.columns:
            if column.name != relation.key and rows:
                _perturb(rows, relation.name, column, bounds, rand)
        result[relation.name] = rows
    return result


class Bounds(NamedTuple):
    """Values at which a problem's comparisons turn."""

    ints: dict[tuple[str, str], list[int]]
    """(relation, column) -> what the column is compared with."""
    days: list[date]
    gaps: list[int]
    """Numbers of days."""
    texts: list[str]
    marks: Sequence[int] = ()
    """Numbers that answers hold: starts and ends of intervals."""


def _perturb(
    rows: dict[str, Row], relation: str, column: Column, bounds: Bounds, rand: Random
) -> None:
    values = [row[column.name] for row in rows.values()]
    turning = bounds.ints.get((relation, column.name), [])
    if column.type == "minutes":
        turning = [*turning, *bounds.marks]
    choice = rand.random()
    if choice < (0.2 if turning else 0.4):
        rand.shuffle(values)
    elif choice < 0.85:
        known = sorted({value for value in values if value is not None}, key=str)
        values = [
            _at_bound(column, value, turning, bounds, known, rand) if rand.random() < 0.4 else value
            for value in values
        ]
    for row, value in zip(rows.values(), values, strict=True):
        row[column.name] = value


def _at_bound(
    column: Column,
    value: Scalar,
    turning: list[int],
    bounds: Bounds,
    known: Sequence[Scalar],
    rand: Random,
) -> Scalar:
    if value is None:
        return None
    if column.type == "bool":
        return not value
    if column.type == "date" and bounds.days:
        back = rand.choice([0, *bounds.gaps]) + rand.choice((-1, 0, 1))
        return (rand.choice(bounds.days) - timedelta(days=back)).isoformat()
    if turning and rand.random() < 0.8:
        return max(0, rand.choice(turning) + rand.choice((-1, 0, 0, 1)))
    if column.type == "str":
        return rand.choice([text for text in bounds.texts if text in known] or known)
    return value if column.type.startswith("entity:") else rand.choice(known)


def edit(
    base: Path,
    path: Path,
    relation: Relation,
    kind: Literal["insert", "delete", "update"],
    rand: Random,
) -> bool:
    """Copy ``base`` to ``path`` and change one row of ``relation``; False if it has no row."""
    shutil.copyfile(base, path)
    path.chmod(0o600)
    table, key = f'"{relation.name}"', f'"{relation.key}"'
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        keys = [row[0] for row in db.execute(f"SELECT {key} FROM {table} ORDER BY {key}")]
        if not keys:
            return False
        chosen = rand.choice(keys)
        others = [column for column in relation.columns if column.name != relation.key]
        if kind == "delete":
            db.execute(f"DELETE FROM {table} WHERE {key} = ?", [chosen])
        elif kind == "insert":
            names = ", ".join(f'"{column.name}"' for column in others)
            sep = ", " if others else ""
            db.execute(
                f"INSERT INTO {table} ({key}{sep}{names}) "
                f"SELECT {key} || '-copy'{sep}{names} FROM {table} WHERE {key} = ?",
                [chosen],
            )
        else:
            if not others:
                return False
            column = rand.choice(others)
            value = f'"{column.name}" + 1'
            if column.type == "bool":
                value = f'1 - "{column.name}"'
            elif column.type in ("str", "date", "datetime") or column.type.startswith("entity:"):
                value = f"coalesce(\"{column.name}\", '') || 'x'"
            db.execute(f'UPDATE {table} SET "{column.name}" = {value} WHERE {key} = ?', [chosen])
    return True


def _bounds(problem: Problem) -> Bounds:
    """What the problem compares with."""
    ints: dict[tuple[str, str], set[int]] = {}
    values: list[object] = list(problem.params.values())
    for root in _roots(problem):
        for node in root.walk():
            if isinstance(node, Const):
                values.append(node.value)
            elif isinstance(node, Cmp):
                numbers = {n for side in (node.left, node.right) for n in _numbers(side, problem)}
                gets = [n for side in (node.left, node.right) for n in side.walk()]
                for get in gets:
                    if isinstance(get, Get):
                        ints.setdefault((get.relation, get.column), set()).update(numbers)
    gaps = sorted({v for v in values if type(v) is int and 0 < v <= 400})
    texts = sorted({v for v in values if isinstance(v, str)})
    days = sorted({date.fromisoformat(t) for t in texts if _DAY.fullmatch(t)})
    return Bounds({key: sorted(found) for key, found in ints.items()}, days, gaps, texts)


def _numbers(side: Node, problem: Problem) -> Iterator[int]:
    """The numbers on one side of a comparison, halves too: a sum of two turns where each has half."""
    for node in side.walk():
        value = node.value if isinstance(node, Const) else None
        if isinstance(node, Param):
            value = problem.params.get(node.name)
        if type(value) is int:
            yield value
            yield value // 2


def _roots(problem: Problem) -> Iterator[Node]:
    yield from (pre.expr for access in problem.access for pre in access.pre)
    clauses = list(problem.clauses)
    goal = problem.goal
    if isinstance(goal, Reach):
        clauses += goal.effects
        if goal.escalate_when is not None:
            yield goal.escalate_when
        for cells in goal.write_set:
            yield cells.rows
    elif goal.kind == "equals":
        yield goal.query
    for clause in clauses:
        yield clause.expr
        if clause.guard is not None:
            yield clause.guard
