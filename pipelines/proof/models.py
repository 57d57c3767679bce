"""A second opinion on statements that knows no rules of proof: truth tables, and small algebras."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import permutations, product
from typing import Any, NamedTuple

from envgen.pipelines.proof.truth import column, columns, follows
from envgen.verifiers.propositions import Proposition, atoms
from envgen.verifiers.terms import Equation, FunctionTerm

MAX_ATOMS = 12
"""Of a truth table: 4,096 rows."""


class Table:
    """The truth table over the atoms of formulas."""

    def __init__(self, formulas: Sequence[Proposition]) -> None:
        names = sorted(frozenset().union(*map(atoms, formulas)))
        if len(names) > MAX_ATOMS:
            raise ValueError(f"a statement has {len(names)} atoms, at most {MAX_ATOMS} are checked")
        self._of_atoms, self.every = columns(names), (1 << (1 << len(names))) - 1

    def rows(self, formulas: Sequence[Proposition]) -> int:
        """The rows in which all of them are true, as bits."""
        rows = self.every
        for one in formulas:
            rows &= column(one, self._of_atoms, self.every)
        return rows

    def follows(self, given: Sequence[Proposition], goal: Proposition) -> bool:
        """Whether a formula is true wherever all the given ones are."""
        return follows(self.rows(given), self.rows([goal]))


class FiniteAlgebra(NamedTuple):
    """A finite algebra: its elements, and a function for each symbol."""

    elements: tuple[Any, ...]
    functions: Mapping[str, Callable[..., Any]]


@cache
def models(signature: tuple[tuple[str, int], ...]) -> tuple[FiniteAlgebra, ...]:
    """The small algebras that have these symbols, constants without a meaning of their own left out.

    Groups: all permutations of three things, in which products do not commute, and the integers modulo 5.
    Lattices: the subsets of a set of two, and a chain of four.
    """
    names = {name for name, _ in signature}
    return tuple(one for one in (*_groups(), *_lattices()) if one.functions.keys() <= names)


def _groups() -> tuple[FiniteAlgebra, ...]:
    order = range(3)
    symmetric: dict[str, Callable[..., Any]] = {
        "mul": lambda p, q: tuple(p[i] for i in q),
        "inv": lambda p: tuple(sorted(order, key=lambda i: p[i])),
        "e": lambda: tuple(order),
    }
    cyclic: dict[str, Callable[..., Any]] = {
        "mul": lambda p, q: (p + q) % 5,
        "inv": lambda p: -p % 5,
        "e": lambda: 0,
    }
    return FiniteAlgebra(tuple(permutations(order)), symmetric), FiniteAlgebra(
        tuple(range(5)), cyclic
    )


def _lattices() -> tuple[FiniteAlgebra, ...]:
    subsets: dict[str, Callable[..., Any]] = {
        "meet": lambda x, y: x & y,
        "join": lambda x, y: x | y,
        "top": lambda: 3,
        "bottom": lambda: 0,
    }
    chain: dict[str, Callable[..., Any]] = {
        "meet": min,
        "join": max,
        "top": lambda: 3,
        "bottom": lambda: 0,
    }
    return FiniteAlgebra((0, 1, 2, 3), subsets), FiniteAlgebra((0, 1, 2, 3), chain)


def value(term: FunctionTerm, model: FiniteAlgebra, given: Mapping[str, Any]) -> Any:
    """The element that a term stands for, with elements for its other names."""
    if term.name in model.functions:
        return model.functions[term.name](*(value(part, model, given) for part in term.args))
    return given[term.name]


def holds(equation: Equation, model: FiniteAlgebra) -> bool:
    """Whether an equation is true, whatever its free names are."""
    free = sorted(_names(equation.left).union(_names(equation.right)) - set(model.functions))
    for elements in product(model.elements, repeat=len(free)):
        given = dict(zip(free, elements, strict=True))
        if value(equation.left, model, given) != value(equation.right, model, given):
            return False
    return True


def _names(term: FunctionTerm) -> set[str]:
    return {term.name}.union(*map(_names, term.args))
