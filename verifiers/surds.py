"""Exact numbers: fractions and roots of them, with limits before anything is computed.

Whether a number made with roots is zero is decided by the root bound of Burnikel, Fleischer, Mehlhorn and
Schirra (BFMSS, 2001): what is not zero is at least as large as a bound, to which it is computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction

from envgen.core.seeding import rng
from envgen.verifiers.formulas import LISTS, Formula, NoAnswerError, UndefinedError

MAX_BITS = 10_000
"""Of a number's numerator and denominator."""
MAX_PRECISION = 20_000
"""Bits after the point to which roots are computed: an equality that would take more is refused."""
MAX_WORK = 3_000_000
"""Bits of all numbers that one comparison may compute."""
MAX_FACTORIAL, MAX_ROOT, OVERHEAD = 1_100, 6, 200
ENOUGH_POINTS = 4
"""Points at which two expressions must be defined, and agree."""


@dataclass(frozen=True, slots=True, eq=False)
class Surd:
    """A number made with roots: an operation on numbers that came before it.

    It is a quotient of algebraic integers, whose conjugates are at most 2**above and 2**below.
    """

    index: int
    op: str
    parts: tuple[Fraction | Surd, ...]
    order: int
    above: int
    below: int
    roots: frozenset[tuple[int, int]]
    """Of all roots in it: index and order. Its degree is at most the product of the orders."""


Exact = Fraction | Surd


def _log(number: int) -> int:
    return (abs(number) - 1).bit_length() if number else 0


def _above(x: Exact) -> int:
    return x.above if isinstance(x, Surd) else _log(x.numerator)


def _below(x: Exact) -> int:
    return x.below if isinstance(x, Surd) else _log(x.denominator)


def _key(x: Exact) -> Fraction | str:
    return f"#{x.index}" if isinstance(x, Surd) else x


