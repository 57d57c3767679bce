"""Parameters of workflows: a request that can be met, under a policy each rule of which forbids something alone.

An effect wants something of all rows that its query gives. The policy's rules are conditions of that query; the
rest of it says which rows the request is about. On those rows every rule is a column of true, false and unknown.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from envgen.core import ir
from envgen.core.ir import Scalar
from envgen.pipelines.general.evaluator import Closure
from envgen.pipelines.general.rewrite import TRUE, conjuncts, free_names, params_of

if TYPE_CHECKING:
    from envgen.pipelines.general.authoring.tune import OpenTask, Params

_BOUND_TRIES = 40
"""Choices of bounds tried for one request."""
_MOST_ROWS = 12
"""Rows that one effect is about: random walks have a state for each subset of them."""


@dataclass(frozen=True)
class Wish:
    """What one effect wants of the rows of a query, and the policy's rules among the query's conditions."""

    effect: ir.Clause
    query: ir.Query
    scope: tuple[ir.Node, ...]
    """The conditions that say which rows the request is about."""
    rules: dict[str, tuple[ir.Node, ...]]
    """Policy clause -> its conditions."""
    least: int
    most: int


class Workflow:
    """Tunes one workflow over given rows."""

    def __init__(self, task: OpenTask) -> None:
        self.task = task
        goal = task.problem.goal
        assert isinstance(goal, ir.Reach)
        self.goal = goal
        self.wishes = [wish for effect in goal.effects if (wish := self._wish(effect)) is not None]
        self.frame = task.compiler.frame()

    def _wish(self, effect: ir.Clause) -> Wish | None:
        if not isinstance(effect.expr, ir.All) or not isinstance(effect.expr.over, ir.Query):
            return None
        query, problem = effect.expr.over, self.task.problem
        parts = [] if query.where == TRUE else list(conjuncts(query.where))
        rules = {
            clause.id: found
            for clause in problem.clauses
            if clause.source == "policy" and (found := _condition(clause)) and set(found) <= set(parts)
        }
        taken = {part for found in rules.values() for part in found}
        phrase = self.task.tuner.domain.phrases[effect.text_key.partition("~")[0]]
        scope = tuple(part for part in parts if part not in taken)
        return Wish(effect, query, scope, rules, *phrase.rows)

    def params(self, *, escalated: bool) -> Params | None:
        """The first request that will do, with its bounds; None if there is none on these rows."""
        for request in self._requests():
            if self._holds(self.goal.escalate_when, request) is not escalated:
                continue
            asked = [self._rows(wish, request) for wish in self.wishes]
            if not escalated and not all(len(rows) <= _MOST_ROWS for rows in asked):
                continue
            found = self._any_bounds(request, asked) if escalated else self._bound(request, asked)
            if found is not None:
                return found
        return None

    # --- requests ------------------------------------------------------------------------------------

    def _requests(self) -> list[Params]:
        """Who asks for what: every choice of the parameters that select rows, in random order."""
        task = self.task
        fixed = dict(task.fixed)
        keys = []
        for name in task.names:
            if name in fixed or name in task.edges:
                continue
            if task.values(task.tuner.stem(name), fixed) is None:
                fixed[name] = task.draw(name, fixed)
            elif any(name in params_of(part) for part in self._selecting()):
                keys.append(name)
        found = [fixed]
        for name in keys:
            stem = task.tuner.stem(name)
            found = [{**one, name: value} for one in found for value in task.values(stem, one) or ()]
        task.rng.shuffle(found)
        return found

    def _selecting(self) -> Iterator[ir.Node]:
        yield from (part for wish in self.wishes for part in wish.scope)
        if self.goal.escalate_when is not None:
            yield self.goal.escalate_when

    def _holds(self, test: ir.Node | None, params: Params) -> bool:
        if test is None:
            return False
        self.frame.params = params
        return self.task.compiler.compile(test)(self.frame) is True

    def _rows(self, wish: Wish, params: Params) -> list[str]:
        """The rows that the request is about."""
        where = wish.scope[0] if len(wish.scope) == 1 else ir.And(items=wish.scope)
        query = wish.query.model_copy(update={"where": where})
        self.frame.params = params
        return list(self._compiled(query)(self.frame))

    def _compiled(self, node: ir.Node) -> Closure:
        """``node`` compiled; equal nodes built anew share one closure."""
        known = self.task.built.setdefault(node, node)
        return self.task.compiler.compile(known)

    # --- bounds --------------------------------------------------------------------------------------

    def _bound(self, request: Params, asked: list[list[str]]) -> Params | None:
        """Bounds under which every wish is met by some rows and each of its rules alone forbids one."""
        for _ in range(_BOUND_TRIES):
            params, edges = self._bounds(request, asked)
            fits = [self._fitting(wish, rows, params) for wish, rows in zip(self.wishes, asked, strict=True)]
            if any(rows is None for rows in fits):
                continue
            granted = {row for rows in fits for row in rows or ()}
            if not edges <= granted:
                continue
            found = self._extras(params, asked, granted)
            if found is not None:
                return found
            if not self._open(request):
                return None
        return None

    def _open(self, request: Params) -> list[str]:
        """The parameters that the request leaves open: other tries can only differ in them."""
        return [name for name in self.task.names if name not in request]

    def _bounds(self, request: Params, asked: list[list[str]]) -> tuple[Params, set[str]]:
        """A choice of what rules compare with, and the rows that just meet it."""
        task, params, edges = self.task, dict(request), set[str]()
        for wish, rows in zip(self.wishes, asked, strict=True):
            for parts in wish.rules.values():
                names = [n for part in parts for n in sorted(params_of(part)) if n not in params]
                for name in sorted(names, key=lambda n: n in task.edges):
                    if name not in task.edges:
                        params[name] = task.rng.choice(task.values(task.tuner.stem(name), params) or [None])
                    elif rows:
                        row = task.rng.choice(rows)
                        params[name] = self._met(wish, name, row, params)
                        edges.add(row)
        return params, edges

    def _met(self, wish: Wish, name: str, row: str, params: Params) -> Scalar:
        """The bound that ``row`` just meets; one that nothing meets if it would be below its least value."""
        from envgen.pipelines.general.authoring.tune import least_edge, other_side, slack

        edge = self.task.edges[name]
        self.frame.params, self.frame.vars = params, {wish.query.var: row}
        value = self.task.compiler.compile(other_side(edge, name))(self.frame)
        self.frame.vars = {}
        if value is None or value < least_edge(self.task.tuner.domain.params[self.task.tuner.stem(name)]):
            return None
        bound: int = value + slack(edge, name)
        return bound

    def _fitting(
        self, wish: Wish, rows: list[str], params: Params, without: Collection[str] = ()
    ) -> list[str] | None:
        """The rows that the wish is about in the end; None if they are too few or many, or a rule is idle."""
        self.frame.params = params
        fits, alone = [], set[str]()
        for row in rows:
            if row in without:
                continue
            self.frame.vars = {wish.query.var: row}
            values = {rule: self._all(parts) for rule, parts in wish.rules.items()}
            broken = [rule for rule, value in values.items() if value is not True]
            if not broken:
                fits.append(row)
            elif len(broken) == 1 and values[broken[0]] is False and self._writable(wish, row):
                alone.add(broken[0])  # an unknown value breaks a rule, too, but no call can show it
        self.frame.vars = {}
        return fits if alone == set(wish.rules) and wish.least <= len(fits) <= wish.most else None

    def _all(self, parts: tuple[ir.Node, ...]) -> bool | None:
        values = [self.task.compiler.compile(part)(self.frame) for part in parts]
        return False if False in values else None if None in values else True

    def _writable(self, wish: Wish, row: str) -> bool:
        """Whether some tool would take the row, so that its rule can be broken by a call."""
        for access in self.task.problem.access:
            for effect in access.effects:
                if effect.relation != wish.query.relation or not isinstance(effect.key, ir.Arg):
                    continue
                own = f"arg:{effect.key.name}"
                self.frame.args = {effect.key.name: row}
                tests = [pre.expr for pre in access.pre if free_names(pre.expr) == {own}]
                if all(self._compiled(test)(self.frame) is True for test in tests):
                    return True
        return False

    # --- wishes about one row ------------------------------------------------------------------------

    def _extras(self, params: Params, asked: list[list[str]], granted: set[str]) -> Params | None:
        """Parameters of the wishes about one row: one that the others can spare."""
        task = self.task
        left = [name for name in self._open(params) if name not in task.edges]
        if not left:
            return params
        name, *more = left
        if more:
            return None
        values = task.values(task.tuner.stem(name), params) or []
        task.rng.shuffle(values)
        for value in islice((v for v in values if v not in granted), 12):
            found = {**params, name: value}
            spared = all(
                self._fitting(wish, rows, found, without=(str(value),)) is not None
                for wish, rows in zip(self.wishes, asked, strict=True)
            )
            if spared and self._clear(found):
                return found
        return None

    def _clear(self, params: Params) -> bool:
        """Whether each query for a best row has one, and its conditions on those rows alone matter."""
        from envgen.pipelines.general.authoring.tune import one_best

        self.frame.params = params
        for effect in self.goal.effects:
            for query in effect.expr.walk():
                if not isinstance(query, ir.Query) or query.limit != 1 or free_names(query):
                    continue
                if not one_best(query, self.task.compiler, self.frame):
                    return False
                best = self._compiled(query)(self.frame)
                parts = list(conjuncts(query.where))
                for part in parts:
                    rest = [other for other in parts if other is not part]
                    weaker = query.model_copy(update={"where": ir.And(items=tuple(rest))})
                    if not params_of(part) and self._compiled(weaker)(self.frame) == best:
                        return False
        return True

    def _any_bounds(self, request: Params, asked: list[list[str]]) -> Params | None:
        """Bounds for a request that will be escalated: nothing is done, so no rule needs to matter."""
        for _ in range(_BOUND_TRIES):
            params, _ = self._bounds(request, asked)
            for name in self._open(params):
                values: list[Any] = self.task.values(self.task.tuner.stem(name), params) or [None]
                params[name] = self.task.rng.choice(values)
            if None not in params.values():
                return params
        return None


def _condition(clause: ir.Clause) -> tuple[ir.Node, ...]:
    """What a policy clause demands of a row that a call changed: ``not done(row) or condition``."""
    rule = clause.expr
    if not isinstance(rule, ir.All) or not isinstance(rule.body, ir.Or) or len(rule.body.items) != 2:
        return ()
    return tuple(conjuncts(rule.body.items[1]))
