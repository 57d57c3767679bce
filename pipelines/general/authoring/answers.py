"""Parameters of tasks with many answers: one keeps all rules, and each rule alone is broken by another."""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice, product
from math import prod
from operator import itemgetter
from random import Random
from typing import Any, NamedTuple

from envgen.core import ir
from envgen.core.ir import Problem
from envgen.pipelines.general.authoring.analysis import OpenTask, Params
from envgen.pipelines.general.authoring.edges import (
    between,
    bounds,
    holds_below,
    just_met,
    other_side,
)
from envgen.pipelines.general.authoring.tight import TightBounds, alone
from envgen.pipelines.general.semantics.evaluate import values_given
from envgen.pipelines.general.semantics.evaluator import Closure, Frame
from envgen.pipelines.general.semantics.rewrite import conjuncts, params_of, slots_of, truth
from envgen.pipelines.general.space.build import bare_model, build_model
from envgen.pipelines.general.space.model import Model, OutOfStepsError, StepBudget
from envgen.pipelines.general.space.near_misses import Finder, pieces
from envgen.pipelines.general.space.search import Search, solutions

_TRIES = 40
"""Choices of parameters tried on one set of rows."""
_EXACT_TRIES = 2
"""Choices tried where a bound is exact: whether any works depends almost only on the rows."""
_STEPS = 800
"""Step budget of the search for an answer, and for each near-miss that no change of one slot gives."""
_MORE_STEPS = 300_000
"""Step budget of the search for an answer where slots have too many values to list a block's."""
_SAMPLES = 40
"""Answers looked at to find the bound that a share of them keep."""
_REDRAWS = 150
"""Items drawn anew around one answer to find what breaks a rule alone."""
_SEARCHED = 6
"""Near-misses worth a search; where more are missing, other parameters are tried."""
_CELLS = 2_000
"""Combinations of slot values, or of keys, looked at for one block."""


