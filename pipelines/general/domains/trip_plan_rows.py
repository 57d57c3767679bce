"""Rows for itineraries: every budget tier can be met, but only in few cities and by few of their rows.

Most cities are plain: no restaurant there is good enough for any tier. Fine cities have good restaurants,
but dear hotels and tickets; a homely city has one fair restaurant and a cheap hotel. Rows stand just on
and just off every bound of the tiers, so that an off-by-one shows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import TypeVar

from envgen.core.ir import Relation
from envgen.pipelines.general.domains import trip_rows as rows
from envgen.pipelines.general.domains.trip_rules import iso_day
from envgen.pipelines.general.tables import Row, Tables

_FORECAST_DAYS = 5
_ON_BOUND = 0.15
T = TypeVar("T")
_TIERS = ((200, 499), (500, 799), (800, 1500))


@dataclass(frozen=True)
class Size:
    """How much there is to look through."""

    cities: int
    hotels: int
    """In each city; likewise below."""
    restaurants: int
    attractions: int
    fine: int = 1
    """Fine cities; the first has rows on all bounds."""

    def jittered(self, rng: Random) -> Size:
        """A size a little above this one."""
        return replace(
            self,
            hotels=self.hotels + rng.randint(0, 2),
            restaurants=self.restaurants + rng.randint(0, 2),
            attractions=self.attractions + rng.randint(0, 2),
        )


SIZES = {1: Size(4, 6, 7, 5), 2: Size(6, 8, 9, 7), 3: Size(12, 15, 16, 12, fine=2)}
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
    """Cities of all styles; whether the tiers are scarce enough is for the tuner to check."""
    size = SIZES[days].jittered(rng)
    cities = rows.draw_cities(rng, size.cities)
    special = rng.sample([city.name for city in cities], size.fine + 1)
    styles = dict.fromkeys(special, "fine")
    styles |= {special[0]: "homely", special[1]: "bounds"}
    values: dict[str, list[Row]] = {name: [] for name in rows.KIND_OF}
    for city in cities:
        drawn = _city(rng, size, styles.get(city.name, "plain"), small=days < 3)
        for relation, found in drawn.items():
            values[relation] += [{"city": city.name, **row} for row in found]
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
    return rows.keep_columns(tables, plan_relations(days))


def _city(rng: Random, size: Size, style: str, *, small: bool) -> dict[str, list[Row]]:
    """Values of one city's rows, without names."""
    prices = [_hotel_price(rng, 200) for _ in range(size.hotels)]
    meals = [(rng.randint(12, 31), rng.randint(40, 240)) for _ in range(size.restaurants)]
    tickets = [_ticket(rng) for _ in range(size.attractions)]
    if style != "plain":
        tickets = [rng.randint(181, 380) for _ in range(size.attractions)]
    if style == "homely":
        prices = [_hotel_price(rng, 501) for _ in range(size.hotels)]
        _replace(prices, [499, 500, 200] if small else [499, 500])
        _replace(meals, [(32, rng.randint(40, 240)), (31, rng.randint(40, 240))])
    if style == "bounds":
        prices = [_hotel_price(rng, 801) for _ in range(size.hotels)]
        _replace(prices, [799, 800])
        _replace(tickets, [119, 120, 179, 180])
        first = rng.randint(90, 200)
        good = [(40, first), (rng.randint(41, 48), 349 - first), (rng.randint(41, 48), 350 - first)]
        _replace(meals, [*good, (39, rng.randint(40, 90))])
    if style == "fine":
        prices = [_hotel_price(rng, 801) for _ in range(size.hotels)]
        _replace(prices, [rng.randint(501, 798)])
        _replace(meals, [(rng.randint(40, 48), rng.randint(60, 240)) for _ in range(2)])
        _replace(tickets, [rng.randint(40, 178)])
    return {
        "hotels": [{"price": price} for price in prices],
        "restaurants": [{"rating": rating, "price": price} for rating, price in meals],
        "attractions": [{"ticket": ticket} for ticket in tickets],
    }


def _replace(values: list[T], first: list[T]) -> None:
    values[: len(first)] = first


def _hotel_price(rng: Random, least: int) -> int:
    """A price of a tier drawn first; ``least`` or more. Bounds are as common in plain cities."""
    if least == 200 and rng.random() < _ON_BOUND:
        return rng.choice((200, 499, 500, 799, 800))
    low, high = rng.choice([tier for tier in _TIERS if tier[1] >= least])
    return rng.randint(max(low, least), high)


def _ticket(rng: Random) -> int:
    return rng.choice((119, 120, 179, 180)) if rng.random() < _ON_BOUND else rng.randint(25, 380)
