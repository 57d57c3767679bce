"""Equations with proofs: walk from a term by random rewriting, and let the two ends of the walk be the goal.

Rules that are not needed are distractors. Every draw comes from the generator that is given.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from envgen.core.errors import PipelineError
from envgen.verifiers.equational import Algebra, matches
from envgen.verifiers.terms import Equation, FunctionTerm

LEVELS = range(1, 9)
MAX_SIZE = 15
"""Names in a term of a chain."""
TRIES = 200

GROUP = Algebra.read(
    {"mul": 2, "inv": 1, "e": 0, "a": 0, "b": 0, "c": 0},
    {
        "assoc": "mul(mul(x, y), z) = mul(x, mul(y, z))",
        "left-unit": "mul(e, x) = x",
        "right-unit": "mul(x, e) = x",
        "left-inverse": "mul(inv(x), x) = e",
        "right-inverse": "mul(x, inv(x)) = e",
        "inverse-of-product": "inv(mul(x, y)) = mul(inv(y), inv(x))",
        "inverse-of-inverse": "inv(inv(x)) = x",
    },
)
LATTICE = Algebra.read(
    {"meet": 2, "join": 2, "top": 0, "bottom": 0, "a": 0, "b": 0, "c": 0},
    {
        "meet-commutes": "meet(x, y) = meet(y, x)",
        "join-commutes": "join(x, y) = join(y, x)",
        "meet-assoc": "meet(meet(x, y), z) = meet(x, meet(y, z))",
        "join-assoc": "join(join(x, y), z) = join(x, join(y, z))",
        "meet-absorbs": "meet(x, join(x, y)) = x",
        "join-absorbs": "join(x, meet(x, y)) = x",
        "distributes": "meet(x, join(y, z)) = join(meet(x, y), meet(x, z))",
        "meet-top": "meet(x, top) = x",
        "join-bottom": "join(x, bottom) = x",
    },
)
ALGEBRAS = {"group": GROUP, "lattice": LATTICE}


class EquationTheorem(NamedTuple):
    """What is to be shown, in which algebra, and a chain that shows it."""

    algebra: str
    goal: Equation
    proof: str


class Rewriting(NamedTuple):
    """A term that one use of an equation gives."""

    term: FunctionTerm
    by: str


def derive_chain(rng: Random, level: int) -> EquationTheorem:
    """An equation whose chain has ``level + 1`` steps, of which none comes back to an earlier term.

    No two terms of the chain that are not neighbours are one step apart, so no step can just be left out.

    Raises:
        PipelineError: if no draw gave one.
    """
    if level not in LEVELS:
        raise PipelineError(f"levels are 1 to {LEVELS[-1]}, got {level}")
    for _ in range(TRIES):
        name = rng.choice(sorted(ALGEBRAS))
        algebra = ALGEBRAS[name]
        chain = _walk(rng, algebra, level + 1)
        if chain is not None:
            lines = [f"1. {chain[0].term}"]
            lines += [
                f"{number}. = {one.term}  [{one.by}]"
                for number, one in enumerate(chain[1:], start=2)
            ]
            goal = Equation(chain[0].term, chain[-1].term)
            return EquationTheorem(name, goal, "\n".join(lines))
    raise PipelineError(f"no chain of level {level} in {TRIES} draws", "try another seed")


def _walk(rng: Random, algebra: Algebra, steps: int) -> list[Rewriting] | None:
    """So many rewritings from a random term; None if the walk is stuck."""
    chain = [Rewriting(_term(rng, algebra, depth=3), "")]
    near: set[FunctionTerm] = {chain[0].term}
    """Terms that the chain, but for its last term, reaches in one step."""
    while len(chain) <= steps:
        reached = list(rewritings(chain[-1].term, algebra))
        choices = [one for one in reached if one.term not in near and size(one.term) <= MAX_SIZE]
        near.update(one.term for one in reached)
        if not choices:
            return None
        chain.append(rng.choice(choices))
    return chain


def _term(rng: Random, algebra: Algebra, depth: int) -> FunctionTerm:
    """A random term."""
    functions = [(name, arity) for name, arity in algebra.signature.items() if arity]
    constants = [name for name, arity in algebra.signature.items() if not arity]
    if not depth or (depth < 3 and rng.random() < 0.2):
        return FunctionTerm(rng.choice(constants))
    name, arity = rng.choice(functions)
    return FunctionTerm(name, tuple(_term(rng, algebra, depth - 1) for _ in range(arity)))


def rewritings(term: FunctionTerm, algebra: Algebra) -> Iterator[Rewriting]:
    """All that one use of an equation makes of a term, where it says what every variable is."""
    for path, part in _parts(term, ()):
        place = ".".join(str(one + 1) for one in path) or "root"
        for name, equation in algebra.equations.items():
            for backwards in (False, True):
                left, right = equation[::-1] if backwards else equation
                bound: dict[str, FunctionTerm] = {}
                if not left.args or not matches(left, part, bound, algebra.signature):
                    continue
                after = _filled(right, bound, algebra)
                if after is not None:
                    by = f"{name} backwards at {place}" if backwards else f"{name} at {place}"
                    yield Rewriting(_replaced(term, path, after), by)


def _parts(
    term: FunctionTerm, path: tuple[int, ...]
) -> Iterator[tuple[tuple[int, ...], FunctionTerm]]:
    yield path, term
    for place, part in enumerate(term.args):
        yield from _parts(part, (*path, place))


def _filled(
    pattern: FunctionTerm, bound: dict[str, FunctionTerm], algebra: Algebra
) -> FunctionTerm | None:
    """A pattern with terms for its variables; None if one has none."""
    if pattern.name not in algebra.signature:
        return bound.get(pattern.name)
    args = [_filled(part, bound, algebra) for part in pattern.args]
    known = tuple(part for part in args if part is not None)
    return FunctionTerm(pattern.name, known) if len(known) == len(args) else None


def _replaced(term: FunctionTerm, path: tuple[int, ...], part: FunctionTerm) -> FunctionTerm:
    """A term with another part at a place."""
    if not path:
        return part
    args = list(term.args)
    args[path[0]] = _replaced(args[path[0]], path[1:], part)
    return FunctionTerm(term.name, tuple(args))


def size(term: FunctionTerm) -> int:
    """The names in a term."""
    return 1 + sum(map(size, term.args))
