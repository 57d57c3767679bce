"""The parameters of a problem: what its rules make of them, and what they may be over given rows.

A parameter's domain on the page is a table or some of its rows (any of their keys), a column (any
value in it), a draw, or ``edge``: what some answer, or some row that decides, just meets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Any

from envgen.core import ir
from envgen.core.errors import ConfigError
from envgen.core.ir import Problem, Scalar
from envgen.pipelines.general.authoring.draws import Drawing, NoRoomError
from envgen.pipelines.general.authoring.rows import MISTAKES
from envgen.pipelines.general.authoring.statement import Blueprint
from envgen.pipelines.general.authoring.structure import unvaried
from envgen.pipelines.general.semantics.evaluator import Compiler, Frame
from envgen.pipelines.general.semantics.rewrite import (
    TRUE,
    condition,
    conjuncts,
    free_names,
    is_joint,
    kept,
    nodes_of,
    pairwise,
    params_of,
    reads_final,
    slots_of,
    truth,
    written,
)
from envgen.pipelines.general.semantics.tables import Tables

Params = dict[str, Scalar]


@dataclass(frozen=True)
class Wish:
    """The rows that one effect is about, and the policy's rules among the conditions of its query."""

    id: str
    """Of the effect's clause."""
    query: ir.Query
    asked: ir.Query
    """The rows that the request is about: the query without the rules."""
    rules: dict[str, tuple[ir.Node, ...]]
    """Policy clause -> its conditions, those of joint rules last, in the page's order."""
    joint: tuple[str, ...]
    """The rules that rank, count or add up rows that calls change."""
    least: int
    most: int

    @property
    def plain(self) -> tuple[str, ...]:
        """The rules that decide each row alone."""
        return tuple(rule for rule in self.rules if rule not in self.joint)


