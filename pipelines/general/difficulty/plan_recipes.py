"""Recipes of workflows: filters of rows, fitted on some re-seeds, tried on others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from envgen.core import ir
from envgen.pipelines.general.difficulty.plans import WorkflowGame
from envgen.pipelines.general.difficulty.recipes import RowFilter, ascended, filters_of
from envgen.pipelines.general.semantics.calls import Call
from envgen.pipelines.general.semantics.tables import Row

_MAX_BOUNDS = 60
"""Conditions tried on the rows of one effect."""
Kept = Callable[[ir.Clause, Row, str], bool]
"""Whether an effect's row is one that the player would change."""


def fitted_plan(games: Sequence[WorkflowGame]) -> Callable[[WorkflowGame], list[Call]]:
    """The player of the filters, one or two for each effect, that pass most of ``games``."""
    problem, options = games[0].problem, dict[str, list[RowFilter]]()
    for effect in games[0].goal.effects:
        over = effect.expr.over if isinstance(effect.expr, ir.All) else None
        if isinstance(over, ir.Query):
            relation = problem.relation(over.relation)
            tried = list(filters_of(relation, problem, [game.tables for game in games]))
            few = tried[:: 1 + len(tried) // _MAX_BOUNDS]
            options |= {f"{effect.id} {n}": few for n in (1, 2)}

    def kept(game: WorkflowGame, recipe: Mapping[str, RowFilter]) -> Kept:
        own = filters(recipe)

        def keeps(effect: ir.Clause, row: Row, relation: str) -> bool:
            table = problem.relation(relation)
            return all(
                one.holds(row, table, game.tables, game.problem) for one in own.get(effect.id, ())
            )

        return keeps

    def filters(recipe: Mapping[str, RowFilter]) -> dict[str, tuple[RowFilter, ...]]:
        ids = dict.fromkeys(name.rpartition(" ")[0] for name in recipe)
        return {id_: (recipe[f"{id_} 1"], recipe[f"{id_} 2"]) for id_ in ids}

    def score(recipe: Mapping[str, RowFilter]) -> tuple[int, int]:
        broken = [game.broken(game.filtered(kept(game, recipe))) for game in games]
        return sum(not n for n in broken), -sum(broken)

    recipe = ascended(dict.fromkeys(options, RowFilter()), options, score)
    return lambda game: game.filtered(kept(game, recipe))
