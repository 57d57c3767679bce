"""The gate `difficulty`: simple players must not solve a task too often for its level."""

from __future__ import annotations

import time
from typing import NamedTuple

from envgen.core.types import GateResult
from envgen.pipelines.general.difficulty.figures import Measures
from envgen.pipelines.general.difficulty.measure import measured
from envgen.pipelines.general.gates.trial import Trial, not_applicable, outcome


class Allowed(NamedTuple):
    """The largest pass rates over re-seeds that a level allows."""

    best: float
    """Of the best of all players but these."""
    local_search: float = 1.0
    """Of local search."""
    constant: float = 0.02
    """Of the player that escalates every request with the same answer."""


EVALUATED = "200"
"""The bound on local search applies to its pass rate after this many evaluated answers."""


def bound_of(level: int) -> Allowed | None:
    """What a level allows; None: anything."""
    if level <= 3:
        return None
    if level <= 5:
        return Allowed(1 / 3)
    return Allowed(3 / 32, 1 / 2) if level <= 7 else Allowed(0.0, 1 / 4)


def measures_of(trial: Trial) -> Measures:
    """How hard a task is, measured once, over re-seeds of which gates have made some already."""
    if trial.measures is None:
        started, draft = time.monotonic(), trial.draft
        trial.measures = measured(
            trial.problem,
            draft.tables,
            trial.gold,
            draft.public_text,
            trial.instance,
            seed=trial.seed,
        )
        trial.measuring_s = time.monotonic() - started
    return trial.measures


def difficulty(trial: Trial) -> GateResult:
    """The shortcuts (``pipelines/general/difficulty``) pass no more re-seeds than the level allows.

    Of a request that must be escalated, re-seeds decide in which nothing must be.
    """
    bound = bound_of(trial.draft.level)
    if trial.incomparable:  # another version's levels promise something else
        return not_applicable("difficulty", trial.incomparable)
    if trial.author is None or trial.draft.blueprint is None:
        return not_applicable("difficulty", "the author can't re-seed this task")
    if not trial.author.bounds_shortcuts(trial.draft):
        return not_applicable("difficulty", "its page bounds no shortcuts")
    found = measures_of(trial).shortcuts
    if found is None:
        reason = "too few re-seeds could be re-bound to play"
        if bound is None:
            return not_applicable("difficulty", reason)
        return outcome("difficulty", False, 0, reason=reason)
    searched = found.local_search[EVALUATED]
    if bound is not None and (found.constant or 0.0) > bound.constant:
        reason = f"the same escalation is right of {found.constant:.0%} of re-seeds"
        hint = "let the answer name a row that only who looks at all rows knows (docs/domains.md)"
        return outcome("difficulty", False, found.n, reason=f"{reason}: {hint}")
    passed = bound is None or (found.best <= bound.best and searched <= bound.local_search)
    reason = f"shortcuts pass {found.best:.0%} of re-seeds, local search {searched:.0%}"
    if bound is not None:
        reason += (
            f"; level {trial.draft.level} allows {bound.best:.0%} and {bound.local_search:.0%}"
        )
    return outcome("difficulty", passed, found.n, figure=found.best, reason=reason)
