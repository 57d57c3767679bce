"""Problems of calculus with exact answers."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from math import comb, factorial, lcm
from random import Random

from envgen.pipelines.interpreter.makers.exact import (
    antiderivative,
    product,
    solution,
    value_at,
)
from envgen.pipelines.interpreter.makers.maker import (
    Maker,
    Params,
    drawn,
    number,
    numbers,
    program,
    rational,
    worded,
)
from envgen.verifiers.maths import MathAnswer


def _integral(rng: Random, level: int) -> Params:
    a, b = rng.sample([n for n in range(-9, 10) if n], 2)
    low = rng.randint(-4, 3)
    return drawn(
        rng,
        a=a,
        b=b,
        m=rng.randint(1, 1 + level),
        n=rng.randint(2, 2 + level),
        low=low,
        high=low + rng.randint(1, 5),
    )


def _integral_numbers(params: Params) -> tuple[int, int, int, int, int, int]:
    a, b = number(params, "a", -9, 9), number(params, "b", -9, 9)
    low = number(params, "low", -9, 9)
    m, n = number(params, "m", 0, 12), number(params, "n", 0, 12)
    return a, b, m, n, low, number(params, "high", low, 19)


def _integral_in_full(params: Params) -> MathAnswer:
    """Expands the integrand."""
    a, b, m, n, low, high = _integral_numbers(params)
    polynomial = [1]
    for _ in range(m):
        polynomial = product(polynomial, [a, 1])
    for _ in range(n):
        polynomial = product(polynomial, [b, 2])
    whole = antiderivative(polynomial)
    return rational(value_at(whole, high) - value_at(whole, low))


def _integral_in_shifted(params: Params) -> MathAnswer:
    """With t = x + a: of t^m (2 t + b - 2 a)^n, by the binomial theorem."""
    a, b, m, n, low, high = _integral_numbers(params)
    total = Fraction(0)
    for k in range(n + 1):
        factor = comb(n, k) * 2**k * (b - 2 * a) ** (n - k)
        power = m + k + 1
        total += Fraction(factor * ((high + a) ** power - (low + a) ** power), power)
    return rational(total)


INTEGRAL = Maker(
    name="definite_integral",
    kind="math",
    area="calculus",
    draw=_integral,
    text=worded(
        "What is the integral of (x + ({a}))^{m} (2x + ({b}))^{n} dx from x = {low} to x = {high}? "
        "Give a reduced fraction a/b.",
        "Integrate the product of (x + ({a})) to the power {m} and (2x + ({b})) to the power {n} over "
        "the interval [{low}, {high}]. Answer exactly, with a reduced fraction a/b.",
    ),
    solve=_integral_in_full,
    check=_integral_in_shifted,
    code=program(
        "a b m n low high",
        "from sympy import integrate, symbols\nx = symbols('x')\n"
        "print(integrate(((x + a) ** m * (2 * x + b) ** n).expand(), (x, low, high)))",
    ),
)


def _area(rng: Random, level: int) -> Params:
    count = 2 + (level + 1) // 2
    return drawn(
        rng,
        roots=sorted(rng.sample(range(-9, 10), count)),
        factor=rng.randint(1, 9),
        low=rng.randint(-9, -5),
        high=rng.randint(5, 9),
    )


def _area_numbers(params: Params) -> tuple[list[int], list[int], int, int]:
    roots, polynomial = numbers(params, "roots", 7, -9, 9), [number(params, "factor", 1, 9)]
    for root in roots:
        polynomial = product(polynomial, [-root, 1])
    return roots, polynomial, number(params, "low", -20, 0), number(params, "high", 1, 20)


def _area_between_roots(params: Params) -> MathAnswer:
    roots, polynomial, low, high = _area_numbers(params)
    whole = antiderivative(polynomial)
    ends = [low, *sorted(root for root in roots if low < root < high), high]
    values = [value_at(whole, end) for end in ends]
    return rational(sum((abs(b - a) for a, b in pairwise(values)), Fraction(0)))


def _area_by_quadrature(params: Params) -> MathAnswer:
    """An exact rule of Newton and Cotes on each unit interval, in which the sign does not change."""
    roots, polynomial, low, high = _area_numbers(params)
    size = len(roots) + 1
    nodes = [Fraction(i, size - 1) for i in range(size)]
    weights = solution(
        [[x**k for x in nodes] for k in range(size)], [Fraction(1, k + 1) for k in range(size)]
    )
    total = Fraction(0)
    for start in range(low, high):
        terms = (w * value_at(polynomial, start + x) for w, x in zip(weights, nodes, strict=True))
        total += abs(sum(terms, Fraction(0)))
    return rational(total)


AREA = Maker(
    name="area_to_axis",
    kind="math",
    area="calculus",
    draw=_area,
    text=worded(
        "A polynomial has the simple roots {roots} and no others, and the leading coefficient {factor}. "
        "What is the area between its graph and the x-axis from x = {low} to x = {high}, all parts "
        "counted as positive? Give a reduced fraction a/b.",
        "Let p(x) be {factor} times the product of (x - r) over r in ({roots}). Integrate |p(x)| from "
        "{low} to {high} and answer with a reduced fraction a/b.",
    ),
    solve=_area_between_roots,
    check=_area_by_quadrature,
    code=program(
        "roots factor low high",
        """
