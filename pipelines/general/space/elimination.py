"""Exact counting by variable elimination: a factor graph whose messages are polynomials.

Values of a variable that no remaining constraint can tell apart are counted together. A linear
constraint rides along as an exponent: the message ``{a: 3 x^0 + 2 x^50}`` says that three completions
cost 0 and two cost 50.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import reduce
from math import gcd, lcm
from typing import Any, NamedTuple

from envgen.core import ir
from envgen.core.ir import Node
from envgen.pipelines.general.semantics.evaluator import Closure
from envgen.pipelines.general.semantics.rewrite import free_names, slots_of
from envgen.pipelines.general.space.model import Linear, Link, Model, SlotPart, TooHardError

MAX_STEPS = 400_000
MAX_LANES = 50_000


# --- the rings that elimination computes in --------------------------------------------------


class Ring:
    """Polynomials in one variable, cut at ``slack``; plain ints where no linear constraint binds.

    A polynomial is one big integer with ``width`` bits for each coefficient (Kronecker substitution),
    because then the interpreter's long multiplication is the convolution: dictionaries of coefficients
    would multiply in bytecode. No lane runs over into the next, since ``largest`` bounds every
    coefficient. Exponents are in units of the terms' common divisor, above each term's minimum, which
    keeps the lanes few: prices in steps of 50 need one for every 50.
    """

    def __init__(self, model: Model, largest: int) -> None:
        self.linear: Linear | None = None
        self.minimum: dict[int, int] = {}
        self.unit, self.slack, self.width, self.mask = 1, 0, 0, 0
        self.possible = True
        if len(model.linears) > 1:
            raise TooHardError("more than one linear constraint")
        if model.linears:
            self._measure(model, model.linears[0])
        if self.linear is not None:
            self.width = largest.bit_length() + 1
            self.mask = (1 << (self.width * (self.slack + 1))) - 1

    def _measure(self, model: Model, linear: Linear) -> None:
        low = high = divisor = 0
        for i, term in enumerate(linear.terms):
            if model.size(term.scope) > MAX_STEPS:
                raise TooHardError("a term with too many values")
            values = {value for _, value in model.table(term) if value is not None}
            if not values:
                self.possible = False
                return
            self.minimum[i] = min(values)
            low, high = low + min(values), high + max(values)
            divisor = reduce(gcd, (value - min(values) for value in values), divisor)
        if linear.bound >= high and not linear.exact:
            return  # never binds
        self.unit = divisor or 1
        room = linear.bound - low
        self.possible = room >= 0 and (not linear.exact or room % self.unit == 0)
        self.slack = max(room, 0) // self.unit
        if self.slack > MAX_LANES:
            raise TooHardError(f"{self.slack} lanes")
        self.linear = linear

    def power(self, term: int, value: int) -> int:
        """The monomial of one term's value; 0 beyond the bound."""
        exponent = (value - self.minimum[term]) // self.unit
        return 1 << (exponent * self.width) if exponent <= self.slack else 0

    def add(self, a: int, b: int) -> int:
        """The sum of two polynomials."""
        return a + b

    def times(self, a: int, b: int) -> int:
        """The product of two polynomials, cut at the bound."""
        if self.linear is None or a == 1 or b == 1 or not a or not b:
            return a * b
        low_a, low_b = self._lowest(a), self._lowest(b)
        room = self.slack - low_a - low_b
        if room < 0:
            return 0
        # Common factors x^k are put back by a shift, and lanes that would pass the bound take no part:
        # most factors are monomials far up, and multiplying their zeros would be most of the work.
        width, mask = self.width, self.mask >> ((self.slack - room) * self.width)
        product = ((a >> (low_a * width)) & mask) * ((b >> (low_b * width)) & mask) & mask
        return product << ((low_a + low_b) * width)

    def _lowest(self, poly: int) -> int:
        """The smallest exponent; ``poly & -poly`` is its lowest bit."""
        return ((poly & -poly).bit_length() - 1) // self.width

    def total(self, poly: int) -> int:
        """How many completions keep the constraint."""
        if self.linear is None:
            return poly
        lane = (1 << self.width) - 1
        if self.linear.exact:
            return (poly >> (self.width * self.slack)) & lane
        return sum((poly >> shift) & lane for shift in range(0, poly.bit_length(), self.width))

    def rank(self, poly: int, n: int) -> int:
        """The exponent of the n-th completion, the smallest exponents first."""
        lane, exponent = (1 << self.width) - 1, 0
        while n > (poly & lane):
            n, poly, exponent = n - (poly & lane), poly >> self.width, exponent + 1
        return exponent


