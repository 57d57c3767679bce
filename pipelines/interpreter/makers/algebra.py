"""Problems of algebra: polynomials, systems, recurrences, continued fractions."""

from __future__ import annotations

from fractions import Fraction
from math import factorial
from random import Random

from envgen.pipelines.interpreter.makers.exact import (
    determinant,
    laplace,
    matrix_power,
    product,
    random_matrix,
    solution,
    value_at,
)
from envgen.pipelines.interpreter.makers.maker import (
    Maker,
    Params,
    drawn,
    integer,
    number,
    numbers,
    program,
    rational,
    rows,
    worded,
)
from envgen.verifiers.maths import MathAnswer


def _power_sum(rng: Random, level: int) -> Params:
    size = 3 + level // 3
    coefficients = [rng.choice((-1, 1)) * rng.randint(1, 9) for _ in range(size)]
    return drawn(rng, coefficients=coefficients, power=4 + 2 * level + rng.randrange(3))


def _power_sum_numbers(params: Params) -> tuple[list[int], int]:
    return numbers(params, "coefficients", 6, -9, 9), number(params, "power", 1, 24)


def _power_sum_by_newton(params: Params) -> MathAnswer:
    """Newton's identities between the coefficients and the sums of powers."""
    coefficients, power = _power_sum_numbers(params)
    sums: list[int] = []
    for k in range(1, power + 1):
        total = -k * coefficients[k - 1] if k <= len(coefficients) else 0
        for i, c in enumerate(coefficients[: k - 1]):
            total -= c * sums[k - 2 - i]
        sums.append(total)
    return integer(sums[-1])


def _power_sum_by_trace(params: Params) -> MathAnswer:
    """The trace of the power of the companion matrix."""
    coefficients, power = _power_sum_numbers(params)
    size = len(coefficients)
    companion = [[-c for c in coefficients]]
    companion += [[int(i == j) for j in range(size)] for i in range(size - 1)]
    powered = matrix_power(companion, power)
    return integer(sum(powered[i][i] for i in range(size)))


POWER_SUM = Maker(
    name="root_power_sum",
    kind="math",
    area="algebra",
    draw=_power_sum,
    text=worded(
        "A polynomial has the leading coefficient 1, and then, from the next highest power of x "
        "down to the constant, the coefficients {coefficients}. What is the sum of the powers "
        "r^{power} over all its complex roots r, counted with multiplicity?",
        "Let r run through the complex roots, with multiplicity, of the monic polynomial whose "
        "other coefficients are, in falling order of powers, {coefficients}. "
        "Compute the sum of r^{power}. It is a whole number.",
    ),
    solve=_power_sum_by_newton,
    check=_power_sum_by_trace,
    code=program(
        "coefficients power",
        """
from sympy import Matrix
n = len(coefficients)
m = Matrix(n, n, lambda i, j: -coefficients[j] if i == 0 else int(i == j + 1))
print((m ** power).trace())
""",
    ),
)


