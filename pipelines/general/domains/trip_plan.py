"""Levels 6 to 10 of the trip domain: itineraries whose middle day has the paper's budget tiers.

Good restaurants and cheap tickets exist only in a few cities, and cheap hotels are rare there, so that few
itineraries pass although most cities offer nothing wrong. Every tier can be met somewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random

from pydantic import JsonValue

from envgen.core.ir import Problem, Relation
from envgen.pipelines.general.blueprint import Hardened
from envgen.pipelines.general.domains import trip_rows as rows
from envgen.pipelines.general.domains.trip_days import (
    TIER_PARAMS,
    TIERS,
    city_days,
    scarce,
)
from envgen.pipelines.general.domains.trip_lexicon import LEXICON, Voice, new_voice, voice_of
from envgen.pipelines.general.domains.trip_rules import iso_day
from envgen.pipelines.general.domains.trip_tools import plan_tools
from envgen.pipelines.general.domains.trip_tune import num_days, start_date, tune
from envgen.pipelines.general.tables import Row, Tables

START = "2025-10-01"
_TRIES = 100
_SIBLING_TRIES = 12
_EXTRA = ("budget", "legs", "dry")
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

    def jittered(self, rng: Random) -> Size:
        """A size a little above this one."""
        return replace(
            self,
            hotels=self.hotels + rng.randint(0, 2),
            restaurants=self.restaurants + rng.randint(0, 2),
            attractions=self.attractions + rng.randint(0, 2),
        )


SIZES = {
    1: Size(4, 1, 1, 6, 7, 5),
    2: Size(6, 1, 1, 8, 9, 7),
    3: Size(12, 2, 1, 14, 16, 10),
}
"""Days of the trip -> size."""
_OTHER_BOUNDS: Mapping[str, tuple[int, ...]] = {
    "luxury_meals": (280, 300, 320, 350, 380),
    "luxury_ticket": (80, 100, 110, 120, 150),
    "mid_ticket": (140, 160, 170, 180),
    "good_rating": (39, 40, 41, 42),
    "fair_rating": (32, 33, 34),
}
"""What the tiers' bounds may be in further tasks over the same rows."""


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


def _draw(rng: Random, days: int, start: str) -> Tables:
    size = SIZES[days].jittered(rng)
    cities = rows.draw_cities(rng, size.cities)
    special = rng.sample([city.name for city in cities], size.fine + size.homely)
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


def plan_problem(voice: Voice, days: int, start: str, *, tiers: int | None = None) -> Problem:
    """An itinerary of ``days`` days; the budget tiers are about day ``tiers`` (default: the second)."""
    fields: dict[str, JsonValue] = {"opening": voice.opening, "start": start, "who": voice.who}
    rules = [LEXICON.clause("meals_differ"), LEXICON.clause("located_one")]
    if days > 1:
        fields |= {"days": days, "end": iso_day(start, days - 1)}
        rules = [LEXICON.clause("no_repeat", days=days), LEXICON.clause("located", days=days)]
    rules += [LEXICON.clause(tier, day=tiers or min(days, 2)) for tier in TIERS]
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


# --- operators -----------------------------------------------------------------------------------


def redraw(rng: Random, problem: Problem) -> Tables:
    """New rows for ``problem``; after some tries, such that it can be tuned."""
    days = num_days(problem)
    for _ in range(_TRIES):
        tables = _draw(rng, days, start_date(problem))
        if scarce(city_days(tables, problem.params), days):
            if tune(problem, tables, rng) is not None:
                break
    return tables


def _planned(problem: Problem, rng: Random) -> Hardened | None:
    tables = redraw(rng, problem)
    tuned = tune(problem, tables, rng)
    return None if tuned is None else Hardened(tuned, tables)


def one_day(_problem: Problem, _tables: Tables, rng: Random) -> Hardened | None:
    """5 to 6: from finding a row to planning a day."""
    start = iso_day("2025-03-01", rng.randrange(240))
    return _planned(plan_problem(new_voice(rng, "day"), 1, start), rng)


def second_day(problem: Problem, _tables: Tables, rng: Random) -> Hardened | None:
    """6 to 7: a second day, and nothing may be repeated."""
    return _planned(
        plan_problem(
            new_voice(rng, "plan")._replace(who=voice_of(problem).who), 2, start_date(problem)
        ),
        rng,
    )


def third_day(problem: Problem, _tables: Tables, rng: Random) -> Hardened | None:
    """7 to 8: the paper's trip."""
    return _planned(plan_problem(voice_of(problem), 3, START), rng)


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


def sibling(rng: Random, problem: Problem, tables: Tables) -> Problem | None:
    """Another itinerary over the same rows: other bounds, and the tiers on another day."""
    days = num_days(problem)
    voice = new_voice(rng, voice_of(problem).opening.partition("-")[0])
    extra = tuple(clause for clause in problem.clauses if clause.family in _EXTRA)
    for _ in range(_SIBLING_TRIES):
        tiers = rng.randint(1, days)
        other = plan_problem(voice, days, start_date(problem), tiers=tiers)
        bounds = {name: rng.choice(values) for name, values in _OTHER_BOUNDS.items()}
        update = {"params": {**TIER_PARAMS, **bounds}, "clauses": (*other.clauses, *extra)}
        tuned = tune(other.model_copy(update=update), tables, rng)
        if tuned is not None:
            return tuned
    return None
