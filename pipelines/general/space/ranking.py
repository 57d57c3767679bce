"""The best answers by a sum over slots, and answers that are as good but break one rule.

Branch and bound over *clusters*: the slots of one item, or those that one term of the sum reads together.
So a term that depends on room and time alike prunes as well as one that reads a single slot, which a search
slot by slot can't bound before both are set. Clusters with heads (the cities of days) are searched by
*headings*: first the heads of all of them, in the order of the least that the rest can cost.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod
from operator import itemgetter
from typing import Any, NamedTuple

from envgen.core import ir
from envgen.core.ir import Node
from envgen.pipelines.general.semantics.rewrite import pairwise, summands
from envgen.pipelines.general.space.clusters import (
    MAX_HEADED,
    Cell,
    Cluster,
    Conjunct,
    Term,
    fits,
    fitting,
    one_broken,
    whole,
)
from envgen.pipelines.general.space.model import Model, StepBudget, TooHardError

MAX_CELLS = 5_000
"""Combinations of values listed for one cluster without a head."""
_HEADINGS = 5_000
"""The most combinations of head values that are searched."""
_BEYOND = 10**15
"""More than any sum."""


class Ranked(NamedTuple):
    """An answer with its sum (signed so that less is better)."""

    total: int
    values: list[Any]
    broken: str = ""
    """The one rule that it breaks."""


class _Heading(NamedTuple):
    """A value for each cluster's head: what terms about heads cost, the one rule that they break (or "")."""

    values: tuple[Any, ...]
    cost: int
    broken: str


class _View(NamedTuple):
    """The cells of each cluster under a heading; the least and most that clusters from each one on cost."""

    cells: list[list[Cell]]
    rest: list[int]
    most: list[int]


