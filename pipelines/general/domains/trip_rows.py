"""Rows of the trip domain: real cities, invented hotels, restaurants, attractions, weather, transport.

Prices are whole CNY, ratings tenths (40 is 4.0). Every city of a table has the same number of rows of a
kind, so that a uniform draw over a kind and a draw city first agree.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import asin, cos, radians, sin, sqrt
from random import Random
from types import MappingProxyType

from envgen.core.ir import Column, Relation
from envgen.pipelines.general.domains.names import unique_names
from envgen.pipelines.general.tables import Row, Tables

HOME = "Hangzhou"
"""Where itineraries start; it is no city to stay in, so prompts may name it."""
SOURCES = (
    "City names, coordinates and population: GeoNames (https://www.geonames.org), CC BY 4.0",
)

KIND_OF: Mapping[str, str] = MappingProxyType(
    {"hotels": "hotel", "restaurants": "restaurant", "attractions": "attraction"}
)
"""Relation -> what one row of it is called."""
SCORE_OF: Mapping[str, str] = MappingProxyType(
    {"hotels": "free_rooms", "restaurants": "free_tables", "attractions": "free_tours"}
)
"""Relation -> its small ordinal column (0..9)."""
PRICE_OF: Mapping[str, str] = MappingProxyType(
    {"hotels": "price", "restaurants": "price", "attractions": "ticket"}
)
"""Relation -> what one visit costs."""

_COLUMNS: Mapping[str, tuple[Column, ...]] = MappingProxyType(
    {
        "cities": (
            Column(name="name", type="str"),
            Column(name="population", type="int", unit="people"),
            Column(name="latitude", type="decimal:2", unit="degrees"),
            Column(name="longitude", type="decimal:2", unit="degrees"),
        ),
        "hotels": (
            Column(name="name", type="str"),
            Column(name="city", type="entity:cities"),
            Column(name="free_rooms", type="int"),
            Column(name="price", type="int", unit="CNY"),
            Column(name="rating", type="decimal:1", unit="rating"),
        ),
        "restaurants": (
            Column(name="name", type="str"),
            Column(name="city", type="entity:cities"),
            Column(name="free_tables", type="int"),
            Column(name="price", type="int", unit="CNY"),
            Column(name="rating", type="decimal:1", unit="rating"),
            Column(name="cuisine", type="str"),
        ),
        "attractions": (
            Column(name="name", type="str"),
            Column(name="city", type="entity:cities"),
            Column(name="free_tours", type="int"),
            Column(name="ticket", type="int", unit="CNY"),
            Column(name="rating", type="decimal:1", unit="rating"),
        ),
        "city_transport": (
            Column(name="id", type="str"),
            Column(name="city", type="entity:cities"),
            Column(name="mode", type="str"),
            Column(name="fare", type="int", unit="CNY"),
        ),
        "inter_city_transport": (
            Column(name="id", type="str"),
            Column(name="from_city", type="entity:cities"),
            Column(name="to_city", type="entity:cities"),
            Column(name="mode", type="str"),
            Column(name="minutes", type="int", unit="minutes"),
            Column(name="fare", type="int", unit="CNY"),
        ),
        "weather": (
            Column(name="id", type="str"),
            Column(name="city", type="entity:cities"),
            Column(name="date", type="date"),
            Column(name="condition", type="str"),
            Column(name="high", type="int", unit="celsius"),
            Column(name="low", type="int", unit="celsius"),
        ),
    }
)
_KEYS = {"city_transport": "id", "inter_city_transport": "id", "weather": "id"}
_CUISINES = "Zhejiang Sichuan Cantonese Hunan Shandong Huaiyang Fujian Yunnan Northern".split()
_CONDITIONS = ("sunny", "cloudy", "rain", "overcast", "rain")


def relation(name: str, columns: Sequence[str] | None = None) -> Relation:
    """The relation ``name`` with all its columns, or only ``columns``."""
    kept = tuple(c for c in _COLUMNS[name] if columns is None or c.name in columns)
    return Relation(name=name, key=_KEYS.get(name, "name"), columns=kept)


@dataclass(frozen=True)
class City:
    """A real city; coordinates in hundredths of a degree."""

    name: str
    latitude: int
    longitude: int
    population: int


@cache
def all_cities() -> tuple[City, ...]:
    """The cities of ``data/cities.csv``, by name."""
    text = (files("envgen.pipelines.general") / "data" / "cities.csv").read_text(encoding="utf-8")
    return tuple(
        City(
            name=row["name"],
            latitude=round(100 * float(row["latitude"])),
            longitude=round(100 * float(row["longitude"])),
            population=int(row["population"]),
        )
        for row in csv.DictReader(text.splitlines())
    )


def distance_km(a: City, b: City) -> int:
    """Great-circle distance in whole kilometres (haversine, mean earth radius)."""
    lat1, lon1, lat2, lon2 = (
        radians(x / 100) for x in (a.latitude, a.longitude, b.latitude, b.longitude)
    )
    h = sin((lat2 - lat1) / 2) ** 2 + cos(lat1) * cos(lat2) * sin((lon2 - lon1) / 2) ** 2
    return round(2 * 6371 * asin(sqrt(h)))


def draw_cities(rng: Random, count: int) -> list[City]:
    """``count`` different cities in random order, never ``HOME``."""
    return rng.sample([city for city in all_cities() if city.name != HOME], count)


def city_rows(cities: Sequence[City], columns: Sequence[str] | None = None) -> dict[str, Row]:
    """Rows of ``cities``."""
    rows: dict[str, Row] = {}
    for city in cities:
        row: Row = {
            "name": city.name,
            "population": city.population,
            "latitude": city.latitude,
            "longitude": city.longitude,
        }
        rows[city.name] = {k: v for k, v in row.items() if columns is None or k in columns}
    return rows


def place_rows(
    rng: Random, name: str, values: Sequence[Row], columns: Sequence[str] | None = None
) -> dict[str, Row]:
    """Rows of hotels, restaurants or attractions: ``values`` under fresh random names.

    ``values`` hold ``city`` and whatever is not to be drawn; names know nothing of them.
    """
    rows: dict[str, Row] = {}
    for key, given in zip(unique_names(rng, KIND_OF[name], len(values)), values, strict=True):
        row: Row = {
            "name": key,
            SCORE_OF[name]: rng.randrange(10),
            PRICE_OF[name]: _price(rng, name),
            "rating": rng.randint(12, 49),
        }
        if name == "restaurants":
            row["cuisine"] = rng.choice(_CUISINES)
        row.update(given)
        order = [c.name for c in _COLUMNS[name] if columns is None or c.name in columns]
        rows[key] = {column: row[column] for column in order}
    return dict(sorted(rows.items()))


def _price(rng: Random, name: str) -> int:
    low, high = {"hotels": (200, 1400), "restaurants": (25, 320), "attractions": (20, 380)}[name]
    return rng.randint(low, high)


def _ids(rng: Random, prefix: str, count: int) -> list[str]:
    return [f"{prefix}-{n:05d}" for n in rng.sample(range(10_000, 100_000), count)]


def city_transport_rows(rng: Random, cities: Sequence[City]) -> dict[str, Row]:
    """Ways to get around in each city."""
    fares = {"metro": (2, 9), "bus": (1, 4), "taxi": (15, 60), "bike": (2, 6)}
    found = [(c.name, mode) for c in cities for mode in rng.sample(list(fares), rng.randint(2, 4))]
    ids = _ids(rng, "local", len(found))
    rows: dict[str, Row] = {
        key: {"id": key, "city": city, "mode": mode, "fare": rng.randint(*fares[mode])}
        for key, (city, mode) in zip(ids, found, strict=True)
    }
    return dict(sorted(rows.items()))


def inter_city_rows(rng: Random, cities: Sequence[City]) -> dict[str, Row]:
    """One to three connections for each ordered pair of cities; minutes and fares follow the distance."""
    found: list[Row] = []
    for a in cities:
        for b in cities:
            if a != b:
                found += _connections(rng, a, b)
    rows: dict[str, Row] = {}
    for key, row in zip(_ids(rng, "line", len(found)), found, strict=True):
        rows[key] = {"id": key, **row}
    return dict(sorted(rows.items()))


def _connections(rng: Random, a: City, b: City) -> list[Row]:
    km = distance_km(a, b)
    modes = ["train"]
    if km < 500:
        modes.append("coach")
    if km > 400:
        modes.append("flight")
    speed = {"train": 220, "coach": 80, "flight": 700}
    wait = {"train": 20, "coach": 10, "flight": 100}
    per_100_km = {"train": 44, "coach": 28, "flight": 55}
    rows: list[Row] = []
    for mode in modes:
        minutes = wait[mode] + km * 60 // speed[mode]
        fare = max(10, km * per_100_km[mode] * rng.randint(85, 125) // 10_000)
        if mode == "flight":
            fare += 180
        rows.append(
            {"from_city": a.name, "to_city": b.name, "mode": mode, "minutes": minutes, "fare": fare}
        )
    return rows


def weather_rows(rng: Random, cities: Sequence[str], dates: Sequence[str]) -> dict[str, Row]:
    """One forecast for each city and date."""
    pairs = [(city, date) for city in cities for date in dates]
    rows: dict[str, Row] = {}
    for key, (city, date) in zip(_ids(rng, "day", len(pairs)), pairs, strict=True):
        low = rng.randint(6, 20)
        rows[key] = {
            "id": key,
            "city": city,
            "date": date,
            "condition": rng.choice(_CONDITIONS),
            "high": low + rng.randint(3, 11),
            "low": low,
        }
    return dict(sorted(rows.items()))


def keep_columns(tables: Tables, relations: Sequence[Relation]) -> Tables:
    """``tables`` cut to ``relations`` and their columns."""
    return {
        r.name: {
            key: {c.name: row[c.name] for c in r.columns} for key, row in tables[r.name].items()
        }
        for r in relations
    }
