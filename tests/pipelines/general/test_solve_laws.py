"""The laws of the IR on random small problems, against brute force by the reference semantics."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import JsonValue
from sample_problems import SAMPLES
from wild_problems import wild_problem

from envgen.core.ir import And, Cmp, Const, Get, Param, Problem, Query, Slot, Var
from envgen.pipelines.general.semantics.evaluate import accepted, evaluate
from envgen.pipelines.general.semantics.tables import Tables
from envgen.pipelines.general.space import build as build_module
from envgen.pipelines.general.space.answers import count, solve
from envgen.pipelines.general.space.build import Space, build_model
from envgen.pipelines.general.space.density import density, sampled_share
from envgen.pipelines.general.space.model import Link
from envgen.pipelines.general.space.near_misses import Finder, near_misses
from envgen.pipelines.general.space.search import count_by_search

SEEDS = st.integers(0, 10**6)
FIXTURE = [HealthCheck.function_scoped_fixture]
LAWS = settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=FIXTURE)
MAX_SPACE = 3_000
Small = tuple[Problem, Tables, list[tuple[JsonValue, float]] | None]


@pytest.fixture(params=[5_000, 0], ids=["tables", "sums"], autouse=True)
def largest_table(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every law twice: small sums as tables, as usual, and as linear constraints."""
    before, build_module.MAX_TABLE = build_module.MAX_TABLE, request.param
    yield
    build_module.MAX_TABLE = before


def space_of(problem: Problem, tables: Tables, space: Space) -> list[tuple[JsonValue, float]]:
    """(answer, chance) for every answer of a space, slot by slot as the domains say."""
    model = build_model(problem, tables, space=space, clauses=False)
    children: dict[int, list[Link]] = {}
    for link in model.links:
        children.setdefault(link.child, []).append(link)

    def extend(values: list[Any], chance: float) -> Iterator[tuple[JsonValue, float]]:
        i = len(values)
        if i == len(model.domains):
            yield model.answer(values), chance
            return
        fitting = [
            v
            for v in model.domains[i]
            if all(link.key_of[v] == values[link.parent] for link in children.get(i, ()))
        ]
        for value in fitting:
            yield from extend([*values, value], chance / len(fitting))

    return list(islice(extend([], 1.0), MAX_SPACE + 1))


def small(seed: int, space: Space = "conditioned") -> Small:
    problem, tables = wild_problem(seed, listable=True)
    answers = space_of(problem, tables, space)
    return problem, tables, answers if len(answers) <= MAX_SPACE else None


@LAWS
@given(seed=SEEDS, space=st.sampled_from(["conditioned", "unconditioned"]))
def test_count_is_brute_force(seed: int, space: Space) -> None:
    problem, tables, answers = small(seed, space)
    if answers is None:
        return
    good = sum(accepted(problem, tables, answer) for answer, _ in answers)
    assert count(problem, tables, space=space) == (good, good, True)
    by_search = count_by_search(build_model(problem, tables, space=space), 10**6, 10**6)
    assert by_search == (good, True)


@LAWS
@given(seed=SEEDS)
def test_density_is_the_chance_of_a_random_draw(seed: int) -> None:
    problem, tables, answers = small(seed)
    if answers is None:
        return
    chance = sum(c for answer, c in answers if accepted(problem, tables, answer))
    measured = density(problem, tables, Random(seed))
    assert measured.method == "exact"
    assert measured.value == pytest.approx(chance, abs=1e-12)
    assert measured.space == len(answers)


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=FIXTURE)
@given(seed=SEEDS)
def test_sampled_density_interval_holds_the_exact_one(seed: int) -> None:
    problem, tables, answers = small(seed)
    if answers is None:
        return
    exact = density(problem, tables, Random(0)).value
    model = build_model(problem, tables, space="conditioned")
    space = build_model(problem, tables, space="conditioned", clauses=False)
    got = sampled_share(model, space, Random(seed), 1.0, steps=30_000, samples=600)
    assert got.low - 1e-9 <= exact <= got.high + 1e-9


