"""Problems of linear algebra over the whole numbers."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations
from random import Random

from envgen.pipelines.interpreter.makers.exact import (
    Matrix,
    determinant,
    laplace,
    matrix_power,
    random_matrix,
    solution,
    times,
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


def _square(params: Params) -> Matrix:
    return rows(params, "matrix", 9, low=-99, high=99)


DETERMINANT = Maker(
    name="determinant",
    kind="math",
    area="linear algebra",
    draw=lambda rng, level: drawn(
        rng, matrix=random_matrix(rng, 3 + (level + 1) // 2, 9 + 2 * level)
    ),
    text=worded(
        "What is the determinant of the matrix with the rows {matrix}?",
        "A square matrix has the rows {matrix}. Compute its determinant.",
    ),
    solve=lambda p: integer(determinant(_square(p))),
    check=lambda p: integer(laplace(_square(p))),
    code=program("matrix", "from sympy import Matrix\nprint(Matrix(matrix).det())"),
)


def _power(rng: Random, level: int) -> Params:
    size = 2 + level // 3
    return drawn(
        rng,
        matrix=[[rng.randint(-9, 9) for _ in range(size)] for _ in range(size)],
        power=rng.randrange(12 * 2**level, 20 * 2**level),
        modulus=rng.randrange(1_000, 10 ** (4 + level // 2)),
    )


def _power_numbers(params: Params) -> tuple[Matrix, int, int]:
    matrix = rows(params, "matrix", 5, low=-9, high=9)
    return matrix, number(params, "power", 1, 6_000), number(params, "modulus", 2, 10**9)


def _entries_by_squares(params: Params) -> MathAnswer:
    matrix, power, modulus = _power_numbers(params)
    return integer(sum(sum(row) for row in matrix_power(matrix, power, modulus)) % modulus)


def _entries_by_vectors(params: Params) -> MathAnswer:
    """The sum of all entries, by multiplying the all-ones vector by the matrix repeatedly."""
    matrix, power, modulus = _power_numbers(params)
    vector = [1] * len(matrix)
    for _ in range(power):
        vector = [sum(a * x for a, x in zip(row, vector, strict=True)) % modulus for row in matrix]
    return integer(sum(vector) % modulus)


POWER = Maker(
    name="matrix_power",
    kind="math",
    area="linear algebra",
    draw=_power,
    text=worded(
        "The matrix A has the rows {matrix}. Add up all entries of A^{power}. Which remainder, from 0 "
        "to {modulus} - 1, does the sum leave when it is divided by {modulus}?",
        "Let A be the matrix with rows {matrix} and s the sum of all entries of its power A^{power}. "
        "What is s modulo {modulus} (at least 0)?",
    ),
    solve=_entries_by_squares,
    check=_entries_by_vectors,
    code=program(
        "matrix power modulus",
        """
n = len(matrix)
def times(a, b):
    return [[sum(a[i][k] * b[k][j] for k in range(n)) % modulus for j in range(n)]
            for i in range(n)]
result = [[int(i == j) for j in range(n)] for i in range(n)]
for bit in bin(power)[2:]:
    result = times(result, result)
    if bit == "1":
        result = times(result, matrix)
print(sum(map(sum, result)) % modulus)
""",
    ),
)


def _characteristic(rng: Random, level: int) -> Params:
    size = 3 + (level + 1) // 2
    return drawn(rng, matrix=random_matrix(rng, size, 9), place=rng.randint(1, size - 2))


def _characteristic_by_traces(params: Params) -> MathAnswer:
    """Faddeev and Le Verrier's method."""
    matrix = _square(params)
    size, place = len(matrix), number(params, "place", 0, len(matrix))
    coefficient = 1
    step = [[0] * size for _ in range(size)]
    for k in range(1, size - place + 1):
        step = times(matrix, step)
        step = [
            [x + coefficient * (i == j) for j, x in enumerate(row)] for i, row in enumerate(step)
        ]
        coefficient = -sum(times(matrix, step)[i][i] for i in range(size)) // k
    return integer(coefficient)


def _characteristic_by_minors(params: Params) -> MathAnswer:
    matrix = _square(params)
    size = len(matrix) - number(params, "place", 0, len(matrix))
    total = sum(
        determinant([[matrix[i][j] for j in some] for i in some])
        for some in combinations(range(len(matrix)), size)
    )
    return integer((-1) ** size * total)