class Analysis:
    """One problem, its parameters open.

    Args:
        problem: the problem.
        blueprint: of its page.
        explains: whether ``failed`` tells all that is missing, and not the first thing alone.
        optimum: whether the bound at the best answer is the optimum itself, which no agent is told.
    """

    def __init__(
        self, problem: Problem, blueprint: Blueprint, explains: bool = False, optimum: bool = False
    ) -> None:
        self.problem, self.blueprint, self.optimum = problem, blueprint, optimum
        nodes = list(nodes_of(problem.clauses, problem.goal))
        ranges = [slot.domain for slot in problem.slots if isinstance(slot.domain, ir.Query)]
        nodes += [node for query in ranges for node in query.walk()]
        order = list(blueprint.params)
        names = dict.fromkeys(node.name for node in nodes if isinstance(node, ir.Param))
        stems = {name: blueprint.stem(name) for name in names}
        self.names = sorted(names, key=lambda name: order.index(stems[name]))
        """The parameters in the order of the page: later ones may depend on earlier ones."""
        self.stems = stems
        self.domains = {name: blueprint.params[stem] for name, stem in stems.items()}
        edges = [name for name in self.names if self.domains[name].kind == "edge"]
        self.edges = {name: _edge(name, nodes) for name in edges}
        """Parameter -> the comparison that bounds something by it, where its domain is ``edge``."""
        options = {name: self.domains[name].options for name in edges}
        self.best = {name: options[name]["best"] for name in edges if "best" in options[name]}
        """Edges at the value of the k-th best answer, each with its k."""
        self.explains = explains
        self.failed: Counter[str] = Counter()
        """Why rows or parameters that were tried hold no such task."""

    def clock(self, name: str) -> bool:
        """Whether an edge bounds a time of day."""
        gets = [node for node in self.edges[name].walk() if isinstance(node, ir.Get)]
        kinds = {self.problem.relation(get.relation).column(get.column).type for get in gets}
        return kinds == {"minutes"}

    @cached_property
    def local(self) -> frozenset[str]:
        """The rules about the slots of one item only."""
        items = {
            clause.id: {slot.rpartition("_")[2] for slot in slots_of(truth(clause))}
            for clause in self.problem.clauses
        }
        return frozenset(rule for rule, numbers in items.items() if len(numbers) == 1)

    @cached_property
    def parts(self) -> tuple[tuple[str, ir.Node], ...]:
        """(rule, conjunct) for each conjunct of every rule, made once so that each is compiled once."""
        return tuple((c.id, part) for c in self.problem.clauses for part in pairwise(truth(c)))

    @cached_property
    def weaker(self) -> tuple[ir.Query, ...]:
        """The question with one of its conditions left out, each in turn (but whose rows they are)."""
        goal = self.problem.goal
        keys = {name for name in self.names if self.domains[name].kind == "table"}
        return tuple(_weakened(goal.query, keys)) if isinstance(goal, ir.Equals) else ()

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
        parts = list(conjuncts(query.where))
        rules = {
            clause.id: found
            for clause in self.problem.clauses
            if clause.source == "policy"
            and (found := condition(clause))
            and set(found) <= set(parts)
        }
        taken = {part for found in rules.values() for part in found}
        scope = [part for part in parts if part not in taken]
        phrases = self.blueprint.domain.phrases
        order = {clause.id: unvaried(clause.text_key) for clause in self.problem.clauses}
        tables = written(self.problem.access)
        joint = [rule for rule, own in rules.items() if any(is_joint(p, tables) for p in own)]
        joint.sort(key=lambda rule: list(phrases).index(order[rule]))
        plain = {rule: own for rule, own in rules.items() if rule not in joint}
        asked = query.model_copy(update={"where": joined(scope)})
        rules = plain | {rule: rules[rule] for rule in joint}
        rows = phrases[unvaried(effect.text_key)].rows
        return Wish(effect.id, query, asked, rules, tuple(joint), *rows)

    @cached_property
    def coupled(self) -> bool:
        """Whether a rule ranks or adds up rows that calls change, or an effect reads what another writes."""
        goal = self.problem.goal
        effects = goal.effects if isinstance(goal, ir.Reach) else ()
        tables = written(self.problem.access)
        values = [n for e in effects for n in e.expr.walk() if isinstance(n, ir.Cmp)]
        rules = [c for c in (*self.problem.clauses, *effects) if not slots_of(c.expr)]
        return any(is_joint(rule.expr, tables) for rule in rules) or any(
            reads_final(value.left) and reads_final(value.right) for value in values
        )

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


def _edge(name: str, nodes: list[ir.Node]) -> ir.Cmp:
    for node in nodes:
        if isinstance(node, ir.Cmp) and ir.Param(name=name) in (node.left, node.right):
            return node
    reason = f"parameter {name!r} is an edge, but nothing is compared with it"
    raise ConfigError(reason, "compare something with it, or give it another domain")


def one_best(query: ir.Query, compiler: Compiler, frame: Frame | None = None) -> bool:
    """Whether a query for the best row has one: two rows or more, none as good as the first."""
    if query.limit != 1 or not query.order:
        return True
    values = compiler.compile(_ranks(query))(frame or compiler.frame())
    known = [value for value in values or () if value is not None]
    best: Callable[..., Any] = max if query.order[0].descending else min
    return len(known) >= 2 and known.count(best(known)) == 1


@kept
def _ranks(query: ir.Node) -> ir.Query:
    """What the rows of a query are ordered by; one node for each query, or it would be compiled again."""
    assert isinstance(query, ir.Query)
    by = query.order[0].by
    return query.model_copy(update={"limit": None, "order": (), "select": by})


def _weakened(query: ir.Query, keys: set[str]) -> Iterator[ir.Query]:
    """The query with one condition left out, its own or one of a query inside it."""
    parts = list(conjuncts(query.where))
    for i, part in enumerate(parts):
        rest = [*parts[:i], *parts[i + 1 :]]
        if params_of(part) - keys and not _inner(part):
            yield query.model_copy(update={"where": joined(rest)})
        for inner in _inner(part):
            for weaker in _weakened(inner, keys):
                changed = joined([*parts[:i], _replaced(part, inner, weaker), *parts[i + 1 :]])
                yield query.model_copy(update={"where": changed})


