"""The trip domain: the paper's task."""

from __future__ import annotations

from itertools import permutations

import pytest
from ladders import ladder
from pydantic import JsonValue

from envgen.core.ir import Problem
from envgen.core.seeding import rng
from envgen.pipelines.general.authoring.tasks import Hardened
from envgen.pipelines.general.domains import load_tasks
from envgen.pipelines.general.semantics.evaluate import evaluate
from envgen.pipelines.general.semantics.tables import Row, Tables
from envgen.pipelines.general.space.density import density
from envgen.pipelines.general.words.prompt import prompt

BOUNDS = {
    "luxury_price": 800,
    "mid_price": 500,
    "low_price": 200,
    "luxury_meals": 350,
    "luxury_ticket": 120,
    "mid_ticket": 180,
    "good_rating": 40,
    "fair_rating": 32,
}
"""The bounds of the paper's example."""
TICKETS = {"luxury_ticket": 120, "mid_ticket": 180}
"""Those that other tasks may have differently."""
TIERS = ("luxury", "mid", "low")
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


@pytest.fixture(scope="module")
def paper() -> Hardened:
    return ladder("trip", 7, 8)[-1]


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
    assert {**paper.problem.params, **TICKETS} == BOUNDS
    assert len(paper.problem.clauses) == 5
    text = prompt(paper.problem, load_tasks("trip").lexicon).text
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
                ticket = number(place, "price")
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


def _tier_day(problem: Problem) -> int:
    return next(int(str(c.fields["day"])) for c in problem.clauses if c.family == "tier")


def _itinerary(days: list[dict[str, JsonValue]]) -> JsonValue:
    return [{"time": f"2025-10-0{i}", **day} for i, day in enumerate(days, 1)]


@pytest.mark.parametrize("tier", TIERS)
def test_paper_tiers_can_be_met_and_bind(paper: Hardened, tier: str) -> None:
    problem, tables = paper
    good = _good_day(tables, tier)
    others = [day for day in _days(tables) if day["city"] != good["city"]]
    at = _tier_day(problem) - 1
    days = [others[0], others[1]]
    verdict = evaluate(problem, tables, _itinerary([*days[:at], good, *days[at:]]))
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
                at, rest = _tier_day(problem) - 1, days[:2]
                changed = {**day, "hotel": key}
                return evaluate(problem, tables, _itinerary([*rest[:at], changed, *rest[at:]]))
    raise AssertionError(f"no {tier} hotel among other cities")


def test_no_hotel_escapes_the_tiers(paper: Hardened) -> None:
    assert min(int(str(row["price"])) for row in paper.tables["hotels"].values()) >= 200


def test_rows_stand_on_both_sides_of_every_bound(paper: Hardened) -> None:
    def values(relation: str, column: str) -> set[int]:
        return {int(str(row[column])) for row in paper.tables[relation].values()}

    assert values("hotels", "price") >= {499, 500, 799, 800}
    assert values("restaurants", "rating") >= {31, 32, 39, 40}
    assert values("attractions", "price") >= {119, 120, 179, 180}


@pytest.mark.parametrize("seed", range(3))
def test_paper_density_is_small(seed: int) -> None:
    problem, tables = ladder("trip", seed, 8)[-1]
    assert 0 < density(problem, tables, rng(seed)).value <= 1e-3
    assert len(tables["cities"]) == 12
