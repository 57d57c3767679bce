"""The trip domain: rows, ladder, the paper's task."""

from __future__ import annotations

import inspect
from collections import Counter
from itertools import pairwise, permutations
from random import Random

import pytest
from pydantic import JsonValue

from envgen.core.ir import Equals, Problem
from envgen.core.seeding import rng
from envgen.pipelines.general.blueprint import Hardened
from envgen.pipelines.general.domains import load_blueprint
from envgen.pipelines.general.domains.names import SUFFIXES, unique_names
from envgen.pipelines.general.domains.trip import Trip
from envgen.pipelines.general.domains.trip_days import (
    TIER_PARAMS,
    TIERS,
    city_days,
    plan_density,
    tier_counts,
)
from envgen.pipelines.general.domains.trip_rows import all_cities, distance_km
from envgen.pipelines.general.evaluate import evaluate
from envgen.pipelines.general.prompt import prompt
from envgen.pipelines.general.tables import Row, Tables

PAPER_TOOLS = {
    "get_all_attractions_by_city": ["city"],
    "get_all_cities": [],
    "get_all_hotels_by_city": ["city"],
    "get_all_restaurants_by_city": ["city"],
    "get_city_by_attraction": ["attraction"],
    "get_city_by_hotel": ["hotel"],
    "get_city_by_restaurant": ["restaurant"],
    "get_city_transport": ["city"],
    "get_infos_by_attraction": ["info_keywords", "attraction"],
    "get_infos_by_city": ["info_keywords", "city"],
    "get_infos_by_hotel": ["info_keywords", "hotel"],
    "get_infos_by_restaurant": ["info_keywords", "restaurant"],
    "get_inter_city_transport": ["from_city", "to_city"],
    "get_weather_by_city_date": ["city", "date"],
}


def ladder(seed: int, top: int) -> list[Hardened]:
    """Levels 1..top of one task."""
    trip, rand = Trip(), rng(seed, "ladder")
    while True:
        tables = trip.tables(rand, 1)
        problem = trip.problem(rand, tables)
        if problem is not None:
            break
    steps = [Hardened(problem, tables)]
    for level in range(1, top):
        operators = [op for op in trip.operators if op.applies(level)]
        harder = rand.choice(operators).harden(*steps[-1], rand)
        assert harder is not None
        steps.append(harder)
    return steps


@pytest.fixture(scope="module")
def paper() -> Hardened:
    return ladder(7, 8)[-1]


def test_cities_are_real_and_include_the_start() -> None:
    cities = {city.name: city for city in all_cities()}
    assert len(cities) >= 80
    assert list(cities) == sorted(cities)
    assert 150 <= distance_km(cities["Hangzhou"], cities["Shanghai"]) <= 180


def test_names_are_unique_and_say_nothing() -> None:
    names = unique_names(Random(0), "hotel", 800)
    assert len(set(names)) == 800
    suffixes = [set(words) for words in SUFFIXES.values()]
    assert not suffixes[0] & suffixes[1]
    assert not suffixes[1] & suffixes[2]


@pytest.mark.parametrize("seed", range(5))
def test_every_level_states_itself_exactly(seed: int) -> None:
    trip = Trip()
    for step in ladder(seed, trip.max_level):
        rendered = prompt(step.problem, trip.lexicon)  # raises unless it reads back
        for clause in step.problem.clauses:
            assert clause.id in rendered.spans


@pytest.mark.parametrize("seed", range(5))
def test_tools_only_grow_and_start_with_one(seed: int) -> None:
    tools = [{access.tool for access in step.problem.access} for step in ladder(seed, 10)]
    assert [len(found) for found in tools[:3]] == [1, 1, 1]
    assert all(low <= high for low, high in pairwise(tools))


