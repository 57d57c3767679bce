"""Plans that break exactly one rule, made from an accepted one."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from envgen.core import ir
from envgen.core.errors import ConfigError
from envgen.core.ir import Problem
from envgen.pipelines.general.semantics.evaluate import rule_ids
from envgen.pipelines.general.semantics.evaluator import Compiler
from envgen.pipelines.general.semantics.judge import Judge
from envgen.pipelines.general.semantics.layout import fill_layout, match_layout, plain
from envgen.pipelines.general.semantics.machine import Diff, Machine
from envgen.pipelines.general.semantics.plans import (
    Call,
    IntSpan,
    Plan,
    argument_values,
    evaluate_plan,
)
from envgen.pipelines.general.semantics.slot_values import NotEnumerableError, domain_values
from envgen.pipelines.general.semantics.tables import Tables

MAX_TRIED = 3_000


def plan_misses(
    p: Problem, db: Tables, accepted: Plan, rng: Random, *, per_clause: int = 5
) -> Iterator[tuple[Plan, str]]:
    """(plan, id of the one rule it breaks), up to ``per_clause`` for each rule.

    From ``accepted``: one call skipped, repeated, with another argument or added, or another submission.
    ``evaluate`` on the resulting state confirms what each breaks.
    """
    try:
        machine = Machine(p, db)
    except ConfigError:
        return
    judge = Judge(p, machine)
    tools = {tool.access.tool: tool for tool in machine.tools}
    left = dict.fromkeys(rule_ids(p), per_clause)
    seen = {repr(accepted)}
    for tried, plan in enumerate(_changed(p, db, accepted, judge, rng)):
        if tried >= MAX_TRIED or not any(left.values()):
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
    yield from _alternately(swaps, extra)


def _alternately(first: list[Plan], second: list[Plan]) -> Iterator[Plan]:
    for i in range(max(len(first), len(second))):
        yield from first[i : i + 1]
        yield from second[i : i + 1]


def _near_values(
    p: Problem, db: Tables, access: ir.Access, name: str, value: Any, rng: Random
) -> list[Any]:
    """Other values of an argument: neighbours of an int, else all in random order."""
    values = argument_values(p, access, name, db)
    if values is None:
        return []
    if isinstance(values, IntSpan):
        near = (value - 1, value + 1, values.low, values.high)
        return [v for v in near if values.low <= v <= values.high and v != value]
    others = [v for v in values if v != value]
    return rng.sample(others, min(len(others), 60))


def _some_arguments(
    p: Problem, db: Tables, access: ir.Access, near: set[str], rng: Random, most: int = 150
) -> Iterator[dict[str, Any]]:
    """Arguments for one more call, at random; those with a key of ``near`` first."""
    domains: dict[str, Any] = {}
    for name in access.args:
        values = argument_values(p, access, name, db)
        if values is None:
            return
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
    """Submissions that differ from ``answer`` in one slot."""
    values = match_layout(p.layout, answer)
    if values is None:
        return
    compiler = Compiler(p, db)
    for slot in p.slots:
        try:
            domain: list[Call | Any] = domain_values(slot, compiler)
        except NotEnumerableError:
            continue
        others = [plain(slot, v) for v in domain if plain(slot, v) != values[slot.name]]
        others.sort(key=lambda v: _distance(v, values[slot.name]))
        for other in others[:20]:
            yield fill_layout(p.layout, {**values, slot.name: other})


def _distance(a: Any, b: Any) -> int:
    return abs(a - b) if type(a) is int and type(b) is int else 0
