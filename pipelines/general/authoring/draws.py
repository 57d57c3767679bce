"""The functions that draws may call. Each is given the ``Drawing``, the text of its call, and its arguments.

Those that need data of the package (names of people, real cities) stand in ``REGISTERED``.
"""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import cache
from importlib.resources import files
from inspect import Parameter, signature
from math import asin, cos, radians, sin, sqrt
from random import Random
from typing import Any, NamedTuple

from envgen.core.errors import ConfigError
from envgen.core.ir import Scalar
from envgen.pipelines.general.semantics.tables import Row, Tables

MAX_VALUES = 10_000
"""Values of one list, range or pool."""
MAX_WORK = 2_000_000
"""Values that the draws of one table may list."""


@dataclass
class Drawing:
    """The state of drawing one table: the row so far, the rows before it, and the values they used up."""

    rng: Random
    tables: Tables
    known: Mapping[str, Any]
    """Constants, lists and the numbers of the task's structure."""
    row: Row = field(default_factory=dict)
    per: dict[str, Scalar] = field(default_factory=dict)
    """The row or item in hand of each name in the table's ``per``."""
    pools: dict[Any, list[Any]] = field(default_factory=dict)
    """Draw (and owner) -> values not used yet."""
    spans: dict[Any, list[tuple[int, int]]] = field(default_factory=dict)
    """Draw and owner -> intervals taken."""
    work: int = 0
    """Values listed so far."""

    def named(self, name: str) -> Any:
        """The constant, list or number of that name.

        Raises:
            ConfigError: if there is none.
        """
        if name not in self.known:
            known = ", ".join(sorted(self.known))
            raise ConfigError(f"unknown name {name!r}", f"known here: {known}")
        return self.known[name]

    def may_list(self, count: int) -> None:
        """Refuse to list so many values, before any is made.

        Raises:
            ConfigError: if they are too many.
        """
        self.work += max(count, 0)
        if count > MAX_VALUES or self.work > MAX_WORK:
            raise ConfigError(f"a draw lists more than {MAX_VALUES} values", "list fewer")


class NoRoomError(Exception):
    """Raised by a draw that finds no value for this row."""


def _one(d: Drawing, key: str, values: Sequence[Any], weights: Sequence[int] = ()) -> Any:
    if not weights:
        return d.rng.choice(_some(values))
    if len(weights) != len(values) or min(weights) < 0:
        raise ConfigError(f"{len(values)} values have the weights {weights}", "one >= 0 for each")
    return d.rng.choices(values, weights)[0]


def _some(values: Any) -> Any:
    """``values``, of which there is one at least."""
    if not values:
        raise ConfigError("a draw from a list that is empty", "list at least one value")
    return values


def _ordered(low: Any, high: Any) -> None:
    """Refuse what is not a range of whole numbers."""
    if not (isinstance(low, int) and isinstance(high, int)):
        raise ConfigError(f"{low!r:.60} to {high!r:.60} is not a range", "give two whole numbers")
    if low > high:
        raise ConfigError(f"the range {low} to {high} is empty", "put the lower bound first")


def _date(text: Any) -> date:
    try:
        return date.fromisoformat(text)
    except (TypeError, ValueError):
        raise ConfigError(f"{text!r:.60} is not a date", "write it as 2026-03-31") from None


def _ints(d: Drawing, key: str, low: int, high: int, step: int = 1) -> int:
    _ordered(low, high)
    if not (isinstance(step, int) and step > 0):
        raise ConfigError(f"{step!r:.60} is not a step of a range", "give a whole number above 0")
    return d.rng.randrange(low, high + 1, step)


def _pooled(d: Drawing, key: Any, values: Callable[[], list[Any]]) -> Any:
    """A value that no earlier row of the pool has."""
    pool = d.pools.get(key)
    if pool is None:
        pool = d.pools[key] = values()
        d.may_list(len(pool))
        d.rng.shuffle(pool)
    if not pool:
        raise NoRoomError
    return pool.pop()


