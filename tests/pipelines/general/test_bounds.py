"""Bounds that nothing meets, and the players who look for what does."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from envgen.core import ir
from envgen.core.ir import Problem
from envgen.pipelines.general.author import ProceduralAuthor
from envgen.pipelines.general.authoring.edges import between, bounds, nearest
from envgen.pipelines.general.difficulty.bounds import rows_at_bounds, rows_that_add_up
from envgen.pipelines.general.difficulty.measure import shortcuts
from envgen.pipelines.general.difficulty.plans import WorkflowGame
from envgen.pipelines.general.draft import Draft, DraftRequest
from envgen.pipelines.general.gates.trial import reseed_seed
from envgen.pipelines.general.semantics.tables import Tables

AT_MOST = ir.Cmp(fn="<=", left=ir.Var(name="x"), right=ir.Param(name="p"))
BELOW = ir.Cmp(fn="<", left=ir.Var(name="x"), right=ir.Param(name="p"))
AT_LEAST = ir.Cmp(fn=">=", left=ir.Var(name="x"), right=ir.Param(name="p"))


@pytest.mark.parametrize(
    ("kept", "broken", "clock", "wanted"),
    [
        (100, 190, False, {150}),
        (33_812, 35_907, False, {34_000, 35_000}),
        (9, 11, False, {10}),
        (9, 10, False, {None}),
        (545, 610, True, {600}),
        ("2026-01-30", "2026-02-01", False, {"2026-01-31"}),
        ("2026-01-30", "2026-01-31", False, {None}),
    ],
)
def test_a_bound_between_two_values_is_round_and_neither(
    kept: Any, broken: Any, clock: bool, wanted: set[Any]
) -> None:
    for ends in ((kept, broken), (broken, kept)):
        found = {between(*ends, Random(i), clock=clock) for i in range(40)}
        assert found <= wanted


@pytest.mark.parametrize("edge", [AT_MOST, BELOW, AT_LEAST])
def test_each_bound_keeps_some_values_and_breaks_others(edge: ir.Cmp) -> None:
    def keeps(value: int, bound: int) -> bool:
        return {"<=": value <= bound, "<": value < bound, ">=": value >= bound}[edge.fn]

    for values in ([3, 18, 40, 41, 90], [1, 2, 3, 5], [7, 8]):
        found = bounds(edge, "p", values, Random(1))
        assert found
        for bound in found:
            verdicts = [keeps(value, bound) for value in values]
            assert {True, False} == set(verdicts)
            kept = [value for value in values if keeps(value, bound)]
            assert nearest(edge, "p", bound, values) == (min if edge is AT_LEAST else max)(kept)
    assert not set(bounds(edge, "p", [3, 18, 40, 90], Random(1))) & {3, 18, 40, 90}
    assert bounds(edge, "p", [4, 4, None], Random(1)) == []


def game_of(seed: int) -> tuple[WorkflowGame, Problem, Tables]:
    draft = ProceduralAuthor().draft(DraftRequest(domain="orders", level=8), seed)
    assert isinstance(draft, Draft)
    assert draft.problem is not None
    return WorkflowGame(draft.problem, draft.tables), draft.problem, draft.tables


def test_whoever_adds_up_to_the_budget_is_right_where_rows_meet_it_and_not_here() -> None:
    """Sabotage: the budget is moved to what the right items come to, as it was set before."""
    games = map(game_of, range(20))
    game, problem, tables = next(g for g in games if "budget" in g[1].params and not g[0].due)
    assert not game.passes(rows_that_add_up(game))
    spent = _granted(game, problem)
    met = problem.model_copy(update={"params": {**problem.params, "budget": spent}})
    found = rows_that_add_up(WorkflowGame(met, tables))
    assert found is not None
    assert WorkflowGame(met, tables).passes(found)


def _granted(game: WorkflowGame, problem: Problem) -> int:
    """The largest total of a row that the budget allows: what all right items come to."""
    budget = problem.params["budget"]
    assert isinstance(budget, int)
    for _, over, rows in game.asked_rows():
        sums = [
            node.left
            for node in over.where.walk()
            if isinstance(node, ir.Cmp) and node.right == ir.Param(name="budget")
        ]
        if sums:
            run, frame = game.compiler.compile(sums[0]), game.compiler.frame()
            totals: list[int] = []
            for row in rows:
                frame.vars = {over.var: row}
                totals += [total] if (total := run(frame)) is not None else []
            return max(one for one in totals if one <= budget)
    raise AssertionError("no budget")


def test_players_of_bounds_and_constant_claims_are_measured() -> None:
    author = ProceduralAuthor()
    draft = author.draft(DraftRequest(domain="orders", level=8), 42)
    assert isinstance(draft, Draft)
    found = shortcuts(lambda i: author.instance(draft, reseed_seed(5, i)), 1, 12)
    assert found is not None
    assert found.exact_sum == 0.0
    assert found.at_bound is not None
    assert found.best >= found.at_bound
    assert found.constant == 0.0  # what is escalated names a row
    stored = found.model_dump()
    assert "met_bounds" in stored
    bare = found.model_copy(update={"exact_sum": None}).model_dump()
    assert "exact_sum" not in bare
    assert rows_at_bounds(game_of(5)[0])