class Cheapest(Ring):
    """Instead of counts the least exponent: 1 + exponent, 0 where there is no completion."""

    def power(self, term: int, value: int) -> int:
        """One term's value."""
        exponent = (value - self.minimum[term]) // self.unit
        return exponent + 1 if exponent <= self.slack else 0

    def add(self, a: int, b: int) -> int:
        """The smaller one."""
        return min(a, b) if a and b else a or b

    def times(self, a: int, b: int) -> int:
        """The sum of exponents, cut at the bound."""
        return a + b - 1 if a and b and a + b - 2 <= self.slack else 0


# --- elimination -----------------------------------------------------------------------------


class Factor(NamedTuple):
    """A polynomial for each assignment of ``scope`` (0 where absent)."""

    scope: tuple[int, ...]
    table: dict[tuple[Any, ...], int]


class _Group:
    """Values that behave alike: one of them, the polynomial of all, and each with its own."""

    __slots__ = ("members", "poly", "value")

    def __init__(self, value: Any) -> None:
        self.value, self.poly = value, 0
        self.members: list[tuple[Any, int]] = []


class Eliminator:
    """Counts the solutions of a model, weighting each by the product of ``weights``."""

    def __init__(
        self,
        model: Model,
        max_steps: int = MAX_STEPS,
        weights: tuple[Factor, ...] = (),
        ring_type: type[Ring] = Ring,
    ) -> None:
        self.model, self.weights, self.ring_type = model, weights, ring_type
        self.steps, self.max_steps = 0, max_steps
        self.buckets: list[_Bucket] = []
        """What was eliminated, in order."""

    def count(self) -> int:
        """The number (or total weight) of assignments that keep every constraint.

        Raises:
            TooHardError: when it would take more than ``max_steps`` steps.
        """
        return self.ring.total(result) if (result := self.run()) else 0

    def run(self) -> int:
        """Eliminate every variable; the polynomial of the whole."""
        model = self.model
        if not model.feasible:
            return 0
        self.ring = self.ring_type(model, self._largest())
        if not self.ring.possible:
            return 0
        self.tests, self.links, self.messages = (
            [*model.constraints],
            [*model.links],
            [*self.weights],
        )
        summands = [] if self.ring.linear is None else list(enumerate(self.ring.linear.terms))
        self.terms = [(i, term) for i, term in summands if len(term.scope) > 1]
        own = [(i, term) for i, term in summands if len(term.scope) == 1]
        self.groups = [self._grouped(x, own) for x in range(len(model.domains))]
        self.by_link = [self._indexed(link) for link in model.links]
        left, result = set(range(len(model.domains))), 1
        while left:
            # Children first: while its parent is there, a child has only the few values below it.
            parents = {link.parent for link in self.links}
            x = min(left, key=lambda i: (i in parents, self._cost(i), i))
            left.remove(x)
            message = self._eliminate(x)
            if message.scope:
                self.messages.append(message)
                continue
            result = self.ring.times(result, message.table.get((), 0))
            if not result:
                return 0
        return result

    def _largest(self) -> int:
        """An upper bound on every count and weight that may turn up."""
        largest = 1
        for i, domain in enumerate(self.model.domains):
            sizes = [len(domain)]
            for link in self.model.links:
                if link.child == i:
                    children = Counter(link.key_of[value] for value in domain)
                    sizes.append(max(children.values(), default=0))
            largest *= max(min(sizes), 1)
        for message in self.weights:
            largest *= max(message.table.values(), default=1)
        return largest

    def _neighbours(self, x: int) -> set[int]:
        """The other variables of all that mentions ``x``."""
        scopes = [test.scope for test in self.tests] + [m.scope for m in self.messages]
        scopes += [term.scope for _, term in self.terms]
        scopes += [(link.child, link.parent) for link in self.links]
        return {i for scope in scopes if x in scope for i in scope} - {x}

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

    def _grouped(self, x: int, own: list[tuple[int, SlotPart]]) -> list[_Group]:
        """The values of ``x`` in groups that no constraint of two or more variables tells apart.

        Two hotels of one city and tier count the same in every rule but the budget, and there the
        group's polynomial holds the price of each: the walk visits groups, not hotels.
        """
        model, ring = self.model, self.ring
        keys = _signatures(model, x, [*self.tests, *(term for _, term in self.terms)])
        alone = any(x in message.scope for message in self.messages)  # tables are by value
        alone = alone or any(link.parent == x for link in model.links)
        groups: dict[Any, _Group] = {}
        for value in model.domains[x]:
            model.frame.slots[x] = value
            poly = 1
            for i, term in own:
                if term.scope == (x,):
                    poly = ring.times(poly, ring.power(i, term.run(model.frame)))
            if poly:
                links = tuple(link.key_of[value] for link in model.links if link.child == x)
                key = value if alone else tuple(run(model.frame) for run in keys)
                group = groups.setdefault((key, links), _Group(value))
                group.poly = ring.add(group.poly, poly)
                group.members.append((value, poly))
        return list(groups.values())

    def _indexed(self, link: Link) -> dict[Any, list[_Group]]:
        index: dict[Any, list[_Group]] = {}
        for group in self.groups[link.child]:
            index.setdefault(link.key_of[group.value], []).append(group)
        return index

    def _eliminate(self, x: int) -> Factor:
        """Sum ``x`` out: everything that mentions it becomes one message over its neighbours."""
        scope = tuple(sorted(self._neighbours(x)))
        self._merge_messages(x)
        bucket = _Bucket(self, scope, x)
        if self._cost(x) > 50 * self.max_steps:
            raise TooHardError("an elimination is too large")
        bucket.descend(0, 1)
        self.buckets.append(bucket)
        self.tests = [t for t in self.tests if x not in t.scope]
        self.terms = [(i, t) for i, t in self.terms if x not in t.scope]
        self.messages = [m for m in self.messages if x not in m.scope]
        self.links = [link for link in self.links if x not in (link.child, link.parent)]
        return Factor(scope, bucket.table)

    def _merge_messages(self, x: int) -> None:
        """Multiply messages of equal scope once, not at every visit."""
        by_scope: dict[tuple[int, ...], Factor] = {}
        for message in self.messages:
            if x not in message.scope:
                continue
            other = by_scope.get(message.scope)
            if other is not None:
                times, both = self.ring.times, [k for k in message.table if k in other.table]
                table = {k: times(message.table[k], other.table[k]) for k in both}
                message = Factor(message.scope, table)
            by_scope[message.scope] = message
        self.messages = [*(m for m in self.messages if x not in m.scope), *by_scope.values()]


