"""Rows set so that one comparison of one rule is just true, just equal and just false.

Where that flips the rule, a verifier that compares a little differently gives itself away.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from pydantic import JsonValue

from envgen.core.ir import Clause, Cmp, Get, Node, Problem, Var
from envgen.pipelines.general.semantics.evaluate import rules_of
from envgen.pipelines.general.semantics.tables import Tables

BASES = 3
"""Answers for which each comparison is turned, at most."""


class TurnedCell(NamedTuple):
    """One cell to be set, and the answer for which that matters."""

    answer: JsonValue
    relation: str
    key: str
    column: str
    value: int

    def write(self, base: Path, path: Path, key_column: str) -> None:
        """Copy the database ``base`` to ``path`` with the cell set."""
        shutil.copyfile(base, path)
        path.chmod(0o600)
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute(
                f'UPDATE "{self.relation}" SET "{self.column}" = ? WHERE "{key_column}" = ?',
                [self.value, self.key],
            )


def turns(problem: Problem, tables: Tables, answers: Sequence[JsonValue]) -> Iterator[TurnedCell]:
    """Cells that turn a comparison of a clause, each with three values: just below, at, just above.

    Only those for which the clause's verdict on the answer changes between the three.
    """
    for clause in problem.clauses:
        roots = (clause.expr,) if clause.guard is None else (clause.expr, clause.guard)
        for comparison in (node for root in roots for node in root.walk() if isinstance(node, Cmp)):
            for get in _cells(comparison):
                found = 0
                for answer in answers:
                    turned = _turned(problem, tables, answer, clause, comparison, get)
                    yield from turned
                    found += bool(turned)
                    if found == BASES:
                        break


def _cells(comparison: Cmp) -> Iterator[Get]:
    """Columns read by a comparison, of rows that the answer alone determines."""
    for side in (comparison.left, comparison.right):
        for node in side.walk():
            if isinstance(node, Get) and not any(isinstance(n, Var) for n in node.walk()):
                yield node


def _turned(
    problem: Problem,
    tables: Tables,
    answer: JsonValue,
    clause: Clause,
    comparison: Cmp,
    get: Get,
) -> list[TurnedCell]:
    rules = rules_of(problem)
    frame = rules.frame(tables, answer, tables)
    if frame is None:
        return []
    left, right, key, value = (
        rules.value(expr, frame) for expr in (comparison.left, comparison.right, get.entity, get)
    )
    if type(left) is not int or type(right) is not int or type(value) is not int:
        return []
    ahead = right - left if _within(get, comparison.left) else left - right
    found, verdicts = [], set()
    for step in (-1, 0, 1):
        if value + ahead + step < 0:
            return []
        turn = TurnedCell(answer, get.relation, str(key), get.column, value + ahead + step)
        found.append(turn)
        frame.old = frame.new = _with_cell(tables, turn)
        verdicts.add(rules.holds(clause.id, frame))
    return found if len(verdicts) == 2 else []


def _within(node: Node, root: Node) -> bool:
    return any(one is node for one in root.walk())


def _with_cell(tables: Tables, turn: TurnedCell) -> Tables:
    rows = tables[turn.relation]
    row = {**rows[turn.key], turn.column: turn.value}
    return {**tables, turn.relation: {**rows, turn.key: row}}