@pytest.mark.parametrize("seed", range(5))
def test_rows_fit_their_relations(seed: int) -> None:
    for problem, tables in ladder(seed, 10):
        assert set(tables) == {relation.name for relation in problem.relations}
        for relation in problem.relations:
            columns = [column.name for column in relation.columns]
            for key, row in tables[relation.name].items():
                assert list(row) == columns
                assert row[relation.key] == key
                for column in relation.columns:
                    target = column.type.removeprefix("entity:")
                    if target != column.type:
                        assert row[column.name] in tables[target]


def test_level_one_winner_stands_anywhere() -> None:
    trip, seen = Trip(), Counter[float]()
    for seed in range(600):
        rand = rng(seed, "winner")
        tables = trip.tables(rand, 1)
        problem = trip.problem(rand, tables)
        assert problem is not None
        goal = problem.goal
        assert isinstance(goal, Equals)
        rows = tables[goal.query.relation]
        if len(rows) == 4:
            column = str(goal.fields["by"])
            values = [int(str(rows[key][column])) for key in sorted(rows)]
            assert values.count(max(values)) == 1
            seen[values.index(max(values))] += 1
    total = sum(seen.values())
    assert total > 120
    assert all(0.25 - 0.11 < seen[i] / total < 0.25 + 0.11 for i in range(4))


def test_paper_task_has_the_papers_tools_and_layout(paper: Hardened) -> None:
    signatures = {
        access.tool: ([access.projection] if access.projection else []) + list(access.args)
        for access in paper.problem.access
    }
    assert signatures == PAPER_TOOLS
    layout = paper.problem.layout
    assert isinstance(layout, list)
    assert [set(day) for day in layout if isinstance(day, dict)] == 3 * [
        {"time", "city", "hotel", "afternoon_restaurant", "afternoon_attraction"}
        | {"evening_restaurant"}
    ]
    assert [day["time"] for day in layout if isinstance(day, dict)] == [
        "2025-10-01",
        "2025-10-02",
        "2025-10-03",
    ]
    assert paper.problem.params == dict(TIER_PARAMS)
    assert len(paper.problem.clauses) == 5
    text = prompt(paper.problem, Trip().lexicon).text
    assert "from my home in Hangzhou (which is not one of the cities" in text
    assert not [city for city in paper.tables["cities"] if city in text]


def _days(tables: Tables) -> list[dict[str, JsonValue]]:
    """Some day in every city: the first row of each kind."""
    found = []
    for city in sorted(tables["cities"]):
        first = {
            name: [key for key in sorted(tables[name]) if tables[name][key]["city"] == city]
            for name in ("hotels", "restaurants", "attractions")
        }
        found.append(_day(city, first["hotels"][0], first["restaurants"], first["attractions"][0]))
    return found


def _day(city: str, hotel: str, meals: list[str], attraction: str) -> dict[str, JsonValue]:
    return {
        "city": city,
        "hotel": hotel,
        "afternoon_restaurant": meals[0],
        "afternoon_attraction": attraction,
        "evening_restaurant": meals[1],
    }


def _good_day(tables: Tables, tier: str) -> dict[str, JsonValue]:
    """A day of ``tier`` found by brute force over single cities, written without the tuner."""
    low, high = {"luxury": (800, 10**6), "mid": (500, 800), "low": (200, 500)}[tier]

    def number(row: Row, column: str) -> int:
        return int(str(row[column]))

    for hotel in tables["hotels"].values():
        if not low <= number(hotel, "price") < high:
            continue
        city = hotel["city"]
        here = [row for row in tables["restaurants"].values() if row["city"] == city]
        for lunch, dinner in permutations(here, 2):
            ratings = sorted([number(lunch, "rating"), number(dinner, "rating")])
            spent = number(lunch, "price") + number(dinner, "price")
            for place in tables["attractions"].values():
                ticket = number(place, "ticket")
                if (
                    place["city"] == city
                    and {
                        "luxury": spent < 350 and ratings[0] >= 40 and ticket < 120,
                        "mid": ratings[1] >= 40 and ticket < 180,
                        "low": ratings[1] >= 32,
                    }[tier]
                ):
                    meals = [str(lunch["name"]), str(dinner["name"])]
                    return _day(str(city), str(hotel["name"]), meals, str(place["name"]))
    raise AssertionError(f"no {tier} day")