class _Bucket:
    """Visits the assignments of an elimination: neighbours first (parents before children), ``x`` last.

    What all depends on the variables up to some depth is tested there, so that most assignments are
    never completed.
    """

    def __init__(self, owner: Eliminator, scope: tuple[int, ...], x: int) -> None:
        self.owner, self.scope, self.x = owner, scope, x
        self.frame = owner.model.frame
        self.table: dict[tuple[Any, ...], int] = {}
        parents = {link.parent for link in owner.links}
        self.order = [*sorted(scope, key=lambda i: (i not in parents, i)), x]
        self.tests: list[list[Closure]] = [[] for _ in self.order]
        self.messages: list[list[Factor]] = [[] for _ in self.order]
        self.terms: list[list[tuple[int, Closure]]] = [[] for _ in self.order]
        self.links: list[list[tuple[int, int, dict[Any, Any]]]] = [[] for _ in self.order]
        inside = set(self.order)
        for test in owner.tests:
            if inside.issuperset(test.scope):
                self.tests[self._depth(test.scope)].append(test.run)
        for message in owner.messages:
            if x in message.scope:
                self.messages[self._depth(message.scope)].append(message)
        for i, term in owner.terms:
            if x in term.scope:
                self.terms[self._depth(term.scope)].append((i, term.run))
        for link in owner.model.links:
            if inside.issuperset((link.child, link.parent)):
                depth = self._depth((link.child, link.parent))
                self.links[depth].append((link.child, link.parent, link.key_of))
        self.index = [self._index_for(depth, i) for depth, i in enumerate(self.order)]

    def _depth(self, scope: tuple[int, ...]) -> int:
        """Where all of ``scope`` is assigned."""
        return max(self.order.index(i) for i in scope)

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


