"""Parameters for given rows: values under which a task has an answer and each of its rules matters.

A parameter's domain on the page is a table (any of its keys), a column (any value in it), a draw, or ``edge``:
the value that some answer, or some row that decides, just meets. Three kinds of task are tuned, each by looking
at what its rules make of the rows; none of them knows a domain.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from random import Random
from typing import Any

from envgen.core import ir
from envgen.core.errors import ConfigError
from envgen.core.ir import Problem, Scalar
from envgen.pipelines.general.authoring.blueprint import Blueprint, Structure
from envgen.pipelines.general.authoring.rows import Drawing
from envgen.pipelines.general.authoring.rules import parsed
from envgen.pipelines.general.closures import Compiler
from envgen.pipelines.general.model import build_model
from envgen.pipelines.general.near_misses import Finder
from envgen.pipelines.general.rewrite import conjuncts
from envgen.pipelines.general.search import Budget
from envgen.pipelines.general.solve import solutions
from envgen.pipelines.general.tables import Tables

Params = dict[str, Scalar]

_TRIES = 40
"""Choices of parameters tried on one set of rows."""
_STEPS = 4_000
"""Of the search for an answer, and for each near-miss that no change of one slot gives."""


class Tuner:
    """Binds the parameters of one domain's problems."""

    def __init__(self, blueprint: Blueprint) -> None:
        self.blueprint = blueprint
        self.domain = blueprint.domain

    def tune(
        self, problem: Problem, structure: Structure, tables: Tables, rng: Random, *, fixed: Params | None = None
    ) -> Problem | None:
        """``problem`` with parameters for ``tables``; None if none of those tried will do.

        Args:
            problem: as ``Blueprint.problem`` states it; its parameters are replaced.
            structure: of the problem.
            tables: the rows.
            rng: the source of chance.
            fixed: parameters that must keep these values.
        """
        task = _Task(self, problem, structure, tables, rng, dict(fixed or {}))
        params = task.question() if isinstance(problem.goal, ir.Equals) else task.answers()
        return None if params is None else problem.model_copy(update={"params": params})

    def stem(self, name: str) -> str:
        """The parameter on the page behind ``name``: without its indices."""
        while name not in self.domain.params:
            shorter = re.sub(r"_\d+$", "", name)
            if shorter == name:
                raise ConfigError(f"domain {self.domain.id!r}: parameter {name!r} has no domain")
            name = shorter
        return name


class _Task:
    """One problem over given rows, its parameters open."""

    def __init__(
        self, tuner: Tuner, problem: Problem, structure: Structure, tables: Tables, rng: Random, fixed: Params
    ) -> None:
        self.tuner, self.problem, self.structure = tuner, problem, structure
        self.tables, self.rng, self.fixed = tables, rng, fixed
        self.names = list(dict.fromkeys(_params(problem)))
        self.edges = {
            name: edge for name in self.names if name not in fixed and (edge := self._edge(name)) is not None
        }

    def _edge(self, name: str) -> ir.Cmp | None:
        """The comparison that bounds something by the parameter, where its domain is ``edge``."""
        if self.tuner.domain.params[self.tuner.stem(name)] != "edge":
            return None
        for node in _nodes(self.problem):
            if isinstance(node, ir.Cmp) and ir.Param(name=name) in (node.left, node.right):
                return node
        raise ConfigError(f"parameter {name!r} is an edge, but nothing is compared with it")

    def drawn(self) -> Params | None:
        """All parameters but the edges; None where two items would be about the same row."""
        params = dict(self.fixed)
        for name in self.names:
            if name in params or name in self.edges:
                continue
            stem = self.tuner.stem(name)
            values = self._values(stem)
            if values is None:
                params[name] = self._draw(stem, params)
                continue
            others = {value for other, value in params.items() if self.tuner.stem(other) == stem}
            left = [value for value in values if value not in others]
            if not left:
                return None
            params[name] = self.rng.choice(left)
        return params

    def _values(self, stem: str) -> list[Scalar] | None:
        """The keys of a table, or the values of a column; None where the domain is a draw."""
        node = parsed(self.tuner.domain.params[stem])
        if isinstance(node, ast.Name) and node.id in self.tables:
            return sorted(self.tables[node.id])
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in self.tables:
            column = {row[node.attr] for row in self.tables[node.value.id].values()}
            return sorted(column - {None}, key=str)
        return None

    def _draw(self, stem: str, params: Params) -> Scalar:
        domain = self.tuner.domain
        known = {**domain.constants, **domain.lists, **params}
        drawing = Drawing(rng=self.rng, tables=self.tables, known=known)
        value: Scalar = self.tuner.blueprint.draws.draw(domain.params[stem])(drawing)
        return value

    # --- tasks with many answers -------------------------------------------------------------------

    def answers(self) -> Params | None:
        """Parameters under which there is an answer and each rule is the only one that some submission breaks."""
        bounded = {name: self._clause_of(edge) for name, edge in self.edges.items()}
        for _ in range(_TRIES):
            params = self.drawn()
            if params is None:
                return None
            free = self.problem.model_copy(
                update={
                    "params": params,
                    "clauses": tuple(c for c in self.problem.clauses if c.id not in bounded.values()),
                }
            )
            model = build_model(free, self.tables)
            source = solutions(model, self.rng, Budget(_STEPS), searches_first=True)
            for values in islice(source, 1):
                params = params | self._met(free, model.answer(values), params)
                bound = self.problem.model_copy(update={"params": params})
                if all_bind(bound, self.tables, model.answer(values), self.rng):
                    return params
        return None

    def _clause_of(self, edge: ir.Cmp) -> str:
        return next(c.id for c in self.problem.clauses if edge in c.expr.walk())

    def _met(self, problem: Problem, answer: Any, params: Params) -> Params:
        """Bounds that ``answer`` just meets."""
        model = build_model(problem, self.tables, clauses=False)
        model.frame.slots[:] = model.values_of(answer) or []
        found: Params = {}
        for name, edge in self.edges.items():
            value = model.compiler.compile(_other_side(edge, name))(model.frame)
            found[name] = None if value is None else value + _slack(edge, name)
        return found

    # --- questions about rows ------------------------------------------------------------------------

    def question(self) -> Params | None:
        """Parameters under which the question is fair: one answer, and each condition matters for it."""
        goal = self.problem.goal
        assert isinstance(goal, ir.Equals)
        weaker = list(_weakened(goal.query))
        for _ in range(_TRIES):
            params = self.drawn()
            if params is None:
                return None
            problem = self.problem.model_copy(update={"params": params | self._some_edge(params)})
            compiler = Compiler(problem, self.tables)
            if self._fair(compiler, goal.query, weaker):
                return problem.params
        return None

    def _some_edge(self, params: Params) -> Params:
        """For each edge the value of some row on the other side of its comparison."""
        found: Params = {}
        for name, edge in self.edges.items():
            other = _other_side(edge, name)
            assert isinstance(other, ir.Get)
            column = {row[other.column] for row in self.tables[other.relation].values()} - {None}
            found[name] = self.rng.choice(sorted(column, key=str)) if column else None
        return found

    def _fair(self, compiler: Compiler, query: ir.Query, weaker: list[ir.Query]) -> bool:
        frame = compiler.frame()
        answer = compiler.compile(query)(frame)
        if answer is None or not all(_one_best(q, compiler) for q in query.walk() if isinstance(q, ir.Query)):
            return False
        return all(compiler.compile(other)(frame) != answer for other in weaker)


