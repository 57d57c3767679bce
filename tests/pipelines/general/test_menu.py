"""Menus read once more in plain Python: what plans cost, who may eat what, which sheet counts."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, product
from typing import Any

import pytest
from pydantic import JsonValue

from envgen.core.ir import Problem
from envgen.core.seeding import rng
from envgen.pipelines.general.authoring.structure import Structure
from envgen.pipelines.general.authoring.tasks import Hardened
from envgen.pipelines.general.domains import load_tasks
from envgen.pipelines.general.semantics.evaluate import accepted
from envgen.pipelines.general.semantics.tables import Tables

Pair = tuple[str, str]
"""A main course and a dessert."""


def structure(level: int, *phrases: str) -> Structure:
    """A structure of three days from level 6, 7 (one rule more) or 8 (by sheets) on, with further rules."""
    blueprint, draws = load_tasks("menu").blueprint, rng(0, "menu")
    found: Structure | None = blueprint.begin("plan", draws)
    wanted = ["add_day", *(f"add_{phrase}" for phrase in phrases)]
    wanted += ["use_sheets"] if level >= 8 else []
    for name in wanted:
        operator = next(o for at in range(1, 10) for o in blueprint.operators(at) if o.name == name)
        assert found is not None
        found = blueprint.stepped(found, operator, draws)
    assert found is not None
    return found


def task(of: Structure, seed: int) -> Hardened:
    """A task of a structure that has answers."""
    tasks = load_tasks("menu")
    for n in range(20):
        found = tasks.reseeded(tasks.blueprint.problem(of), rng(seed, "menu task", n))
        if found is not None and found.problem.feasible:
            return found
    raise AssertionError("no such task")


def energy(tables: Tables, recipe: str, by_sheet: bool) -> Any:
    """Of a portion, by its card, or by the newest of its sheets."""
    if not by_sheet:
        return tables["recipes"][recipe]["energy"]
    sheets = [s for s in tables["sheets"].values() if s["recipe"] == recipe]
    newest = max(sheets, key=lambda s: str(s["dated"]))
    assert [s["dated"] for s in sheets].count(newest["dated"]) == 1
    return int(str(newest["energy"])) * (4 if newest["unit"] == "kcal" else 1)


def days(tables: Tables, problem: Problem, by_sheet: bool) -> list[list[tuple[int, Pair]]]:
    """By day the pairs that all its guests may eat and that give enough energy, with what they cost."""
    by_course: dict[str, list[str]] = {"main": [], "dessert": []}
    for name, row in tables["recipes"].items():
        by_course[str(row["course"])].append(name)
    contains: dict[str, set[Any]] = {name: set() for name in tables["recipes"]}
    for use in tables["uses"].values():
        contains[str(use["recipe"])].add(tables["pantry"][str(use["item"])]["allergen"])
    found: list[list[tuple[int, Pair]]] = []
    for day in (1, 2, 3):
        guests = [v["guest"] for v in tables["visits"].values() if v["day"] == day]
        allergies = {tables["guests"][str(guest)]["allergy"] for guest in guests}
        found.append([])
        for pair in product(by_course["main"], by_course["dessert"]):
            total = sum(energy(tables, recipe, by_sheet) for recipe in pair)
            low, high = problem.params["energy_low"], problem.params["energy_high"]
            assert isinstance(low, int)
            assert isinstance(high, int)
            if low <= total <= high and not any(contains[r] & allergies for r in pair):
                price = sum(int(str(tables["recipes"][recipe]["price"])) for recipe in pair)
                found[-1].append((len(guests) * price, pair))
    return found


def plans(of_days: list[list[tuple[int, Pair]]]) -> Iterator[tuple[int, tuple[Pair, ...]]]:
    """Every plan without a repeat, and what it costs."""
    for plan in product(*of_days):
        pairs = tuple(pair for _, pair in plan)
        if all(a != c and b != d for (a, b), (c, d) in combinations(pairs, 2)):
            yield sum(cost for cost, _ in plan), pairs


@pytest.mark.parametrize(("level", "seed"), [(6, 0), (6, 1), (8, 0), (8, 1)])
def test_the_budget_lies_between_the_second_best_of_all_plans_and_the_next(
    level: int, seed: int
) -> None:
    problem, tables = task(structure(level), seed)
    every = sorted(plans(days(tables, problem, level == 8)))
    budget = problem.params["budget"]
    assert isinstance(budget, int)
    assert every[1][0] < budget < next(cost for cost, _ in every if cost > budget)
    assert sum(cost <= budget for cost, _ in every) <= 5
    for cost, pairs in (*every[:4], every[len(every) // 2], every[-1]):
        answer: JsonValue = {
            f"day_{k}": {"main": main, "dessert": dessert}
            for k, (main, dessert) in enumerate(pairs, 1)
        }
        assert accepted(problem, tables, answer) == (cost <= budget)


def test_sheets_keep_days_and_rules_and_every_sentence_goes_by_them() -> None:
    """A step that keeps what was added keeps the third day; what it sets is of the scene that it begins."""
    before, after = structure(6, "protein"), structure(8, "protein")
    assert (before.scene, before.items, after.scene, after.items) == ("plan", 3, "sheet", 3)
    assert [sentence.phrase for sentence in before.sentences] == [
        sentence.phrase for sentence in after.sentences
    ]
    sources = {
        sentence.fields["source"] for sentence in after.sentences if "source" in sentence.fields
    }
    assert (sources, after.fields["source"]) == ({"sheet"}, "sheet")
    assert {sentence.fields["n"] for sentence in after.sentences} == {3}
