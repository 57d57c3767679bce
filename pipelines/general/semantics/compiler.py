"""From an expression to a closure: what closures read, what is computed once, the table of handlers.

``evaluator`` fills the table and is where to import from.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, Literal

from envgen.core import ir
from envgen.core.ir import Node, Problem
from envgen.pipelines.general.semantics.dispatch import Dispatch
from envgen.pipelines.general.semantics.rewrite import free_names, params_of, reads_final, slots_of
from envgen.pipelines.general.semantics.tables import Tables

MAX_MEMO_CELLS = 3
"""A memo is kept for expressions that read at most so many slots and free parameters."""


class Frame:
    """What a closure reads: slots by position, variables, arguments, parameters, two states."""

    __slots__ = ("args", "new", "old", "params", "reads", "slots", "vars")

    def __init__(self, num_slots: int, old: Tables, new: Tables, params: Mapping[str, Any]) -> None:
        self.slots: list[Any] = [None] * num_slots
        self.vars: dict[str, Any] = {}
        self.args: Mapping[str, Any] = {}
        self.params = params
        """Read by closures of a compiler with free parameters only."""
        self.old = old
        self.new = new
        self.reads: set[tuple[str, str | None]] | None = None
        """When a set: rows (key None: a whole relation) that were read."""


Closure = Callable[[Frame], Any]
"""A compiled expression."""


class Compiler:
    """Compiles the expressions of one problem.

    ``Compiler(p)`` reads rows from the frame: its closures serve any database. ``Compiler(p, db)`` is
    bound to initial rows that never change while its closures live: what depends on them alone is
    computed once, and what depends on one slot once per value.

    With ``params="bound"`` the problem's parameters are constants like any other. With ``params="free"``
    they are variables: ``frame.params`` gives their values (at first the problem's), so one compilation
    serves every binding. Then nothing that reads a parameter is folded; what also goes through rows
    is kept per value of the parameters and slots that it reads, and the rest is folded as ever.
    """

    def __init__(
        self, p: Problem, db: Tables | None = None, *, params: Literal["bound", "free"] = "bound"
    ) -> None:
        self.p = p
        self.db: Tables = {} if db is None else db
        self.position = {slot.name: i for i, slot in enumerate(p.slots)}
        self.free_params = params == "free"
        self.in_final = False
        self._bound = db is not None
        self._done: dict[tuple[int, bool], tuple[Node, Closure]] = {}
        self._columns: dict[tuple[str, str], dict[str, Any]] = {}

    @property
    def fixed(self) -> bool:
        """Whether the rows that are read where the compiler stands never change."""
        return self._bound and not self.in_final

    @property
    def state(self) -> Callable[[Frame], Tables]:
        """Gives the rows that are read where the compiler stands."""
        return operator.attrgetter("new" if self.in_final else "old")

    def column(self, relation: str, column: str) -> dict[str, Any]:
        """One column of the initial database, by key."""
        values = self._columns.get((relation, column))
        if values is None:
            rows = self.db.get(relation, {})
            values = {key: row.get(column) for key, row in rows.items()}
            self._columns[relation, column] = values
        return values

    def bind(self, params: Mapping[str, Any]) -> None:
        """Let new frames start with these parameters (of a compiler with free ones)."""
        self.p = self.p.model_copy(update={"params": dict(params)})

    def frame(self, old: Tables | None = None, new: Tables | None = None) -> Frame:
        """A frame without slot values; the states default to the initial database."""
        old = self.db if old is None else old
        return Frame(len(self.position), old, old if new is None else new, self.p.params)

    def compile(self, expr: Node) -> Closure:
        """``expr`` as a closure; the same node gives the same closure.

        Raises:
            PipelineError: for a combination that means nothing, such as a sum over a single value.
        """
        at = (id(expr), self.in_final)
        if at not in self._done:
            self._done[at] = (expr, self._compiled(expr))  # the node stays alive, its id taken
        return self._done[at][1]

    def _compiled(self, expr: Node) -> Closure:
        run = COMPILE[type(expr)](expr, self)
        plain = isinstance(expr, ir.Const | ir.Param | ir.SlotRef)
        if plain or not self.fixed or reads_final(expr) or free_names(expr):
            return run
        slots = [self.position[name] for name in sorted(slots_of(expr))]
        params = sorted(params_of(expr)) if self.free_params else []
        if not slots and not params:
            value = run(self.frame())
            return lambda f: value
        if len(slots) == 1 and not params:
            return _memoised(run, slots[0])
        if len(slots) + len(params) <= MAX_MEMO_CELLS and _through_rows(expr):
            return _memoised_many(run, slots, params)
        return run


def _through_rows(expr: Node) -> bool:
    return any(isinstance(node, ir.Query | ir.Reachable) for node in expr.walk())


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


def _memoised_many(run: Closure, positions: list[int], params: list[str]) -> Closure:
    """For expressions that go through rows: those are worth a larger memo."""
    memo: dict[tuple[Any, ...], Any] = {}

    def look_up(f: Frame) -> Any:
        values = tuple([f.slots[i] for i in positions] + [f.params.get(name) for name in params])
        try:
            return memo[values]
        except KeyError:
            memo[values] = result = run(f)
            return result

    return look_up


COMPILE: Dispatch[Callable[[Any, Compiler], Closure]] = Dispatch("evaluator")
