"""Other rows for the same problem, chosen to sit where its comparisons turn."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import date, timedelta
from pathlib import Path
from random import Random
from typing import Literal, NamedTuple

from envgen.core.ir import Column, Const, Node, Problem, Reach, Relation, Scalar
from envgen.pipelines.general.tables import Row, Tables


def perturbed(problem: Problem, tables: Tables, rand: Random) -> Tables:
    """Rows like ``tables``: some columns shuffled, some values set to a bound of ``problem`` or one off it.

    Keys and the sets of values of references stay, so every foreign key still holds.
    """
    bounds = _bounds(problem)
    result: Tables = {}
    for relation in problem.relations:
        rows = {key: dict(row) for key, row in tables.get(relation.name, {}).items()}
        for column in relation.columns:
            if column.name != relation.key and rows:
                _perturb(rows, column, bounds, rand)
        result[relation.name] = rows
    return result


class Bounds(NamedTuple):
    """Values at which a problem's comparisons turn."""

    ints: list[int]
    days: list[date]
    texts: list[str]


def _perturb(rows: dict[str, Row], column: Column, bounds: Bounds, rand: Random) -> None:
    values = [row[column.name] for row in rows.values()]
    choice = rand.random()
    if choice < 0.4:
        rand.shuffle(values)
    elif choice < 0.8:
        known = sorted({str(value) for value in values})
        values = [
            _at_bound(column, value, bounds, known, rand) if rand.random() < 0.4 else value
            for value in values
        ]
    for row, value in zip(rows.values(), values, strict=True):
        row[column.name] = value


def _at_bound(
    column: Column, value: Scalar, bounds: Bounds, known: list[str], rand: Random
) -> Scalar:
    if value is None:
        return None
    if column.type == "bool":
        return not value
    if column.type == "date" and bounds.days:
        small = [i for i in bounds.ints if i <= 400]
        back = rand.choice([0, *small]) + rand.choice((-1, 0, 1))
        return (rand.choice(bounds.days) - timedelta(days=back)).isoformat()
    if (column.type in ("int", "minutes") or column.type.startswith("decimal")) and bounds.ints:
        return max(0, rand.choice(bounds.ints) + rand.choice((-1, 0, 1)))
    if column.type == "str":
        return rand.choice([text for text in bounds.texts if text in known] or known)
    return value


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
    values: list[object] = list(problem.params.values())
    for root in _roots(problem):
        values += [node.value for node in root.walk() if isinstance(node, Const)]
    ints = sorted({v for v in values if isinstance(v, int) and not isinstance(v, bool)})
    days = []
    for value in values:
        if isinstance(value, str) and len(value) == 10 and value[4] == "-":
            days.append(date.fromisoformat(value))
    texts = sorted({v for v in values if isinstance(v, str)})
    return Bounds(ints, sorted(set(days)), texts)


def _roots(problem: Problem) -> Iterator[Node]:
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
