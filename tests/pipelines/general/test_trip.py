"""The trip domain: the paper's task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date, timedelta
from itertools import permutations, product

import pytest
from ladders import ladder
from pydantic import JsonValue

from envgen.core.ir import NEAREST, Problem
from envgen.core.seeding import rng
from envgen.pipelines.general.authoring.tasks import Hardened
from envgen.pipelines.general.domains import load_tasks
from envgen.pipelines.general.semantics.evaluate import evaluate
from envgen.pipelines.general.semantics.tables import Row, Tables
from envgen.pipelines.general.space.density import density
from envgen.pipelines.general.words.prompt import prompt

PAPER = {
    "luxury_price": 800,
    "mid_price": 500,
    "low_price": 200,
    "luxury_meals": 350,
    "good_rating": 40,
    "fair_rating": 32,
    "luxury_ticket": 120,
    "mid_ticket": 180,
}
"""The bounds of the paper's example: each task draws its own, the paper's among them."""
PRICED = (
    ("hotel", "hotels"),
    ("afternoon_restaurant", "restaurants"),
    ("evening_restaurant", "restaurants"),
    ("afternoon_attraction", "attractions"),
)
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
    start = date.fromisoformat(str(paper.problem.fields["start"]))
    assert [day["time"] for day in layout if isinstance(day, dict)] == [
        str(start + timedelta(days=ahead)) for ahead in range(3)
    ]
    assert set(paper.problem.params) == {"tight", NEAREST}
    assert set(bounds(paper.problem)) == set(PAPER)
    rules = [clause.text_key.partition("~")[0] for clause in paper.problem.clauses]
    assert rules[:5] == ["no_repeat", "located", *TIERS]
    assert rules[5] in ("dry", "dry_but")
    assert rules[6] == "quick"
    assert rules[7:] in (["cuisines", "tight"], ["splurge", "tight"])  # what gives way stands last
    text = prompt(paper.problem, load_tasks("trip").lexicon).text
    origin = paper.problem.fields["origin"]
    assert f"from my home in {origin} (which is not one of the cities" in text
    assert not [city for city in paper.tables["cities"] if city in text]


def _day(city: str, hotel: str, meals: list[str], attraction: str) -> dict[str, JsonValue]:
    return {
        "city": city,
        "hotel": hotel,
        "afternoon_restaurant": meals[0],
        "afternoon_attraction": attraction,
        "evening_restaurant": meals[1],
    }


def bounds(problem: Problem) -> dict[str, int]:
    """The bounds that the sentences of a task state."""
    stated = {name: value for c in problem.clauses for name, value in c.fields.items()}
    return {name: int(str(stated[name])) for name in PAPER if name in stated}


def test_bounds_dates_and_origins_vary() -> None:
    """What was the same in all itineraries (audit A5) is drawn with the scene."""
    found = [ladder("trip", seed, 7)[-1].problem for seed in range(6)]
    for name in PAPER:
        assert len({bounds(problem)[name] for problem in found}) > 1, name
    for name in ("start", "origin", "who"):
        assert len({problem.fields[name] for problem in found}) > 2, name
    chosen = load_tasks("trip").domain.scenes["plan"].choose
    assert all(value in chosen[name] for name, value in PAPER.items())


def _tier(problem: Problem, price: int) -> str:
    at = bounds(problem)
    floors = (("luxury", "luxury_price"), ("mid", "mid_price"), ("low", "low_price"))
    return next((tier for tier, name in floors if price >= at[name]), "")


def _keeps(problem: Problem, hotel: Row, meals: tuple[Row, Row], place: Row) -> bool:
    """Whether a day keeps the rule about its hotel's tier, written without the evaluator."""
    at = bounds(problem)
    ratings = sorted(int(str(meal["rating"])) for meal in meals)
    spent, ticket = sum(int(str(meal["price"])) for meal in meals), int(str(place["price"]))
    return {
        "luxury": spent < at["luxury_meals"]
        and ratings[0] >= at["good_rating"]
        and ticket < at["luxury_ticket"],
        "mid": ratings[1] >= at["good_rating"] and ticket < at["mid_ticket"],
        "low": ratings[1] >= at["fair_rating"],
        "": True,
    }[_tier(problem, int(str(hotel["price"])))]


def _days_of(problem: Problem, tables: Tables, city: str) -> Iterator[tuple[bool, str, JsonValue]]:
    """Whether each day in ``city`` keeps its tier's rule, the tier, and the day."""

    def here(name: str) -> list[Row]:
        return [row for row in tables[name].values() if row["city"] == city]

    for hotel, place in product(here("hotels"), here("attractions")):
        for meals in permutations(here("restaurants"), 2):
            day = _day(
                city, str(hotel["name"]), [str(meal["name"]) for meal in meals], str(place["name"])
            )
            tier = _tier(problem, int(str(hotel["price"])))
            yield _keeps(problem, hotel, meals, place), tier, day


def _itinerary(problem: Problem, days: Sequence[JsonValue]) -> JsonValue:
    start = date.fromisoformat(str(problem.fields["start"]))
    return [
        {"time": str(start + timedelta(days=i)), **day}
        for i, day in enumerate(days)
        if isinstance(day, dict)
    ]


@pytest.mark.parametrize("tier", TIERS)
def test_paper_tiers_can_be_met_and_bind(paper: Hardened, tier: str) -> None:
    """In one city of each tier; the other days keep theirs."""
    problem, tables = paper
    days = {city: list(_days_of(problem, tables, city)) for city in sorted(tables["cities"])}
    good = {c: day for c, own in days.items() for kept, _, day in own if kept}
    city = next(
        c for c, own in days.items() if {(k, t) for k, t, _ in own} >= {(True, tier), (False, tier)}
    )
    others = [day for c, day in good.items() if c != city][:2]
    for wanted in (True, False):
        day = next(day for kept, at, day in days[city] if kept == wanted and at == tier)
        verdict = evaluate(problem, tables, _itinerary(problem, [*others, day]))
        assert {name: verdict[name] for name in TIERS} == {
            name: wanted or name != tier for name in TIERS
        }
        assert verdict["no_repeat"]
        assert verdict["located"]


def test_every_city_is_in_reach_of_the_budget(paper: Hardened) -> None:
    """No city is a dud: its cheapest day that keeps its tier's rule costs less than twice another's."""
    problem, tables = paper
    least = []
    for city in sorted(tables["cities"]):
        costs = [
            sum(int(str(tables[t][str(day[s])]["price"])) for s, t in PRICED)
            for kept, _, day in _days_of(problem, tables, city)
            if kept and isinstance(day, dict)
        ]
        least += [min(costs)] if costs else []
    assert len(least) >= 3
    assert max(least) < 2 * min(least)


@pytest.mark.parametrize("seed", range(3))
def test_paper_density_is_small(seed: int) -> None:
    problem, tables = ladder("trip", seed, 8)[-1]
    assert 0 < density(problem, tables, rng(seed)).value <= 1e-6
    assert len(tables["cities"]) == 6
