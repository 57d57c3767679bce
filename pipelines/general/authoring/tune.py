"""Parameters for given rows: values under which a task has an answer and each of its rules matters.

A parameter's domain on the page is a table (any of its keys), a column (any value in it), a draw, or ``edge``:
the value that some answer, or some row that decides, just meets. Three kinds of task are tuned, each by looking
at what its rules make of the rows; none of them knows a domain.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice, product
from math import prod
from random import Random
from typing import Any, NamedTuple

from envgen.core import ir
from envgen.core.errors import ConfigError
from envgen.core.ir import Problem, Scalar
from envgen.pipelines.general.authoring.blueprint import Blueprint, Structure
from envgen.pipelines.general.authoring.rows import Drawing
from envgen.pipelines.general.authoring.rules import expression, parsed
from envgen.pipelines.general.authoring.workflows import Workflow
from envgen.pipelines.general.evaluator import Closure, Compiler, Frame
from envgen.pipelines.general.model import Model, build_model
from envgen.pipelines.general.near_misses import Finder, pieces
from envgen.pipelines.general.rewrite import conjuncts, params_of, slots_of, truth
from envgen.pipelines.general.search import Budget, OutOfStepsError, Search
from envgen.pipelines.general.solve import solutions
from envgen.pipelines.general.tables import Tables

Params = dict[str, Scalar]

_TRIES = 40
"""Choices of parameters tried on one set of rows."""
_STEPS = 800
"""Of the search for an answer, and for each near-miss that no change of one slot gives."""
_SEARCHED = 6
"""Near-misses worth a search; where more are missing, other parameters are tried."""
_CELLS = 2_000
"""Combinations of slot values looked at to screen one parameter."""


class Tuner:
    """Binds the parameters of one domain's problems."""

    def __init__(self, blueprint: Blueprint) -> None:
        self.blueprint = blueprint
        self.domain = blueprint.domain

    @cache  # noqa: B019  # lives as long as the domain
    def rows(self, stem: str) -> ir.Query:
        """The rows whose keys the parameter may be, where its domain is a query."""
        blueprint = self.blueprint
        query = expression(self.domain.params[stem], blueprint.names({}))
        assert isinstance(query, ir.Query)
        return query

    def tune(
        self, problem: Problem, structure: Structure, tables: Tables, rng: Random, *,
        fixed: Params | None = None, escalated: bool = False,
    ) -> Problem | None:  # fmt: skip
        """``problem`` with parameters for ``tables``; None if none of those tried will do.

        Args:
            problem: as ``Blueprint.problem`` states it; its parameters are replaced.
            structure: of the problem.
            tables: the rows.
            rng: the source of chance.
            fixed: parameters that must keep these values.
            escalated: of a workflow: whether the request must be escalated.
        """
        task = OpenTask(self, problem, structure, tables, rng, dict(fixed or {}))
        if isinstance(problem.goal, ir.Reach):
            params = Workflow(task).params(escalated=escalated)
        else:
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


