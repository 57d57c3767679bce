from __future__ import annotations

from itertools import islice
from random import Random

import pytest

from envgen.core.ir import Problem, Reach
from envgen.pipelines.general.domains import load_blueprint
from envgen.pipelines.general.domains.orders import Orders
from envgen.pipelines.general.domains.orders_recipe import FEATURES, Recipe, recipe_of
from envgen.pipelines.general.evaluate import evaluate
from envgen.pipelines.general.near_misses import near_misses
from envgen.pipelines.general.plans import evaluate_plan
from envgen.pipelines.general.prompt import parse, prompt
from envgen.pipelines.general.solve import solve
from envgen.pipelines.general.tables import Tables

BLUEPRINT = Orders()


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
    assert load_blueprint("orders").category == "order-management"


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
        assert len(recipe.features) == max(0, level - 5)
        tasks = {1: "rank", 2: "filter", 3: "hop", 4: "cancel"}
        assert recipe.task == tasks.get(level, "refund")


@pytest.mark.slow
def test_every_feature_can_be_added_to_every_other() -> None:
    rng = Random(0)
    operators = {op.name: op for op in BLUEPRINT.operators}
    problem, tables = climb(0, 5)
    for first in FEATURES:
        one = operators[f"add_{first}"].harden(problem, tables, rng)
        assert one is not None
        for second in FEATURES:
            two = operators[f"add_{second}"].harden(*one, rng)
            assert (two is None) == (first == second)
            if two is not None:
                assert recipe_of(two.problem) == Recipe(
                    "refund", features=frozenset({first, second})
                )


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
        rows = sorted(tables["orders"].values(), key=lambda row: str(row["id"]))
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


@pytest.mark.parametrize("level", [1, 2, 3, 4, 5, 6, 8])
def test_tasks_have_solutions_and_every_rule_breaks_alone(level: int) -> None:
    for seed in range(2):
        problem, tables = climb(seed, level)
        found = list(islice(solve(problem, tables, Random(0)), 3))
        assert found
        workflow = isinstance(problem.goal, Reach)
        for answer in found:
            verdict = evaluate_plan if workflow else evaluate
            assert all(verdict(problem, tables, answer).values())
        effects = problem.goal.effects if isinstance(problem.goal, Reach) else ()
        broken = {rule for _, rule in near_misses(problem, tables, found[0], Random(1))}
        assert broken >= {clause.id for clause in (*problem.clauses, *effects)}


@pytest.mark.parametrize("level", [4, 5, 7])
def test_some_requests_must_be_escalated(level: int) -> None:
    problem, _ = climb(1, level)
    outcomes = set()
    for seed in range(40):
        rng = Random(seed)
        tables = BLUEPRINT.reseed(rng, problem, level)
        again = BLUEPRINT.rebind(problem, tables, rng)
        assert again is not None
        plan = next(solve(again, tables, rng))
        assert (plan.answer == {"outcome": "escalated"}) == (not plan.calls)
        outcomes.add(plan.answer["outcome"])
        if len(outcomes) == 2:
            break
    assert outcomes == {"done", "escalated"}