def joined(parts: list[Any]) -> Any:
    """All of ``parts`` as one condition."""
    if not parts:
        return TRUE
    return parts[0] if len(parts) == 1 else ir.And(items=tuple(parts))


def _inner(part: ir.Node) -> list[ir.Query]:
    return [side for side in part.children() if isinstance(side, ir.Query)]


def _replaced(part: ir.Node, old: ir.Query, new: ir.Query) -> ir.Node:
    """``part`` with one of its direct queries replaced."""
    changes = {name: new for name in type(part).model_fields if getattr(part, name) == old}
    return part.model_copy(update=changes)


class OpenTask:
    """A task before it is tuned: its rules compiled once over the rows, and the values of each parameter."""

    def __init__(self, analysis: Analysis, tables: Tables, rng: Random, fixed: Params) -> None:
        self.blueprint, self.analysis = analysis.blueprint, analysis
        self.problem, self.names = analysis.problem, analysis.names
        self.tables, self.rng, self.fixed = tables, rng, fixed
        self.compiler = Compiler(analysis.problem, tables, params="free")
        self.edges = {name: edge for name, edge in analysis.edges.items() if name not in fixed}

    def frame(self, params: Mapping[str, Scalar]) -> Frame:
        """A frame with these parameters."""
        frame = self.compiler.frame()
        frame.params = params
        return frame

    def drawn(self, but: Collection[str] = ()) -> Params | None:
        """All parameters ``but`` some and the edges, whatever the rules; None if one has no value."""
        params = dict(self.fixed)
        for name in self.names:
            if name not in params and name not in self.edges and name not in but:
                values = self.values(name, params)
                if values == []:
                    return None
                params[name] = self.rng.choice(values) if values else self.draw(name, params)
                others = self._others(name, params)
                if params[name] in others:
                    left = [value for value in values or () if value not in others]
                    if not left:
                        return None
                    params[name] = self.rng.choice(left)
        return params

    def _others(self, name: str, params: Mapping[str, Scalar]) -> set[Scalar]:
        """What other items have of a table that each item has another row of."""
        if self.analysis.domains[name].kind != "table":
            return set()
        stems = self.analysis.stems
        return {
            v for other, v in params.items() if other != name and stems.get(other) == stems[name]
        }

    def values(self, name: str, params: Mapping[str, Scalar]) -> list[Scalar] | None:
        """The values that a parameter may have: keys of rows, or values of a column; None for a draw."""
        domain = self.analysis.domains[name]
        if domain.kind == "table":
            return list[Scalar](sorted(self.tables[domain.table]))
        if domain.kind == "column":
            column = {row[domain.column] for row in self.tables[domain.table].values()}
            return sorted(column - {None}, key=str)
        if domain.kind == "rows":
            rows = self.compiler.compile(self.blueprint.rows(domain.text))
            return list(rows(self.frame(params)))
        return None

    def draw(self, name: str, params: Params) -> Scalar:
        """A value of a parameter whose domain is a draw; earlier parameters may stand in it.

        Raises:
            ConfigError: naming the parameter, if its draw has names or numbers that don't fit.
        """
        domain = self.blueprint.domain
        known = {**domain.constants, **domain.lists, **params}
        drawing = Drawing(rng=self.rng, tables=self.tables, known=known)
        text = self.analysis.domains[name].text
        what = f"domain {domain.id!r}, parameter {name!r}, draw {text!r:.80}"
        try:
            value = self.blueprint.draws.draw(text)(drawing)
        except (NoRoomError, *MISTAKES) as error:
            hint = getattr(error, "hint", "") or "check its names and numbers"
            raise ConfigError(f"{what}: {str(error) or 'no value is left'}", hint) from None
        if not isinstance(value, int | str):
            raise ConfigError(f"{what} gives {value!r:.80}, not one value", "write one([...])")
        return value