class OpenTask:
    """One problem over given rows, its parameters open."""

    def __init__(
        self, tuner: Tuner, problem: Problem, structure: Structure, tables: Tables, rng: Random, fixed: Params
    ) -> None:
        self.tuner, self.problem, self.structure = tuner, problem, structure
        self.tables, self.rng, self.fixed = tables, rng, fixed
        self.compiler = Compiler(problem, tables, params="free")
        self.built: dict[ir.Node, ir.Node] = {}
        """Expressions that tuning made up, each once, so that each is compiled once."""
        order = list(tuner.domain.params)
        names = dict.fromkeys(node.name for node in nodes_of(problem) if isinstance(node, ir.Param))
        self.names = sorted(names, key=lambda name: order.index(tuner.stem(name)))
        """The problem's parameters, in the order of the page: later ones may depend on earlier ones."""
        scopes = {c.id: {slot.rpartition("_")[2] for slot in slots_of(truth(c))} for c in problem.clauses}
        self.whole = {rule for rule, items in scopes.items() if len(items) == 1}
        """The rules about one item only."""
        self.edges = {
            name: edge for name in self.names if name not in fixed and (edge := self._edge(name)) is not None
        }

    def _edge(self, name: str) -> ir.Cmp | None:
        """The comparison that bounds something by the parameter, where its domain is ``edge``."""
        if not self.tuner.domain.params[self.tuner.stem(name)].startswith("edge"):
            return None
        for node in nodes_of(self.problem):
            if isinstance(node, ir.Cmp) and ir.Param(name=name) in (node.left, node.right):
                return node
        raise ConfigError(f"parameter {name!r} is an edge, but nothing is compared with it")

    def drawn(self) -> Params | None:
        """All parameters but the edges, drawn without looking at any rule."""
        params = dict(self.fixed)
        for name in self.names:
            if name not in params and name not in self.edges:
                values = self.values(self.tuner.stem(name), params)
                if values == []:
                    return None
                params[name] = self.rng.choice(values) if values else self.draw(name, params)
        return params

    def values(self, stem: str, params: Params | None = None) -> list[Scalar] | None:
        """What a parameter may be: keys of a table or of some rows, or values of a column; None for a draw."""
        node = parsed(self.tuner.domain.params[stem])
        if isinstance(node, ast.Name) and node.id in self.tables:
            return sorted(self.tables[node.id])
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            column = {row[node.attr] for row in self.tables[node.value.id].values()}
            return sorted(column - {None}, key=str)
        if isinstance(node, ast.GeneratorExp):
            frame = self.compiler.frame()
            frame.params = params or {}
            return list(self.compiler.compile(self.tuner.rows(stem))(frame))
        return None

    def draw(self, name: str, params: Params) -> Scalar:
        """A value of a parameter whose domain is a draw; earlier parameters may stand in it."""
        domain, stem = self.tuner.domain, self.tuner.stem(name)
        known = {**domain.constants, **domain.lists, **params}
        drawing = Drawing(rng=self.rng, tables=self.tables, known=known)
        value: Scalar = self.tuner.blueprint.draws.draw(domain.params[stem])(drawing)
        return value

    # --- tasks with many answers -------------------------------------------------------------------

    def answers(self) -> Params | None:
        """Parameters under which there is an answer and each rule is the only one that some submission breaks."""
        compiler, space = self.compiler, Model(self.problem, self.tables, self.compiler)
        blocks = _blocks(self, space)
        inside = {name for block in blocks for name in block.edges}
        far = {name: edge for name, edge in self.edges.items() if name not in inside}
        bounded = {next(c.id for c in self.problem.clauses if e in truth(c).walk()) for e in far.values()}
        clauses = tuple(c for c in self.problem.clauses if c.id not in bounded)
        free = self.problem.model_copy(update={"clauses": clauses})
        for _ in range(_TRIES):
            params = self._drawn_in_blocks(blocks)
            if params is None:
                return None
            compiler.bind(params)
            model = build_model(free.model_copy(update={"params": params}), self.tables, compiler=compiler)
            source = solutions(model, self.rng, Budget(_STEPS), searches_first=True)
            for values in islice(source, 1):
                params = params | self._met(far, values)
                if self._binds(compiler, params, model.answer(values)):
                    return params
        return None

    def _drawn_in_blocks(self, blocks: Sequence[_Block]) -> Params | None:
        """All parameters but far edges, such that each block can keep its own rules and break each alone."""
        params = dict(self.fixed)
        keys = {name for block in blocks for name in block.keys}
        for name in self.names:
            if name not in params and name not in self.edges and name not in keys:
                values = self.values(self.tuner.stem(name), params)
                if values == []:
                    return None
                params[name] = self.rng.choice(values) if values else self.draw(name, params)
        for block in blocks:
            found = block.chosen(params, self.rng)
            if found is None:
                return None
            params |= found
        return params

    def _binds(self, compiler: Compiler, params: Params, answer: Any) -> bool:
        """Whether each rule is the only one broken by some submission: next to ``answer``, or found by search."""
        compiler.bind(params)
        bound = self.problem.model_copy(update={"params": params})
        finder = Finder(bound, self.tables, answer, self.rng, compiler)
        missing = [rule for rule in finder.rules if not finder.moves[rule]]
        return len(missing) <= _SEARCHED and all(self._breaks(bound, rule) for rule in missing)

    def _breaks(self, problem: Problem, rule: str) -> bool:
        """Whether a search finds a submission that breaks ``rule`` and nothing else."""
        clause = next(c for c in problem.clauses if c.id == rule)
        for part in pieces(truth(clause), problem):
            model = build_model(
                problem, self.tables, without=rule, refused=(part,), compiler=self.compiler
            )
            try:
                if next(Search(model).run(self.rng, Budget(_STEPS)), None) is not None:
                    return True
            except OutOfStepsError:
                continue
        return False

    def _met(self, edges: Mapping[str, ir.Cmp], values: list[Any]) -> Params:
        """Bounds that the answer with these slot values just meets."""
        frame, found = self.compiler.frame(), Params()
        frame.slots[:] = values
        for name, edge in edges.items():
            value = self.compiler.compile(other_side(edge, name))(frame)
            found[name] = None if value is None else value + slack(edge, name)
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
            other = other_side(edge, name)
            assert isinstance(other, ir.Get)
            column = {row[other.column] for row in self.tables[other.relation].values()} - {None}
            found[name] = self.rng.choice(sorted(column, key=str)) if column else None
        return found

    def _fair(self, compiler: Compiler, query: ir.Query, weaker: list[ir.Query]) -> bool:
        frame = compiler.frame()
        answer = compiler.compile(query)(frame)
        if answer is None or not all(one_best(q, compiler) for q in query.walk() if isinstance(q, ir.Query)):
            return False
        return all(compiler.compile(other)(frame) != answer for other in weaker)


