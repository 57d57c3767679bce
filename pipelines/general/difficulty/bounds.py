"""Players that look at bounds alone: what keeps a bound by least, or a sum that is the bound.

Where bounds are set at what some row, or some rows together, meet exactly, these players find the answer
without any other rule. They are written against the way in which bounds are chosen (``authoring/edges.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from envgen.core import ir
from envgen.pipelines.general.difficulty.answers import AnswerGame, Values
from envgen.pipelines.general.difficulty.plans import WorkflowGame
from envgen.pipelines.general.semantics.calls import Call
from envgen.pipelines.general.semantics.evaluator import Compiler
from envgen.pipelines.general.semantics.rewrite import (
    conjuncts,
    free_names,
    slots_of,
    stated,
    summands,
)

_SUMS = 500
"""Sums kept after each slot or row."""
_HALF = 5_000
"""Sums of half of the rows that are kept."""
_ORDER = ("<", "<=", ">", ">=")


class _Bound(NamedTuple):
    """A comparison of a measure with a bound that no row decides."""

    measure: ir.Node
    bound: ir.Node
    below: bool
    """Whether it bounds from above."""
    strict: bool

    def nearest(self, bound: Any, values: Sequence[Any]) -> Any:
        """Of these values the one that keeps the bound by least; None if none does."""
        known = [v for v in values if v is not None and bound is not None]
        kept = [v for v in known if (v < bound if self.below else v > bound)]
        kept += [v for v in known if v == bound and not self.strict]
        return (max if self.below else min)(kept, default=None)


def _bounds(expr: ir.Node, names: frozenset[str]) -> Iterator[_Bound]:
    """The comparisons in an expression of something about these names with a constant or a parameter."""
    for node in expr.walk():
        if isinstance(node, ir.Cmp) and node.fn in _ORDER:
            for measure, bound, flip in (
                (node.left, node.right, False),
                (node.right, node.left, True),
            ):
                if isinstance(bound, ir.Param | ir.Const) and free_names(measure) == names:
                    yield _Bound(measure, bound, (node.fn[0] == "<") != flip, "=" not in node.fn)


# --- workflows ---------------------------------------------------------------------------------------


def rows_at_bounds(game: WorkflowGame) -> list[Call]:
    """Do what is asked for to the rows that keep some bound by least."""
    chosen = {}
    for effect, over, rows in game.asked_rows():
        kept = set()
        for one in _bounds(over.where, frozenset({over.var})):
            values = _measured(game, one.measure, over.var, rows)
            least = one.nearest(_value(game.compiler, one.bound), values)
            kept |= {row for row, v in zip(rows, values, strict=True) if v == least is not None}
        chosen[effect] = kept
    return game.only(chosen)


def rows_that_add_up(game: WorkflowGame) -> list[Call] | None:
    """Do what is asked for to rows that add up to the bound of a sum exactly; None if none do.

    To the rows of other effects, what ``first_fit`` does: it knows the rules that decide each row alone.
    """
    chosen: dict[str, set[str]] = {}
    for effect, over, rows in game.asked_rows():
        chosen[effect] = set()
        for one in _bounds(over.where, frozenset({over.var})):
            total = one.measure
            if not isinstance(total, ir.Query) or total.agg != "sum" or total.select is None:
                continue
            if total.relation == over.relation:
                amounts = _measured(game, total.select, total.var, rows)
                chosen[effect] |= _subset(rows, amounts, _value(game.compiler, one.bound))
    if not any(chosen.values()):
        return None
    plan = game.only(chosen)
    done = {tool for tool, _ in plan}
    return plan + [call for call in game.first_fit() if call[0] not in done]


def met_bounds(game: WorkflowGame | AnswerGame) -> list[bool]:
    """Of each bound on a single row: whether some row meets it exactly."""
    if isinstance(game, WorkflowGame):
        return [
            _value(game.compiler, one.bound) in _measured(game, one.measure, over.var, rows)
            for _, over, rows in game.asked_rows()
            for one in _bounds(over.where, frozenset({over.var}))
            if isinstance(one.bound, ir.Param)
        ]
    query = game.question
    found = []
    if query is not None:
        for one in _bounds(query.where, frozenset({query.var})):
            if isinstance(one.bound, ir.Param):
                values = _column(game, query, one.measure)
                found.append(_value(game.compiler, one.bound) in values)
    for i in range(game.size if query is None else 0):
        for one in _slot_bounds(game, i):
            if isinstance(one.bound, ir.Param):
                values = _of_values(game, i, one.measure, game.domains[i])
                found.append(_value(game.compiler, one.bound) in values)
    return found


def _subset(rows: Sequence[str], amounts: Sequence[Any], total: Any) -> set[str]:
    """Rows that add up to a total, met in the middle; empty if none do."""
    known = [pair for pair in zip(rows, amounts, strict=True) if isinstance(pair[1], int)]
    half = len(known) // 2
    first, second = _sums(known[:half]), _sums(known[half:])
    for so_far, kept in first.items():
        if (rest := second.get(total - so_far)) is not None:
            return {*kept, *rest}
    return set()


def _sums(rows: Sequence[tuple[str, int]]) -> dict[int, tuple[str, ...]]:
    sums: dict[int, tuple[str, ...]] = {0: ()}
    for row, amount in rows:
        more = {so_far + amount: (*kept, row) for so_far, kept in sums.items()}
        sums = dict(islice((more | sums).items(), _HALF))
    return sums


def _measured(game: WorkflowGame, measure: ir.Node, var: str, rows: Sequence[str]) -> list[Any]:
    run, frame, found = game.compiler.compile(measure), game.compiler.frame(), []
    for row in rows:
        frame.vars = {var: row}
        found.append(run(frame))
    return found


def _value(compiler: Compiler, node: ir.Node) -> Any:
    return compiler.compile(node)(compiler.frame())


# --- answers -----------------------------------------------------------------------------------------


def answer_at_bounds(game: AnswerGame) -> Values | None:
    """Of a question the row that keeps a bound by least; else each slot's value that does, or its first."""
    query = game.question
    if query is not None:
        for one in _bounds(query.where, frozenset({query.var})):
            least = one.nearest(_value(game.compiler, one.bound), _column(game, query, one.measure))
            if least is not None:
                same = ir.Cmp(fn="=", left=one.measure, right=ir.Const(value=least))
                return [_value(game.compiler, query.model_copy(update={"where": same}))]
        return None
    values: Values = [None] * game.size
    for i in range(game.size):
        choices = game.choices(i, values)
        for one in _slot_bounds(game, i):
            known = _of_values(game, i, one.measure, choices)
            least = one.nearest(_value(game.compiler, one.bound), known)
            at = [v for v, own in zip(choices, known, strict=True) if own == least is not None]
            choices = at or choices
        values[i] = game.untaken(i, values, choices)
    return values