class AnswerTuner:
    """Tunes one task with many answers over given rows."""

    def __init__(self, task: OpenTask) -> None:
        self.task = task
        self.problem, self.tables = task.problem, task.tables
        self.space = bare_model(task.problem, task.tables, task.compiler)
        self.blocks = _blocks(task, self.space)
        self.listed = len(task.problem.slots) == sum(len(block.scope) for block in self.blocks)
        """Whether every slot is in a block: then a short search finds an answer."""
        inside = {name for block in self.blocks for name in block.edges}
        far = sorted(
            task.edges.keys() - inside, key=lambda n: (n in task.analysis.best, task.names.index(n))
        )
        self.far = {name: task.edges[name] for name in far}
        """Bounds on several blocks at once, in the order in which answers without the rest set them."""
        groups = list(_items(task.problem).values())
        self.tight = TightBounds(task.analysis, self.space, groups, self._model, task.rng)

    def params(self) -> Params | None:
        """Parameters under which each rule matters; None if none of those tried will do."""
        tried: list[Params] = []
        for _ in range(_TRIES):
            params = self._drawn()
            if params is None:
                return None
            if self.task.analysis.best and params in tried:
                continue  # a bound at the k-th best answer is found exactly: it would be the same
            if self.task.analysis.best and len(tried) == _EXACT_TRIES:
                return None
            tried.append(dict(params))
            try:
                if not all(self._bounded(name, params) for name in self.far):
                    continue
            except OutOfStepsError:
                self.task.analysis.failed["the k-th best answer takes too long to find"] += 1
                return None
            if self._binding(params) and not self.tight.too_easy(params):
                return params
        return None

    def _binding(self, params: Params) -> bool:
        """Whether an answer keeps all rules, and each rule alone is broken by another."""
        if self.tight.ranking is not None:
            return self.tight.binds()
        answers = list(self._solved(params, (), 1))
        if not answers:
            self.task.analysis.failed[alone("")] += 1
        return any(self._binds(params, slots, model.answer(slots)) for model, slots in answers)

    def _solved(
        self, params: Params, without: Collection[str], count: int
    ) -> Iterator[tuple[Model, list[Any]]]:
        """Some answers that keep all rules but those about the parameters ``without``."""
        model = self._model(params, without)
        steps = _STEPS if self.listed else _MORE_STEPS
        loose = self.listed or not self.far  # a sum over many slots is met by guided draws alone
        source = solutions(model, self.task.rng, StepBudget(steps), searches_first=loose)
        return ((model, values) for values in islice(source, count))

    def _model(self, params: Params, without: Collection[str]) -> Model:
        """All rules but those about the parameters ``without``."""
        left = [self.far[name] for name in without]
        clauses = [c for c in self.problem.clauses if not any(e in truth(c).walk() for e in left)]
        self.task.compiler.bind(params)
        bound = self.problem.model_copy(update={"params": dict(params), "clauses": tuple(clauses)})
        return build_model(bound, self.tables, compiler=self.task.compiler)

    def _bounded(self, name: str, params: Params) -> bool:
        """Set a bound on several blocks at once: one that a given share of the answers keep."""
        edge, options = self.far[name], self.task.analysis.domains[name].options
        if "best" in options:
            return self.tight.set(name, params, later=[o for o in self.far if o not in params])
        later = [other for other in self.far if other not in params]
        measure = self.task.compiler.compile(other_side(edge, name))
        values = []
        for model, slots in self._solved(params, later, _SAMPLES if "share" in options else 1):
            model.frame.slots[:] = slots
            values.append(measure(model.frame))
        if not values or None in values:
            return False
        below = holds_below(edge, name)
        values.sort(reverse=not below)
        bound, step = values[len(values) * options.get("share", 0) // 100], options.get("step", 1)
        if step != 1:
            bound = (-(-bound // step) if below else bound // step) * step
        else:
            beyond = next((v for v in values if (v > bound if below else v < bound)), None)
            space = None if beyond is None else between(bound, beyond, self.task.rng)
            bound = bound if space is None else space
        params[name] = just_met(edge, name, bound)
        return True

    def _drawn(self) -> Params | None:
        """All parameters but far edges, such that each block can keep its own rules and break each alone."""
        params = self.task.drawn(but={name for block in self.blocks for name in block.keys})
        if params is None:
            return None
        for block in self.blocks:
            found = block.chosen(params, self.task.rng)
            if found is None:
                return None
            params |= found
        return params

    def _binds(self, params: Params, values: list[Any], answer: Any) -> bool:
        """Whether each rule is broken alone by some submission: next to ``answer``, or found by search."""
        self.task.compiler.bind(params)
        bound = self.problem.model_copy(update={"params": dict(params)})
        finder = Finder(bound, self.tables, answer, self.task.rng, self.task.compiler)
        missing = set(finder.rules) - finder.moved()
        missing -= self._redrawn(missing, params, values)
        if self.listed and len(missing) <= _SEARCHED:
            left = (rule for rule in finder.rules if rule in missing)
            missing = {*islice((rule for rule in left if not self._breaks(bound, rule)), 1)}
        self.task.analysis.failed.update(map(alone, sorted(missing)))
        return not missing

    def _redrawn(self, wanted: set[str], params: Params, values: list[Any]) -> set[str]:
        """Rules that alone break when all of one item is drawn anew, each slot given those before it."""
        task, frame, found = self.task, self.task.frame(params), set[str]()
        items = list(_items(self.problem).values())
        rules = [self._about(item) for item in items]
        for _ in range(_REDRAWS if wanted else 0):
            frame.slots[:] = values
            at = task.rng.randrange(len(items))
            for i in items[at]:
                frame.slots[i] = task.rng.choice(self._may_be(i, frame) or [values[i]])
            broken = list(islice((rule for rule, run in rules[at] if run(frame) is not True), 2))
            if len(broken) == 1:
                found.add(broken[0])
                if wanted <= found:
                    break
        return found

    def _about(self, item: list[int]) -> list[tuple[str, Closure]]:
        """The rules that read one of an item's slots: what breaks others is somewhere else."""
        own = {self.problem.slots[i].name for i in item}
        rules = ((clause.id, truth(clause)) for clause in self.problem.clauses)
        return [(rule, self.task.compiler.compile(e)) for rule, e in rules if slots_of(e) & own]

    def _may_be(self, i: int, frame: Frame) -> Sequence[Any]:
        """The values of a slot, given the slots before it."""
        slot = self.problem.slots[i]
        if isinstance(slot.domain, ir.Query):
            return values_given(slot, self.task.compiler, frame)
        return self.space.domains[i]

    def _breaks(self, problem: Problem, rule: str) -> bool:
        """Whether a search finds a submission that breaks ``rule`` and nothing else."""
        clause = next(c for c in problem.clauses if c.id == rule)
        for part in pieces(truth(clause), problem):
            model = build_model(
                problem, self.tables, without=rule, refused=(part,), compiler=self.task.compiler
            )
            if self.task.analysis.best:  # few answers keep such a bound: a guide knows of each
                if next(solutions(model, self.task.rng, StepBudget(_MORE_STEPS)), None) is not None:
                    return True
                continue
            try:
                if next(Search(model).run(self.task.rng, StepBudget(_STEPS)), None) is not None:
                    return True
            except OutOfStepsError:
                continue
        return False


_Options = list[tuple[tuple[Any, ...], str]]


class _BlockRule(NamedTuple):
    """A conjunct of a clause about one block."""

    id: str
    run: Closure
    expr: ir.Node
    scope: tuple[int, ...]
    """Positions of the slots that it reads."""


@dataclass
class _ItemBlock:
    """The slots of one item, the rules about them alone, and the parameters that only those rules read.

    Its combinations of values are few enough to look at each, which says at once whether a choice of
    parameters leaves one that keeps all its rules, and for each rule one that breaks it alone. Most
    choices fail there.
    """

    task: OpenTask
    space: Model
    scope: tuple[int, ...]
    rules: list[_BlockRule]
    keys: list[str]
    edges: list[str]
    _listed: dict[Hashable, _Options] = field(default_factory=dict)
    _missing: set[str] = field(default_factory=set)
    """What the last keys and edges tried did not allow."""

    def chosen(self, params: Params, rng: Random) -> Params | None:
        """Keys and edges of this block; None if no keys tried will do."""
        stems, pools = self.task.analysis.stems, []
        for name in self.keys:
            taken = {v for other, v in params.items() if stems[other] == stems[name]}
            pools.append([v for v in self.task.values(name, params) or [] if v not in taken])
        choices = list(islice(product(*pools), _CELLS))
        rng.shuffle(choices)
        for choice in choices:
            own = dict(zip(self.keys, choice, strict=True))
            edges = self._edges(params | own, rng)
            if edges is not None:
                return own | edges
        self.task.analysis.failed.update(map(alone, sorted(self._missing)))
        return None

    def _edges(self, params: Params, rng: Random) -> Params | None:
        """Bounds under which every rule of the block matters; None if these keys allow none."""
        known = dict(params)
        frame, found = self.task.frame(known), Params()
        bounded = {self._rule_of[name].id: name for name in self.edges}
        options = self._options(frame, [rule for rule in self.rules if rule.id not in bounded])
        for name in self.edges:
            edge, rule = self.task.edges[name], self._rule_of[name]
            measure = self.task.compiler.compile(other_side(edge, name))
            right = (cell for cell, broken in options if not broken)
            values = {self._at(frame, cell, measure) for cell in right}
            clock = self.task.analysis.clock(name)
            open_ = bounds(edge, name, values, rng, clock=clock)
            if not open_:
                return None
            found[name] = known[name] = rng.choice(open_)
            options = list(self._kept(frame, options, rule))
        wanted = {"", *(rule.id for rule in self.rules if rule.id in self.task.analysis.local)}
        self._missing = wanted - {broken for _, broken in options}
        return None if self._missing else found

    @cached_property
    def _rule_of(self) -> dict[str, _BlockRule]:
        """Edge -> the rule that it bounds."""
        edges = {name: self.task.edges[name] for name in self.edges}
        return {
            name: next(rule for rule in self.rules if edge in rule.expr.walk())
            for name, edge in edges.items()
        }

    def _at(self, frame: Frame, cell: tuple[Any, ...], run: Closure) -> Any:
        for i, value in zip(self.scope, cell, strict=True):
            frame.slots[i] = value
        return run(frame)

    def _options(self, frame: Frame, rules: list[_BlockRule]) -> _Options:
        """Combinations that break at most one of ``rules``, each with the one that it breaks."""
        read = dict.fromkeys(name for rule in rules for name in sorted(params_of(rule.expr)))
        key = tuple(frame.params.get(name) for name in read)  # keys come again in other tries
        if key not in self._listed:
            options = [(cell, "") for cell in product(*(self.space.domains[i] for i in self.scope))]
            for rule in rules:
                options = list(self._kept(frame, options, rule))
            self._listed[key] = options
        return self._listed[key]

    def _kept(
        self, frame: Frame, options: Iterable[tuple[tuple[Any, ...], str]], rule: _BlockRule
    ) -> Iterator[tuple[tuple[Any, ...], str]]:
        own = [at for at, slot in enumerate(self.scope) if slot in rule.scope]
        read = itemgetter(*own) if own else len
        verdicts: dict[Any, Any] = {}  # of the slots that the rule reads
        for option in options:  # millions of times: no tuple is made that is there already
            cell, broken = option
            known = read(cell)
            if known not in verdicts:
                verdicts[known] = self._at(frame, cell, rule.run)
            if verdicts[known] is True or broken == rule.id:
                yield option
            elif not broken:
                yield cell, rule.id


def _items(problem: Problem) -> dict[str, list[int]]:
    """Item -> positions of its slots."""
    found: dict[str, list[int]] = {}
    for i, slot in enumerate(problem.slots):
        number = re.search(r"_(\d+)$", slot.name)
        found.setdefault(number[1] if number else "", []).append(i)
    return found


def _blocks(task: OpenTask, space: Model) -> list[_ItemBlock]:
    """The blocks whose values can be listed, in the order of their items."""
    blocks = []
    parts = [(c.id, part) for c in task.problem.clauses for part in conjuncts(truth(c))]
    for scope in _items(task.problem).values():
        if prod(len(space.domains[i]) for i in scope) > _CELLS:
            continue
        own = [
            (name, part)
            for name, part in parts
            if set(space.scope_of(part)) <= set(scope)
            and params_of(part).isdisjoint(task.analysis.best)
        ]
        rest = {p for name, part in parts if (name, part) not in own for p in params_of(part)}
        params = dict.fromkeys(
            p for _, part in own for p in sorted(params_of(part)) if p not in rest
        )
        rules = [
            _BlockRule(name, task.compiler.compile(part), part, space.scope_of(part))
            for name, part in own
        ]
        keys = [p for p in params if task.values(p, {}) is not None and p not in task.fixed]
        edges = [p for p in params if p in task.edges]
        blocks.append(_ItemBlock(task, space, tuple(scope), rules, keys, edges))
    return blocks