def test_space_is_conditioned_on_constants_and_earlier_slots() -> None:
    problem, tables = SAMPLES["a_trip"][:2]
    row = Var(name="r")
    here = Cmp(
        fn="=", left=Get(relation="hotels", entity=row, column="city"), right=Param(name="home")
    )
    good = Cmp(
        fn=">=", left=Get(relation="hotels", entity=row, column="stars"), right=Const(value=4)
    )
    domain = Query(var="r", relation="hotels", where=And(items=(here, good)))
    slot = Slot(name="hotel", kind="entity", domain=domain)
    changes = {
        "slots": (slot,),
        "clauses": (),
        "layout": {"hotel": {"$slot": "hotel"}},
        "params": {"home": "Brook"},
    }
    asked = problem.model_copy(update=changes)
    assert density(asked, tables, Random(0)).space == 3  # all of Brook, whatever the stars
    assert count(asked, tables, space="unconditioned").low == 8


@LAWS
@given(seed=SEEDS)
def test_solve_finds_every_accepted_answer_once(seed: int) -> None:
    problem, tables, answers = small(seed, "unconditioned")
    if answers is None:
        return
    good = sum(accepted(problem, tables, answer) for answer, _ in answers)
    found = list(islice(solve(problem, tables, Random(seed)), 400))
    assert all(accepted(problem, tables, answer) for answer in found)
    assert len({repr(answer) for answer in found}) == len(found) == min(good, 400)


@settings(max_examples=30, deadline=None, derandomize=True, suppress_health_check=FIXTURE)
@given(seed=SEEDS)
def test_near_misses_break_one_rule_and_enough_are_found(seed: int) -> None:
    problem, tables, answers = small(seed, "unconditioned")
    start = next(solve(problem, tables, Random(seed)), None)
    if answers is None or start is None:
        return
    finder = Finder(problem, tables, start, Random(seed))
    assert finder.moved() == {rule for rule in finder.rules if next(finder.moves(rule), None)}
    found: dict[str, set[str]] = {}
    for miss, rule in near_misses(problem, tables, start, Random(seed)):
        held = evaluate(problem, tables, miss)
        assert [key for key, ok in held.items() if not ok] == [rule]
        found.setdefault(rule, set()).add(repr(miss))
    existing: dict[str, int] = {}
    for answer, _ in answers:
        broken = [key for key, ok in evaluate(problem, tables, answer).items() if not ok]
        if len(broken) == 1:
            existing[broken[0]] = existing.get(broken[0], 0) + 1
    for rule, num in existing.items():
        assert len(found.get(rule, ())) >= min(5, num)
    assert set(found) <= set(existing)


@settings(max_examples=30, deadline=None, derandomize=True, suppress_health_check=FIXTURE)
@given(seed=SEEDS)
def test_dropping_a_clause_never_lowers_the_count(seed: int) -> None:
    problem, tables = wild_problem(seed, listable=True)
    whole = count(problem, tables, space="unconditioned")
    for clause in problem.clauses:
        less = count(problem.without(clause.id), tables, space="unconditioned")
        assert less.high >= whole.low


def test_the_spread_of_a_term_follows_its_values() -> None:
    """It is cached: a stale one would prune answers that are right."""
    build_module.MAX_TABLE = 0  # put back by the fixture
    found = (build_model(*wild_problem(seed, listable=True)) for seed in range(200))
    model, part = next(
        (one, term)
        for one in found
        for linear in one.linears
        for term in linear.terms
        if one.feasible and len(one.domains[term.scope[0]]) > 1 and one.spread(term) is not None
    )
    for size in range(len(model.domains[part.scope[0]]), 0, -1):
        model.domains[part.scope[0]] = model.domains[part.scope[0]][:size]
        known = [value for _, value in model.table(part) if value is not None]
        assert model.spread(part) == ((min(known), max(known)) if known else None)