def _whole_root(number: int, order: int) -> int:
    """The root of a whole number, rounded down."""
    if order == 2 or number < 2:
        return math.isqrt(number)
    x = 1 << -(-number.bit_length() // order)
    while (y := ((order - 1) * x + number // x ** (order - 1)) // order) < x:
        x = y
    return x


class _UnseenError(ArithmeticError):
    """A divisor's bounds have zero between them."""


class ExactArithmetic:
    """Computes with fractions and roots for one comparison, and stops where that would take too long."""

    def __init__(self) -> None:
        self._left = MAX_WORK
        self._surds: dict[tuple[object, ...], Surd] = {}
        self._near: dict[int, tuple[int, int]] = {}

    def _spend(self, bits: int) -> None:
        self._left -= bits + OVERHEAD
        if self._left < 0:
            raise NoAnswerError("it takes too long")

    def _fraction(self, compute: Callable[[], Fraction], bits: int) -> Fraction:
        self._spend(bits)
        if bits > 2 * MAX_BITS:
            raise NoAnswerError("a number is too large")
        return compute()

    def _surd(
        self, op: str, parts: tuple[Exact, ...], above: int, below: int, order: int = 1
    ) -> Surd:
        key = (op, order, *map(_key, parts))
        if key not in self._surds:
            self._spend(200)
            index = len(self._surds)
            roots = {pair for part in parts if isinstance(part, Surd) for pair in part.roots}
            roots |= {(index, order)} if op == "root" else set()
            self._surds[key] = Surd(index, op, parts, order, above, below, frozenset(roots))
        return self._surds[key]

    def add(self, x: Exact, y: Exact) -> Exact:
        """The sum."""
        if isinstance(x, Fraction) and isinstance(y, Fraction):
            return self._fraction(lambda: x + y, max(_above(x) + _below(y), _above(y) + _below(x)))
        if x == 0 or y == 0:
            return y if x == 0 else x
        above = max(_above(x) + _below(y), _above(y) + _below(x)) + 1
        return self._surd("+", (x, y), above, _below(x) + _below(y))

    def multiply(self, x: Exact, y: Exact) -> Exact:
        """The product."""
        above, below = _above(x) + _above(y), _below(x) + _below(y)
        if isinstance(x, Fraction) and isinstance(y, Fraction):
            return self._fraction(lambda: x * y, max(above, below))
        if x in (0, 1) or y in (0, 1):
            return x if x == 0 or y == 1 else y
        return self._surd("*", (x, y), above, below)

    def invert(self, x: Exact) -> Exact:
        """1 / x."""
        if self.sign(x) == 0:
            raise UndefinedError("division by zero")
        return 1 / x if isinstance(x, Fraction) else self._surd("inv", (x,), x.below, x.above)

    def power(self, x: Exact, exponent: Exact) -> Exact:
        """A power: to a whole number, or to a fraction whose denominator is small."""
        if isinstance(exponent, Surd):
            raise NoAnswerError("an exponent is no fraction")
        if exponent.denominator > 1:
            if exponent.denominator > MAX_ROOT or self.sign(x) < 0:
                raise UndefinedError("a power that is no root, or of a negative number")
            x = self.root(x, exponent.denominator)
        times = abs(exponent.numerator)
        if exponent <= 0 and self.sign(x) == 0:
            raise UndefinedError("zero to zero or less")
        if x in (0, 1, -1):
            return x if times % 2 or x == 0 else Fraction(1)
        if times * max(_above(x), _below(x), 1) > MAX_BITS:
            raise NoAnswerError("a power is too large")
        found: Exact = Fraction(1)
        for bit in f"{times:b}":
            found = self.multiply(found, found)
            found = self.multiply(found, x) if bit == "1" else found
        return self.invert(found) if exponent < 0 else found

    def root(self, x: Exact, order: int) -> Exact:
        """The real root: none of a negative number, if the order is even."""
        sign = self.sign(x)
        if sign < 0 and order % 2 == 0:
            raise UndefinedError("a root of a negative number")
        if sign <= 0:
            minus = Fraction(sign)
            return (
                self.multiply(minus, self.root(self.multiply(minus, x), order)) if sign else minus
            )
        if isinstance(x, Fraction):
            self._spend(order * (_above(x) + _below(x)))
            above, below = _whole_root(x.numerator, order), _whole_root(x.denominator, order)
            if above**order == x.numerator and below**order == x.denominator:
                return Fraction(above, below)
        bound = -(-(_above(x) + (order - 1) * _below(x)) // order)
        return self._surd("root", (x,), bound, _below(x), order)

    def factorial(self, x: Exact) -> Exact:
        """The factorial."""
        if isinstance(x, Surd) or x.denominator > 1 or x < 0:
            raise UndefinedError("a factorial of no whole number")
        if x > MAX_FACTORIAL:
            raise NoAnswerError("a factorial is too large")
        self._spend(MAX_BITS)
        return Fraction(math.factorial(int(x)))

    def sign(self, x: Exact) -> int:
        """-1, 0 or 1; zero is proven: what is not zero is at least 2 to the -bound."""
        if isinstance(x, Fraction):
            return (x > 0) - (x < 0)
        bound = (math.prod(order for _, order in x.roots) - 1) * x.above + x.below
        precision = 64
        while precision <= MAX_PRECISION:
            with suppress(_UnseenError):
                low, high = self._enclose(x, precision)
                if low > 0 or high < 0:
                    return 1 if low > 0 else -1
                if precision > bound and max(-low, high) < 1 << (precision - bound):
                    return 0
            precision = 4 * precision if 4 * precision < bound else max(bound + 64, 2 * precision)
        raise NoAnswerError("it takes too long")

    def equal(self, x: Exact, y: Exact) -> bool:
        """Whether two numbers are equal; quick where they are far from each other."""
        if x is y or (isinstance(x, Fraction) and isinstance(y, Fraction)):
            return x == y
        self._spend(50 - OVERHEAD)
        with suppress(_UnseenError):
            (low, high), (its_low, its_high) = self._ends(x), self._ends(y)
            if high < its_low or its_high < low:
                return False
        return self.sign(self.add(x, self.multiply(Fraction(-1), y))) == 0

    def _ends(self, x: Exact) -> tuple[int, int]:
        if isinstance(x, Fraction):
            return _enclosed(x, 64)
        if x.index not in self._near:
            self._near[x.index] = self._enclose(x, 64)
        return self._near[x.index]

    def _enclose(self, x: Surd, precision: int) -> tuple[int, int]:
        """Bounds of x, times 2 to the precision."""
        wanted, found = {x.index: x}, dict[int, tuple[int, int]]()
        todo = [x]
        while todo:
            for part in todo.pop().parts:
                if isinstance(part, Surd) and part.index not in wanted:
                    wanted[part.index] = part
                    todo.append(part)
        for index in sorted(wanted):
            surd = wanted[index]
            self._spend(precision * (1 if surd.order < 3 else 4 * surd.order))
            ends = [
                found[part.index] if isinstance(part, Surd) else _enclosed(part, precision)
                for part in surd.parts
            ]
            found[index] = _apply(surd, ends, precision)
        return found[x.index]


def _enclosed(x: Fraction, precision: int) -> tuple[int, int]:
    above, below = x.numerator << precision, x.denominator
    return above // below, -(-above // below)


def _apply(surd: Surd, ends: list[tuple[int, int]], precision: int) -> tuple[int, int]:
    """Bounds of what an operation gives, from bounds of its parts."""
    low, high = ends[0]
    if surd.op == "+":
        return low + ends[1][0], high + ends[1][1]
    if surd.op == "*":
        products = [a * b for a in ends[0] for b in ends[1]]
        return min(products) >> precision, -(-max(products) >> precision)
    if surd.op == "inv":
        if low <= 0 <= high:
            raise _UnseenError("it is not zero, which is not seen at this precision")
        return (1 << 2 * precision) // high, -((-1 << 2 * precision) // low)
    shift = precision * (surd.order - 1)
    root = _whole_root(max(low, 0) << shift, surd.order)
    return root, _whole_root(max(high, 0) << shift, surd.order) + 1


class FormulaComparison:
    """Values of formulas, and whether these are equal.

    Args:
        variables: names that stand for any number.
        texts: what is compared: points follow from it.
    """

    def __init__(self, variables: tuple[str, ...], *texts: str) -> None:
        self._numbers = ExactArithmetic()
        self._variables, self._texts = variables, texts
        self._constants: dict[int, tuple[Formula, Exact]] = {}

    def value(self, formula: Formula, point: Mapping[str, Fraction]) -> Exact:
        """The value at a point.

        Raises:
            ValueError: if there is none, or a limit is reached.
        """
        numbers, op = self._numbers, formula.op
        if op == "number":
            return formula.number
        if op == "name" and formula.name in point:
            return point[formula.name]
        if op in ("name", "tuple", "list"):
            raise NoAnswerError("a list is no number")
        values = [self.value(part, point) for part in formula.parts]
        found = values[0]
        if op == "neg":
            return numbers.multiply(Fraction(-1), found)
        if op == "inv":
            return numbers.invert(found)
        if op == "!":
            return numbers.factorial(found)
        if op == "root":
            return numbers.root(found, int(formula.number))
        if op == "^":
            return numbers.power(found, values[1])
        for value in values[1:]:
            found = numbers.add(found, value) if op == "+" else numbers.multiply(found, value)
        return found

    def constant(self, formula: Formula) -> Exact:
        """The value of a formula without variables, with pi and e near theirs."""
        return self.value(formula, self._point(0, whole=False, variables=False))

    def fraction(self, formula: Formula) -> Fraction | None:
        """The value of a formula without names, if it is a fraction and no list."""
        if formula.op in LISTS or formula.names():
            return None
        value = self._constant(formula)
        return value if isinstance(value, Fraction) else None

    def compare(self, x: Formula, y: Formula) -> int:
        """-1, 0 or 1: how two constants are ordered."""
        minus = self._numbers.multiply(Fraction(-1), self.constant(y))
        return self._numbers.sign(self._numbers.add(self.constant(x), minus))

    def same(self, x: Formula, y: Formula) -> bool:
        """Whether a formula is equal to the right one, ``x``.

        If that is defined at whole numbers only (2**n, n!), only they count, and only where it is defined.
        """
        if x.op in LISTS or y.op in LISTS:
            return (
                x.op == y.op
                and len(x.parts) == len(y.parts)
                and all(map(self.same, x.parts, y.parts))
            )
        names = x.names() | y.names()
        if not names:
            return self._numbers.equal(self._constant(x), self._constant(y))
        whole = all(self._value_or_none(x, self._point(i, whole=False)) is None for i in range(16))
        agreed = set()
        for i in range(16):
            point = self._point(i, whole=whole)
            first, second = self._value_or_none(x, point), self._value_or_none(y, point)
            if first is None and (whole or second is None):
                continue
            if first is None or second is None or not self._numbers.equal(first, second):
                return False
            agreed.add(tuple(point[name] for name in sorted(names & point.keys())))
        return len(agreed) >= ENOUGH_POINTS

    def _value_or_none(self, formula: Formula, point: Mapping[str, Fraction]) -> Exact | None:
        try:
            return self.value(formula, point)
        except UndefinedError:
            return None

    def _constant(self, formula: Formula) -> Exact:
        """The value of a formula without names, computed once."""
        if id(formula) not in self._constants:
            self._constants[id(formula)] = formula, self.value(formula, {})
        return self._constants[id(formula)][1]

    def _point(self, i: int, *, whole: bool, variables: bool = True) -> dict[str, Fraction]:
        """Small and large numbers, at first positive ones; whole ones for what stands in exponents."""
        random = rng(i, "maths", whole, *map(ascii, self._texts))
        point = {
            name: Fraction(round(near * (1 << 20)) + random.randint(-256, 256), 1 << 20)
            for name, near in (("pi", math.pi), ("e", math.e))
        }
        for name in self._variables if variables else ():
            if whole:
                point[name] = Fraction(random.randint(1, 40))
                continue
            value = Fraction(random.randint(1, 1 << 20), 1 << 16)
            small = i % 4 < 2 if i < 8 else random.random() < 0.5
            value = Fraction(random.randint(1, 1 << 16), (1 << 16) + 1) if small else value
            point[name] = -value if i >= 8 and random.random() < 0.5 else value
        return point
