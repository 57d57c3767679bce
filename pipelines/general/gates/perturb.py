"""Other rows for the same problem, chosen to sit where its comparisons turn."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import date, timedelta
from itertools import permutations
from random import Random
from typing import Any, Literal, NamedTuple

from pydantic import JsonValue

from envgen.core.ir import (
    Cmp,
    Column,
    Const,
    Get,
    Node,
    NoOverlap,
    Param,
    Problem,
    Reach,
    Relation,
    Scalar,
    SlotRef,
    Sum,
    Var,
)
from envgen.pipelines.general.semantics.evaluate import rules_of
from envgen.pipelines.general.semantics.layout import fill_layout, match_layout
from envgen.pipelines.general.semantics.rewrite import nodes_of
from envgen.pipelines.general.semantics.tables import Row, Tables, sql_type

DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
BASES = 3
"""Answers for which each comparison is turned, at most."""
Edit = Literal["insert", "delete", "update"]
KINDS: tuple[Edit, ...] = ("insert", "delete", "update")


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
    if turning and type(value) is int and rand.random() < 0.8:
        return max(0, rand.choice(turning) + rand.choice((-1, 0, 0, 1)))
    if column.type == "str":
        return rand.choice([text for text in bounds.texts if text in known] or known)
    return value if column.type.startswith("entity:") else rand.choice(known)


def _bounds(problem: Problem) -> Bounds:
    """The values that the problem compares with."""
    ints: dict[tuple[str, str], set[int]] = {}
    values: list[object] = list(problem.params.values())
    for node in _nodes(problem):
        if isinstance(node, Const):
            values.append(node.value)
        elif isinstance(node, Cmp):
            inside = [*node.left.walk(), *node.right.walk()]
            numbers = {n for one in inside for n in _numbers(one, problem)}
            for get in inside:
                if isinstance(get, Get):
                    ints.setdefault((get.relation, get.column), set()).update(numbers)
    gaps = sorted({v for v in values if type(v) is int and 0 < v <= 400})
    texts = sorted({v for v in values if isinstance(v, str)})
    days = sorted({date.fromisoformat(t) for t in texts if DAY.fullmatch(t)})
    return Bounds({key: sorted(found) for key, found in ints.items()}, days, gaps, texts)


def _numbers(node: Node, problem: Problem) -> Iterator[int]:
    """A number that stands in a comparison, and half of it: a sum of two turns where each has half."""
    value = node.value if isinstance(node, Const) else None
    if isinstance(node, Param):
        value = problem.params.get(node.name)
    if type(value) is int:
        yield from (value, value // 2)


def _nodes(problem: Problem) -> Iterator[Node]:
    """Every node of the rules, the goal, the write set and what tools insist on."""
    yield from nodes_of(problem.clauses, problem.goal)
    roots = [pre.expr for access in problem.access for pre in access.pre]
    if isinstance(problem.goal, Reach):
        roots += [cells.rows for cells in problem.goal.write_set]
    yield from (node for root in roots for node in root.walk())


def edited(tables: Tables, relation: Relation, kind: Edit, rand: Random) -> Tables | None:
    """The rows with one of ``relation`` copied, deleted or changed in one cell; None if it has none."""
    rows = dict(tables[relation.name])
    others = [column for column in relation.columns if column.name != relation.key]
    if not rows or (kind == "update" and not others):
        return None
    key = rand.choice(sorted(rows))
    if kind == "delete":
        del rows[key]
    elif kind == "insert":
        rows[f"{key}-copy"] = {**rows[key], relation.key: f"{key}-copy"}
    else:
        column = rand.choice(others)
        rows[key] = {**rows[key], column.name: _other(column, rows[key][column.name])}
    return {**tables, relation.name: rows}


def _other(column: Column, value: Scalar) -> Scalar:
    """Another value for a cell; what is unknown becomes known."""
    if column.type == "bool":
        return not value
    return f"{value or ''}x" if sql_type(column) == "TEXT" else int(value or 0) + 1


def spread(problem: Problem, before: Tables, after: Tables) -> Iterator[Tables]:
    """``after`` with a change done to one row more: a row that shares a reference with a changed one."""
    for relation in problem.relations:
        old, new = before[relation.name], after[relation.name]
        changed = [key for key in sorted(new) if key in old and new[key] != old[key]]
        for key in changed:
            values = {name: new[key][name] for name in new[key] if new[key][name] != old[key][name]}
            for column in relation.columns:
                if not column.type.startswith("entity:") or column.name in values:
                    continue
                for other in sorted(new.keys() - set(changed)):
                    row = {**new[other], **values}
                    if new[other][column.name] == new[key][column.name] and row != new[other]:
                        yield {**after, relation.name: {**new, other: row}}
                        break


def touching(problem: Problem, answers: Sequence[JsonValue]) -> Iterator[JsonValue]:
    """Answers of which an interval is moved to begin where another ends, at the other's place."""
    for node in (node for node in nodes_of(problem.clauses) if isinstance(node, NoOverlap)):
        places = node.resources or node.intervals
        for (first, here), (second, there) in permutations(
            zip(node.intervals, places, strict=True), 2
        ):
            names = [x.slot for x in (first, second, here, there) if isinstance(x, SlotRef)]
            for answer in answers[:BASES] if len(names) == 4 else ():
                values = match_layout(problem.layout, answer) or {}
                earlier, later = values[names[0]], values[names[1]]
                assert isinstance(earlier, dict)
                assert isinstance(later, dict)
                end: Any = earlier["end"]
                length: Any = int(str(later["end"])) - int(str(later["start"]))
                values[names[3]] = values[names[2]]
                values[names[1]] = {"start": end, "end": end + length}
                yield fill_layout(problem.layout, values)


