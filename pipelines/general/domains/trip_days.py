"""What a day of an itinerary can be under the budget tiers: exact counts and cheapest costs for each city.

Only the trip domain's tuner uses this; the compilers count and solve on their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from random import Random

from envgen.core.ir import Scalar
from envgen.pipelines.general.tables import Row, Tables

TIERS = ("luxury", "mid", "low")
TIER_PARAMS: Mapping[str, Scalar] = {
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
MAX_DENSITY = {1: 0.05, 2: 0.02, 3: 1e-3}
"""Days of the trip -> largest share of itineraries that may pass."""


@dataclass(frozen=True)
class Choice:
    """The days that one city offers in one tier (or without tiers): every combination of its parts."""

    hotels: tuple[int, ...]
    """Prices; likewise below."""
    meals: tuple[int, ...]
    """Both restaurants together, one entry for each ordered pair of different ones."""
    tickets: tuple[int, ...]

    @property
    def count(self) -> int:
        """How many days."""
        return len(self.hotels) * len(self.meals) * len(self.tickets)

    @property
    def cheapest(self) -> int:
        """Cost of the cheapest day; there must be one."""
        return min(self.hotels) + min(self.meals) + min(self.tickets)

    def draw(self, rng: Random) -> int:
        """Cost of a random day."""
        return rng.choice(self.hotels) + rng.choice(self.meals) + rng.choice(self.tickets)


@dataclass(frozen=True)
class CityDays:
    """A city's days: all of them, those in each tier, and how large the answer space of a day is."""

    free: Choice
    tiers: dict[str, Choice]
    space: int


def city_days(tables: Tables, bounds: Mapping[str, Scalar] = TIER_PARAMS) -> dict[str, CityDays]:
    """City -> its days, under the tiers' ``bounds``."""
    limit = {name: number(bounds[name]) for name in TIER_PARAMS}
    by_city: dict[str, dict[str, list[Row]]] = {}
    for relation in ("hotels", "restaurants", "attractions"):
        for row in tables[relation].values():
            kinds = by_city.setdefault(str(row["city"]), {})
            kinds.setdefault(relation, []).append(row)
    return {
        city: _days(kinds["hotels"], kinds["restaurants"], kinds["attractions"], limit)
        for city, kinds in sorted(by_city.items())
    }


def _days(
    hotels: Sequence[Row],
    restaurants: Sequence[Row],
    attractions: Sequence[Row],
    limit: Mapping[str, int],
) -> CityDays:
    prices = [number(h["price"]) for h in hotels]
    tickets = tuple(number(a["ticket"]) for a in attractions)
    pairs = [
        (
            number(a["price"]) + number(b["price"]),
            sorted((number(a["rating"]), number(b["rating"]))),
        )
        for a, b in permutations(restaurants, 2)
    ]
    good, fair = limit["good_rating"], limit["fair_rating"]
    luxury = Choice(
        tuple(p for p in prices if p >= limit["luxury_price"]),
        tuple(p for p, (worse, _) in pairs if p < limit["luxury_meals"] and worse >= good),
        tuple(t for t in tickets if t < limit["luxury_ticket"]),
    )
    mid = Choice(
        tuple(p for p in prices if limit["mid_price"] <= p < limit["luxury_price"]),
        tuple(p for p, (_, better) in pairs if better >= good),
        tuple(t for t in tickets if t < limit["mid_ticket"]),
    )
    low = Choice(
        tuple(p for p in prices if limit["low_price"] <= p < limit["mid_price"]),
        tuple(p for p, (_, better) in pairs if better >= fair),
        tickets,
    )
    free = Choice(tuple(prices), tuple(p for p, _ in pairs), tickets)
    space = len(hotels) * len(restaurants) ** 2 * len(attractions)
    return CityDays(free=free, tiers={"luxury": luxury, "mid": mid, "low": low}, space=space)


def number(value: Scalar) -> int:
    """``value``, which is a number."""
    assert isinstance(value, int)
    return value


def tier_counts(days: Mapping[str, CityDays]) -> dict[str, int]:
    """Tier -> days over all cities that keep its rule."""
    return {tier: sum(city.tiers[tier].count for city in days.values()) for tier in TIERS}


def plan_density(days: Mapping[str, CityDays], num_days: int) -> float:
    """Share of itineraries (one tier day, no repeats) among all located ones; exact."""
    space = sum(city.space for city in days.values())
    found = 0
    for cities in permutations(days, num_days):
        product = sum(choice.count for choice in days[cities[0]].tiers.values())
        if product:
            for city in cities[1:]:
                product *= days[city].free.count
            found += product
    return found / float(space) ** num_days


def scarce(days: Mapping[str, CityDays], num_days: int) -> bool:
    """Whether every tier can be met, and few enough itineraries pass."""
    if min(tier_counts(days).values()) == 0:
        return False
    return plan_density(days, num_days) <= MAX_DENSITY[num_days]
