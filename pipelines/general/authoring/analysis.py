"""What a problem's parameters are to its rules: worked out once for a task, whatever its rows."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from envgen.core import ir
from envgen.core.errors import ConfigError
from envgen.core.ir import Problem, Scalar
from envgen.pipelines.general.authoring.page import Domain
from envgen.pipelines.general.authoring.rules import parsed
from envgen.pipelines.general.semantics.evaluator import Compiler, Frame
from envgen.pipelines.general.semantics.rewrite import (
    TRUE,
    conjuncts,
    free_names,
    params_of,
    slots_of,
    truth,
)

Params = dict[str, Scalar]


@dataclass(frozen=True)
class Wish:
    """What one effect wants of the rows of a query, and the policy's rules among the query's conditions."""

    query: ir.Query
    asked: ir.Query
    """The rows that the request is about: the query without the rules."""
    rules: dict[str, tuple[ir.Node, ...]]
    """Policy clause -> its conditions."""
    least: int
    most: int


class Analysis:
    """One problem, its parameters open."""

    def __init__(self, problem: Problem, domain: Domain) -> None:
        self.problem = problem
        self.domain = domain
        order = list(domain.params)
        names = dict.fromkeys(node.name for node in nodes_of(problem) if isinstance(node, ir.Param))
        self.names = sorted(names, key=lambda name: order.index(self.stem(name)))
        """The parameters in the order of the page: later ones may depend on earlier ones."""
        edges = {name: self._edge(name) for name in self.names}
        self.edges = {name: edge for name, edge in edges.items() if edge is not None}
        """Parameter -> the comparison that bounds something by it, where its domain is ``edge``."""

    def stem(self, name: str) -> str:
        """The parameter on the page behind ``name``: without its indices."""
        known = self.domain.params
        while name not in known:
            shorter = re.sub(r"_\d+$", "", name)
            if shorter == name:
                raise ConfigError(f"domain {self.domain.id!r}: parameter {name!r} has no domain")
            name = shorter
        return name

    def _edge(self, name: str) -> ir.Cmp | None:
        if not self.domain.params[self.stem(name)].startswith("edge"):
            return None
        for node in nodes_of(self.problem):
            if isinstance(node, ir.Cmp) and ir.Param(name=name) in (node.left, node.right):
                return node
        raise ConfigError(f"parameter {name!r} is an edge, but nothing is compared with it")

    @cached_property
    def local(self) -> frozenset[str]:
        """The rules about the slots of one item only."""
        items = {
            clause.id: {slot.rpartition("_")[2] for slot in slots_of(truth(clause))}
            for clause in self.problem.clauses
        }
        return frozenset(rule for rule, numbers in items.items() if len(numbers) == 1)

    @cached_property
    def weaker(self) -> tuple[ir.Query, ...]:
        """The question with one of its conditions left out, each in turn (but whose rows they are)."""
        goal = self.problem.goal
        tables = self.domain.tables
        keys = {name for name in self.names if self.domain.params[self.stem(name)] in tables}
        return tuple(_weakened(goal.query, keys)) if isinstance(goal, ir.Equals) else ()

    def options(self, name: str) -> dict[str, int]:
        """The options of a parameter whose domain is ``edge``."""
        return edge_options(self.domain.params[self.stem(name)])

    @cached_property
    def wishes(self) -> tuple[Wish, ...]:
        """The effects that are about all rows of a query."""
        goal = self.problem.goal
        effects = goal.effects if isinstance(goal, ir.Reach) else ()
        return tuple(wish for effect in effects if (wish := self._wish(effect)) is not None)

    def _wish(self, effect: ir.Clause) -> Wish | None:
        if not isinstance(effect.expr, ir.All) or not isinstance(effect.expr.over, ir.Query):
            return None
        query = effect.expr.over
        parts = [] if query.where == TRUE else list(conjuncts(query.where))
        rules = {
            clause.id: found
            for clause in self.problem.clauses
            if clause.source == "policy"
            and (found := _condition(clause))
            and set(found) <= set(parts)
        }
        taken = {part for found in rules.values() for part in found}
        scope = [part for part in parts if part not in taken]
        phrase = self.domain.phrases[effect.text_key.partition("~")[0]]
        asked = query.model_copy(update={"where": joined(scope)})
        return Wish(query, asked, rules, *phrase.rows)

    @cached_property
    def choices(self) -> tuple[tuple[ir.Query, tuple[ir.Query, ...]], ...]:
        """The queries of effects for a best row, each with those that leave out a condition on rows alone."""
        goal = self.problem.goal
        effects = goal.effects if isinstance(goal, ir.Reach) else ()
        queries = [
            node
            for effect in effects
            for node in effect.expr.walk()
            if isinstance(node, ir.Query) and node.limit == 1 and not free_names(node)
        ]
        return tuple((query, tuple(_without_plain(query))) for query in queries)


def _without_plain(query: ir.Query) -> Iterator[ir.Query]:
    parts = list(conjuncts(query.where))
    for part in parts:
        if not params_of(part):
            rest = [other for other in parts if other is not part]
            yield query.model_copy(update={"where": joined(rest)})


def _condition(clause: ir.Clause) -> tuple[ir.Node, ...]:
    """What a policy clause demands of a row that a call changed: ``not done(row) or condition``."""
    rule = clause.expr
    if (
        not isinstance(rule, ir.All)
        or not isinstance(rule.body, ir.Or)
        or len(rule.body.items) != 2
    ):
        return ()
    return tuple(conjuncts(rule.body.items[1]))


def nodes_of(problem: Problem) -> Iterator[ir.Node]:
    """Every expression of a problem's rules, goal and slots."""
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


