"""The trip domain: from "which hotel has the most free rooms" to DeepSeek-V3.2's three-day trip."""

from __future__ import annotations

from random import Random

from envgen.core.ir import Problem
from envgen.pipelines.general.blueprint import Operator
from envgen.pipelines.general.domains import trip_find as find
from envgen.pipelines.general.domains import trip_plan as plan
from envgen.pipelines.general.domains import trip_tune as tune
from envgen.pipelines.general.domains.trip_lexicon import LEXICON
from envgen.pipelines.general.domains.trip_rows import KIND_OF, SOURCES
from envgen.pipelines.general.tables import Tables


class Trip:
    """Blueprint of trip planning: ten levels, level 8 is the paper's example task."""

    category = "trip-planning"
    title = "Trip planning"
    description = (
        "Cities with hotels, restaurants and attractions, behind tools that list names by city and give "
        "facts one row at a time."
    )
    lexicon = LEXICON
    max_level = 10
    licence = "CC-BY-4.0"
    sources = SOURCES
    operators = (
        Operator("more_rows", find.more_rows, (1,)),
        Operator("filtered", find.filtered, (2,)),
        Operator("details", find.details, (3,)),
        Operator("across_cities", find.across_cities, (4,)),
        Operator("counted", find.counted, (4,)),
        Operator("added_up", find.added_up, (4,)),
        Operator("one_day", plan.one_day, (5,)),
        Operator("second_day", plan.second_day, (6,)),
        Operator("third_day", plan.third_day, (7,)),
        Operator("trip_budget", plan.trip_budget, (8,)),
        Operator("short_legs", plan.short_legs, (9,)),
        Operator("dry_days", plan.dry_days, (9,)),
    )

    def tables(self, rng: Random, level: int) -> Tables:
        """Rows of one kind of place in one city (levels 1 to 4) or several (5)."""
        return find.draw_tables(rng, rng.choice(sorted(KIND_OF)), min(level, 5))

    def problem(self, rng: Random, tables: Tables) -> Problem | None:
        """A level-1 task."""
        return find.first(rng, tables)

    def reseed(self, rng: Random, problem: Problem, level: int) -> Tables:
        """Rows as the operator that made ``problem`` draws them."""
        if tune.num_days(problem):
            return plan.redraw(rng, problem)
        return find.draw_tables(rng, find.asked(problem), level)

    def rebind(self, problem: Problem, tables: Tables, rng: Random) -> Problem | None:
        """New city, floors, limits and budgets; None if the rows make the question unfair."""
        if tune.num_days(problem):
            return tune.tune(problem, tables, rng)
        return find.bind(problem, tables, rng)

    def sibling(self, rng: Random, problem: Problem, tables: Tables) -> Problem | None:
        """Another task of the same level over the same rows and tools."""
        if tune.num_days(problem):
            return plan.sibling(rng, problem, tables)
        return find.sibling(rng, problem, tables)
