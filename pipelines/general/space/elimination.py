"""Exact counting by variable elimination: a factor graph whose messages are polynomials.

Values of a variable that no remaining constraint can tell apart are counted together. A linear
constraint rides along as an exponent: the message ``{a: 3 x^0 + 2 x^50}`` says that three completions
cost 0 and two cost 50. With one linear constraint a polynomial is one big integer with a lane for each
exponent (Kronecker substitution), so that the interpreter's long multiplication is the convolution.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import lcm
from typing import Any

from envgen.core import ir
from envgen.core.ir import Node
from envgen.pipelines.general.semantics.evaluator import Closure
from envgen.pipelines.general.semantics.rewrite import free_names, slots_of
from envgen.pipelines.general.space.model import Constraint, Link, Model, Term
from envgen.pipelines.general.space.rings import MAX_STEPS, Ring, TooHardError


@dataclass
class _Group:
    """Values that behave alike: one of them, and the polynomial of all."""

    value: Any
    poly: int
    members: list[tuple[Any, int]]
    """All values, each with its own polynomial."""


@dataclass
class _Message:
    """Result of an elimination: a polynomial for each assignment of ``scope`` (0 where absent)."""

    scope: tuple[int, ...]
    table: dict[tuple[Any, ...], int]


@dataclass
class Eliminator:
    """Counts the solutions of a model, weighting each by the product of ``weights``."""

    model: Model
    max_steps: int = MAX_STEPS
    weights: list[_Message] = field(default_factory=list)
    ring_type: type[Ring] = Ring
    steps: int = 0
    buckets: list[_Walk] = field(default_factory=list)
    """What was eliminated, in order."""

    def count(self) -> int:
        """The number (or total weight) of assignments that keep every constraint.

        Raises:
            TooHardError: when it would take more than ``max_steps`` steps.
        """
        return self.ring.total(result) if (result := self.run()) else 0

    def run(self) -> int:
        """Eliminate every variable; the polynomial of the whole."""
        if not self.model.feasible:
            return 0
        self.ring = self.ring_type(self.model, self._largest())
        if not self.ring.possible:
            return 0
        self.tests: list[Constraint] = list(self.model.constraints)
        self.messages = [*self.weights]
        self.terms = self._large_terms()
        self.groups = [self._grouped(i) for i in range(len(self.model.domains))]
        self.by_link = [self._indexed(link) for link in self.model.links]
        self.links = list(self.model.links)
        left = set(range(len(self.model.domains)))
        result = 1
        while left:
            parents = {link.parent for link in self.links}  # children first: a parent narrows them
            x = min(left, key=lambda i: (i in parents, self._cost(i), i))
            left.remove(x)
            message = self._eliminate(x)
            if not message.scope:
                result = self.ring.times(result, message.table.get((), 0))
                if not result:
                    return 0
            else:
                self.messages.append(message)
        return result

    def _largest(self) -> int:
        """An upper bound on every count and weight that may turn up."""
        largest = 1
        for i, domain in enumerate(self.model.domains):
            size = len(domain)
            for link in self.model.links:
                if link.child == i:
                    sizes: dict[Any, int] = {}
                    for value in domain:
                        key = link.key_of[value]
                        sizes[key] = sizes.get(key, 0) + 1
                    size = min(size, max(sizes.values(), default=0))
            largest *= max(size, 1)
        for message in self.weights:
            largest *= max(message.table.values(), default=1)
        return largest

    def _large_terms(self) -> list[tuple[int, Term]]:
        linear = self.ring.linear
        if linear is None:
            return []
        return [(i, term) for i, term in enumerate(linear.terms) if len(term.scope) > 1]

    def _neighbours(self, x: int) -> set[int]:
        found: set[int] = set()
        scopes = [item.scope for item in self.tests]
        scopes += [item.scope for item in self.messages]
        scopes += [term.scope for _, term in self.terms]
        for scope in scopes:
            if x in scope:
                found.update(scope)
        for link in self.links:
            if x in (link.child, link.parent):
                found.update((link.child, link.parent))
        return found - {x}

    def _cost(self, x: int) -> float:
        """Assignments that eliminating ``x`` would visit, links taken into account."""
        scope = self._neighbours(x) | {x}
        cost = 1.0
        for i in scope:
            size = len(self.groups[i])
            for at, link in enumerate(self.model.links):
                if link.child == i and link.parent in scope:
                    size = min(size, max(map(len, self.by_link[at].values()), default=0))
            cost *= size
        return cost

    def _grouped(self, x: int) -> list[_Group]:
        """The values of ``x`` in groups that no constraint of two or more variables tells apart."""
        model, ring = self.model, self.ring
        keys = _signatures(model, x, [*self.tests, *(term for _, term in self.terms)])
        tabled = {j: i for m in self.messages if x in m.scope for i, j in enumerate(m.scope)}
        own = [] if ring.linear is None else list(enumerate(ring.linear.terms))
        own = [(i, term) for i, term in own if term.scope == (x,)]
        groups: dict[Any, _Group] = {}
        for value in model.domains[x]:
            model.frame.slots[x] = value
            poly = 1
            for i, term in own:
                poly = ring.times(poly, ring.power(i, term.run(model.frame)))
            key = value if x in tabled else tuple(run(model.frame) for run in keys)
            links = tuple(link.key_of[value] for link in model.links if link.child == x)
            if any(link.parent == x for link in model.links):
                links = (*links, value)
            if poly:
                group = groups.setdefault((key, links), _Group(value, 0, []))
                group.poly = ring.add(group.poly, poly)
                group.members.append((value, poly))
        return list(groups.values())

    def _indexed(self, link: Link) -> dict[Any, list[_Group]]:
        index: dict[Any, list[_Group]] = {}
        for group in self.groups[link.child]:
            index.setdefault(link.key_of[group.value], []).append(group)
        return index

    def _eliminate(self, x: int) -> _Message:
        """Sum ``x`` out: everything that mentions it becomes one message over its neighbours."""
        scope = tuple(sorted(self._neighbours(x)))
        self._merge_messages(x)
        walk = _Walk(self, scope, x)
        if self._cost(x) > 50 * self.max_steps:
            raise TooHardError("an elimination is too large")
        walk.descend(0, 1)
        self.buckets.append(walk)
        self.tests = [t for t in self.tests if x not in t.scope]
        self.terms = [(i, t) for i, t in self.terms if x not in t.scope]
        self.messages = [m for m in self.messages if x not in m.scope]
        self.links = [link for link in self.links if x not in (link.child, link.parent)]
        return _Message(scope, walk.table)

    def _merge_messages(self, x: int) -> None:
        """Multiply messages of equal scope once, not at every visit."""
        by_scope: dict[tuple[int, ...], _Message] = {}
        rest = [message for message in self.messages if x not in message.scope]
        for message in self.messages:
            if x not in message.scope:
                continue
            other = by_scope.get(message.scope)
            if other is None:
                by_scope[message.scope] = message
                continue
            table = {
                key: self.ring.times(poly, other.table[key])
                for key, poly in message.table.items()
                if key in other.table
            }
            by_scope[message.scope] = _Message(message.scope, table)
        self.messages = [*rest, *by_scope.values()]


class _Walk:
    """Visits the assignments of a bucket: neighbours first (parents before children), ``x`` last."""

    def __init__(self, owner: Eliminator, scope: tuple[int, ...], x: int) -> None:
        self.owner, self.scope, self.x = owner, scope, x
        self.frame = owner.model.frame
        self.table: dict[tuple[Any, ...], int] = {}
        self.order = _parents_first(scope, owner.links)
        self.order.append(x)
        depth_of = {i: depth for depth, i in enumerate(self.order)}
        inside = set(self.order)
        depths = range(len(self.order))
        self.tests: list[list[Closure]] = [[] for _ in depths]
        self.messages: list[list[_Message]] = [[] for _ in depths]
        self.terms: list[list[tuple[int, Closure]]] = [[] for _ in depths]
        self.links: list[list[tuple[int, int, dict[Any, Any]]]] = [[] for _ in depths]
        for test in owner.tests:
            if inside.issuperset(test.scope):
                self.tests[max(depth_of[i] for i in test.scope)].append(test.run)
        for message in owner.messages:
            if x in message.scope:
                self.messages[max(depth_of[i] for i in message.scope)].append(message)
        for i, term in owner.terms:
            if x in term.scope:
                self.terms[max(depth_of[j] for j in term.scope)].append((i, term.run))
        for link in owner.model.links:
            if link.child in inside and link.parent in inside:
                depth = max(depth_of[link.child], depth_of[link.parent])
                self.links[depth].append((link.child, link.parent, link.key_of))
        self.index = [self._index_for(depth, i) for depth, i in enumerate(self.order)]

    def _index_for(self, depth: int, i: int) -> tuple[int, dict[Any, list[_Group]]] | None:
        for at, link in enumerate(self.owner.model.links):
            if link.child == i and link.parent in self.order[:depth]:
                return link.parent, self.owner.by_link[at]
        return None

    def candidates(self, depth: int) -> list[_Group]:
        """The groups of the variable at ``depth`` that its links to assigned variables leave."""
        found = self.index[depth]
        if found is None:
            return self.owner.groups[self.order[depth]]
        return found[1].get(self.frame.slots[found[0]], [])

    def descend(self, depth: int, poly: int) -> int:
        """Visit the rest below ``depth``; the sum over ``x`` is stored when the scope is complete."""
        owner, slots, i = self.owner, self.frame.slots, self.order[depth]
        last = depth == len(self.order) - 1
        total = 0
        groups = self.candidates(depth)
        owner.steps += len(groups)
        if owner.steps > owner.max_steps:
            raise TooHardError(f"more than {owner.max_steps} steps")
        for group in groups:
            slots[i] = group.value
            value = self.factor(depth, group.poly if last else 1)
            if not value:
                continue
            if last:
                total = owner.ring.add(total, value)
            else:
                self.descend(depth + 1, owner.ring.times(poly, value))
        if last and total:
            key = tuple(slots[j] for j in self.scope)
            self.table[key] = owner.ring.times(poly, total)
        return total

    def factor(self, depth: int, value: int) -> int:
        """``value`` times all that is decided at ``depth``; 0 where something doesn't hold."""
        slots, times = self.frame.slots, self.owner.ring.times
        for child, parent, key_of in self.links[depth]:
            if key_of.get(slots[child]) != slots[parent]:
                return 0
        for run in self.tests[depth]:
            if run(self.frame) is not True:
                return 0
        for message in self.messages[depth]:
            factor = message.table.get(tuple([slots[j] for j in message.scope]), 0)
            if not factor:
                return 0
            value = times(value, factor)
        for i, run in self.terms[depth]:
            value = times(value, self.owner.ring.power(i, run(self.frame)))
        return value