def all_bind(problem: Problem, tables: Tables, answer: Any, rng: Random) -> bool:
    """Whether each rule is the only one broken by some submission: next to ``answer``, or found by search."""
    finder = Finder(problem, tables, answer, rng)
    missing = [rule for rule in finder.rules if not finder.moves[rule]]
    return all(next(finder.misses(rule, _STEPS), None) is not None for rule in missing)


def _params(problem: Problem) -> Iterator[str]:
    return (node.name for node in _nodes(problem) if isinstance(node, ir.Param))


def _nodes(problem: Problem) -> Iterator[ir.Node]:
    goal = problem.goal
    roots: list[ir.Node] = []
    if isinstance(goal, ir.Reach):
        roots += [effect.expr for effect in goal.effects]
        roots += [goal.escalate_when] if goal.escalate_when is not None else []
    if isinstance(goal, ir.Equals):
        roots.append(goal.query)
    for clause in problem.clauses:
        roots += [clause.expr, *([clause.guard] if clause.guard is not None else [])]
    roots += [slot.domain for slot in problem.slots if isinstance(slot.domain, ir.Query)]
    return (node for root in roots for node in root.walk())


def _other_side(edge: ir.Cmp, name: str) -> ir.Node:
    return edge.right if edge.left == ir.Param(name=name) else edge.left


def _slack(edge: ir.Cmp, name: str) -> int:
    """What a strict bound has to add to be met."""
    if edge.fn not in ("<", ">"):
        return 0
    above = (edge.fn == "<") == (edge.right == ir.Param(name=name))
    return 1 if above else -1


def _weakened(query: ir.Query) -> Iterator[ir.Query]:
    """The query with one condition left out, its own or one of a query inside it."""
    parts = list(conjuncts(query.where)) if query.where != ir.Const(value=True) else []
    for i, part in enumerate(parts):
        rest = [*parts[:i], *parts[i + 1 :]]
        if any(isinstance(node, ir.Param) for node in part.walk()) and not _inner(part):
            yield query.model_copy(update={"where": _all(rest)})
        for inner in _inner(part):
            for weaker in _weakened(inner):
                changed = _replaced(part, inner, weaker)
                yield query.model_copy(update={"where": _all([*parts[:i], changed, *parts[i + 1 :]])})


def _all(parts: list[Any]) -> Any:
    if not parts:
        return ir.Const(value=True)
    return parts[0] if len(parts) == 1 else ir.And(items=tuple(parts))


def _inner(part: ir.Node) -> list[ir.Query]:
    return [side for side in part.children() if isinstance(side, ir.Query)]


def _replaced(part: ir.Node, old: ir.Query, new: ir.Query) -> ir.Node:
    """``part`` with one of its direct queries replaced."""
    changes = {
        name: new for name in type(part).model_fields if getattr(part, name) == old
    }
    return part.model_copy(update=changes)


def _one_best(query: ir.Query, compiler: Compiler) -> bool:
    """Whether a query for the best row has one: two rows or more, none as good as the first."""
    if query.limit != 1 or not query.order:
        return True
    by = query.order[0].by
    every = query.model_copy(update={"limit": None, "order": (), "select": by})
    values = compiler.compile(every)(compiler.frame())
    known = [value for value in values or () if value is not None]
    best: Callable[..., Any] = max if query.order[0].descending else min
    return len(known) >= 2 and known.count(best(known)) == 1


__all__ = ["Mapping", "Tuner", "all_bind"]