CHARACTERISTIC = Maker(
    name="characteristic_polynomial",
    kind="math",
    area="linear algebra",
    draw=_characteristic,
    text=worded(
        "The matrix A has the rows {matrix}. Which coefficient does x^{place} have in the polynomial "
        "det(x I - A)?",
        "In the (monic) characteristic polynomial of the matrix with rows {matrix}, what is the "
        "coefficient of the power x^{place}?",
    ),
    solve=_characteristic_by_traces,
    check=_characteristic_by_minors,
    code=program(
        "matrix place",
        "from sympy import Matrix\nprint(Matrix(matrix).charpoly().all_coeffs()[::-1][place])",
    ),
)


def _inverse(rng: Random, level: int) -> Params:
    size = 3 + level // 3
    return drawn(
        rng,
        matrix=random_matrix(rng, size, 9 + level),
        row=rng.randint(1, size),
        column=rng.randint(1, size),
    )


def _inverse_numbers(params: Params) -> tuple[Matrix, int, int]:
    matrix = _square(params)
    if not determinant(matrix):
        raise ValueError("'matrix' must not be singular")
    size = len(matrix)
    return matrix, number(params, "row", 1, size) - 1, number(params, "column", 1, size) - 1


def _inverse_by_system(params: Params) -> MathAnswer:
    matrix, i, j = _inverse_numbers(params)
    return rational(solution(matrix, [int(k == j) for k in range(len(matrix))])[i])


def _inverse_by_cofactor(params: Params) -> MathAnswer:
    matrix, i, j = _inverse_numbers(params)
    minor = [[x for c, x in enumerate(row) if c != i] for r, row in enumerate(matrix) if r != j]
    return rational(Fraction((-1) ** (i + j) * laplace(minor), laplace(matrix)))


INVERSE = Maker(
    name="inverse_entry",
    kind="math",
    area="linear algebra",
    draw=_inverse,
    text=worded(
        "The matrix with the rows {matrix} is inverted. Which number stands in row {row} and column "
        "{column} of the inverse, both counted from 1? Give a reduced fraction a/b.",
        "Let B be the inverse of the matrix with rows {matrix}. Give B's entry in row {row}, column "
        "{column} (the first is 1) as a reduced fraction a/b.",
    ),
    solve=_inverse_by_system,
    check=_inverse_by_cofactor,
    code=program(
        "matrix row column",
        "from sympy import Matrix\nprint(Matrix(matrix).inv()[row - 1, column - 1])",
    ),
)


def _squares(rng: Random, level: int) -> Params:
    width = 2 + level // 4
    while True:
        columns = [[rng.randint(-9, 9) for _ in range(width + 2)] for _ in range(width)]
        if determinant(_gram(columns)):
            return drawn(
                rng, columns=columns, target=[rng.randint(-20, 20) for _ in range(width + 2)]
            )


def _gram(vectors: Matrix) -> Matrix:
    return [[sum(x * y for x, y in zip(a, b, strict=True)) for b in vectors] for a in vectors]


def _squares_numbers(params: Params) -> tuple[Matrix, list[int]]:
    target = numbers(params, "target", 6, -99, 99)
    columns = rows(params, "columns", 5, len(target), -99, 99)
    if not determinant(_gram(columns)):
        raise ValueError("'columns' must be independent")
    return columns, target


def _distance_by_equations(params: Params) -> MathAnswer:
    """Gauss's normal equations, and the rest's length squared."""
    columns, target = _squares_numbers(params)
    products = [sum(x * y for x, y in zip(column, target, strict=True)) for column in columns]
    factors = solution(_gram(columns), products)
    rest = [
        t - sum(f * column[i] for f, column in zip(factors, columns, strict=True))
        for i, t in enumerate(target)
    ]
    return rational(sum((r * r for r in rest), Fraction(0)))


def _distance_by_volumes(params: Params) -> MathAnswer:
    columns, target = _squares_numbers(params)
    return rational(Fraction(laplace(_gram([*columns, target])), laplace(_gram(columns))))


DISTANCE = Maker(
    name="least_squares",
    kind="math",
    area="linear algebra",
    draw=_squares,
    text=worded(
        "What is the square of the distance of the point ({target}) from the linear subspace that "
        "the vectors {columns} span? Give a reduced fraction a/b.",
        "A linear combination of the vectors {columns} shall come as near as possible to ({target}). "
        "What is the least possible sum of squared differences? Answer with a reduced fraction a/b.",
    ),
    solve=_distance_by_equations,
    check=_distance_by_volumes,
    code=program(
        "columns target",
        """
from sympy import Matrix
a, b = Matrix(columns).T, Matrix(target)
rest = b - a * (a.T * a).LUsolve(a.T * b)
print(rest.dot(rest))
""",
    ),
)

MAKERS = (DETERMINANT, POWER, CHARACTERISTIC, INVERSE, DISTANCE)
