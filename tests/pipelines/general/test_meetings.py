from __future__ import annotations

from itertools import islice
from random import Random

import pytest

from envgen.core.ir import Problem
from envgen.pipelines.general.density import count
from envgen.pipelines.general.domains import load_blueprint
from envgen.pipelines.general.domains.meetings import Meetings
from envgen.pipelines.general.domains.meetings_recipe import recipe_of
from envgen.pipelines.general.evaluate import evaluate
from envgen.pipelines.general.near_misses import near_misses
from envgen.pipelines.general.prompt import parse, prompt
from envgen.pipelines.general.solve import solve
from envgen.pipelines.general.tables import Tables

BLUEPRINT = Meetings()


def climb(seed: int, level: int) -> tuple[Problem, Tables]:
    """A task of ``level``, hardened step by step from level 1."""
    rng = Random(seed)
    tables = BLUEPRINT.tables(rng, 1)
    problem = BLUEPRINT.problem(rng, tables)
    assert problem is not None
    for step in range(1, level):
        operators = [op for op in BLUEPRINT.operators if op.applies(step)]
        rng.shuffle(operators)
        found = (op.harden(problem, tables, rng) for op in operators)
        hardened = next(h for h in found if h is not None)
        problem, tables = hardened
    return problem, tables


def test_the_registry_finds_the_domain() -> None:
    assert load_blueprint("meetings").category == "meeting-scheduling"


@pytest.mark.parametrize("level", range(1, 11))
def test_the_same_seed_gives_the_same_task(level: int) -> None:
    assert climb(5, level) == climb(5, level)
    assert climb(5, level) != climb(6, level)


@pytest.mark.parametrize("level", range(1, 11))
def test_prompts_read_back(level: int) -> None:
    for seed in range(3):
        problem, _ = climb(seed, level)
        rendered = prompt(problem, BLUEPRINT.lexicon)
        parsed = parse(
            rendered.text,
            problem.relations,
            BLUEPRINT.lexicon,
            policy_text=rendered.policy_text,
        )
        assert parsed.params == problem.params
        assert parsed.goal == problem.goal


@pytest.mark.parametrize("level", range(1, 11))
def test_a_recipe_is_read_off_its_problem(level: int) -> None:
    for seed in range(3):
        problem, _ = climb(seed, level)
        recipe = recipe_of(problem)
        tasks = {1: "rank", 2: "filter", 3: "hop", 4: "fixed"}
        assert recipe.task == tasks.get(level, "place")
        assert len(recipe.extras) + max(1, len(recipe.lengths)) == max(1, level - 4)


@pytest.mark.parametrize("level", [1, 2, 3, 4, 5, 7, 10])
def test_rebinding_changes_params_only(level: int) -> None:
    problem, _ = climb(3, level)
    for seed in range(4):
        rng = Random(seed)
        tables = BLUEPRINT.reseed(rng, problem, level)
        again = BLUEPRINT.rebind(problem, tables, rng)
        assert again is not None
        assert again.model_copy(update={"params": problem.params}) == problem
        prompt(again, BLUEPRINT.lexicon)


def test_the_winner_of_level_one_stands_anywhere() -> None:
    places: dict[tuple[int, int], int] = {}
    for seed in range(600):
        problem, tables = climb(seed, 1)
        recipe = recipe_of(problem)
        rows = sorted(tables["rooms"].values(), key=lambda row: str(row["name"]))
        values = [int(str(row[recipe.attribute])) for row in rows]
        best = max(values) if recipe.sense == "highest" else min(values)
        assert values.count(best) == 1
        place = (len(rows), values.index(best))
        places[place] = places.get(place, 0) + 1
    assert len(places) == 2 + 3 + 4
    assert min(places.values()) > 600 / 3 / 4 * 0.6


def test_siblings_ask_something_else_of_the_same_rows() -> None:
    asked = 0
    for level in (1, 2, 3, 4, 5, 7):
        for seed in range(4):
            problem, tables = climb(seed, level)
            other = BLUEPRINT.sibling(Random(seed), problem, tables)
            if other is None:
                continue
            asked += 1
            assert (other.params, other.goal) != (problem.params, problem.goal)
            assert (other.relations, other.access) == (problem.relations, problem.access)
            texts = [prompt(p, BLUEPRINT.lexicon) for p in (problem, other)]
            assert texts[0].policy_text == texts[1].policy_text
            assert texts[0].text != texts[1].text
    assert asked >= 8


@pytest.mark.parametrize("level", [1, 2, 3, 4, 5, 6, 7, 8])
def test_tasks_have_solutions_and_every_rule_breaks_alone(level: int) -> None:
    for seed in range(2):
        problem, tables = climb(seed, level)
        found = list(islice(solve(problem, tables, Random(0)), 3))
        assert found
        for answer in found:
            assert all(evaluate(problem, tables, answer).values())
        broken = {rule for _, rule in near_misses(problem, tables, found[0], Random(1))}
        assert broken >= {clause.id for clause in problem.clauses}


def test_a_rule_that_is_dropped_lets_more_answers_in() -> None:
    for level in (4, 5, 6, 7):
        problem, tables = climb(2, level)
        answers = count(problem, tables)
        assert answers.exact
        for clause in problem.clauses:
            assert count(problem.without(clause.id), tables).low > answers.low