class _Rule(NamedTuple):
    """What a clause says about one block."""

    id: str
    run: Closure
    expr: ir.Node


@dataclass
class _Block:
    """The slots of one item, the rules about them alone, and the parameters that only those rules read.

    Its combinations of values are few enough to look at each, which says at once whether a choice of parameters
    leaves one that keeps all its rules, and for each rule one that breaks it alone. Most choices fail there.
    """

    task: OpenTask
    space: Model
    scope: tuple[int, ...]
    rules: list[_Rule]
    keys: list[str]
    edges: list[str]

    def chosen(self, params: Params, rng: Random) -> Params | None:
        """Keys and edges of this block; None if no keys tried will do."""
        stems = {name: self.task.tuner.stem(name) for name in self.keys}
        pools = []
        for name in self.keys:
            taken = {v for other, v in params.items() if self.task.tuner.stem(other) == stems[name]}
            pools.append([v for v in self.task.values(stems[name]) or [] if v not in taken])
        choices = list(islice(product(*pools), _CELLS))
        rng.shuffle(choices)
        for choice in choices:
            own = dict(zip(self.keys, choice, strict=True))
            edges = self._edges(params | own, rng)
            if edges is not None:
                return own | edges
        return None

    def _edges(self, params: Params, rng: Random) -> Params | None:
        """Bounds under which every rule of the block matters; None if these keys allow none."""
        frame, found = self.task.compiler.frame(), Params()
        frame.params = dict(params)
        bounded = {self._bounded(name).id: name for name in self.edges}
        options = self._options(frame, [rule for rule in self.rules if rule.id not in bounded])
        for name in self.edges:
            edge, rule = self.task.edges[name], self._bounded(name)
            measure = self.task.compiler.compile(other_side(edge, name))
            values = sorted({v for cell, broken in options if not broken and (v := self._at(frame, cell, measure)) is not None})
            holds_below = (edge.fn in ("<=", "<")) == (edge.right == ir.Param(name=name))
            values = values[:-1] if holds_below else values[1:]
            if not values:
                return None
            found[name] = frame.params[name] = rng.choice(values) + slack(edge, name)  # type: ignore[index]  # a dict
            options = list(self._kept(frame, options, rule))
        alone = {broken for _, broken in options}
        return found if alone >= {"", *(rule.id for rule in self.rules if rule.id in self.task.whole)} else None

    def _bounded(self, name: str) -> _Rule:
        return next(rule for rule in self.rules if self.task.edges[name] in rule.expr.walk())

    def _at(self, frame: Frame, cell: tuple[Any, ...], run: Closure) -> Any:
        for i, value in zip(self.scope, cell, strict=True):
            frame.slots[i] = value
        return run(frame)

    def _options(self, frame: Frame, rules: list[_Rule]) -> list[tuple[tuple[Any, ...], str]]:
        """Combinations that break at most one of ``rules``, each with the one that it breaks."""
        options = [(cell, "") for cell in product(*(self.space.domains[i] for i in self.scope))]
        for rule in rules:
            options = list(self._kept(frame, options, rule))
        return options

    def _kept(
        self, frame: Frame, options: Iterable[tuple[tuple[Any, ...], str]], rule: _Rule
    ) -> Iterator[tuple[tuple[Any, ...], str]]:
        for cell, broken in options:
            if self._at(frame, cell, rule.run) is True:
                yield cell, broken
            elif not broken or broken == rule.id:
                yield cell, rule.id


def _blocks(task: OpenTask, space: Model) -> list[_Block]:
    """The blocks whose values can be listed, in the order of their items."""
    by_item: dict[str, list[int]] = {}
    for i, slot in enumerate(task.problem.slots):
        found = re.search(r"_(\d+)$", slot.name)
        by_item.setdefault(found[1] if found else "", []).append(i)
    blocks = []
    parts = [(c.id, part) for c in task.problem.clauses for part in conjuncts(truth(c))]
    for scope in by_item.values():
        if prod(len(space.domains[i]) for i in scope) > _CELLS:
            continue
        own = [(name, part) for name, part in parts if set(space.scope_of(part)) <= set(scope)]
        rest = {p for name, part in parts if (name, part) not in own for p in params_of(part)}
        params = dict.fromkeys(p for _, part in own for p in sorted(params_of(part)) if p not in rest)
        rules = [_Rule(name, task.compiler.compile(part), part) for name, part in own]
        keys = [p for p in params if task.values(task.tuner.stem(p)) is not None and p not in task.fixed]
        edges = [p for p in params if p in task.edges]
        blocks.append(_Block(task, space, tuple(scope), rules, keys, edges))
    return blocks


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


def slack(edge: ir.Cmp, name: str) -> int:
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


def least_edge(text: str) -> int:
    """The least value of a parameter whose domain is ``edge(least)``."""
    node = parsed(text)
    return int(ast.unparse(node.args[0])) if isinstance(node, ast.Call) and node.args else -(10**12)


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

