"""The paper's trip at full size: exact and quick, and agreeing with an independent estimate."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from random import Random

import pytest
from big_trip import big_trip

from envgen.pipelines.general.semantics.evaluate import accepted, evaluate
from envgen.pipelines.general.space.answers import count, solve
from envgen.pipelines.general.space.build import build_model
from envgen.pipelines.general.space.density import density, sampled_share
from envgen.pipelines.general.space.near_misses import near_misses


@pytest.mark.parametrize("uneven", [False, True])
def test_exact_density_lies_in_the_look_ahead_estimate(uneven: bool) -> None:
    problem, tables = big_trip(1, 3200, uneven=uneven, cities=5)[:2]
    exact = density(problem, tables, Random(0))
    assert exact.method == "exact"
    assert 1e-4 < exact.value < 1e-1
    model = build_model(problem, tables, space="conditioned")
    space = build_model(problem, tables, space="conditioned", clauses=False)
    got = sampled_share(model, space, Random(1), exact.space, steps=10**6, samples=800)
    assert got.method == "importance"
    assert got.low <= exact.value <= got.high


def test_equal_cities_make_density_the_accepted_share() -> None:
    problem, tables = big_trip(2, 1800)[:2]
    counted, found = count(problem, tables), density(problem, tables, Random(0))
    assert counted.exact
    assert found.value == pytest.approx(counted.low / found.space)


@pytest.mark.parametrize("budget", [None, 1800, 1200])
def test_twenty_answers_whatever_the_density(budget: int | None) -> None:
    problem, tables = big_trip(1, budget)[:2]
    answers = list(islice(solve(problem, tables, Random(4)), 20))
    assert len({repr(answer) for answer in answers}) == 20
    assert all(accepted(problem, tables, answer) for answer in answers)
    assert len({answer[0]["city"] for answer in answers}) > 2


def test_infeasible_budget_is_proven() -> None:
    problem, tables = big_trip(1, 900, cities=6)[:2]
    assert count(problem, tables) == (0, 0, True)
    assert list(solve(problem, tables, Random(4))) == []


def test_five_near_misses_of_every_rule() -> None:
    problem, tables = big_trip(1, 1800)[:2]
    start = next(solve(problem, tables, Random(4)))
    found = Counter[str]()
    for miss, rule in near_misses(problem, tables, start, Random(4)):
        held = evaluate(problem, tables, miss)
        assert [key for key, ok in held.items() if not ok] == [rule]
        found[rule] += 1
    assert found == {clause.id: 5 for clause in problem.clauses}


def test_budget_near_misses_start_one_unit_off() -> None:
    problem, tables = big_trip(3, 3000)[:2]
    start = next(solve(problem, tables, Random(4)))
    misses = [m for m, rule in near_misses(problem, tables, start, Random(4)) if rule == "budget"]
    prices = {
        key: row["price"]
        for relation in ("hotels", "restaurants", "attractions")
        for key, row in tables[relation].items()
    }
    spent = [
        sum(prices.get(value, 0) for day in miss for value in day.values()) - 3000
        for miss in misses
    ]
    assert spent == sorted(spent)
    assert all(over > 0 for over in spent)
