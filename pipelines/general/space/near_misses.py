"""Answers and plans that break exactly one rule: what a verifier must not let through."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from random import Random
from typing import Any

from envgen.core import ir
from envgen.core.errors import ConfigError
from envgen.core.ir import Access, Node, Problem
from envgen.pipelines.general.semantics.calls import IntSpan, Plan, argument_values
from envgen.pipelines.general.semantics.evaluate import (
    domain_values,
    evaluate,
    rule_ids,
)
from envgen.pipelines.general.semantics.evaluator import Compiler, Frame
from envgen.pipelines.general.semantics.judge import Judge
from envgen.pipelines.general.semantics.layout import (
    fill_layout,
    match_layout,
    plain,
)
from envgen.pipelines.general.semantics.machine import Diff, Machine
from envgen.pipelines.general.semantics.replies import evaluate_plan
from envgen.pipelines.general.semantics.rewrite import pairwise, summands, truth
from envgen.pipelines.general.semantics.tables import Tables
from envgen.pipelines.general.space.build import bare_model, build_model, goal_truth
from envgen.pipelines.general.space.model import StepBudget
from envgen.pipelines.general.space.search import solutions

NUM_EQUALS = 20
MAX_TRIED = 3_000
"""Changed plans looked at."""


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
    ``evaluate`` confirms each. For Equals the near-misses of ``goal`` are other values of the slot. For Reach
    ``accepted`` and the results are ``Plan``s.

    Raises:
        NotEnumerableError: if the values of a slot can't be listed.
    """
    if isinstance(p.goal, ir.Reach):
        yield from _plan_misses(p, db, accepted, rng, per_clause)
        return
    finder = Finder(p, db, accepted, rng)
    for rule in finder.rules:
        most = NUM_EQUALS if rule == "goal" and isinstance(p.goal, ir.Equals) else per_clause
        yield from islice(finder.misses(rule, steps), most)


class Finder:
    """Near-misses of one problem from one accepted answer."""

    def __init__(
        self, p: Problem, db: Tables, accepted: Any, rng: Random, compiler: Compiler | None = None
    ) -> None:
        self.p, self.db, self.rng = p, db, rng
        self.whole = bare_model(p, db, compiler)
        self.compiler = self.whole.compiler
        start = self.whole.values_of(accepted)
        if start is None:
            raise ValueError("the accepted answer doesn't fit the layout")
        self.start = start
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

    def moved(self) -> set[str]:
        """The rules that ``moves`` breaks: all in one pass, which looks at two rules a value mostly."""
        found, frame = set[str](), self.whole.frame
        for i, domain in enumerate(self.whole.domains):
            runs = [(rule, self._runs[rule]) for rule, scope in self._scopes.items() if i in scope]
            for value in domain:
                if found.issuperset(rule for rule, _ in runs):
                    break
                frame.slots[:] = self.start
                frame.slots[i] = value
                broken: list[int] = []
                for at, (_, run) in enumerate(runs):
                    if run(frame) is not True:
                        broken.append(at)
                        if len(broken) == 2:
                            break
                if len(broken) == 1:
                    found.add(runs[broken[0]][0])
                for at in broken:  # what breaks often stands first
                    runs.insert(0, runs.pop(at))
        return found

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


def _in_turn(sources: list[Iterator[Any]]) -> Iterator[Any]:
    """One item of each source, then the next of each, until all are empty."""
    while sources:
        for source in list(sources):
            item = next(source, None)
            if item is None:
                sources.remove(source)
            else:
                yield item


def pieces(rule: Node, p: Problem) -> Iterator[Node]:
    """Parts of a rule that can be broken alone: conjuncts, unknown summands."""
    for expr in pairwise(rule):
        yield expr
        if isinstance(expr, ir.Cmp):
            for _, part in (*summands(expr.left, 1), *summands(expr.right, 1)):
                gets = (node for node in part.walk() if isinstance(node, ir.Get))
                if any(p.relation(get.relation).column(get.column).nullable for get in gets):
                    yield ir.Cmp(fn="=", left=part, right=part)


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


# --- plans -----------------------------------------------------------------------------------