def _itinerary(days: list[dict[str, JsonValue]]) -> JsonValue:
    return [{"time": f"2025-10-0{i}", **day} for i, day in enumerate(days, 1)]


@pytest.mark.parametrize("tier", TIERS)
def test_paper_tiers_can_be_met_and_bind(paper: Hardened, tier: str) -> None:
    problem, tables = paper
    good = _good_day(tables, tier)
    others = [day for day in _days(tables) if day["city"] != good["city"]]
    verdict = evaluate(problem, tables, _itinerary([others[0], good, others[1]]))
    assert all(verdict.values()), verdict
    bad = _broken(problem, tables, tier, others)
    assert [clause for clause, held in bad.items() if not held] == [tier]


def _broken(
    problem: Problem, tables: Tables, tier: str, days: list[dict[str, JsonValue]]
) -> dict[str, bool]:
    """The verdict on an itinerary whose second day has a hotel of ``tier`` and keeps all else."""
    low, high = {"luxury": (800, 10**6), "mid": (500, 800), "low": (200, 500)}[tier]
    for day in days[2:]:
        for key, row in tables["hotels"].items():
            if row["city"] == day["city"] and low <= int(str(row["price"])) < high:
                middle = {**day, "hotel": key}
                return evaluate(problem, tables, _itinerary([days[0], middle, days[1]]))
    raise AssertionError(f"no {tier} hotel among other cities")


def test_no_hotel_escapes_the_tiers(paper: Hardened) -> None:
    assert min(int(str(row["price"])) for row in paper.tables["hotels"].values()) >= 200


def test_rows_stand_on_both_sides_of_every_bound(paper: Hardened) -> None:
    def values(relation: str, column: str) -> set[int]:
        return {int(str(row[column])) for row in paper.tables[relation].values()}

    assert values("hotels", "price") >= {499, 500, 799, 800}
    assert values("restaurants", "rating") >= {31, 32, 39, 40}
    assert values("attractions", "ticket") >= {119, 120, 179, 180}


@pytest.mark.parametrize("seed", range(3))
def test_paper_density_is_small(seed: int) -> None:
    _, tables = ladder(seed, 8)[-1]
    days = city_days(tables)
    assert min(tier_counts(days).values()) > 0
    assert plan_density(days, 3) <= 1e-3
    assert 8 <= len(tables["cities"]) <= 12


@pytest.mark.parametrize("level", range(1, 11))
def test_reseeds_mostly_bind_and_change_params_only(level: int) -> None:
    trip = Trip()
    problem, _ = ladder(3, level)[-1]
    bound = 0
    for seed in range(8):
        rand = rng(seed, "reseed", level)
        tables = trip.reseed(rand, problem, level)
        again = trip.rebind(problem, tables, rand)
        if again is not None:
            bound += 1
            assert again.model_copy(update={"params": problem.params}) == problem
            assert set(again.params) == set(problem.params)
            prompt(again, trip.lexicon)
    assert bound >= 5


@pytest.mark.parametrize("level", range(1, 11))
def test_siblings_share_rows_and_tools(level: int) -> None:
    trip = Trip()
    problem, tables = ladder(4, level)[-1]
    found = []
    for seed in range(6):
        other = trip.sibling(rng(seed, "sibling"), problem, tables)
        if other is not None:
            assert (other.relations, other.access) == (problem.relations, problem.access)
            found.append(prompt(other, trip.lexicon).text)
    assert len(set(found)) >= 2


def test_blueprint_is_registered_and_complete() -> None:
    trip = load_blueprint("trip")
    assert trip.category == "trip-planning"
    assert {level for op in trip.operators for level in op.levels} == set(range(1, 10))
    assert len(inspect.signature(trip.tables).parameters) == 2
