"""What each shortcut achieves over re-seeds of a task, and the length of gold's episode."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from envgen.core.canonical import dumps
from envgen.core.ir import Problem, Reach
from envgen.core.seeding import rng
from envgen.core.types import CallRecord, Message, Shortcuts, ToolSpec
from envgen.pipelines.general.difficulty.answers import AnswerGame
from envgen.pipelines.general.difficulty.plans import WorkflowGame, fitted_plan
from envgen.pipelines.general.difficulty.recipes import fitted
from envgen.pipelines.general.semantics.tables import Tables
from envgen.policies.budget import estimated_tokens

RESEEDS = 32
FITTED = 8
"""Further re-seeds, on which the recipe is fitted."""
CURVE = (50, 100, 200, 500, 1_000)
"""Evaluated answers after which local search is asked whether it is there."""
Game = AnswerGame | WorkflowGame
Reseed = Callable[[int], tuple[Problem, Tables] | None]
"""The problem re-bound over rows drawn with a seed; None where they hold no such task."""


def shortcuts(reseed: Reseed, seed: int, n: int = RESEEDS) -> Shortcuts | None:
    """Play every shortcut on ``n`` re-seeds; None where there are too few to fit and to play.

    Args:
        reseed: gives the re-seeds.
        seed: seeds their choice, and local search.
        n: re-seeds to play.
    """
    games = list(_games(reseed, n + FITTED))
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
        local_search={
            str(most): _share(found is not None and found <= most for found in steps)
            for most in CURVE
        },
    )


def gold_tokens(prompt: str, tools: Sequence[ToolSpec], calls: Sequence[CallRecord]) -> int:
    """An estimate of the tokens of gold's episode, tool schemas included, reasoning not."""
    messages = [Message(role="user", content=prompt + dumps([tool.openai() for tool in tools]))]
    for call in calls:
        called = dumps({"name": call.name, "arguments": call.arguments})
        told = dumps(call.result if call.error is None else {"error": call.error})
        messages += [
            Message(role="assistant", content=called),
            Message(role="tool", content=told),
        ]
    return estimated_tokens(messages)


def _games(reseed: Reseed, n: int) -> Iterator[Game]:
    """The first ``n`` re-seeds to play; of workflows those in which nothing must be escalated."""
    found = 0
    for seed in range(2 * n):
        made = reseed(seed)
        if made is None:
            continue
        problem, tables = made
        writes = isinstance(problem.goal, Reach)
        game: Game = WorkflowGame(problem, tables) if writes else AnswerGame(problem, tables)
        if isinstance(game, WorkflowGame) and game.due:
            continue
        yield game
        found += 1
        if found == n:
            return


def _share(passed: Iterator[bool]) -> float:
    verdicts = list(passed)
    return sum(verdicts) / len(verdicts)
