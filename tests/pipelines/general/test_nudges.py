"""Rows with one cell changed, around the turn of gold: a policy that is one off shows there."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from ladders import ladder

from envgen.core.ir import Problem
from envgen.core.types import CallRecord, GoldRun
from envgen.pipelines.general.difficulty.facts import facts
from envgen.pipelines.general.gates.nudges import EACH, Nudged, nudged
from envgen.pipelines.general.semantics.calls import Plan
from envgen.pipelines.general.semantics.evaluate import as_told
from envgen.pipelines.general.semantics.replies import evaluate_plan
from envgen.pipelines.general.semantics.tables import Tables
from envgen.pipelines.general.space.answers import solve


def task(domain: str, level: int) -> tuple[Problem, Tables, Plan, list[Nudged]]:
    """A workflow in which something is to be done, and its nudged rows."""
    for seed in (11, 12, *range(1, 7)):
        problem, tables = ladder(domain, seed, level)[-1]
        plan = next(solve(problem, tables, Random(0)))
        if plan.calls:
            calls = [CallRecord(name=n, arguments=dict(a), mutates=True) for n, a in plan.calls]
            gold = GoldRun(calls=tuple(calls), answer=plan.answer)
            return (
                problem,
                tables,
                plan,
                list(nudged(problem, tables, facts(problem, tables, gold), plan, Random(0))),
            )
    raise AssertionError("all are to be escalated")


def right(problem: Problem, tables: Tables, plan: Plan) -> bool:
    told = Plan(plan.calls, as_told(problem, tables, plan.answer))
    return all(evaluate_plan(problem, tables, told).values())


@pytest.mark.parametrize(("domain", "level"), [("itops", 6), ("orders", 6)])
def test_one_cell_decides_whether_gold_is_right(domain: str, level: int) -> None:
    problem, tables, plan, found = task(domain, level)
    assert right(problem, tables, plan)
    by_column: dict[tuple[str, str], set[str]] = {}
    for one in found:
        relation, key, column = one.cell
        by_column.setdefault((relation, column), set()).add(key)
        row = tables[relation][key]
        changed = {**row, column: one.tables[relation][key][column]}
        assert one.tables == {**tables, relation: {**tables[relation], key: changed}}
        assert right(problem, one.tables, plan) is one.right
        assert one.right or changed != row
    assert {one.right for one in found} == {True, False}
    assert all(len(keys) <= EACH for keys in by_column.values())
    turns = [(a, b) for a, b in pairwise(found) if a.right and not b.right]
    for a, b in turns:  # neighbours: a value in between would be missed
        assert a.cell == b.cell
        left, other = (one.tables[one.cell[0]][one.cell[1]][one.cell[2]] for one in (a, b))
        assert not isinstance(left, int) or abs(left - int(str(other))) == 1


def test_a_policy_that_is_one_off_shows_on_nudged_rows() -> None:
    """The verdict on gold's own rows, or on other plans there, doesn't tell a bound from the next one up."""
    problem, tables, plan, found = task("itops", 6)
    bounds = [name for name, value in problem.params.items() if isinstance(value, int)]
    assert bounds
    for name in bounds:
        value = problem.params[name]
        assert isinstance(value, int)
        seen = []
        for off in (value - 1, value + 1):
            params = {**problem.params, name: off}
            wrong = problem.model_copy(update={"params": params})
            seen.append(any(right(wrong, one.tables, plan) is not one.right for one in found))
            if right(wrong, tables, plan):
                assert seen[-1], (name, off)
        assert any(seen), name