def _distinct_ints(d: Drawing, key: str, low: int, high: int) -> int:
    _ordered(low, high)
    if high - low >= MAX_VALUES:
        raise ConfigError(f"a range of more than {MAX_VALUES} numbers", "draw from a smaller one")
    found: int = _pooled(d, key, lambda: list(range(low, high + 1)))
    return found


def _member(d: Drawing, key: str, rows: Sequence[Any], owner: Any, first: Any = None) -> Any:
    """A row that the owner doesn't have yet; ``first`` comes first."""
    if first is not None and (key, owner) not in d.pools:
        d.pools[key, owner] = rest = [row for row in rows if row != first]
        d.may_list(len(rest))
        d.rng.shuffle(rest)
        return first
    return _pooled(d, (key, owner), lambda: list(rows))


def _code(d: Drawing, key: str, prefix: str, digits: int) -> str:
    used = d.pools.setdefault(key, [])
    low = 10 ** (min(digits, 9) - 1)
    if len(used) > 4 * low:  # of 9 * low numbers: so a free one is found soon
        raise ConfigError(f"too few numbers of {digits} digits", "give the code more digits")
    while (number := d.rng.randrange(low, 10 * low)) in used:
        pass
    used.append(number)
    return f"{prefix}-{number}"


def _gap(d: Drawing, key: str, low: int, high: int, step: int, length: int, owner: Any) -> int:
    """A start such that ``length`` from it on touches no earlier interval of ``owner``."""
    taken = d.spans.setdefault((key, owner), [])
    _ordered(low, high - 1)
    start = d.rng.randrange(low, high, step)
    if start + length > high or any(start + length > a and start < b for a, b in taken):
        raise NoRoomError
    taken.append((start, start + length))
    return start


def _few(d: Drawing, key: str, values: Sequence[Any], count: int) -> Sequence[Any]:
    """The same few of the values for every row."""
    if key not in d.pools:
        if not 0 <= count <= len(values):
            raise ConfigError(f"{count} of {len(values)} values", "ask for no more than there are")
        d.pools[key] = d.rng.sample(list(values), count)
    return d.pools[key]


def _number(d: Drawing, key: str, owner: Any) -> int:
    """The number of the owner's rows before this one."""
    seen = d.pools.setdefault((key, owner), [-1])
    seen[0] += 1
    return int(seen[0])


def _deal(d: Drawing, key: str, values: Sequence[Any], rest: Any) -> Any:
    """The values in turn, each to one row; then ``rest``."""
    left = d.pools.setdefault(key, list(values))
    return left.pop(0) if left else rest


def _fresh(d: Drawing, key: str, value: str) -> str:
    """A value that no earlier row has."""
    taken = d.pools.setdefault(key, [])
    if value in taken:
        raise NoRoomError
    taken.append(value)
    return value


def _pairs(d: Drawing, key: str, left: Sequence[str], right: Sequence[str]) -> list[str]:
    d.may_list(len(left) * len(right))
    return [f"{a} {b}" for a in left for b in right]


def _reached(
    d: Drawing, key: str, start: str, sources: Sequence[str], targets: Sequence[str]
) -> list[str]:
    """What links lead to from ``start``, over any number of steps; link i goes from source to target i."""
    d.may_list(len(sources))
    onward: dict[str, list[str]] = {}
    for source, target in zip(sources, targets, strict=True):
        onward.setdefault(source, []).append(target)
    found: dict[str, None] = {}
    open_ = onward.get(start, [])[:]
    while open_:
        at = open_.pop()
        if at not in found:
            found[at] = None
            open_ += onward.get(at, [])
    return list(found)


# --- with data of the package --------------------------------------------------------------------


def _data(name: str) -> str:
    return (files("envgen.pipelines.general") / "data" / name).read_text(encoding="utf-8")


@cache
def _names() -> Mapping[str, Mapping[str, str]]:
    return tomllib.loads(_data("names.toml"))


def _person(d: Drawing, key: str, locale: str) -> str:
    """A name; neither its given nor its family name comes again."""
    if locale not in _names():
        raise ConfigError(f"unknown locale {locale!r}", f"there are: {', '.join(_names())}")
    parts = ("given", "family")
    given, family = (_pooled(d, (key, part), _names()[locale][part].split) for part in parts)
    return f"{given} {family}"


