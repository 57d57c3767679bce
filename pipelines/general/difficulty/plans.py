"""Shortcuts of workflows: players that change the database."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice, product
from random import Random
from typing import Any, NamedTuple

from envgen.core import ir
from envgen.core.ir import Node, Problem, Reach
from envgen.pipelines.general.difficulty.answers import STARTS
from envgen.pipelines.general.semantics.calls import Call
from envgen.pipelines.general.semantics.evaluator import Closure, Frame, elements
from envgen.pipelines.general.semantics.judge import Judge
from envgen.pipelines.general.semantics.machine import Diff, Machine, RowId, Tool
from envgen.pipelines.general.semantics.rewrite import (
    TRUE,
    conjuncts,
    is_joint,
    reads_final,
    truth,
)
from envgen.pipelines.general.semantics.tables import Row, Tables

_WORSE = 0.02


_MAX_CALLS = 2_000
"""Calls tried for one wish."""


class _Wish(NamedTuple):
    """What an effect wants of one row (or, without one, at all)."""

    row: RowId | None
    holds: Closure
    variables: dict[str, Any]
    numbers: list[Closure]
    """What it compares new values with."""

    def granted(self, frame: Frame) -> bool:
        """Whether a state gives what is wanted."""
        frame.vars = dict(self.variables)
        granted = self.holds(frame) is True
        frame.vars = {}
        return granted


class AskedRows(NamedTuple):
    """The rows that an effect would change if there were no policy."""

    effect: str
    over: ir.Query
    rows: tuple[str, ...]


def must_escalate(problem: Problem, tables: Tables) -> bool:
    """Whether a task is a workflow whose request must be escalated."""
    return isinstance(problem.goal, Reach) and WorkflowGame(problem, tables).due


class WorkflowGame:
    """A workflow over rows, nothing of it to be escalated."""

    def __init__(self, problem: Problem, tables: Tables) -> None:
        assert isinstance(problem.goal, Reach)
        self.problem, self.tables, self.goal = problem, tables, problem.goal
        self.machine = Machine(problem, tables)
        self.judge = Judge(problem, self.machine)
        self.compiler = self.machine.start
        self._known: dict[Diff, int] = {}
        self.policy = [truth(c) for c in problem.clauses if c.source == "policy"]

    @cached_property
    def due(self) -> bool:
        """Whether the request must be escalated: then there is nothing to play."""
        when = self.goal.escalate_when
        return when is not None and self.compiler.compile(when)(self.compiler.frame()) is True

    def passes(self, plan: Sequence[Call] | None) -> bool:
        """Whether the calls, and the outcome ``done``, are right."""
        return plan is not None and not self.broken(plan)

    def broken(self, plan: Sequence[Call]) -> int:
        """How many parts of rules the calls break, and cells they change that must stay as they are."""
        diff = Diff()
        for name, args in plan:
            tool = next(tool for tool in self.machine.tools if tool.access.tool == name)
            writes = self.machine.call(tool, args, self.machine.tables(diff))
            diff = self.machine.after(diff, writes) if writes else diff
        return self.judge.faults(diff, self.machine.tables(diff))

    # --- players ------------------------------------------------------------------------------------

    def first_row(self) -> list[Call]:
        """Make the first call of ``first_fit``."""
        return self.first_fit()[:1]

    def greedy(self) -> list[Call]:
        """Do all that is asked for, whatever the policy says."""
        policy = {part for clause in self.policy for part in _conditions(clause)}
        return self._done(lambda part: part in policy, ())

    def first_fit(self) -> list[Call]:
        """Go row by row: every rule is known but what ranks or adds up rows that calls change."""
        known = [rule for rule in self.policy if not self._joint(rule)]
        return self._done(self._joint, known)

    def filtered(self, kept: Callable[[ir.Clause, Row, str], bool]) -> list[Call]:
        """Do what is asked for to the rows of each effect that are ``kept``, whatever the policy says."""
        policy = {part for clause in self.policy for part in _conditions(clause)}
        return self._done(lambda part: part in policy, (), kept)

    def only(self, chosen: Mapping[str, Collection[str]]) -> list[Call]:
        """Do what is asked for to these rows of some effects, and to all rows of the others."""

        def kept(effect: ir.Clause, row: Row, relation: str) -> bool:
            key = self.problem.relation(relation).key
            return effect.id not in chosen or row[key] in chosen[effect.id]

        return self.filtered(kept)

    def asked_rows(self) -> Iterator[AskedRows]:
        """The rows of each effect, whatever the policy says."""
        policy = {part for clause in self.policy for part in _conditions(clause)}
        for effect in self.goal.effects:
            over = effect.expr.over if isinstance(effect.expr, ir.All) else None
            if isinstance(over, ir.Query) and not reads_final(over):
                rows = self._rows_of(over, lambda part: part in policy)
                yield AskedRows(effect.id, over, tuple(rows))

    def local_search(self, rng: Random, steps: int) -> int | None:
        """Evaluated states until one is right, the fewest of some starts; None if more than ``steps``."""
        best: int | None = None
        for _ in range(STARTS):
            found = self._one_start(rng, steps if best is None else best - 1)
            best = best if found is None else found
        return best

    def _joint(self, part: Node) -> bool:
        """Whether a condition ranks or adds up rows of tables that calls change."""
        return is_joint(part, self.machine.mutable)

    def _done(
        self,
        unknown: Callable[[Node], bool],
        policy: Sequence[Node],
        kept: Callable[[ir.Clause, Row, str], bool] = lambda effect, row, relation: True,
    ) -> list[Call]:
        """Calls that give each wish what it wants, where a call does and keeps ``policy``.

        Args:
            unknown: the conditions on an effect's rows that the player doesn't know.
            policy: what must hold after each call.
            kept: whether a row of an effect is one that the player would change.
        """
        diff, plan = Diff(), list[Call]()
        rules = [self.compiler.compile(rule) for rule in policy]
        for effect in self.goal.effects:
            for wish in self._wishes(effect, unknown, kept):
                for tool, args in self._calls(wish):
                    writes = self.machine.call(tool, args, self.machine.tables(diff))
                    if writes is None:
                        continue
                    changed = self.machine.after(diff, writes)
                    frame = self.compiler.frame(new=self.machine.tables(changed))
                    if not wish.granted(frame) or any(run(frame) is not True for run in rules):
                        continue
                    diff, plan = changed, [*plan, (tool.access.tool, args)]
                    break
        return plan

    def _calls(self, wish: _Wish) -> Iterator[tuple[Tool, dict[str, Any]]]:
        """The calls that may grant a wish: about its row, with numbers that the wish names."""
        for tool in self.machine.tools:
            if wish.row and wish.row[0] not in tool.sources.values():
                continue
            choices = [self._arguments(tool, name, wish) for name in tool.domains]
            for values in islice(product(*choices), _MAX_CALLS):
                yield tool, dict(zip(tool.domains, values, strict=True))

    def _arguments(self, tool: Tool, name: str, wish: _Wish) -> Sequence[Any]:
        if wish.row and tool.sources.get(name) == wish.row[0]:
            return [wish.row[1]]
        if name in tool.spans:
            frame = self.compiler.frame()
            frame.vars = dict(wish.variables)
            named = [run(frame) for run in wish.numbers]
            return [value for value in named if type(value) is int]
        return [item.value for item in tool.domains[name]]

    def _wishes(
        self,
        effect: ir.Clause,
        unknown: Callable[[Node], bool],
        kept: Callable[[ir.Clause, Row, str], bool],
    ) -> Iterator[_Wish]:
        """What an effect wants of each row of its query; of any other effect all at once."""
        expr = effect.expr
        over = expr.over if isinstance(expr, ir.All) else None
        if not isinstance(expr, ir.All) or not isinstance(over, ir.Query) or reads_final(over):
            yield _Wish(self._written(expr), self.compiler.compile(expr), {}, self._numbers(expr))
            return
        body, numbers = self.compiler.compile(expr.body), self._numbers(expr.body)
        rows = self.tables.get(over.relation, {})
        for key in self._rows_of(over, unknown):
            if key in rows and kept(effect, rows[key], over.relation):
                yield _Wish((over.relation, key), body, {expr.var: key}, numbers)

    def _rows_of(self, over: ir.Query, unknown: Callable[[Node], bool]) -> Iterable[Any]:
        """The rows that a query gives without the conditions that the player doesn't know."""
        parts = tuple(part for part in conjuncts(over.where) if not unknown(part))
        known = over.model_copy(update={"where": ir.And(items=parts), "order": (), "limit": None})
        rows: Iterable[Any] = elements(known, self.compiler)(self.compiler.frame())
        return rows

    def _written(self, expr: Node) -> RowId | None:
        """The row of which an effect reads a new value, if it names it."""
        gets = [
            get
            for node in expr.walk()
            if isinstance(node, ir.New)
            for get in node.walk()
            if isinstance(get, ir.Get) and isinstance(get.entity, ir.Param)
        ]
        if not gets:
            return None
        return gets[0].relation, self.compiler.compile(gets[0].entity)(self.compiler.frame())

    def _numbers(self, expr: Node) -> list[Closure]:
        """The other sides of equations about new values."""
        equal = [node for node in expr.walk() if isinstance(node, ir.Cmp) and node.fn == "="]
        sides = [side for node in equal for side in (node.left, node.right)]
        return [self.compiler.compile(side) for side in sides if not reads_final(side)]

    def _one_start(self, rng: Random, steps: int) -> int | None:
        """Make or take back one call after another, as long as no more parts of rules are broken."""
        diff: Diff = ()
        for _ in range(rng.randint(0, self.goal.max_calls)):
            diff = self._stepped(diff, rng)
        faults = self._faults(diff)
        for step in range(1, steps + 1):
            if not faults:
                return step
            if diff and rng.random() < 0.5:
                at = rng.randrange(len(diff))
                changed = diff[:at] + diff[at + 1 :]
            else:
                changed = self._stepped(diff, rng)
            now = self._faults(changed)
            if now <= faults or rng.random() < _WORSE:
                diff, faults = changed, now
        return None

    def _faults(self, diff: Diff) -> int:
        """How many parts of rules a state breaks, counted once of each: walks come back to many."""
        if diff not in self._known:
            self._known[diff] = self.judge.faults(diff, self.machine.tables(diff))
        return self._known[diff]

    def _stepped(self, diff: Diff, rng: Random) -> Diff:
        """The state after a random call, whose numbers are those that rules turn on."""
        tool = rng.choice(self.machine.tools)
        args = {name: rng.choice(values).value for name, values in tool.domains.items()}
        writes = self.machine.call(tool, args, self.machine.tables(diff))
        return self.machine.after(diff, writes) if writes else diff


def _conditions(rule: Node) -> Iterator[Node]:
    """What a rule of the policy, ``not done(row) or condition``, asks of a row."""
    body = rule.body if isinstance(rule, ir.All) else TRUE
    if isinstance(body, ir.Or):
        yield from conjuncts(body.items[-1])
