"""Meeting scheduling: look-ups of rooms and bookings, then rooms and times for one to four meetings.

Levels 1 to 3 ask for one row (shape B), 4 for a time in a given room, 5 for a room and a time; 6 brings
a second meeting, 7 to 10 add meetings and rules in any order (shape E).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from random import Random

from pydantic import JsonValue

from envgen.core.ir import Clause, Goal, Problem, Satisfy
from envgen.pipelines.general.blueprint import Hardened, Operator
from envgen.pipelines.general.domains.meetings_bind import Params, bind
from envgen.pipelines.general.domains.meetings_lexicon import LEXICON
from envgen.pipelines.general.domains.meetings_recipe import (
    ATTRIBUTES,
    EQUIPMENT,
    EXTRAS,
    LENGTHS,
    MAX_MEETINGS,
    Coupling,
    Extra,
    Recipe,
    Sense,
    recipe_of,
)
from envgen.pipelines.general.domains.meetings_rows import draw_tables
from envgen.pipelines.general.domains.meetings_schema import access, relations
from envgen.pipelines.general.tables import Tables

_DRAWS = 400
"""Tables drawn before a recipe is given up."""
_REBINDS = 10
"""Searches for params on rows that are known to allow some."""
_OPENINGS = {"rank": "rooms", "filter": "rooms", "hop": "bookings", "fixed": "fixed"}
_PAIRS = ("lag", "same_floor")
_EXTRAS_EACH = 2
"""Extra rules for each meeting after the first, so that hard tasks place several."""


def statement(recipe: Recipe, params: Params) -> Problem:
    """The problem of ``recipe``; everything but ``params`` follows from the recipe alone."""
    fields: dict[str, JsonValue] = {f"minutes_{k}": recipe.lengths[k - 1] for k in recipe.numbers}
    fields["opening"] = _OPENINGS.get(recipe.task, f"place_{len(recipe.lengths)}")
    frame = LEXICON.frame(fields)
    return Problem(
        id="-".join(["meetings", recipe.task, *(extra.key for extra in recipe.extras)]),
        shape="B" if recipe.task in ("rank", "filter", "hop") else "E",
        relations=relations(recipe),
        access=access(recipe),
        slots=frame.slots,
        clauses=tuple(_clauses(recipe)),
        goal=_goal(recipe),
        layout=frame.layout,
        params=params,
        lexicon=LEXICON.id,
        fields=fields,
    )


def _goal(recipe: Recipe) -> Goal:
    if recipe.task in ("rank", "filter"):
        return LEXICON.goal(recipe.task, sense=recipe.sense, attribute=recipe.attribute)
    if recipe.task == "hop":
        return LEXICON.goal("hop", sense="last" if recipe.sense == "highest" else "first")
    return Satisfy()


def _clauses(recipe: Recipe) -> list[Clause]:
    if recipe.task == "fixed":
        return [LEXICON.clause("fixed_free"), LEXICON.clause("fixed_room")]
    if recipe.task != "place":
        return []
    count = len(recipe.lengths)
    clauses = [
        LEXICON.clause(rule, k=k) for k in recipe.numbers for rule in ("free", "room_free", "seats")
    ]
    if recipe.coupling:
        clauses.append(LEXICON.clause(recipe.coupling, count=count))
    for extra in recipe.extras:
        about: dict[str, JsonValue] = {"count": count} if extra.key == "lunch" else extra.fields
        clauses.append(LEXICON.clause(extra.key, **about))
    return clauses


def _build(recipe: Recipe, rng: Random) -> Hardened | None:
    """Rows and params for ``recipe``."""
    for _ in range(_DRAWS):
        tables = draw_tables(recipe, rng)
        params = bind(recipe, tables, rng)
        if params is not None:
            return Hardened(statement(recipe, params), tables)
    return None


def _step(
    change: Callable[[Recipe, Random], Recipe | None],
    problem: Problem,
    tables: Tables,
    rng: Random,
) -> Hardened | None:
    recipe = change(recipe_of(problem), rng)
    return None if recipe is None else _build(recipe, rng)


def _filter(recipe: Recipe, rng: Random) -> Recipe | None:
    if recipe.attribute == "seats":  # the most seats of all are also the most of those with enough
        return replace(recipe, task="filter", sense="lowest")
    return replace(recipe, task="filter", sense=rng.choice(("highest", "lowest")))


def _hop(_: Recipe, rng: Random) -> Recipe | None:
    return Recipe(task="hop", attribute="start_min", sense=rng.choice(("highest", "lowest")))


def _fixed(_: Recipe, rng: Random) -> Recipe | None:
    return Recipe(task="fixed", lengths=(rng.choice(LENGTHS),))


def _place(recipe: Recipe, _: Random) -> Recipe | None:
    return Recipe(task="place", lengths=recipe.lengths)


def _add_meeting(recipe: Recipe, rng: Random) -> Recipe | None:
    if recipe.task != "place" or len(recipe.lengths) == MAX_MEETINGS:
        return None
    couplings: tuple[Coupling, ...] = ("apart", "rooms_once")
    coupling = recipe.coupling or rng.choice(couplings)
    if coupling == "rooms_once" and len(recipe.lengths) == MAX_MEETINGS - 1:
        return None  # that many meetings would need too many different people
    lengths = (*recipe.lengths, rng.choice(LENGTHS))
    return replace(recipe, lengths=lengths, coupling=coupling)


def _add_extra(key: str, recipe: Recipe, rng: Random) -> Recipe | None:
    """One more rule of the kind ``key``, about a meeting or two that have none of it."""
    if recipe.task != "place" or len(recipe.extras) >= _EXTRAS_EACH * (len(recipe.lengths) - 1):
        return None
    has = {extra[:3] for extra in recipe.extras}
    numbers = list(recipe.numbers)
    if key == "lag" and len(numbers) < 3:  # with two, it implies the rule on overlaps
        return None
    places = [(0, 0)] if key == "lunch" else [(k, 0) for k in numbers]
    if key in _PAIRS:
        places = [(a, b) for a in numbers for b in numbers if a < b]
    free = [(key, *place) for place in places if (key, *place) not in has]
    if not free or sum(extra.key == key for extra in recipe.extras) >= 2:
        return None
    word = rng.choice(EQUIPMENT) if key == "equipment" else ""
    extras = (*recipe.extras, Extra(*rng.choice(free), word))
    ordered = sorted(extras, key=lambda extra: (EXTRAS.index(extra.key), extra))
    return replace(recipe, extras=tuple(ordered))


_OPERATORS = (
    Operator("filter_by_seats", partial(_step, _filter), (1,)),
    Operator("follow_references", partial(_step, _hop), (2,)),
    Operator("place_in_given_room", partial(_step, _fixed), (3,)),
    Operator("place_with_attendees", partial(_step, _place), (4,)),
    Operator("add_meeting", partial(_step, _add_meeting), (5, 6, 7, 8, 9)),
    *(
        Operator(f"add_{key}", partial(_step, partial(_add_extra, key)), (6, 7, 8, 9))
        for key in EXTRAS
    ),
)


class Meetings:
    """The blueprint of meeting scheduling."""

    category = "meeting-scheduling"
    title = "Meeting scheduling"
    description = (
        "An office with meeting rooms, people and their calendars, with tools to look up rooms, bookings, "
        "attendees and busy times of one day."
    )
    lexicon = LEXICON
    operators: Sequence[Operator] = _OPERATORS
    max_level = 10
    licence = "CC0-1.0"
    sources: tuple[str, ...] = ()

    def tables(self, rng: Random, level: int) -> Tables:
        """2 to 4 meeting rooms."""
        return draw_tables(Recipe(task="rank"), rng)

    def problem(self, rng: Random, tables: Tables) -> Problem | None:
        """Which room has the highest of one small number."""
        return statement(Recipe(task="rank", attribute=rng.choice(ATTRIBUTES)), {})

    def reseed(self, rng: Random, problem: Problem, level: int) -> Tables:
        """New rows on which ``problem`` can be re-bound."""
        recipe = recipe_of(problem)
        for _ in range(_DRAWS):
            tables = draw_tables(recipe, rng)
            if bind(recipe, tables, rng) is not None:
                break
        return tables

    def rebind(self, problem: Problem, tables: Tables, rng: Random) -> Problem | None:
        """``problem`` with params for ``tables``."""
        recipe = recipe_of(problem)
        for _ in range(_REBINDS):
            params = bind(recipe, tables, rng)
            if params is not None:
                return problem.model_copy(update={"params": params})
        return None

    def sibling(self, rng: Random, problem: Problem, tables: Tables) -> Problem | None:
        """Another question about the same office: same rows and tools; None if there is none."""
        other = _other_question(recipe_of(problem), rng)
        params = bind(other, tables, rng)
        if params is None:
            return None
        found = statement(other, params)
        return None if found == problem.model_copy(update={"id": found.id}) else found


def _other_question(recipe: Recipe, rng: Random) -> Recipe:
    senses: tuple[Sense, ...] = ("highest", "lowest")
    if recipe.task == "rank":
        return replace(recipe, sense=senses[recipe.sense == "highest"])
    if recipe.task == "filter":
        return replace(recipe, sense=rng.choice(senses), attribute=rng.choice(ATTRIBUTES))
    return replace(recipe, sense=rng.choice(senses)) if recipe.task == "hop" else recipe