def _signatures(model: Model, x: int, items: list[SlotPart]) -> list[Closure]:
    """Closures of the largest parts of ``items`` that read ``x`` alone: what a rule can see of ``x``."""
    name = model.p.slots[x].name
    found = dict.fromkeys(e for item in items if x in item.scope for e in _atoms(item.expr, name))
    return [model.compiler.compile(expr) for expr in found]


def _atoms(expr: Node, slot: str) -> Iterator[Node]:
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
            yield from _atoms(child, slot)


def nth_least(model: Model, n: int, max_steps: int = MAX_STEPS) -> int | None:
    """The n-th least value, ties counted, of the one linear sum over the solutions of all else.

    None if there are fewer solutions, or if it is the largest sum that the terms allow: such a bound would
    keep no solution out.

    Raises:
        TooHardError: when an elimination would take more than ``max_steps`` steps.
    """
    if not model.feasible:
        return None
    if len(model.linears) != 1:
        raise TooHardError("more than one linear constraint, or none")
    linear = model.linears[0]
    if any(model.size(term.scope) > MAX_STEPS for term in linear.terms):
        raise TooHardError("a term with too many values")
    known = [[v for _, v in model.table(term) if v is not None] for term in linear.terms]
    if not all(known):
        return None
    linear.bound = sum(map(max, known)) - 1
    least = Eliminator(model, max_steps, ring_type=Cheapest)
    found = least.run()
    if not found:
        return None
    ring, most = least.ring, linear.bound
    width = found  # the sum that is read off grows until it holds n solutions
    while True:
        low = sum(ring.minimum.values())
        linear.bound = min(low + width * ring.unit, most)
        counter = Eliminator(model, max_steps)
        poly = counter.run()
        if counter.ring.total(poly) >= n:
            return low + counter.ring.unit * counter.ring.rank(poly, n)
        if linear.bound == most:
            return None
        width *= 2


class DrawWeights(NamedTuple):
    """Weights that turn a count into the chance of drawing slot by slot; see ``draw_weights``."""

    messages: tuple[Factor, ...]
    scale: int
    """Sum of all weights over the whole space."""


def draw_weights(space: Model) -> DrawWeights:
    """Weight of an answer = its chance when each slot is drawn uniformly given earlier ones, times scale.

    ``space`` is the bare conditioned model. Slots whose number of values never varies weigh nothing;
    the others weigh in units of 1 / lcm, so that every weight is an int and the count stays exact.
    """
    messages, scale = [], 1
    for x, domain in enumerate(space.domains):
        links = [link for link in space.links if link.child == x]
        sizes = Counter(tuple(link.key_of[value] for link in links) for value in domain)
        common = lcm(*sizes.values())
        scale *= common
        if len(set(sizes.values())) > 1:
            scope = tuple(link.parent for link in links)
            messages.append(Factor(scope, {key: common // n for key, n in sizes.items()}))
    return DrawWeights(tuple(messages), scale)


def space_size(space: Model) -> int:
    """Number of answers in a bare model (one without clauses)."""
    return Eliminator(space, 10**7).count()