def answer_that_adds_up(game: AnswerGame) -> Values | None:
    """Values whose sum over several slots is its bound exactly, first values elsewhere; None if none add up.

    Slot by slot in listing order, some sums are kept; terms count where their last slot is set.
    """
    terms = _sum(game)
    if terms is None:
        return None
    at: list[list[tuple[Any, int]]] = [[] for _ in range(game.size)]
    start = 0
    for sign, term in terms:
        scope = game.model.scope_of(term)
        if scope:
            at[max(scope)].append((game.compiler.compile(term), sign))
        else:
            start += sign * (_value(game.compiler, term) or 0)
    sums: dict[int, Values] = {start: [None] * game.size}
    for i in range(game.size):
        after: dict[int, Values] = {}
        for total, values in sums.items():
            for value in game.choices(i, values) if at[i] else [None]:
                own = list(values)
                own[i] = value if at[i] else game.untaken(i, own, game.choices(i, own))
                game.frame.slots[:] = own
                after.setdefault(
                    total + sum(sign * (run(game.frame) or 0) for run, sign in at[i]), own
                )
            if len(after) >= _SUMS:
                break
        sums = after
    return sums.get(0)


def _sum(game: AnswerGame) -> list[tuple[int, ir.Node]] | None:
    """The terms of the first bounded sum over several slots, less its bound."""
    for clause in game.problem.clauses:
        for part in conjuncts(stated(clause)):
            if isinstance(part, ir.Cmp) and part.fn in _ORDER:
                terms = [*summands(part.left, 1), *summands(part.right, -1)]
                if len({slot for _, term in terms for slot in slots_of(term)}) > 1:
                    return terms
    return None


def _slot_bounds(game: AnswerGame, i: int) -> Iterator[_Bound]:
    """The bounds on one slot alone."""
    for part in game.about[i]:
        if part.scope == (i,):
            yield from _bounds(part.expr, frozenset())


def _of_values(game: AnswerGame, i: int, measure: ir.Node, values: Sequence[Any]) -> list[Any]:
    run, found = game.compiler.compile(measure), []
    for value in values:
        game.frame.slots[i] = value
        found.append(run(game.frame))
    return found


def _column(game: AnswerGame, query: ir.Query, measure: ir.Node) -> list[Any]:
    run, frame, found = game.compiler.compile(measure), game.compiler.frame(), []
    for row in game.tables.get(query.relation, {}):
        frame.vars = {query.var: row}
        found.append(run(frame))
    return found
