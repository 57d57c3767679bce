"""Measure a task: what gold rests on, and what each shortcut achieves over re-seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from envgen.core.canonical import dumps
from envgen.core.ir import Problem, Reach
from envgen.core.seeding import rng
from envgen.core.types import GoldRun, Shortcuts
from envgen.pipelines.general.difficulty.answers import AnswerGame
from envgen.pipelines.general.difficulty.bounds import (
    answer_at_bounds,
    answer_that_adds_up,
    met_bounds,
    rows_at_bounds,
    rows_that_add_up,
)
from envgen.pipelines.general.difficulty.facts import branch_depth, facts, fewest_calls
from envgen.pipelines.general.difficulty.figures import Measures
from envgen.pipelines.general.difficulty.plan_recipes import fitted_plan
from envgen.pipelines.general.difficulty.plans import WorkflowGame
from envgen.pipelines.general.difficulty.recipes import fitted
from envgen.pipelines.general.semantics.evaluate import as_told
from envgen.pipelines.general.semantics.layout import fill_layout
from envgen.pipelines.general.semantics.tables import Tables

RESEEDS = 32
FITTED = 8
"""Further re-seeds, on which the recipe is fitted."""
CURVE = (50, 100, 200, 500, 1_000)
"""Evaluated answers after which local search is asked whether it is there."""
Game = AnswerGame | WorkflowGame
Reseed = Callable[[int], tuple[Problem, Tables] | None]
"""The problem re-bound over rows drawn with a seed; None where they hold no such task."""


def measured(
    problem: Problem,
    tables: Tables,
    gold: GoldRun,
    prompt: str,
    reseed: Reseed,
    *,
    seed: int,
    n: int = RESEEDS,
) -> Measures:
    """Measure a task; deterministic in its arguments.

    Args:
        problem: the task.
        tables: its rows.
        gold: its gold run.
        prompt: all that an agent reads before its first call.
        reseed: gives re-seeds.
        seed: seeds local search.
        n: re-seeds that each shortcut plays.
    """
    needed = facts(problem, tables, gold)
    return Measures(
        calls_upper_bound=fewest_calls(problem, tables, gold, prompt, needed),
        facts_upper_bound=len(needed),
        branch_depth=branch_depth(problem),
        shortcuts=shortcuts(reseed, seed, n),
    )


def shortcuts(reseed: Reseed, seed: int, n: int = RESEEDS) -> Shortcuts | None:
    """Play every shortcut on ``n`` re-seeds; None where there are too few to fit and to play.

    Args:
        reseed: gives the re-seeds.
        seed: seeds local search.
        n: re-seeds to play.
    """
    claims = Claims()
    games = list(_games(reseed, n + FITTED, claims))
    if len(games) < n + FITTED:
        return None
    known, played = games[:FITTED], games[FITTED:]
    fit: Callable[[Any], Callable[[Any], Any]] = fitted
    if isinstance(known[0], WorkflowGame):
        fit = fitted_plan
    recipe = fit(known)
    steps = [game.local_search(rng(seed, "search", i), CURVE[-1]) for i, game in enumerate(played)]
    return Shortcuts(
        n=len(played),
        first_row=_share(game.passes(game.first_row()) for game in played),
        greedy=_share(game.passes(game.greedy()) for game in played),
        first_fit=_share(game.passes(game.first_fit()) for game in played),
        recipe=_share(game.passes(recipe(game)) for game in played),
        at_bound=_share(game.passes(_at_bounds(game)) for game in played),
        exact_sum=_share(game.passes(_adding_up(game)) for game in played),
        constant=claims.best,
        met_bounds=_share(met) if (met := [one for g in played for one in met_bounds(g)]) else None,
        local_search={
            str(most): _share(found is not None and found <= most for found in steps)
            for most in CURVE
        },
    )


@dataclass
class Claims:
    """What a player achieves that escalates whatever it sees, always with the same answer."""

    reseeds: int = 0
    escalated: Counter[str] = field(default_factory=Counter)
    """The right answers of the re-seeds that must be escalated."""

    def add(self, problem: Problem, tables: Tables) -> None:
        """Count a re-seed that must be escalated."""
        blank = fill_layout(problem.layout, dict.fromkeys((s.name for s in problem.slots), ""))
        self.escalated[dumps(as_told(problem, tables, blank))] += 1

    @property
    def best(self) -> float:
        """The share that it passes with the answer that is right most often; right once is luck."""
        most = max(self.escalated.values(), default=0)
        return most / self.reseeds if most > 1 else 0.0


def _at_bounds(game: Game) -> Any:
    return rows_at_bounds(game) if isinstance(game, WorkflowGame) else answer_at_bounds(game)


def _adding_up(game: Game) -> Any:
    if isinstance(game, WorkflowGame):
        return rows_that_add_up(game)
    return answer_that_adds_up(game)


def _games(reseed: Reseed, n: int, claims: Claims) -> Iterator[Game]:
    """The first ``n`` re-seeds to play: those in which nothing must be escalated."""
    found = 0
    for seed in range(2 * n):
        reseeded = reseed(seed)
        if reseeded is None:
            continue
        problem, tables = reseeded
        claims.reseeds += 1
        writes = isinstance(problem.goal, Reach)
        game: Game = WorkflowGame(problem, tables) if writes else AnswerGame(problem, tables)
        if isinstance(game, WorkflowGame) and game.due:
            claims.add(problem, tables)
            continue
        yield game
        found += 1
        if found == n:
            return


def _share(passed: Iterable[bool]) -> float:
    verdicts = list(passed)
    return sum(verdicts) / len(verdicts)
