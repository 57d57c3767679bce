"""Other rows for the same problem, chosen to sit where its comparisons turn."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta
from random import Random

from envgen.core.ir import Column, Const, Node, Problem, Reach, Scalar
from envgen.pipelines.general.tables import Row, Tables


def perturbed(problem: Problem, tables: Tables, rand: Random) -> Tables:
    """Rows like ``tables``: some columns shuffled, some values set to a bound of ``problem`` or one off it.

    Keys and the sets of values of references stay, so every foreign key still holds.
    """
    ints, days = _bounds(problem)
    result: Tables = {}
    for relation in problem.relations:
        rows = {key: dict(row) for key, row in tables.get(relation.name, {}).items()}
        for column in relation.columns:
            if column.name != relation.key and rows:
                _perturb(rows, column, ints, days, rand)
        result[relation.name] = rows
    return result


def _perturb(
    rows: dict[str, Row], column: Column, ints: list[int], days: list[date], rand: Random
) -> None:
    values = [row[column.name] for row in rows.values()]
    choice = rand.random()
    if choice < 0.4:
        rand.shuffle(values)
    elif choice < 0.8:
        values = [
            _at_bound(column, value, ints, days, rand) if rand.random() < 0.4 else value
            for value in values
        ]
    for row, value in zip(rows.values(), values, strict=True):
        row[column.name] = value


def _at_bound(
    column: Column, value: Scalar, ints: list[int], days: list[date], rand: Random
) -> Scalar:
    if value is None:
        return None
    if column.type == "bool":
        return not value
    if column.type == "date" and days:
        back = rand.choice([0, *[i for i in ints if i <= 400]]) + rand.choice((-1, 0, 1))
        return (rand.choice(days) - timedelta(days=back)).isoformat()
    if (column.type in ("int", "minutes") or column.type.startswith("decimal")) and ints:
        return max(0, rand.choice(ints) + rand.choice((-1, 0, 1)))
    return value


def _bounds(problem: Problem) -> tuple[list[int], list[date]]:
    """The ints and dates that the problem compares with."""
    values: list[object] = list(problem.params.values())
    for root in _roots(problem):
        values += [node.value for node in root.walk() if isinstance(node, Const)]
    ints = sorted({v for v in values if isinstance(v, int) and not isinstance(v, bool)})
    days = []
    for value in values:
        if isinstance(value, str) and len(value) == 10 and value[4] == "-":
            days.append(date.fromisoformat(value))
    return ints, sorted(set(days))


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
