"""Variables with listed domains, and what must hold between them: what search and counting work on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, NamedTuple

from envgen.core.ir import Node, Problem
from envgen.pipelines.general.semantics.evaluator import Closure, Compiler
from envgen.pipelines.general.semantics.layout import fill_layout, frozen, match_layout, plain
from envgen.pipelines.general.semantics.rewrite import params_of, slots_of


class Link(NamedTuple):
    """``child``'s row holds ``parent``'s value: ``key_of[child's value]`` is what it holds."""

    child: int
    parent: int
    relation: str
    column: str
    key_of: dict[Any, Any]


class SlotPart(NamedTuple):
    """An expression and the variables that it reads: a constraint, or one summand of a ``Linear``."""

    scope: tuple[int, ...]
    run: Closure
    expr: Node


@dataclass
class Linear:
    """The sum of ``terms`` (ints, or unknown) is <= ``bound`` (``exact``: equal to it)."""

    terms: list[SlotPart]
    bound: int
    exact: bool = False


class Model:
    """The slots of a problem as variables, by position.

    An assignment solves it if every constraint is true, every link fits and every linear sum keeps its
    bound. Closures read the one ``frame``, so a model serves one search at a time.
    """

    def __init__(self, p: Problem, compiler: Compiler, domains: list[list[Any]]) -> None:
        self.p, self.compiler, self.domains = p, compiler, domains
        self.frame = compiler.frame()
        self.constraints: list[SlotPart] = []
        self.linears: list[Linear] = []
        self.links: list[Link] = []
        self.feasible = True
        """False: something that reads no slot is broken, or a domain is empty."""

    def scope_of(self, expr: Node) -> tuple[int, ...]:
        """Positions of the slots that ``expr`` reads."""
        return tuple(sorted(self.compiler.position[name] for name in slots_of(expr)))

    def size(self, scope: Sequence[int]) -> int:
        """How many assignments some variables have."""
        return prod(len(self.domains[i]) for i in scope)

    def table(self, part: SlotPart) -> Iterator[tuple[tuple[Any, ...], Any]]:
        """Every assignment of a part's variables, with the part's value there."""
        for choice in product(*(self.domains[i] for i in part.scope)):
            for i, value in zip(part.scope, choice, strict=True):
                self.frame.slots[i] = value
            yield choice, part.run(self.frame)

    def spread(self, part: SlotPart) -> tuple[int, int] | None:
        """The least and most that a part is over all assignments; None if it is unknown everywhere.

        Kept with the compiler: a search is begun many times over the same values.
        """
        params = tuple(self.frame.params.get(name) for name in sorted(params_of(part.expr)))
        at = (part.expr, params, *(tuple(self.domains[i]) for i in part.scope))
        if at not in self.compiler.spreads:
            known = [value for _, value in self.table(part) if value is not None]
            self.compiler.spreads[at] = (min(known), max(known)) if known else None
        return self.compiler.spreads[at]

    def acceptor(self) -> Callable[[list[Any] | None], bool]:
        """Whether a full assignment solves the model; None is no assignment."""
        domains, frame = [set(domain) for domain in self.domains], self.frame

        def accepts(values: list[Any] | None) -> bool:
            if values is None or not self.feasible:
                return False
            if any(v not in domain for v, domain in zip(values, domains, strict=True)):
                return False
            frame.slots[:] = values
            return (
                all(
                    link.key_of.get(values[link.child]) == values[link.parent]
                    for link in self.links
                )
                and all(constraint.run(frame) is True for constraint in self.constraints)
                and all(self._keeps(linear) for linear in self.linears)
            )

        return accepts

    def _keeps(self, linear: Linear) -> bool:
        values = [term.run(self.frame) for term in linear.terms]
        if None in values:
            return False
        total: int = sum(values)
        return total == linear.bound if linear.exact else total <= linear.bound

    def answer(self, values: Sequence[Any]) -> Any:
        """The submission with these (hashable) slot values."""
        named = {s.name: plain(s, v) for s, v in zip(self.p.slots, values, strict=True)}
        return fill_layout(self.p.layout, named)

    def values_of(self, answer: Any) -> list[Any] | None:
        """The hashable slot values of a submission, None if it doesn't fit the layout."""
        found = match_layout(self.p.layout, answer)
        if found is None or any(slot.name not in found for slot in self.p.slots):
            return None
        return [frozen(slot, found[slot.name]) for slot in self.p.slots]


class OutOfStepsError(Exception):
    """Raised inside a search when its step budget is spent."""


class TooHardError(ValueError):
    """Raised when an exact computation would take more steps than allowed."""


@dataclass
class StepBudget:
    """Steps left; one step is one value tried or tested."""

    steps: int

    def spend(self, n: int = 1) -> None:
        """Take ``n`` steps.

        Raises:
            OutOfStepsError: when none are left.
        """
        self.steps -= n
        if self.steps < 0:
            raise OutOfStepsError
