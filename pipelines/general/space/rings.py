"""What elimination adds and multiplies: polynomials in packed integers, or least exponents."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from itertools import product
from math import gcd

from envgen.pipelines.general.space.model import Linear, Model, Term

MAX_STEPS = 400_000
MAX_LANES = 50_000


class TooHardError(ValueError):
    """Raised when elimination would take more steps than allowed."""


class Ring:
    """Polynomials in one variable, cut at ``slack``, packed in ints; plain ints without a constraint.

    Exponents are in units of the terms' common divisor, above each term's minimum.
    """

    def __init__(self, model: Model, largest: int) -> None:
        self.linear: Linear | None = None
        self.minimum: dict[int, int] = {}
        self.unit = 1
        self.slack = 0
        self.width = 0
        self.mask = 0
        self.possible = True
        if len(model.linears) > 1:
            raise TooHardError("more than one linear constraint")
        if model.linears:
            self._measure(model, model.linears[0])
        if self.linear is not None:
            self.width = largest.bit_length() + 1
            self.mask = (1 << (self.width * (self.slack + 1))) - 1

    def _measure(self, model: Model, linear: Linear) -> None:
        low = high = 0
        divisor = 0
        for i, term in enumerate(linear.terms):
            values = set(_term_values(model, term))
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
        """Sum."""
        return a + b

    def times(self, a: int, b: int) -> int:
        """Product, cut at the bound."""
        if self.linear is None or a == 1 or b == 1 or not a or not b:
            return a * b
        low_a, low_b = self._lowest(a), self._lowest(b)
        room = self.slack - low_a - low_b
        if room < 0:
            return 0
        width, mask = self.width, self.mask >> ((self.slack - room) * self.width)
        # only what stays within the bound takes part
        product = ((a >> (low_a * width)) & mask) * ((b >> (low_b * width)) & mask) & mask
        return product << ((low_a + low_b) * width)

    def _lowest(self, poly: int) -> int:
        """The smallest exponent."""
        return ((poly & -poly).bit_length() - 1) // self.width

    def total(self, poly: int) -> int:
        """How many completions keep the constraint."""
        if self.linear is None:
            return poly
        lane = (1 << self.width) - 1
        if self.linear.exact:
            return (poly >> (self.width * self.slack)) & lane
        result = 0
        while poly:
            result += poly & lane
            poly >>= self.width
        return result


def _term_values(model: Model, term: Term) -> Iterator[int]:
    slots = model.frame.slots
    size = 1
    for i in term.scope:
        size *= len(model.domains[i])
    if size > MAX_STEPS:
        raise TooHardError("a term with too many values")
    for values in product(*(model.domains[i] for i in term.scope)):
        for i, value in zip(term.scope, values, strict=True):
            slots[i] = value
        value = term.run(model.frame)
        if value is not None:
            yield value


class Cheapest(Ring):
    """In place of counts the least exponent: 1 + exponent, 0 where there is no completion."""

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
