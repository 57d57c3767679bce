"""Facts and calls that a task takes, both as upper bounds, and how deeply its conditions are nested.

*Facts* are cells of the database: a set of them such that gold stays right whatever the other cells hold.
Judging gold reads cells one after another and stops as soon as it knows; another database that agrees on the
cells read is judged in the same way, so they are such a set. That nothing is better, where the best is asked
for or a rule gives way, rests on all cells of the columns that rules read.

*Calls* are the fewest of gold's distinct calls that tell all facts and can be made: their arguments stand in
the prompt or in what was told before. A lucky agent needs no more; write calls count, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from envgen.core import ir
from envgen.core.canonical import dumps
from envgen.core.ir import Node, Problem
from envgen.core.types import CallRecord, GoldRun
from envgen.pipelines.general.semantics.evaluate import evaluate
from envgen.pipelines.general.semantics.replies import apply_plan
from envgen.pipelines.general.semantics.rewrite import nodes_of, truth
from envgen.pipelines.general.semantics.tables import Row, Tables

Cell = tuple[str, str, str]
"""Relation, key, column."""


class _ReadRow(dict[str, Any]):
    """A row that notes which of its columns are read."""

    def __init__(self, row: Row, relation: str, key: str, seen: set[Cell]) -> None:
        super().__init__(row)
        self._at, self._seen = (relation, key), seen

    def get(self, column: str, default: Any = None) -> Any:
        """The cell, which counts as read."""
        self._seen.add((*self._at, column))
        return super().get(column, default)


def facts(problem: Problem, tables: Tables, gold: GoldRun) -> set[Cell]:
    """Cells on which gold's being right rests; see the module."""
    seen = set[Cell]()
    noted: Tables = {
        relation: {key: _ReadRow(row, relation, key, seen) for key, row in rows.items()}
        for relation, rows in tables.items()
    }
    calls = [(c.name, c.arguments) for c in gold.calls if c.mutates and c.error is None]
    final = apply_plan(problem, noted, calls).final  # tools read cells, too, before they write
    evaluate(problem, noted, gold.answer, final)
    if (
        isinstance(problem.goal, ir.Optimise) or not problem.feasible
    ):  # that nothing is better rests on what all others are
        read = {
            (n.relation, n.column)
            for n in nodes_of(problem.clauses, problem.goal)
            if isinstance(n, ir.Get)
        }
        seen |= {(name, key, column) for name, column in read for key in tables.get(name, {})}
    return seen


def fewest_calls(
    problem: Problem, tables: Tables, gold: GoldRun, prompt: str, needed: set[Cell]
) -> int:
    """How many of gold's distinct calls tell ``needed`` and can be made; an upper bound on what is needed."""
    distinct = list({dumps([c.name, c.arguments]): c for c in gold.calls}.values())
    revealed = {id(call): _revealed_by(problem, tables, call) for call in distinct}
    needed = needed & set().union(*revealed.values())  # the rest is told by rows that are not there
    kept = list(distinct)
    for call in reversed(distinct):
        rest = [other for other in kept if other is not call]
        reads = [other for other in rest if not other.mutates]
        if call.mutates or not needed <= set().union(*(revealed[id(other)] for other in reads)):
            continue
        if _can_be_made(rest, prompt):
            kept = rest
    return len(kept)


def _revealed_by(problem: Problem, tables: Tables, call: CallRecord) -> set[Cell]:
    """The cells that a reply tells: those it shows, and those by which its rows were found."""
    access = next(access for access in problem.access if access.tool == call.name)
    if access.mode == "write":
        return set()
    rows, found = tables.get(access.relation, {}), set[Cell]()
    shown = call.arguments.get(access.projection or "", access.returned_columns)
    columns = [name for name in (*access.args.values(), *_names(shown))]
    relation = problem.relation(access.relation)
    for key, row in rows.items():
        if all(
            row.get(column) == call.arguments.get(name)
            for name, column in access.args.items()
            if not name.startswith(("min_", "max_"))
        ):
            found |= {(relation.name, key, column) for column in columns}
        else:  # that it is not among the rows tells something, too
            found |= {(relation.name, key, column) for column in access.args.values()}
    return found


def _names(value: Any) -> Iterator[str]:
    if isinstance(value, list | tuple):
        yield from (item for item in value if isinstance(item, str))


def _can_be_made(calls: Sequence[CallRecord], prompt: str) -> bool:
    """Whether each argument that is a text stands in the prompt or in a reply before."""
    known = prompt
    for call in calls:
        texts = [v for v in call.arguments.values() if isinstance(v, str)]
        if any(text not in known for text in texts):
            return False
        known += dumps(call.result)
    return True


def branch_depth(problem: Problem) -> int:
    """The most conditions, one inside another, that decide what a rule asks for."""
    goal = problem.goal
    rules = (*problem.clauses, *(goal.effects if isinstance(goal, ir.Reach) else ()))
    roots: list[Node] = [truth(rule) for rule in rules]
    roots += [goal.query] if isinstance(goal, ir.Equals) else []
    return max((_depth(root) for root in roots), default=0)


def _depth(expr: Node) -> int:
    own = 1 if isinstance(expr, ir.If | ir.Or) else 0
    return own + max((_depth(child) for child in expr.children()), default=0)