from sympy import Integer, integrate, prod, symbols
x = symbols("x")
p = (factor * prod([x - r for r in roots])).expand()
ends = [low] + sorted(r for r in roots if low < r < high) + [high]
print(sum(abs(integrate(p, (x, Integer(a), Integer(b)))) for a, b in zip(ends, ends[1:])))
""",
    ),
)


def _taylor(rng: Random, level: int) -> Params:
    return drawn(
        rng,
        a=rng.choice((-1, 1)) * rng.randint(1, 9),
        b=rng.choice((-1, 1)) * rng.randint(1, 9),
        c=rng.choice((-1, 1)) * rng.randint(2, 9),
        place=rng.randint(4 + level, 5 + 2 * level),
    )


def _taylor_numbers(params: Params) -> tuple[int, int, int, int]:
    a, b, c = (number(params, name, -9, 9) for name in "abc")
    return a, b, c, number(params, "place", 1, 40)


def _taylor_by_derivative(params: Params) -> MathAnswer:
    """From f' = (a + 2 b x) f for the exponential, then sums of a geometric series."""
    a, b, c, place = _taylor_numbers(params)
    terms = [Fraction(1), Fraction(a)]
    for n in range(2, place + 1):
        terms.append((a * terms[n - 1] + 2 * b * terms[n - 2]) / n)
    return rational(value_at(terms[: place + 1][::-1], c))


def _taylor_by_sums(params: Params) -> MathAnswer:
    a, b, c, place = _taylor_numbers(params)
    total = Fraction(0)
    for i in range(place + 1):
        for j in range((place - i) // 2 + 1):
            rest = place - i - 2 * j
            total += Fraction(a**i * b**j * c**rest, factorial(i) * factorial(j))
    return rational(total)


TAYLOR = Maker(
    name="taylor_coefficient",
    kind="math",
    area="calculus",
    draw=_taylor,
    text=worded(
        "The function exp(({a}) x + ({b}) x^2) / (1 - ({c}) x) is developed into a power series around "
        "x = 0. What is the coefficient of x^{place}? Give a reduced fraction a/b.",
        "Find the coefficient of x^{place} in the Maclaurin series of f(x) = e^(({a})x + ({b})x^2) "
        "divided by 1 - ({c})x, as a reduced fraction a/b.",
    ),
    solve=_taylor_by_derivative,
    check=_taylor_by_sums,
    code=program(
        "a b c place",
        """
from fractions import Fraction
from itertools import pairwise
f = [Fraction(1), Fraction(a)]
for n in range(2, place + 1):
    f.append((a * f[n - 1] + 2 * b * f[n - 2]) / n)
print(sum(f[k] * c ** (place - k) for k in range(place + 1)))
""",
    ),
)


def _extremes(rng: Random, level: int) -> Params:
    turns = rng.sample(range(-6, 7), 2 + level // 2)
    slope = [rng.choice((-1, 1)) * rng.randint(1, 5)]
    for root in turns:
        slope = product(slope, [-root, 1])
    scale = lcm(*range(1, len(slope) + 1))
    whole = [
        rng.randint(-99, 99),
        *(int(c) for c in antiderivative([scale * c for c in slope])[1:]),
    ]
    return drawn(rng, coefficients=whole, low=rng.randint(-9, -4), high=rng.randint(4, 9))


def _extremes_numbers(params: Params) -> tuple[list[int], list[int], int, int]:
    whole = numbers(params, "coefficients", 9, -(10**12), 10**12)
    slope = [i * c for i, c in enumerate(whole)][1:]
    low, high = number(params, "low", -20, 0), number(params, "high", 1, 20)
    return whole, slope, low, high


def _extremes_at_turns(params: Params) -> MathAnswer:
    """At the ends and where the derivative is 0, found by dividing its roots out."""
    whole, slope, low, high = _extremes_numbers(params)
    turns: list[int] = []
    for root in range(-20, 21):
        if slope and any(slope) and not value_at(slope, root):
            turns.append(root)
    if len(turns) != len(slope) - 1:
        raise ValueError("'coefficients' must have turning points at whole numbers")
    values = [value_at(whole, x) for x in [low, high, *(x for x in turns if low < x < high)]]
    return rational(max(values) - min(values))


def _extremes_at_all(params: Params) -> MathAnswer:
    """Turning points are at whole numbers: looks at all of them."""
    whole, _, low, high = _extremes_numbers(params)
    values = [sum(c * x**i for i, c in enumerate(whole)) for x in range(low, high + 1)]
    return rational(max(values) - min(values))


EXTREMES = Maker(
    name="range_of_polynomial",
    kind="math",
    area="calculus",
    draw=_extremes,
    text=worded(
        "A polynomial has, from the constant up to the highest power, the coefficients {coefficients}. "
        "What is the difference between its greatest and its least value on the real interval from "
        "{low} to {high}?",
        "Let p have the coefficients {coefficients} (constant first). Find max p(x) - min p(x) over "
        "real x with {low} <= x <= {high}.",
    ),
    solve=_extremes_at_turns,
    check=_extremes_at_all,
    code=program(
        "coefficients low high",
        """
from sympy import Poly, symbols
x = symbols("x")
p = Poly(coefficients[::-1], x)
ends = [low, high] + [r for r in p.diff(x).real_roots() if low < r < high]
values = [p.eval(e) for e in ends]
print(max(values) - min(values))
""",
    ),
)

MAKERS = (INTEGRAL, AREA, TAYLOR, EXTREMES)
