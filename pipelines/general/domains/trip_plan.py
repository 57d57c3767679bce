"""Levels 6 to 10 of the trip domain: itineraries whose middle day has the paper's budget tiers.

Good restaurants and cheap tickets exist only in a few cities, and cheap hotels are rare there, so that few
itineraries pass although most cities offer nothing wrong. Every tier can be met somewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from random import Random
from typing import NamedTuple

from pydantic import JsonValue

from envgen.core.ir import Problem, Relation, Scalar
from envgen.pipelines.general.blueprint import Hardened
from envgen.pipelines.general.domains import trip_rows as rows
from envgen.pipelines.general.domains.trip_days import (
    TIER_PARAMS,
    TIERS,
    CityDays,
    city_days,
    number,
    plan_density,
    tier_counts,
)
from envgen.pipelines.general.domains.trip_lexicon import LEXICON
from envgen.pipelines.general.domains.trip_rules import RAIN, iso_day
from envgen.pipelines.general.domains.trip_tools import plan_tools
from envgen.pipelines.general.tables import Row, Tables

START = "2025-10-01"
_TRIES = 60
_SAMPLES = 600
_BUDGET_SHARE = 0.03
_LEGS_SHARE = 0.25
_FORECAST_DAYS = 5


@dataclass(frozen=True)
class Size:
    """How much there is to look through."""

    cities: int
    fine: int
    """Cities with several good restaurants, none of them with cheap hotels."""
    homely: int
    """Cities with one good restaurant and one cheap hotel."""
    hotels: int
    restaurants: int
    attractions: int
    density: float
    """Largest share of itineraries that may pass."""

    def jittered(self, rng: Random) -> Size:
        """A size a little above this one."""
        return replace(
            self,
            hotels=self.hotels + rng.randint(0, 2),
            restaurants=self.restaurants + rng.randint(0, 2),
            attractions=self.attractions + rng.randint(0, 2),
        )


SIZES = {
    1: Size(4, 1, 1, 6, 7, 5, 0.05),
    2: Size(6, 1, 1, 8, 9, 7, 0.02),
    3: Size(12, 2, 1, 14, 16, 10, 1e-3),
}
"""Days of the trip -> size."""


def plan_relations(days: int) -> tuple[Relation, ...]:
    """The relations of a trip of ``days`` days."""
    places = ("name", "city", "price", "ticket", "rating", "cuisine")
    found = [rows.relation("cities")]
    found += [rows.relation(name, places) for name in rows.KIND_OF]
    if days >= 3:
        found += [
            rows.relation(name) for name in ("city_transport", "inter_city_transport", "weather")
        ]
    return tuple(found)


def draw_plan_tables(rng: Random, days: int, start: str) -> Tables:
    """Rows under which every tier can be met, but seldom."""
    for _ in range(_TRIES):
        tables = _draw(rng, days, start)
        offered = city_days(tables)
        if min(tier_counts(offered).values()) > 0:
            if plan_density(offered, days) <= SIZES[days].density:
                return tables
    raise AssertionError(f"no {days}-day tables in {_TRIES} tries")


def _draw(rng: Random, days: int, start: str) -> Tables:
    size = SIZES[days].jittered(rng)
    cities = rows.draw_cities(rng, size.cities, with_home=True)
    special = rng.sample([c.name for c in cities if c.name != rows.HOME], size.fine + size.homely)
    styles = dict.fromkeys(special[: size.fine], "fine") | dict.fromkeys(
        special[size.fine :], "homely"
    )
    values: dict[str, list[Row]] = {name: [] for name in rows.KIND_OF}
    for city in cities:
        style = styles.get(city.name, "plain")
        for relation, drawn in _city(rng, size, style).items():
            values[relation] += [{"city": city.name, **row} for row in drawn]
    relations = plan_relations(days)
    tables: Tables = {"cities": rows.city_rows(cities)}
    for relation, given in values.items():
        rng.shuffle(given)
        tables[relation] = rows.place_rows(rng, relation, given)
    if days >= 3:
        dates = [iso_day(start, n) for n in range(_FORECAST_DAYS)]
        names = [city.name for city in cities]
        tables["city_transport"] = rows.city_transport_rows(rng, cities)
        tables["inter_city_transport"] = rows.inter_city_rows(rng, cities)
        tables["weather"] = rows.weather_rows(rng, names, dates)
    return rows.keep_columns(tables, relations)


def _city(rng: Random, size: Size, style: str) -> dict[str, list[Row]]:
    """Values of one city's rows, without names."""
    ratings = [rng.randint(12, 31) for _ in range(size.restaurants)]
    prices = [_hotel_price(rng, 200) for _ in range(size.hotels)]
    tickets = [rng.randint(25, 380) for _ in range(size.attractions)]
    if style != "plain":
        tickets = [rng.randint(180, 380) for _ in range(size.attractions)]
    if style == "fine":
        prices = [_hotel_price(rng, 800) for _ in range(size.hotels)]
        _replace(prices, [rng.randint(500, 799) for _ in range(rng.randint(1, 2))])
        _replace(ratings, [rng.randint(40, 48) for _ in range(rng.randint(2, 3))])
        _replace(tickets, [rng.randint(40, 119) for _ in range(rng.choice((1, 1, 2)))])
    if style == "homely":
        prices = [_hotel_price(rng, 500) for _ in range(size.hotels)]
        _replace(prices, [rng.randint(210, 499) for _ in range(rng.choice((1, 1, 2)))])
        _replace(ratings, [rng.randint(32, 46) for _ in range(rng.choice((1, 1, 2)))])
    return {
        "hotels": [{"price": price} for price in prices],
        "restaurants": [{"rating": rating, "price": rng.randint(40, 240)} for rating in ratings],
        "attractions": [{"ticket": ticket} for ticket in tickets],
    }