def _parents_first(scope: tuple[int, ...], links: list[Link]) -> list[int]:
    parents = {link.parent for link in links}
    return sorted(scope, key=lambda i: (i not in parents, i))


def _signatures(model: Model, x: int, items: list[Any]) -> list[Closure]:
    """Closures of the largest parts of ``items`` that read ``x`` alone."""
    name = model.p.slots[x].name
    parts: dict[Node, None] = {}
    for item in items:
        if x in item.scope:
            parts |= dict.fromkeys(atoms(item.expr, name))
    return [model.compiler.compile(part) for part in parts]


def atoms(expr: Node, slot: str) -> Iterator[Node]:
    """The largest closed sub-expressions of ``expr`` that read ``slot`` and no other slot."""
    names = slots_of(expr)
    if slot not in names:
        return
    if len(names) == 1 and not free_names(expr):
        yield expr
    elif isinstance(expr, ir.SlotRef):
        yield ir.SlotRef(slot=slot)
    else:
        for child in expr.children():
            yield from atoms(child, slot)


@dataclass(frozen=True)
class DrawWeights:
    """Weights that turn a count into the chance of drawing slot by slot; see ``draw_weights``."""

    messages: list[_Message]
    scale: int
    """Sum of all weights over the whole space."""


def draw_weights(model: Model, space: Model) -> DrawWeights:
    """Weight of an answer = its chance when each slot is drawn uniformly given earlier ones, times scale.

    ``space`` is the bare conditioned model. Slots whose number of values never varies weigh nothing.
    """
    messages: list[_Message] = []
    scale = 1
    children = {link.child for link in space.links}
    for x, domain in enumerate(space.domains):
        links = [link for link in space.links if link.child == x]
        if x not in children:
            scale *= len(domain)
            continue
        sizes: dict[tuple[Any, ...], int] = {}
        for value in domain:
            key = tuple(link.key_of[value] for link in links)
            sizes[key] = sizes.get(key, 0) + 1
        common = lcm(*sizes.values())
        scale *= common
        if len(set(sizes.values())) > 1:
            scope = tuple(link.parent for link in links)
            messages.append(_Message(scope, {k: common // n for k, n in sizes.items()}))
    return DrawWeights(messages, scale)