class _City(NamedTuple):
    """A real city; coordinates in hundredths of a degree."""

    population: int
    latitude: int
    longitude: int


@cache
def _cities() -> Mapping[str, _City]:
    return {
        row["name"]: _City(
            int(row["population"]),
            round(100 * float(row["latitude"])),
            round(100 * float(row["longitude"])),
        )
        for row in csv.DictReader(_data("cities.csv").splitlines())
    }


def _city(d: Drawing, key: str, country: str, home: str) -> str:
    """A city that no earlier row has, never ``home``."""
    if country != "cn":
        raise ConfigError(f"there are no cities of {country!r}", "the package has those of 'cn'")
    found: str = _pooled(d, key, lambda: [name for name in sorted(_cities()) if name != home])
    return found


def _city_fact(d: Drawing, key: str, name: str, fact: str) -> int:
    """The population of a city, its latitude or longitude in hundredths of a degree."""
    if fact not in _City._fields:
        known = ", ".join(_City._fields)
        raise ConfigError(f"nothing is known of a city's {fact!r}", f"known: {known}")
    return int(getattr(_cities()[name], fact))


def _kilometres(d: Drawing, key: str, left: str, right: str) -> int:
    """Great-circle distance of two cities in whole kilometres (haversine, mean earth radius)."""
    a, b = _cities()[left], _cities()[right]
    lat1, lon1, lat2, lon2 = (
        radians(x / 100) for x in (a.latitude, a.longitude, b.latitude, b.longitude)
    )
    h = sin((lat2 - lat1) / 2) ** 2 + cos(lat1) * cos(lat2) * sin((lon2 - lon1) / 2) ** 2
    return round(2 * 6371 * asin(sqrt(h)))


class DrawFunction(NamedTuple):
    """A function of draws and how many arguments it takes."""

    run: Callable[..., Any]
    least: int
    most: int
    open: bool = True
    """Whether a page that is not the package's may call it."""


def _function(run: Callable[..., Any]) -> DrawFunction:
    own = list(signature(run).parameters.values())[2:]
    if own[0].kind is Parameter.VAR_POSITIONAL:
        return DrawFunction(run, 1, 4)
    return DrawFunction(run, sum(p.default is Parameter.empty for p in own), len(own))


def _by_name(*runs: Callable[..., Any]) -> dict[str, DrawFunction]:
    return {run.__name__[1:]: _function(run) for run in runs}


REGISTERED = _by_name(_person, _city, _city_fact, _kilometres)
"""Those that need data of the package, each open to every page or not."""
_SIMPLE: Mapping[str, Callable[..., Any]] = {
    "ref": lambda d, key, rows: d.rng.choice(_some(rows)),
    "chance": lambda d, key, percent: d.rng.random() * 100 < percent,
    "distinct": lambda d, key, values, owner=None: _pooled(d, (key, owner), lambda: list(values)),
    # The value that the first row (of an owner) drew.
    "once": lambda d, key, value, owner=None: d.pools.setdefault((key, owner), [value])[0],
    "first": lambda d, key, values, count: values[:count],
    "at": lambda d, key, values, at, rest: values[at] if at < len(values) else rest,
    "entries": lambda d, key, name: d.named(name),
    "join": lambda d, key, *parts: " ".join(parts),
    "day": lambda d, key, start, days: (_date(start) + timedelta(days=days)).isoformat(),
    "days": lambda d, key, start, end: (_date(end) - _date(start)).days,
    "latest": lambda d, key, *columns: max(
        value for column in columns for value in column if value
    ),
    "min": lambda d, key, *values: min(values),
    "max": lambda d, key, *values: max(values),
}
DRAWS: Mapping[str, DrawFunction] = {
    **{name: _function(run) for name, run in _SIMPLE.items()},
    **_by_name(
        _one,
        _ints,
        _distinct_ints,
        _member,
        _code,
        _gap,
        _few,
        _number,
        _deal,
        _fresh,
        _pairs,
        _reached,
    ),
}
"""Function -> what it does."""