class Ranking:
    """The answers of one problem by one sum."""

    def __init__(
        self,
        space: Model,
        groups: Sequence[Sequence[int]],
        rules: Sequence[tuple[str, Node]],
        measure: tuple[Node, int],
        params: Mapping[str, Any],
    ) -> None:
        """List the cells of each cluster.

        Args:
            space: the bare model; its compiler may have free parameters.
            groups: positions of slots that belong together, such as those of an item.
            rules: (rule, conjunct) for each conjunct of every other rule.
            measure: the sum, and 1 where less is better, -1 where more is.
            params: values of free parameters.

        Raises:
            TooHardError: where a term of the sum is no whole number, or heads have too many values.
        """
        self.space, self.frame = space, space.compiler.frame()
        self.frame.params = params
        compile_ = space.compiler.compile
        self.parts = [
            Conjunct(rule, space.scope_of(e), compile_(e))
            for rule, whole_rule in rules
            for e in pairwise(whole_rule)
        ]
        summed = [Term(space.scope_of(e), sign, compile_(e)) for sign, e in summands(*measure)]
        terms = [term for term in summed if term.scope]
        known = [term.cost(self.frame) for term in summed if not term.scope]
        self.constant = sum(map(whole, known))
        self.possible = all(part.holds(self.frame) for part in self.parts if not part.scope)
        clusters = self._clusters(groups, [term.scope for term in terms])
        if prod(len(space.domains[head]) for _, head in clusters if head is not None) > _HEADINGS:
            raise TooHardError("too many choices of heads")
        listed = [
            Cluster(slots, head, space.domains, self.parts, terms, self.frame)
            for slots, head in clusters
        ]
        self.order = sorted(listed, key=len)
        self._schedule(terms)
        self.floors = dict(self._floors(rules, measure))
        """Of each rule that bounds the same sum on its other side, the least that the sum may then be."""
        self._buckets: dict[str | None, list[dict[Any, list[Cell]]]] = {}
        self.bound, self.floor = _BEYOND, -_BEYOND
        self.may_break: set[str] = set()

    def _floors(
        self, rules: Sequence[tuple[str, Node]], measure: tuple[Node, int]
    ) -> Iterator[tuple[str, int]]:
        """Rules that compare the sum itself with something known, so that less of it may be too little."""
        total, sign = measure
        for rule, expr in rules:
            if not isinstance(expr, ir.Cmp) or total not in (expr.left, expr.right):
                continue
            known = expr.right if expr.left == total else expr.left
            above = (expr.fn in (">=", ">")) == (expr.left == total)
            if expr.fn in ("<", "<=", ">", ">=") and above == (sign == 1):
                value = self.space.compiler.compile(known)(self.frame)
                if not self.space.scope_of(known) and type(value) is int:
                    yield rule, sign * value

    def _clusters(
        self, groups: Sequence[Sequence[int]], scopes: Sequence[tuple[int, ...]]
    ) -> list[tuple[tuple[int, ...], int | None]]:
        """Split the slots into clusters with few enough combinations to list, each with its head."""
        of = {i: frozenset((i,)) for i in range(len(self.space.domains))}
        heads: dict[frozenset[int], int] = {}
        for wanted in (*groups, *scopes):
            merged = frozenset[int]().union(*(of[i] for i in wanted))
            if self.space.size(sorted(merged)) <= MAX_CELLS:
                of |= dict.fromkeys(merged, merged)
            elif merged == frozenset(wanted) and (head := self._head(sorted(merged))) is not None:
                of |= dict.fromkeys(merged, merged)
                heads[merged] = head
        found = sorted({tuple(sorted(cluster)) for cluster in of.values()})
        return [(cluster, heads.get(frozenset(cluster))) for cluster in found]

    def _head(self, slots: list[int]) -> int | None:
        """The slot by whose values few enough combinations of the others fit; None if there is none."""
        for head in slots:
            own = [part for part in self.parts if set(slots).issuperset(part.scope)]
            ties, size = fits(own, head), 0
            if len(ties) < len(slots) - 1:
                continue
            for value in self.space.domains[head]:
                allowed = fitting(slots, head, value, ties, self.space.domains, self.frame)
                size += prod(map(len, allowed))
            if size <= MAX_HEADED:
                return head
        return None

    def _schedule(self, terms: list[Term]) -> None:
        """What is decided by the headings, and with each cluster in turn."""
        depth_of = {i: depth for depth, one in enumerate(self.order) for i in one.slots}
        heads = {one.head for one in self.order}
        self.tests: list[list[Conjunct]] = [[] for _ in self.order]
        self.late: list[list[Term]] = [[] for _ in self.order]
        self.least = [0] * len(self.order)
        """By depth, the least that the terms in ``late`` can cost."""
        above: list[Conjunct] = []
        over: list[Term] = []
        for part in self.parts:
            depths = {depth_of[i] for i in part.scope}
            if len(depths) > 1:
                (above if heads.issuperset(part.scope) else self.tests[max(depths)]).append(part)
        for term in terms:
            depths = {depth_of[i] for i in term.scope}
            if len(depths) > 1 and heads.issuperset(term.scope):
                over.append(term)
            elif len(depths) > 1:
                self.late[max(depths)].append(term)
                self.least[max(depths)] += self._least(term)
        self.headings = list(self._headings(above, over))

    def _least(self, term: Term) -> int:
        """The least that a term over several clusters can be."""
        if self.space.size(term.scope) > MAX_CELLS:
            return -_BEYOND
        slots, known = self.frame.slots, []
        for values in product(*(self.space.domains[i] for i in term.scope)):
            for i, value in zip(term.scope, values, strict=True):
                slots[i] = value
            known.append(term.cost(self.frame))
        return min((cost for cost in known if cost is not None), default=_BEYOND)

    def _headings(self, tests: list[Conjunct], terms: list[Term]) -> Iterator[_Heading]:
        """The choices of heads that break at most one rule."""
        slots = self.frame.slots
        for values in product(*(one.cells for one in self.order)):
            for one, value in zip(self.order, values, strict=True):
                if one.head is not None:
                    slots[one.head] = value
            broken = one_broken(tests, "", self.frame)
            if broken is None:
                continue
            costs = [term.cost(self.frame) for term in terms]
            if None not in costs:
                yield _Heading(values, sum(map(whole, costs)), broken)

    def _bucket(self, may: str | None) -> list[dict[Any, list[Cell]]]:
        """For each cluster and head value, the cells that break no rule but ``may`` (None: any one rule)."""
        if may not in self._buckets:
            self._buckets[may] = [
                {
                    head: cells if may is None else [c for c in cells if c[2] in ("", may)]
                    for head, cells in one.cells.items()
                }
                for one in self.order
            ]
        return self._buckets[may]

    def _view(self, may: str | None, heading: _Heading) -> _View:
        """What is listed under a heading of such cells."""
        buckets = self._bucket(may)
        cells = [own[head] for own, head in zip(buckets, heading.values, strict=True)]
        rest, most = [0], [0]
        for own, late, terms in zip(
            reversed(cells), reversed(self.least), reversed(self.late), strict=True
        ):
            rest.append(rest[-1] + late + (own[0][0] if own else _BEYOND))
            most.append(most[-1] + (_BEYOND if terms or not own else own[-1][0]))
        return _View(cells, rest[::-1], most[::-1])

    def best(self, n: int, budget: StepBudget) -> list[Ranked]:
        """The ``n`` best answers that keep all rules, or all if there are fewer.

        Raises:
            OutOfStepsError: when the budget is spent.
        """
        found: list[tuple[int, int, list[Any]]] = []
        self.bound, self.may_break = _BEYOND, set()
        for at, answer in enumerate(self._walk(budget)):
            insort(found, (answer.total, at, answer.values))
            if len(found) >= n:
                del found[n:]
                self.bound = found[-1][0] - 1  # from now on strictly better ones only
        return [Ranked(total, values) for total, _, values in found]

    def above(self, bound: int, budget: StepBudget) -> bool:
        """Whether an answer that keeps all rules has a larger sum."""
        self.bound, self.may_break = _BEYOND, set()
        return any(answer.total > bound for answer in self._walk(budget))

    def near_miss(self, rule: str, bound: int, budget: StepBudget) -> Ranked | None:
        """An answer within ``bound`` that breaks ``rule`` alone; None if there is none.

        Raises:
            OutOfStepsError: when the budget is spent.
        """
        self.bound, self.may_break = bound, {rule}
        return next((one for one in self._walk(budget) if one.broken == rule), None)

    def _walk(self, budget: StepBudget) -> Iterator[Ranked]:
        """Every answer within ``bound`` that breaks at most one rule of ``may_break``; both may change."""
        if not self.possible:
            return
        may = next(iter(self.may_break), "")
        self.floor = max(
            (low for rule, low in self.floors.items() if rule != may), default=-_BEYOND
        )
        found = []
        for at, heading in enumerate(self.headings):
            if heading.broken in ("", may):
                view = self._view(may, heading)
                found.append((self.constant + heading.cost + view.rest[0], at, view))
        for least, at, view in sorted(found, key=lambda one: one[:2]):
            budget.spend()
            if least > self.bound:
                return
            heading = self.headings[at]
            total = self.constant + heading.cost
            yield from self._descend(0, total, heading.broken, view, budget)

    def _descend(
        self, depth: int, total: int, broken: str, view: _View, budget: StepBudget
    ) -> Iterator[Ranked]:
        if depth == len(self.order):
            yield Ranked(total, list(self.frame.slots), broken)
            return
        slots, cluster, late = self.frame.slots, self.order[depth].slots, self.late[depth]
        rest, cells = view.rest[depth + 1], view.cells[depth]
        # What can't come up to the floor any more stands first.
        low = self.floor - total - view.most[depth + 1]
        start = 0 if late else bisect_left(cells, low, key=itemgetter(0))
        for cost, values, rule in cells[start:]:
            budget.spend()
            if total + cost + self.least[depth] + rest > self.bound:
                return  # the others cost as much or more
            for i, value in zip(cluster, values, strict=True):
                slots[i] = value
            now = one_broken(self.tests[depth], rule or broken, self.frame)
            if now is None or (now and now not in self.may_break):
                continue
            costs = [term.cost(self.frame) for term in late]
            if None in costs:
                continue
            below = total + cost + sum(one for one in costs if one is not None)
            if below + rest <= self.bound:
                yield from self._descend(depth + 1, below, now, view, budget)