def _replace(values: list[int], first: list[int]) -> None:
    values[: len(first)] = first


def _hotel_price(rng: Random, low: int) -> int:
    low, high = rng.choice(
        [tier for tier in ((200, 499), (500, 799), (800, 1500)) if tier[0] >= low]
    )
    return rng.randint(low, high)


# --- problems ------------------------------------------------------------------------------------


def plan_problem(opening: str, days: int, start: str) -> Problem:
    """An itinerary of ``days`` days."""
    fields: dict[str, JsonValue] = {"opening": opening, "start": start}
    rules = [LEXICON.clause("meals_differ"), LEXICON.clause("located_one")]
    if days > 1:
        fields |= {"days": days, "end": iso_day(start, days - 1)}
        rules = [LEXICON.clause("no_repeat", days=days), LEXICON.clause("located", days=days)]
    rules += [LEXICON.clause(tier, day=min(days, 2)) for tier in TIERS]
    frame = LEXICON.frame(fields)
    return Problem(
        id=f"trip-{days}-days",
        shape="A",
        relations=plan_relations(days),
        access=plan_tools(days),
        slots=frame.slots,
        clauses=tuple(rules),
        layout=frame.layout,
        params=dict(TIER_PARAMS),
        lexicon=LEXICON.id,
        fields=fields,
    )


def num_days(problem: Problem) -> int:
    """Days of an itinerary task."""
    return len(problem.layout) if isinstance(problem.layout, list) else 0


def start_date(problem: Problem) -> str:
    """First day of an itinerary task."""
    return str(problem.fields["start"])


# --- bounds of levels 9 and 10 -------------------------------------------------------------------


class Route(NamedTuple):
    """Cities of the three days with the tier of day 2, and the least that such a trip costs."""

    cities: tuple[str, str, str]
    tier: str
    cheapest: int


