"""Levels 6 to 10 of the trip domain: itineraries, one day of which has the paper's budget tiers."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from pydantic import JsonValue

from envgen.core.ir import Problem
from envgen.pipelines.general.blueprint import Hardened
from envgen.pipelines.general.domains.trip_days import (
    TIER_PARAMS,
    TIERS,
    city_days,
    scarce,
)
from envgen.pipelines.general.domains.trip_lexicon import LEXICON, Voice, new_voice, voice_of
from envgen.pipelines.general.domains.trip_plan_rows import draw_plan_tables, plan_relations
from envgen.pipelines.general.domains.trip_rules import iso_day
from envgen.pipelines.general.domains.trip_tools import plan_tools
from envgen.pipelines.general.domains.trip_tune import num_days, start_date, tune
from envgen.pipelines.general.tables import Tables

START = "2025-10-01"
_TRIES = 100
_SIBLING_TRIES = 12
_EXTRA = ("budget", "legs", "dry")
_OTHER_BOUNDS: Mapping[str, tuple[int, ...]] = {
    "luxury_ticket": (120, 180),
    "mid_ticket": (120, 180),
}
"""What bounds may be in further tasks over the same rows (there are rows on each)."""


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
        tables = draw_plan_tables(rng, days, start_date(problem))
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
