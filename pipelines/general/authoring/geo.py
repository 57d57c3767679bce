"""Draws that need data of the package: real cities, and the way between them."""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files
from math import asin, cos, radians, sin, sqrt
from typing import NamedTuple

from envgen.core.errors import ConfigError

_FACTS = ("population", "latitude", "longitude")


class _City(NamedTuple):
    """A real city; coordinates in hundredths of a degree."""

    population: int
    latitude: int
    longitude: int


@cache
def _cities() -> dict[str, _City]:
    text = (files("envgen.pipelines.general") / "data" / "cities.csv").read_text(encoding="utf-8")
    return {
        row["name"]: _City(
            int(row["population"]),
            round(100 * float(row["latitude"])),
            round(100 * float(row["longitude"])),
        )
        for row in csv.DictReader(text.splitlines())
    }


def city_names(country: str) -> list[str]:
    """The cities of a country.

    Raises:
        ConfigError: if the package has none of that country.
    """
    if country != "cn":
        raise ConfigError(f"there are no cities of {country!r}", "the package has those of 'cn'")
    return sorted(_cities())


def city_fact(name: str, fact: str) -> int:
    """The population of a city, its latitude or longitude in hundredths of a degree.

    Raises:
        ConfigError: if nothing else is known.
    """
    if fact not in _FACTS:
        raise ConfigError(f"nothing is known of a city's {fact!r}", f"known: {', '.join(_FACTS)}")
    return int(getattr(_cities()[name], fact))


def kilometres(left: str, right: str) -> int:
    """Great-circle distance of two cities in whole kilometres (haversine, mean earth radius)."""
    a, b = _cities()[left], _cities()[right]
    lat1, lon1, lat2, lon2 = (
        radians(x / 100) for x in (a.latitude, a.longitude, b.latitude, b.longitude)
    )
    h = sin((lat2 - lat1) / 2) ** 2 + cos(lat1) * cos(lat2) * sin((lon2 - lon1) / 2) ** 2
    return round(2 * 6371 * asin(sqrt(h)))
