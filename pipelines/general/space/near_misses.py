"""Answers that break exactly one rule: what a verifier must not let through."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, combinations, islice
from random import Random
from typing import Any

from envgen.core import ir
from envgen.core.ir import Node, Problem
from envgen.pipelines.general.semantics.evaluate import evaluate
from envgen.pipelines.general.semantics.evaluator import Compiler, Frame
from envgen.pipelines.general.semantics.layout import fill_layout, plain
from envgen.pipelines.general.semantics.rewrite import conjuncts, summands, truth
from envgen.pipelines.general.semantics.slot_values import NotEnumerableError, element_values
from envgen.pipelines.general.semantics.tables import Tables
from envgen.pipelines.general.space.guided import solutions
from envgen.pipelines.general.space.model import Model, build_model, goal_truth, right_sets
from envgen.pipelines.general.space.plan_misses import plan_misses
from envgen.pipelines.general.space.search import StepBudget

NUM_EQUALS = 20


def near_misses(
    p: Problem,
    db: Tables,
    accepted: Any,
    rng: Random,
    *,
    per_clause: int = 5,
    steps: int = 60_000,
) -> Iterator[tuple[Any, str]]:
    """(answer, id of the one rule it breaks), up to ``per_clause`` for each rule.

    First every answer that differs from ``accepted`` in one slot, those nearest to a bound first; then,
    for rules still short of ``per_clause``, a search for answers that keep all other rules and break this
    one. That search is complete within ``steps`` steps a rule: a rule that gets nothing is unbreakable.
    ``evaluate`` confirms each. For Equals the near-misses of ``goal`` are other values of the slot. For
    Reach ``accepted`` and the results are ``Plan``s.
    """
    if isinstance(p.goal, ir.Reach):
        yield from plan_misses(p, db, accepted, rng, per_clause=per_clause)
        return
    try:
        finder = Finder(p, db, accepted, rng)
    except NotEnumerableError:
        targets = right_sets(p, Compiler(p, db))
        if targets is None:
            raise
        for target in targets:
            yield from _other_sets(p, db, target, rng)
        return
    for rule in finder.rules:
        most = NUM_EQUALS if rule == "goal" and isinstance(p.goal, ir.Equals) else per_clause
        yield from islice(finder.misses(rule, steps), most)


class Finder:
    """Near-misses of one problem from one accepted answer."""

    def __init__(
        self, p: Problem, db: Tables, accepted: Any, rng: Random, compiler: Compiler | None = None
    ) -> None:
        self.p, self.db, self.rng = p, db, rng
        self.compiler = compiler or Compiler(p, db)
        self.whole = Model(p, db, self.compiler)
        values = self.whole.values_of(accepted)
        if values is None:
            raise ValueError("the accepted answer doesn't fit the layout")
        self.start: list[Any] = values
        self.exprs: dict[str, Node] = {clause.id: truth(clause) for clause in p.clauses}
        goal = goal_truth(p, self.compiler)
        if goal is not None:
            self.exprs["goal"] = goal
        self.rules = list(self.exprs)
        self._runs = {rule: self.compiler.compile(expr) for rule, expr in self.exprs.items()}
        self._scopes = {rule: self.whole.scope_of(expr) for rule, expr in self.exprs.items()}

    def moves(self, rule: str) -> Iterator[list[Any]]:
        """The one-slot changes of the accepted answer that break ``rule`` and no other."""
        frame, run = self.whole.frame, self._runs[rule]
        for i in self._scopes[rule]:
            others = [
                self._runs[r] for r, scope in self._scopes.items() if r != rule and i in scope
            ]
            for value in self.whole.domains[i]:
                frame.slots[:] = self.start
                frame.slots[i] = value
                if run(frame) is not True and all(one(frame) is True for one in others):
                    yield list(frame.slots)

    def _nearest(self, rule: str) -> list[list[Any]]:
        """The moves of a rule, those that are off the least first."""
        frame, found = self.whole.frame, []
        for values in self.moves(rule):
            frame.slots[:] = values
            found.append((violation(self.exprs[rule], self.compiler, frame), values))
        return [values for _, values in sorted(found, key=lambda move: move[0])]

    def misses(self, rule: str, steps: int) -> Iterator[tuple[Any, str]]:
        """Confirmed near-misses of one rule, nearest first."""
        seen = set()
        for values in chain(self._nearest(rule), self._searched(rule, steps)):
            if tuple(values) in seen:
                continue
            seen.add(tuple(values))
            answer = self.whole.answer(values)
            held = evaluate(self.p, self.db, answer)
            if [name for name, ok in held.items() if not ok] == [rule]:
                yield answer, rule

    def _searched(self, rule: str, steps: int) -> Iterator[list[Any]]:
        """Solutions of "all other rules, and one part of this rule is not true"."""
        parts = list(pieces(self.exprs[rule], self.p))
        self.rng.shuffle(parts)
        models = [
            build_model(self.p, self.db, without=rule, refused=(part,), compiler=self.compiler)
            for part in parts
        ]
        share = max(steps // max(len(parts), 1), 2_000)
        easy = [
            solutions(model, self.rng, StepBudget(share), searches_first=True) for model in models
        ]
        yield from _in_turn(easy)
        hard = [solutions(model, self.rng, StepBudget(steps)) for model in models]
        for source in hard:  # each costs a lot to start: take two before the next
            yield from islice(source, 2)
        yield from _in_turn(hard)


def _in_turn(sources: list[Iterator[list[Any]]]) -> Iterator[list[Any]]:
    """One item of each source, then the next of each, until all are empty."""
    while sources:
        for source in list(sources):
            values = next(source, None)
            if values is None:
                sources.remove(source)
            else:
                yield values


def pieces(rule: Node, p: Problem) -> Iterator[Node]:
    """Parts of a rule that can be broken alone, each by its own conjunct."""
    for part in conjuncts(rule):
        yield from _pieces(part, p)


def _pieces(expr: Node, p: Problem) -> Iterator[Node]:
    """Parts that can be broken alone: pairs of an AllDifferent, summands that may be unknown."""
    if isinstance(expr, ir.AllDifferent):
        for left, right in combinations(expr.items, 2):
            yield ir.Cmp(fn="!=", left=left, right=right)
        return
    yield expr
    if isinstance(expr, ir.Cmp):
        for _, part in (*summands(expr.left, 1), *summands(expr.right, 1)):
            if _nullable(part, p):
                yield ir.Cmp(fn="=", left=part, right=part)


def _nullable(expr: Node, p: Problem) -> bool:
    gets = (node for node in expr.walk() if isinstance(node, ir.Get))
    return any(p.relation(get.relation).column(get.column).nullable for get in gets)


def violation(expr: Node, compiler: Compiler, frame: Frame) -> int:
    """How far an expression that isn't true is from being true, in units of what it compares; >= 1."""
    if isinstance(expr, ir.And):
        broken = [e for e in expr.items if compiler.compile(e)(frame) is not True]
        return sum(violation(e, compiler, frame) for e in broken) or 1
    if isinstance(expr, ir.Or):
        return min((violation(e, compiler, frame) for e in expr.items), default=1)
    if isinstance(expr, ir.If):
        test = compiler.compile(expr.test)(frame)
        return violation(expr.then if test else expr.other, compiler, frame)
    if isinstance(expr, ir.Cmp) and expr.fn != "in":
        left, right = compiler.compile(expr.left)(frame), compiler.compile(expr.right)(frame)
        if type(left) is int and type(right) is int:
            return abs(left - right) + (expr.fn in ("<", ">", "!="))
    return 1


def _other_sets(
    p: Problem, db: Tables, target: tuple[Any, ...], rng: Random
) -> Iterator[tuple[Any, str]]:
    """Near-misses of an Equals goal over a set too large to list: one element more, less or other."""
    slot = p.slots[0]
    rest = [item for item in element_values(slot, Compiler(p, db)) if item not in target]
    rng.shuffle(rest)
    others = [[x for x in target if x != gone] for gone in target]
    others += [[*target, extra] for extra in rest]
    others += [[*(x for x in target if x != gone), new] for gone in target for new in rest]
    for values in others[: 3 * NUM_EQUALS]:
        answer = fill_layout(p.layout, {slot.name: plain(slot, values)})
        held = evaluate(p, db, answer)
        if [name for name, ok in held.items() if not ok] == ["goal"]:
            yield answer, "goal"
