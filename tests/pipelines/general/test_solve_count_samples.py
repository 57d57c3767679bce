from __future__ import annotations

from itertools import product
from random import Random

import pytest
from pydantic import JsonValue
from sample_problems import SAMPLES

from envgen.core.ir import Problem
from envgen.pipelines.general.semantics.evaluate import accepted, evaluate
from envgen.pipelines.general.semantics.tables import Tables
from envgen.pipelines.general.space.answers import count, solve
from envgen.pipelines.general.space.build import build_model
from envgen.pipelines.general.space.density import density
from envgen.pipelines.general.space.near_misses import near_misses

NAMES = [name for name, sample in SAMPLES.items() if sample.problem.shape != "C"]


def brute_force(problem: Problem, tables: Tables) -> tuple[list[JsonValue], int]:
    """Every accepted answer of the conditioned space, by evaluate alone; and the space's size."""
    space = build_model(problem, tables, space="conditioned", clauses=False)
    found: list[JsonValue] = []
    size = 0
    for values in product(*space.domains):
        if all(link.key_of[values[link.child]] == values[link.parent] for link in space.links):
            size += 1
            answer = space.answer(values)
            if accepted(problem, tables, answer):
                found.append(answer)
    return found, size


SMALL = [name for name in NAMES if name != "e_meetings" and name != "a_trip"]


@pytest.mark.parametrize("name", SMALL)
def test_count_and_density_equal_brute_force(name: str) -> None:
    problem, tables = SAMPLES[name][:2]
    found, size = brute_force(problem, tables)
    assert count(problem, tables) == (len(found), len(found), True)
    measured = density(problem, tables, Random(0))
    assert measured.method == "exact"
    assert measured.space == size
    assert measured.value == pytest.approx(len(found) / size)


@pytest.mark.parametrize("name", NAMES)
def test_solve_gives_every_accepted_answer_once(name: str) -> None:
    problem, tables = SAMPLES[name][:2]
    answers = list(solve(problem, tables, Random(3)))
    assert all(accepted(problem, tables, answer) for answer in answers)
    assert len({str(answer) for answer in answers}) == len(answers)
    assert len(answers) == count(problem, tables, space="unconditioned").low


@pytest.mark.parametrize("name", NAMES)
def test_same_seed_same_answers(name: str) -> None:
    problem, tables = SAMPLES[name][:2]
    first, second = (list(solve(problem, tables, Random(5))) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("name", NAMES)
def test_dropping_a_clause_never_lowers_the_count(name: str) -> None:
    problem, tables = SAMPLES[name][:2]
    whole = count(problem, tables, space="unconditioned").low
    for clause in problem.clauses:
        assert count(problem.without(clause.id), tables, space="unconditioned").low >= whole


@pytest.mark.parametrize("name", NAMES)
def test_near_misses_break_exactly_one_rule(name: str) -> None:
    problem, tables = SAMPLES[name][:2]
    answer = next(solve(problem, tables, Random(1)))
    found = list(near_misses(problem, tables, answer, Random(1)))
    for miss, rule in found:
        assert [k for k, ok in evaluate(problem, tables, miss).items() if not ok] == [rule]
    whole = count(problem, tables, space="unconditioned").low
    for clause in problem.clauses:
        more = count(problem.without(clause.id), tables, space="unconditioned").low - whole
        assert sum(1 for _, rule in found if rule == clause.id) >= min(5, more)
