"""Bounds of the itinerary tasks: tight, but with every tier still within reach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations
from random import Random
from typing import NamedTuple

from envgen.core.ir import Problem, Scalar
from envgen.pipelines.general.domains.trip_days import (
    TIER_PARAMS,
    TIERS,
    CityDays,
    city_days,
    number,
    scarce,
)
from envgen.pipelines.general.domains.trip_rules import RAIN, iso_day
from envgen.pipelines.general.tables import Tables

_SAMPLES = 600
_BUDGET_SHARE = 0.03
_LEGS_SHARE = 0.25


def num_days(problem: Problem) -> int:
    """Days of an itinerary task; 0 for other tasks."""
    return len(problem.layout) if isinstance(problem.layout, list) else 0


def start_date(problem: Problem) -> str:
    """First day of an itinerary task."""
    return str(problem.fields["start"])


def tier_day(problem: Problem) -> int:
    """The day that the budget tiers are about."""
    return next(int(str(c.fields["day"])) for c in problem.clauses if c.family == "tier")


class Route(NamedTuple):
    """Cities of the three days, the tier of the day that has them, and the least such a trip costs."""

    cities: tuple[str, str, str]
    tier: str
    cheapest: int


def tune(problem: Problem, tables: Tables, rng: Random) -> Problem | None:
    """Bounds under which every tier can still be met, but seldom; None if the weather forbids it."""
    params: dict[str, Scalar] = {name: problem.params[name] for name in TIER_PARAMS}
    offered = city_days(tables, params)
    if not scarce(offered, num_days(problem)):
        return None
    families = {clause.family for clause in problem.clauses}
    if num_days(problem) < 3 or not families & {"budget", "legs", "dry"}:
        return problem.model_copy(update={"params": params})
    routes = _routes(offered, tier_day(problem))
    if "budget" in families:
        budget = max(
            _cheap_trip(offered, routes, tier_day(problem), rng),
            _reach_all(routes, [r.cheapest for r in routes]),
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
        short = sorted(costs)[int(len(costs) * _LEGS_SHARE)]
        params["legs"] = max(short, _reach_all(routes, costs))
    return problem.model_copy(update={"params": params})


def _routes(offered: Mapping[str, CityDays], day: int) -> list[Route]:
    """Every choice of cities and tier that some itinerary realises; the tiers are about ``day``."""
    found = []
    for cities in permutations(offered, 3):
        free = sum(offered[c].free.cheapest for n, c in enumerate(cities, 1) if n != day)
        for tier in TIERS:
            choice = offered[cities[day - 1]].tiers[tier]
            if choice.count:
                found.append(Route(cities, tier, free + choice.cheapest))
    return found


def _reach_all(routes: Sequence[Route], costs: Sequence[int]) -> int:
    """The least bound on ``costs`` under which every tier keeps a route."""
    return max(
        min(cost for route, cost in zip(routes, costs, strict=True) if route.tier == tier)
        for tier in TIERS
    )


def _cheap_trip(
    offered: Mapping[str, CityDays], routes: Sequence[Route], day: int, rng: Random
) -> int:
    """What only the cheapest ``_BUDGET_SHARE`` of the itineraries that pass stay under (sampled)."""
    weights = [offered[route.cities[day - 1]].tiers[route.tier].count for route in routes]
    costs = []
    for cities, tier, _ in rng.choices(routes, weights, k=_SAMPLES):
        choices = [offered[city].free for city in cities]
        choices[day - 1] = offered[cities[day - 1]].tiers[tier]
        costs.append(sum(choice.draw(rng) for choice in choices))
    return sorted(costs)[int(len(costs) * _BUDGET_SHARE)]


def _fares(tables: Tables) -> dict[tuple[Scalar, Scalar], int]:
    """Fare of the cheapest connection between two cities."""
    best: dict[tuple[Scalar, Scalar], int] = {}
    for row in tables["inter_city_transport"].values():
        pair = (row["from_city"], row["to_city"])
        best[pair] = min(number(row["fare"]), best.get(pair, number(row["fare"])))
    return best


def _wet(tables: Tables, start: str) -> set[tuple[int, Scalar]]:
    """(day offset, city) with rain."""
    offsets = {iso_day(start, n): n for n in range(3)}
    return {
        (offsets[str(row["date"])], row["city"])
        for row in tables["weather"].values()
        if row["condition"] == RAIN and str(row["date"]) in offsets
    }