def other_side(edge: ir.Cmp, name: str) -> ir.Node:
    """What the parameter is compared with."""
    return edge.right if edge.left == ir.Param(name=name) else edge.left


def holds_below(edge: ir.Cmp, name: str) -> bool:
    """Whether the parameter bounds from above."""
    return (edge.fn in ("<=", "<")) == (edge.right == ir.Param(name=name))


def slack(edge: ir.Cmp, name: str) -> int:
    """What a strict bound has to add to be met."""
    if edge.fn not in ("<", ">"):
        return 0
    return 1 if holds_below(edge, name) else -1


def edge_options(text: str) -> dict[str, int]:
    """The options of ``edge(least=6, share=3, step=10)``.

    ``least``: no bound is smaller. ``share``: of many answers so many percent keep the bound. ``step``:
    the bound is a multiple of it.
    """
    node = parsed(text)
    given = node.keywords if isinstance(node, ast.Call) else []
    return {
        str(k.arg): k.value.value
        for k in given
        if isinstance(k.value, ast.Constant) and isinstance(k.value.value, int)
    }


def one_best(query: ir.Query, compiler: Compiler, frame: Frame | None = None) -> bool:
    """Whether a query for the best row has one: two rows or more, none as good as the first."""
    if query.limit != 1 or not query.order:
        return True
    by = query.order[0].by
    every = query.model_copy(update={"limit": None, "order": (), "select": by})
    values = compiler.compile(every)(frame or compiler.frame())
    known = [value for value in values or () if value is not None]
    best: Callable[..., Any] = max if query.order[0].descending else min
    return len(known) >= 2 and known.count(best(known)) == 1


def _weakened(query: ir.Query, keys: set[str]) -> Iterator[ir.Query]:
    """The query with one condition left out, its own or one of a query inside it."""
    parts = list(conjuncts(query.where)) if query.where != ir.Const(value=True) else []
    for i, part in enumerate(parts):
        rest = [*parts[:i], *parts[i + 1 :]]
        if params_of(part) - keys and not _inner(part):
            yield query.model_copy(update={"where": joined(rest)})
        for inner in _inner(part):
            for weaker in _weakened(inner, keys):
                changed = _replaced(part, inner, weaker)
                yield query.model_copy(
                    update={"where": joined([*parts[:i], changed, *parts[i + 1 :]])}
                )


def joined(parts: list[Any]) -> Any:
    """All of ``parts`` as one condition."""
    if not parts:
        return ir.Const(value=True)
    return parts[0] if len(parts) == 1 else ir.And(items=tuple(parts))


def _inner(part: ir.Node) -> list[ir.Query]:
    return [side for side in part.children() if isinstance(side, ir.Query)]


def _replaced(part: ir.Node, old: ir.Query, new: ir.Query) -> ir.Node:
    """``part`` with one of its direct queries replaced."""
    changes = {name: new for name in type(part).model_fields if getattr(part, name) == old}
    return part.model_copy(update=changes)
