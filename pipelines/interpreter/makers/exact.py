"""Exact arithmetic that several makers share: matrices, systems, polynomials."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import combinations
from random import Random

Matrix = list[list[int]]


def determinant(matrix: Sequence[Sequence[int]]) -> int:
    """Of whole numbers, by Bareiss's elimination, which divides without rest."""
    rows, sign, before = [list(row) for row in matrix], 1, 1
    for k in range(len(rows) - 1):
        pivot = next((i for i in range(k, len(rows)) if rows[i][k]), None)
        if pivot is None:
            return 0
        if pivot != k:
            rows[k], rows[pivot], sign = rows[pivot], rows[k], -sign
        for i in range(k + 1, len(rows)):
            for j in range(k + 1, len(rows)):
                rows[i][j] = (rows[i][j] * rows[k][k] - rows[i][k] * rows[k][j]) // before
        before = rows[k][k]
    return sign * rows[-1][-1] if rows else 1


def laplace(matrix: Sequence[Sequence[int]]) -> int:
    """A determinant by expansion along the rows, each set of columns once: for up to ten rows."""
    sums = {0: 1}
    for row in matrix:
        after: dict[int, int] = {}
        for used, value in sums.items():
            for j, entry in enumerate(row):
                if entry and not used >> j & 1:
                    sign = -1 if (used >> j).bit_count() % 2 else 1
                    after[used | 1 << j] = after.get(used | 1 << j, 0) + sign * entry * value
        sums = after
    return sums.get((1 << len(matrix)) - 1, 0)


def solution(
    matrix: Sequence[Sequence[int | Fraction]], right: Sequence[int | Fraction]
) -> list[Fraction]:
    """The one solution of a square system, by Gauss and Jordan's elimination.

    Raises:
        ValueError: if it has none, or many.
    """
    rows = [[Fraction(x) for x in [*row, b]] for row, b in zip(matrix, right, strict=True)]
    for k in range(len(rows)):
        pivot = next((i for i in range(k, len(rows)) if rows[i][k]), None)
        if pivot is None:
            raise ValueError("the system is singular")
        rows[k], rows[pivot] = rows[pivot], rows[k]
        rows[k] = [x / rows[k][k] for x in rows[k]]
        for i, row in enumerate(rows):
            if i != k and row[k]:
                rows[i] = [x - row[k] * y for x, y in zip(row, rows[k], strict=True)]
    return [row[-1] for row in rows]


def times(a: Matrix, b: Matrix, modulus: int = 0) -> Matrix:
    """The product of two matrices, modulo ``modulus`` if that isn't 0."""
    columns = list(zip(*b, strict=True))
    full = [[sum(x * y for x, y in zip(row, col, strict=True)) for col in columns] for row in a]
    return [[x % modulus for x in row] for row in full] if modulus else full


def matrix_power(matrix: Matrix, power: int, modulus: int = 0) -> Matrix:
    """By squaring."""
    result = [[int(i == j) for j in range(len(matrix))] for i in range(len(matrix))]
    while power:
        if power & 1:
            result = times(result, matrix, modulus)
        matrix, power = times(matrix, matrix, modulus), power >> 1
    return result


def product(a: Sequence[int], b: Sequence[int]) -> list[int]:
    """Of two polynomials, coefficients from the constant up."""
    result = [0] * (len(a) + len(b) - 1)
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            result[i + j] += x * y
    return result


def value_at(polynomial: Sequence[int | Fraction], x: int | Fraction) -> Fraction:
    """Of a polynomial, coefficients from the constant up, by Horner's rule."""
    result = Fraction(0)
    for coefficient in reversed(polynomial):
        result = result * x + coefficient
    return result


def antiderivative(polynomial: Sequence[int]) -> list[Fraction]:
    """Of a polynomial, coefficients from the constant up."""
    return [Fraction(0), *(Fraction(c, i + 1) for i, c in enumerate(polynomial))]


def random_matrix(rng: Random, size: int, most: int) -> Matrix:
    """A square matrix of entries from ``-most`` to ``most`` that is not singular."""
    while True:
        matrix = [[rng.randint(-most, most) for _ in range(size)] for _ in range(size)]
        if determinant(matrix):
            return matrix


def subsets(items: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """All subsets, for inclusion and exclusion."""
    for size in range(len(items) + 1):
        yield from combinations(items, size)
