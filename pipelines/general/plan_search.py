"""Accepted plans of a workflow, found on the graph of its states."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from envgen.core.errors import ConfigError
from envgen.core.ir import Problem
from envgen.pipelines.general.plans import Plan
from envgen.pipelines.general.search import OutOfStepsError, StepBudget
from envgen.pipelines.general.tables import Tables
from envgen.pipelines.general.walks import Walks, plans


def solve_plans(p: Problem, db: Tables, rng: Random, *, steps: int = 300_000) -> Iterator[Plan]:
    """Accepted plans, the shortest first; the same calls in another order are another plan.

    Plans hold no call that fails or changes nothing. Ends when there are no more within ``max_calls``
    calls, or after ``steps`` steps.
    """
    try:
        yield from plans(Walks(p, db, StepBudget(steps)), rng)
    except (OutOfStepsError, ConfigError):
        return