def _plan_misses(
    p: Problem, db: Tables, accepted: Plan, rng: Random, per_clause: int
) -> Iterator[tuple[Plan, str]]:
    """Plans that break one rule: one call skipped, repeated, changed or added, or another submission.

    The machine guesses what each breaks, because the reference takes a hundred times as long;
    ``evaluate`` on the resulting state confirms it.
    """
    try:
        machine = Machine(p, db)
    except ConfigError:
        return
    judge = Judge(p, machine)
    tools = {tool.access.tool: tool for tool in machine.tools}
    left = dict.fromkeys(rule_ids(p), per_clause)
    seen = {repr(accepted)}
    for plan in islice(_changed(p, db, accepted, judge, rng), MAX_TRIED):
        if not any(left.values()):
            return
        if repr(plan) in seen:
            continue
        seen.add(repr(plan))
        diff: Diff = ()
        for tool, args in plan.calls:
            writes = machine.call(tools[tool], args, machine.tables(diff))
            diff = machine.after(diff, writes or {})
        guess = judge.broken(diff, machine.tables(diff), plan.answer)
        if len(guess) != 1 or not left.get(next(iter(guess))):
            continue
        broken = [rule for rule, ok in evaluate_plan(p, db, plan).items() if not ok]
        if len(broken) == 1 and left[broken[0]]:
            left[broken[0]] -= 1
            yield plan, broken[0]


def _changed(p: Problem, db: Tables, accepted: Plan, judge: Judge, rng: Random) -> Iterator[Plan]:
    calls = accepted.calls
    for i in range(len(calls)):
        yield Plan((*calls[:i], *calls[i + 1 :]), accepted.answer)
    for i in range(len(calls)):
        yield Plan((*calls[: i + 1], *calls[i:]), accepted.answer)
    for answer in _other_answers(p, db, accepted.answer):
        yield Plan(calls, answer)
    tools = {access.tool: access for access in p.access if access.mode == "write"}
    swaps = [
        Plan((*calls[:i], (tool, {**args, name: value}), *calls[i + 1 :]), accepted.answer)
        for i, (tool, args) in enumerate(calls)
        for name in args
        for value in _near_values(p, db, tools[tool], name, args[name], rng)
    ]
    near = {key for _, key, _ in judge.allowance.cells}
    extra = [
        Plan((*calls, (access.tool, args)), accepted.answer)
        for access in tools.values()
        for args in _some_arguments(p, db, access, near, rng)
    ]
    yield from _in_turn([iter(swaps), iter(extra)])


def _near_values(
    p: Problem, db: Tables, access: Access, name: str, value: Any, rng: Random
) -> list[Any]:
    """Other values of an argument: neighbours of an int, else all in random order."""
    values = argument_values(p, access, name, db) or ()
    if isinstance(values, IntSpan):
        near = (value - 1, value + 1, values.low, values.high)
        return [v for v in near if values.low <= v <= values.high and v != value]
    others = [v for v in values if v != value]
    return rng.sample(others, min(len(others), 60))


def _some_arguments(
    p: Problem, db: Tables, access: Access, near: set[str], rng: Random, most: int = 150
) -> Iterator[dict[str, Any]]:
    """Arguments for one more call, at random; those with a key of ``near`` first."""
    domains: dict[str, Any] = {}
    for name in access.args:
        values = argument_values(p, access, name, db)
        if isinstance(values, IntSpan):
            values = (values.low, values.high, rng.randint(values.low, values.high))
        if not values:
            return
        domains[name] = rng.sample(values, len(values))
    if not domains:
        yield {}
        return
    first = max(domains, key=lambda name: len(domains[name]))  # a key, where there is one
    for value in sorted(domains[first], key=lambda v: v not in near)[:most]:
        yield {n: value if n == first else rng.choice(v) for n, v in domains.items()}


def _other_answers(p: Problem, db: Tables, answer: Any) -> Iterator[Any]:
    """Submissions that differ from ``answer`` in one slot, the nearest numbers first."""
    values = match_layout(p.layout, answer)
    if values is None:
        return
    compiler = Compiler(p, db)
    for slot in p.slots:
        here: Any = values[slot.name]
        others = [v for o in domain_values(slot, compiler) if (v := plain(slot, o)) != here]
        others.sort(key=lambda v: abs(v - here) if type(v) is type(here) is int else 0)
        for other in others[:20]:
            yield fill_layout(p.layout, {**values, slot.name: other})