class TurnedCell(NamedTuple):
    """One cell to be set, and the answer for which that matters."""

    answer: JsonValue
    relation: str
    key: str
    column: str
    value: int

    def set_in(self, tables: Tables) -> Tables:
        """The rows with the cell set."""
        rows = tables[self.relation]
        row = {**rows[self.key], self.column: self.value}
        return {**tables, self.relation: {**rows, self.key: row}}


def turns(problem: Problem, tables: Tables, answers: Sequence[JsonValue]) -> Iterator[TurnedCell]:
    """Cells that turn a comparison of a clause, each with three values: just below, at, just above.

    Only those for which the clause's verdict on the answer changes between the three: there a verifier
    that compares a little differently gives itself away.
    """
    for clause in problem.clauses:
        for comparison in (node for node in nodes_of((clause,)) if isinstance(node, Cmp)):
            for get, row in _cells(comparison):
                found = 0
                for answer in answers:
                    turned = _turned(problem, tables, answer, clause.id, comparison, get, row)
                    yield from turned
                    found += bool(turned)
                    if found == BASES:
                        break


def _cells(comparison: Cmp) -> Iterator[tuple[Get, Node]]:
    """Columns read by a comparison, each with the row that the answer alone determines, or the set."""
    for node in (*comparison.left.walk(), *comparison.right.walk()):
        if isinstance(node, Get) and not any(isinstance(n, Var) for n in node.walk()):
            yield node, node.entity
        elif isinstance(node, Sum) and isinstance(node.over, SlotRef):
            if isinstance(node.body, Get) and node.body.entity == Var(name=node.var):
                yield node.body, node.over


def _turned(
    problem: Problem, tables: Tables, answer: JsonValue, clause: str, comparison: Cmp,
    get: Get, row: Node,
) -> list[TurnedCell]:  # fmt: skip
    """The cell that ``get`` reads for an answer at three values, where the clause's verdict changes.

    Of a set of rows it is that of the first.
    """
    rules = rules_of(problem)
    frame = rules.frame(tables, answer, tables)
    if frame is None:
        return []
    left, right, key = (
        rules.value(expr, frame) for expr in (comparison.left, comparison.right, row)
    )
    if isinstance(row, SlotRef) and not isinstance(key, str):
        key = key[0] if key else None
    value = tables[get.relation].get(key, {}).get(get.column)
    if type(left) is not int or type(right) is not int or type(value) is not int:
        return []
    on_left = any(node is get for node in comparison.left.walk())
    equal = value + (right - left if on_left else left - right)
    if equal < 1:
        return []
    found, verdicts = [], set()
    for other in (equal - 1, equal, equal + 1):
        turn = TurnedCell(answer, get.relation, str(key), get.column, other)
        found.append(turn)
        frame.old = frame.new = turn.set_in(tables)
        verdicts.add(rules.holds(clause, frame))
    return found if len(verdicts) == 2 else []