def _coefficient(rng: Random, level: int) -> Params:
    power = rng.randrange(4 + 3 * level, 8 + 4 * level)
    base = [rng.choice((-1, 1)) * rng.randint(1, 9) for _ in range(3)]
    return drawn(rng, base=base, power=power, place=rng.randrange(power // 2, power + power // 2))


def _coefficient_numbers(params: Params) -> tuple[int, int, int, int, int]:
    base, power = numbers(params, "base", 3, -9, 9), number(params, "power", 1, 50)
    if len(base) != 3:
        raise ValueError("'base' must be three numbers")
    return base[0], base[1], base[2], power, number(params, "place", 0, 2 * power)


def _coefficient_by_products(params: Params) -> MathAnswer:
    a, b, c, power, place = _coefficient_numbers(params)
    result = [1]
    for _ in range(power):
        result = product(result, [a, b, c])
    return integer(result[place])


def _coefficient_by_multinomials(params: Params) -> MathAnswer:
    a, b, c, power, place = _coefficient_numbers(params)
    total = 0
    for k in range(place // 2 + 1):
        j = place - 2 * k
        i = power - j - k
        if i >= 0:
            ways = factorial(power) // (factorial(i) * factorial(j) * factorial(k))
            total += ways * a**i * b**j * c**k
    return integer(total)


COEFFICIENT = Maker(
    name="trinomial_coefficient",
    kind="math",
    area="algebra",
    draw=_coefficient,
    text=worded(
        "Let p(x) be the polynomial whose coefficients of 1, x and x^2 are {base}. "
        "What is the coefficient of x^{place} in p(x)^{power}?",
        "The polynomial with coefficients {base} (of x^0, x^1, x^2) is raised to the power "
        "{power} and expanded. Which coefficient does x^{place} have?",
    ),
    solve=_coefficient_by_products,
    check=_coefficient_by_multinomials,
    code=program(
        "base power place",
        "from sympy import Poly, symbols\nx = symbols('x')\n"
        "print((Poly(base[::-1], x) ** power).coeff_monomial(x ** place))",
    ),
)


def _system(rng: Random, level: int) -> Params:
    size = 2 + (level + 1) // 2
    return drawn(
        rng,
        matrix=random_matrix(rng, size, 9 + 5 * level),
        right=[rng.randint(-99, 99) for _ in range(size)],
    )


def _system_numbers(params: Params) -> tuple[list[list[int]], list[int]]:
    matrix, right = (
        rows(params, "matrix", 6, low=-99, high=99),
        numbers(params, "right", 6, -99, 99),
    )
    if len(right) != len(matrix):
        raise ValueError("'right' must have a number for each row")
    return matrix, right


def _system_by_elimination(params: Params) -> MathAnswer:
    return rational(sum(solution(*_system_numbers(params)), Fraction(0)))


def _system_by_cramer(params: Params) -> MathAnswer:
    matrix, right = _system_numbers(params)
    whole = laplace(matrix)
    total = 0
    for j in range(len(matrix)):
        total += laplace(
            [[*row[:j], b, *row[j + 1 :]] for row, b in zip(matrix, right, strict=True)]
        )
    return rational(Fraction(total, whole))


SYSTEM = Maker(
    name="linear_system",
    kind="math",
    area="algebra",
    draw=_system,
    text=worded(
        "A system of linear equations has the rows of coefficients {matrix} and the right sides "
        "{right}. What is the sum of all its unknowns? Give a reduced fraction a/b.",
        "Solve A x = b, where A has the rows {matrix} and b is ({right}). "
        "Give the sum of the entries of x as a reduced fraction a/b.",
    ),
    solve=_system_by_elimination,
    check=_system_by_cramer,
    code=program(
        "matrix right",
        "from sympy import Matrix\nprint(sum(Matrix(matrix).LUsolve(Matrix(right))))",
    ),
)


def _resultant(rng: Random, level: int) -> Params:
    def one(degree: int) -> list[int]:
        return [rng.randint(1, 9), *(rng.randint(-9, 9) for _ in range(degree))]

    return drawn(rng, p=one(2 + level // 3), q=one(2 + (level + 1) // 3))


def _resultant_by_sylvester(params: Params) -> MathAnswer:
    p, q = numbers(params, "p", 6, -9, 9), numbers(params, "q", 6, -9, 9)
    m, n = len(p) - 1, len(q) - 1
    matrix = [[0] * i + p + [0] * (n - 1 - i) for i in range(n)]
    matrix += [[0] * i + q + [0] * (m - 1 - i) for i in range(m)]
    if not p[0] or not q[0]:
        raise ValueError("'p' and 'q' must not begin with 0")
    return integer(determinant(matrix))


def _resultant_by_remainders(params: Params) -> MathAnswer:
    """Euclid's algorithm: res(p, q) = (-1)^(mn) lead(q)^(m - deg r) res(q, r)."""
    p = [Fraction(c) for c in numbers(params, "p", 6, -9, 9)]
    q = [Fraction(c) for c in numbers(params, "q", 6, -9, 9)]
    result = Fraction(1)
    while len(q) > 1:
        rest, m, n = p, len(p) - 1, len(q) - 1
        while len(rest) >= len(q):
            padded = q + [Fraction(0)] * (len(rest) - len(q))
            rest = [a - rest[0] / q[0] * b for a, b in zip(rest, padded, strict=True)][1:]
        while rest and not rest[0]:
            rest = rest[1:]
        if not rest:
            return integer(0)
        result *= (-1) ** (m * n) * q[0] ** (m - len(rest) + 1)
        p, q = q, rest
    return integer(int(result * q[0] ** (len(p) - 1)))


RESULTANT = Maker(
    name="resultant",
    kind="math",
    area="algebra",
    draw=_resultant,
    text=worded(
        "Two polynomials have, from the highest power down, the coefficients ({p}) and ({q}). "
        "What is their resultant, the determinant of their Sylvester matrix?",
        "Compute the resultant res(p, q) of p = ({p}) and q = ({q}), given by coefficients from the "
        "highest power to the constant. (For p = a (x - r1)(x - r2)... it is "
        "a^deg(q) q(r1) q(r2)....)",
    ),
    solve=_resultant_by_sylvester,
    check=_resultant_by_remainders,
    code=program(
        "p q",
        "from sympy import Poly, symbols\nx = symbols('x')\n"
        "print(Poly(p, x).resultant(Poly(q, x)))",
    ),
)


def _recurrence(rng: Random, level: int) -> Params:
    order = 2 + level // 3
    return drawn(
        rng,
        factors=[rng.randint(1, 9) for _ in range(order)],
        starts=[rng.randint(0, 20) for _ in range(order)],
        place=rng.randrange(12 * 3**level, 15 * 3**level),
        modulus=rng.randrange(1_000, 10 ** (4 + level // 2)),
    )


def _recurrence_numbers(params: Params) -> tuple[list[int], list[int], int, int]:
    factors, starts = numbers(params, "factors", 6, 0, 9), numbers(params, "starts", 6, 0, 20)
    if len(factors) != len(starts):
        raise ValueError("'starts' must be as many as 'factors'")
    return factors, starts, number(params, "place", 6, 10**5), number(params, "modulus", 2, 10**9)


def _recurrence_by_matrix(params: Params) -> MathAnswer:
    factors, starts, place, modulus = _recurrence_numbers(params)
    size = len(factors)
    step = [factors, *([int(i == j) for j in range(size)] for i in range(size - 1))]
    row = matrix_power(step, place - size + 1, modulus)[0]
    return integer(sum(a * b for a, b in zip(row, reversed(starts), strict=True)) % modulus)


def _recurrence_by_steps(params: Params) -> MathAnswer:
    factors, values, place, modulus = _recurrence_numbers(params)
    for _ in range(place - len(factors) + 1):
        new = sum(f * v for f, v in zip(factors, reversed(values), strict=True)) % modulus
        values = [*values[1:], new]
    return integer(values[-1] % modulus)


RECURRENCE = Maker(
    name="linear_recurrence",
    kind="math",
    area="algebra",
    draw=_recurrence,
    text=worded(
        "A sequence begins, from n = 0, with {starts}. After that each term is a sum: the factors "
        "{factors} times the term before, the one before that, and so on, in this order. "
        "What is the remainder of the term with n = {place} when it is divided by {modulus}?",
        "Let a(n) = c1 a(n-1) + c2 a(n-2) + ... with (c1, c2, ...) = ({factors}), and let the first "
        "terms, from a(0), be {starts}. Find a({place}) modulo {modulus}.",
    ),
    solve=_recurrence_by_matrix,
    check=_recurrence_by_steps,
    code=program(
        "factors starts place modulus",
        """
a = list(starts)
while len(a) <= place:
    a.append(sum(f * a[-1 - i] for i, f in enumerate(factors)) % modulus)
print(a[place] % modulus)
""",
    ),
)


def _interpolation(rng: Random, level: int) -> Params:
    xs = sorted(rng.sample(range(-6 - level, 7 + level), 3 + level // 2))
    points = [[x, rng.randint(-50, 50)] for x in xs]
    return drawn(rng, points=points, top=rng.randint(8, 60) * 2 + 1, below=rng.choice((2, 4, 8)))


def _interpolation_numbers(params: Params) -> tuple[list[list[int]], Fraction]:
    points = rows(params, "points", 8, 2, -99, 99)
    if len({x for x, _ in points}) != len(points):
        raise ValueError("'points' must have different x")
    return points, Fraction(number(params, "top", -999, 999), number(params, "below", 1, 99))


def _interpolation_by_lagrange(params: Params) -> MathAnswer:
    points, at = _interpolation_numbers(params)
    total = Fraction(0)
    for x, y in points:
        term = Fraction(y)
        for other, _ in points:
            if other != x:
                term *= (at - other) / (x - other)
        total += term
    return rational(total)


def _interpolation_by_system(params: Params) -> MathAnswer:
    points, at = _interpolation_numbers(params)
    powers = [[x**k for k in range(len(points))] for x, _ in points]
    return rational(value_at(solution(powers, [y for _, y in points]), at))


INTERPOLATION = Maker(
    name="interpolation",
    kind="math",
    area="algebra",
    draw=_interpolation,
    text=worded(
        "The polynomial of least degree through the points {points} is evaluated at "
        "x = {top}/{below}. What is its value? Give a reduced fraction a/b.",
        "Find p({top}/{below}), where p is the one polynomial of lowest degree whose graph passes "
        "through {points}. Answer with a reduced fraction a/b.",
    ),
    solve=_interpolation_by_lagrange,
    check=_interpolation_by_system,
    code=program(
        "points top below",
        "from sympy import Rational, interpolate, symbols\nx = symbols('x')\n"
        "p = interpolate([tuple(point) for point in points], x)\n"
        "print(p.subs(x, Rational(top, below)))",
    ),
)


def _fraction_by_convergents(params: Params) -> MathAnswer:
    p, p_before, q, q_before = 1, 0, 0, 1
    for a in numbers(params, "terms", 24, 1, 99) * number(params, "repeats", 1, 4):
        p, p_before, q, q_before = a * p + p_before, p, a * q + q_before, q
    return rational(Fraction(p, q))


def _fraction_from_behind(params: Params) -> MathAnswer:
    terms = numbers(params, "terms", 24, 1, 99) * number(params, "repeats", 1, 4)
    value = Fraction(terms[-1])
    for a in reversed(terms[:-1]):
        value = a + 1 / value
    return rational(value)


CONTINUED_FRACTION = Maker(
    name="continued_fraction",
    kind="math",
    area="algebra",
    draw=lambda rng, level: drawn(
        rng,
        terms=[rng.randint(1, 30) for _ in range(3 + level)],
        repeats=1 + level // 3,
    ),
    text=worded(
        "Write down the numbers {terms}, the whole list {repeats} time(s) in a row, and take them as "
        "the terms a0; a1, a2, ... of a continued fraction a0 + 1/(a1 + 1/(a2 + ...)). "
        "What is its value? Give a reduced fraction a/b.",
        "A finite continued fraction has the terms ({terms}), this list written {repeats} time(s) one "
        "after another. Give its value as a reduced fraction a/b.",
    ),
    solve=_fraction_by_convergents,
    check=_fraction_from_behind,
    code=program(
        "terms repeats",
        "from fractions import Fraction\nterms = terms * repeats\nvalue = Fraction(terms[-1])\n"
        "for a in terms[-2::-1]:\n    value = a + 1 / value\nprint(value)",
    ),
)

MAKERS = (
    POWER_SUM,
    COEFFICIENT,
    SYSTEM,
    RESULTANT,
    RECURRENCE,
    INTERPOLATION,
    CONTINUED_FRACTION,
)
