"""Rows of a workflow with one cell changed, just before and just after gold's calls stop being right.

Of each column that judging gold reads, some cells are tried at the ends of what the column and the parameters
hold. Where gold is right at a cell's own value and wrong at an end, halving finds the two neighbouring values
between which it turns: there a verifier that compares, ranks or adds up otherwise gives itself away.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from datetime import date
from random import Random
from typing import NamedTuple

from envgen.core.ir import Column, Problem, Scalar
from envgen.pipelines.general.semantics.calls import Plan
from envgen.pipelines.general.semantics.evaluate import as_told
from envgen.pipelines.general.semantics.replies import evaluate_plan
from envgen.pipelines.general.semantics.tables import Tables, sql_type

Cell = tuple[str, str, str]
"""Relation, key, column."""
EACH = 3
"""Cells of a column in which gold turns, at most."""
OTHERS = 3
"""Other texts, references or truth values tried in a cell."""


class Nudged(NamedTuple):
    """Rows with one cell changed."""

    cell: Cell
    tables: Tables
    right: bool
    """Whether gold's calls are still right on these rows, and its answer but for what rules tell of it."""


def nudged(
    problem: Problem, tables: Tables, read: Collection[Cell], plan: Plan, rand: Random
) -> Iterator[Nudged]:
    """Rows on which gold just stays right and rows on which it just stops, cell by cell.

    Args:
        problem: a workflow.
        tables: its rows.
        read: the cells that are read to judge gold.
        plan: gold's write calls and answer.
        rand: the source of chance.
    """
    columns = {(r.name, c.name): c for r in problem.relations for c in r.columns if c.name != r.key}
    cells = defaultdict[tuple[str, str], list[Cell]](list)
    for cell in sorted(read):
        if (cell[0], cell[2]) in columns:
            cells[cell[0], cell[2]].append(cell)
    for place, own in cells.items():
        values = {row[place[1]] for row in tables[place[0]].values()} - {None}
        rand.shuffle(own)
        found = 0
        for cell in own:
            turned = list(_turned(problem, tables, plan, cell, columns[place], values, rand))
            yield from turned
            found += bool(turned)
            if found == EACH:
                break


def _turned(
    problem: Problem,
    tables: Tables,
    plan: Plan,
    cell: Cell,
    column: Column,
    values: set[Scalar],
    rand: Random,
) -> Iterator[Nudged]:
    """The rows around each turn that a cell has."""
    relation, key, name = cell
    own = tables[relation][key][name]

    def at(value: Scalar) -> Nudged:
        row = {**tables[relation][key], name: value}
        changed = {**tables, relation: {**tables[relation], key: row}}
        own_plan = Plan(plan.calls, as_told(problem, changed, plan.answer))
        return Nudged(cell, changed, all(evaluate_plan(problem, changed, own_plan).values()))

    if own is None:
        return
    if column.type == "date":
        days = [date.fromisoformat(str(value)).toordinal() for value in values]
        here = date.fromisoformat(str(own)).toordinal()
        yield from _halved(here, days, lambda day: at(date.fromordinal(day).isoformat()))
    elif column.type != "bool" and sql_type(column) == "INTEGER":
        numbers = [v for v in (*values, *problem.params.values()) if type(v) is int]
        yield from _halved(int(own), numbers, at)
    else:
        others: list[Scalar] = sorted(values - {own}, key=str)
        others = [not own] if column.type == "bool" else others
        for other in rand.sample(others, min(OTHERS, len(others))):
            if not (found := at(other)).right:
                yield found
                return


def _halved(own: int, values: list[int], at: Callable[[int], Nudged]) -> Iterator[Nudged]:
    """On each side of ``own``, the last value at which gold is right and the first at which it is wrong."""
    for end in (max(0, min(values) - 1), max(values) + 1):
        wrong = at(end)
        if end == own or wrong.right:
            continue
        near, far, right = own, end, at(own)
        while abs(far - near) > 1:
            middle = (near + far) // 2
            found = at(middle)
            if found.right:
                near, right = middle, found
            else:
                far, wrong = middle, found
        yield from (right, wrong)
