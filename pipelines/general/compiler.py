"""From an expression to a Python closure: caching, and the table of handlers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from envgen.core import ir
from envgen.core.ir import Node, Problem
from envgen.pipelines.general.dispatch import Dispatch
from envgen.pipelines.general.frames import Closure, Frame, free_names, reads_final, slots_of
from envgen.pipelines.general.tables import Tables

MAX_MEMO_SLOTS = 3


class Compiler:
    """Compiles the expressions of one problem over one initial database.

    ``static``: the initial database never changes while closures live, so whatever depends on it alone
    is computed once, and what depends on one slot once per value.
    """

    def __init__(self, p: Problem, db: Tables, *, static: bool = True) -> None:
        self.p = p
        self.db = db
        self.static = static
        self.position = {slot.name: i for i, slot in enumerate(p.slots)}
        self.in_final = False
        self._done: dict[tuple[int, bool], tuple[Node, Closure]] = {}
        self._columns: dict[tuple[str, str], dict[str, Any]] = {}

    def column(self, relation: str, column: str) -> dict[str, Any]:
        """One column of the initial database, by key."""
        values = self._columns.get((relation, column))
        if values is None:
            rows = self.db.get(relation, {})
            values = {key: row.get(column) for key, row in rows.items()}
            self._columns[relation, column] = values
        return values

    def frame(self, new: Tables | None = None) -> Frame:
        """An empty frame over the initial database."""
        return Frame(len(self.p.slots), self.db, new)

    def compile(self, expr: Node) -> Closure:
        """``expr`` as a closure; the same node gives the same closure."""
        at = (id(expr), self.in_final)
        if at not in self._done:
            self._done[at] = (expr, self._compiled(expr))  # the node stays alive, its id taken
        return self._done[at][1]

    def _compiled(self, expr: Node) -> Closure:
        run = COMPILE[type(expr)](expr, self)
        fixed = self.static and not self.in_final and not reads_final(expr)
        if not fixed or isinstance(expr, ir.Const | ir.Param | ir.SlotRef) or free_names(expr):
            return run
        slots = slots_of(expr)
        if not slots:
            value = run(self.frame())
            return lambda f: value
        positions = [self.position[name] for name in sorted(slots)]
        if len(slots) == 1:
            return _memoised(run, positions[0])
        if len(slots) <= MAX_MEMO_SLOTS and any(isinstance(n, ir.Query) for n in expr.walk()):
            return _memoised_many(run, positions)
        return run


def _memoised(run: Closure, position: int) -> Closure:
    memo: dict[Any, Any] = {}

    def look_up(f: Frame) -> Any:
        value = f.slots[position]
        try:
            return memo[value]
        except KeyError:
            memo[value] = result = run(f)
            return result

    return look_up


def _memoised_many(run: Closure, positions: list[int]) -> Closure:
    """For expressions that go through rows: those are worth a larger memo."""
    memo: dict[tuple[Any, ...], Any] = {}

    def look_up(f: Frame) -> Any:
        values = tuple([f.slots[i] for i in positions])
        try:
            return memo[values]
        except KeyError:
            memo[values] = result = run(f)
            return result

    return look_up


COMPILE: Dispatch[Callable[[Any, Compiler], Closure]] = Dispatch("closures")
"""Handlers; ``closures`` and ``closures_over`` fill it."""