def tune(problem: Problem, tables: Tables, rng: Random) -> Problem | None:
    """Bounds under which every tier can still be met, but seldom; None if the weather forbids it."""
    offered = city_days(tables)
    if min(tier_counts(offered).values()) == 0:
        return None
    params = dict(TIER_PARAMS)
    families = {clause.family for clause in problem.clauses}
    if num_days(problem) < 3 or not families & {"budget", "legs", "dry"}:
        return problem.model_copy(update={"params": params})
    routes = _routes(offered)
    if "budget" in families:
        budget = max(
            _cheap_trip(offered, routes, rng), _reach_all(routes, [r.cheapest for r in routes])
        )
        params["budget"] = -(-budget // 10) * 10
        routes = [route for route in routes if route.cheapest <= number(params["budget"])]
    if "dry" in families:
        wet = _wet(tables, start_date(problem))
        routes = [r for r in routes if not any(pair in wet for pair in enumerate(r.cities))]
    if {route.tier for route in routes} != set(TIERS):
        return None
    if "legs" in families:
        fares = _fares(tables)
        costs = [fares[a, b] + fares[b, c] for (a, b, c), _, _ in routes]
        common = sorted(costs)[int(len(costs) * _LEGS_SHARE)]
        params["legs"] = max(common, _reach_all(routes, costs))
    return problem.model_copy(update={"params": params})


def _routes(offered: Mapping[str, CityDays]) -> list[Route]:
    return [
        Route(
            (first, middle, last),
            tier,
            offered[first].free.cheapest
            + offered[middle].tiers[tier].cheapest
            + offered[last].free.cheapest,
        )
        for first, middle, last in permutations(offered, 3)
        for tier in TIERS
        if offered[middle].tiers[tier].count
    ]


def _reach_all(routes: Sequence[Route], costs: Sequence[int]) -> int:
    """The least bound on ``costs`` under which every tier keeps a route."""
    return max(
        min(cost for route, cost in zip(routes, costs, strict=True) if route.tier == tier)
        for tier in TIERS
    )


def _cheap_trip(offered: Mapping[str, CityDays], routes: Sequence[Route], rng: Random) -> int:
    """What only the cheapest ``_BUDGET_SHARE`` of the itineraries that pass stay under (sampled)."""
    weights = [offered[route.cities[1]].tiers[route.tier].count for route in routes]
    drawn = rng.choices(routes, weights, k=_SAMPLES)
    costs = sorted(
        offered[a].free.draw(rng) + offered[b].tiers[tier].draw(rng) + offered[c].free.draw(rng)
        for (a, b, c), tier, _ in drawn
    )
    return costs[int(len(costs) * _BUDGET_SHARE)]


def _fares(tables: Tables) -> dict[tuple[Scalar, Scalar], int]:
    """Fare of the cheapest connection between two cities."""
    best: dict[tuple[Scalar, Scalar], int] = {}
    for row in tables["inter_city_transport"].values():
        pair = (row["from_city"], row["to_city"])
        best[pair] = min(number(row["fare"]), best.get(pair, number(row["fare"])))
    return best


def _wet(tables: Tables, start: str) -> set[tuple[int, Scalar]]:
    """(day offset, city) with rain."""
    offsets = {iso_day(start, n): n for n in range(_FORECAST_DAYS)}
    return {
        (offsets[str(row["date"])], row["city"])
        for row in tables["weather"].values()
        if row["condition"] == RAIN and str(row["date"]) in offsets
    }


# --- operators -----------------------------------------------------------------------------------


def redraw(rng: Random, problem: Problem) -> Tables:
    """New rows for ``problem``, under which it can be tuned."""
    for _ in range(_TRIES):
        tables = draw_plan_tables(rng, num_days(problem), start_date(problem))
        if tune(problem, tables, rng) is not None:
            return tables
    raise AssertionError(f"no rows for {problem.id} in {_TRIES} tries")


def _planned(problem: Problem, rng: Random) -> Hardened | None:
    tables = redraw(rng, problem)
    tuned = tune(problem, tables, rng)
    return None if tuned is None else Hardened(tuned, tables)


def one_day(_problem: Problem, _tables: Tables, rng: Random) -> Hardened | None:
    """5 to 6: from finding a row to planning a day."""
    start = iso_day("2025-03-01", rng.randrange(240))
    return _planned(plan_problem(_opening(rng, "day"), 1, start), rng)


def second_day(problem: Problem, _tables: Tables, rng: Random) -> Hardened | None:
    """6 to 7: a second day, and nothing may be repeated."""
    return _planned(plan_problem(_opening(rng, "plan"), 2, start_date(problem)), rng)


def third_day(problem: Problem, _tables: Tables, rng: Random) -> Hardened | None:
    """7 to 8: the paper's trip."""
    return _planned(plan_problem(str(problem.fields["opening"]), 3, START), rng)


def trip_budget(problem: Problem, tables: Tables, rng: Random) -> Hardened | None:
    """8 to 9: a budget that few itineraries keep."""
    return _with_clause(problem, tables, rng, "budget", {"days": num_days(problem)})


def short_legs(problem: Problem, tables: Tables, rng: Random) -> Hardened | None:
    """9 to 10: a cap on the fares between the cities."""
    return _with_clause(problem, tables, rng, "legs", {"days": num_days(problem)})


def dry_days(problem: Problem, tables: Tables, rng: Random) -> Hardened | None:
    """9 to 10: no rain on any day."""
    fields: dict[str, int | str] = {"days": num_days(problem), "start": start_date(problem)}
    return _with_clause(problem, tables, rng, "dry", fields)


def _with_clause(
    problem: Problem, tables: Tables, rng: Random, key: str, fields: dict[str, int | str]
) -> Hardened | None:
    """``problem`` with one more rule; over the same rows where they allow it."""
    extended = problem.model_copy(
        update={"clauses": (*problem.clauses, LEXICON.clause(key, **fields))}
    )
    tuned = tune(extended, tables, rng)
    return _planned(extended, rng) if tuned is None else Hardened(tuned, tables)


def _opening(rng: Random, kind: str) -> str:
    return rng.choice([name for name in LEXICON.openings if name.startswith(f"{kind}-")])
