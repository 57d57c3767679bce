"""Check equational reasoning: a chain of equal terms; accepted, or the first wrong line and why.

The first line is the goal's left side; each further one rewrites the line before it at one place::

    1. mul(mul(inv(a), a), b)
    2. = mul(e, b)              [left-inverse at 1]
    3. = b                      [left-unit at root with x := b]

``[NAME]`` uses an equation from left to right, ``[NAME backwards]`` from right to left. A place is ``root``,
or the numbers of arguments on the way to it (``2.1``: of the second argument the first). Without ``at`` it is
found, and so is every variable that ``with`` does not give. Equations have variables; terms of a chain have
none: their names are those of the signature.

To trust it, read ``matches``, ``_rewrites`` and ``_places``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from envgen.verifiers.proof_verdict import (
    MAX_LINE_CHARS,
    ProofTextError,
    ProofVerdict,
    clipped,
    proof_lines,
)
from envgen.verifiers.terms import MAX_NESTED, Equation, FunctionTerm, read_equation, read_term

_LINE = re.compile(r"(\d{1,5})\.\s*(=?)([^\[\]=]*)(?:\[([^\[\]]*)\])?", re.ASCII)
_BY = re.compile(
    r"(?P<name>[A-Za-z0-9_-]{1,64})(?P<backwards> backwards)?"
    r"(?: at (?P<place>root|\d{1,2}(?:\.\d{1,2}){0,60}))?(?: with (?P<chosen>.*))?",
    re.ASCII,
)


@dataclass(frozen=True)
class Algebra:
    """An equational theory: a signature, and its axioms; proven lemmas may be added to them."""

    signature: Mapping[str, int]
    """The number of arguments of each symbol; other names are variables."""
    equations: Mapping[str, Equation]

    @classmethod
    def read(cls, signature: Mapping[str, int], equations: Mapping[str, str]) -> Algebra:
        """The algebra that texts describe.

        Raises:
            ProofTextError: if an equation is none.
        """
        return cls(
            signature, {name: read_equation(text, signature) for name, text in equations.items()}
        )


class _BadStepError(Exception):
    """Raised at the first wrong line, with the reason."""


def check_chain(text: str, algebra: Algebra, goal: Equation) -> ProofVerdict:
    """Judge a chain.

    Args:
        text: the chain, one term a line.
        algebra: the signature, and what each step may use.
        goal: what the chain has to show: it starts at its left side, and ends at its right.

    Raises:
        ProofTextError: if the text is empty or too long. A line that can't be read is a wrong line.
    """
    term, verdict = follow_chain(proof_lines(text), algebra, goal)
    if verdict.accepted and term != goal.right:
        reason = f"the chain ends with {term}, but the goal is {goal}"
        return ProofVerdict(verdict.num_steps - 1, verdict.num_steps, clipped(reason, 600))
    return verdict


def follow_chain(
    lines: Sequence[str], algebra: Algebra, goal: Equation
) -> tuple[FunctionTerm, ProofVerdict]:
    """Judge lines that need not be a whole chain; the last right term."""
    number, term = 0, goal.left
    try:
        for number, line in enumerate(lines, start=1):
            term = _take(line, number, term, algebra)
    except (_BadStepError, ProofTextError) as error:
        return term, ProofVerdict(number - 1, number, clipped(str(error), 600))
    return term, ProofVerdict(number)


def _take(line: str, number: int, before: FunctionTerm, algebra: Algebra) -> FunctionTerm:
    """The term of a line, if it follows from the one before it."""
    read = _LINE.fullmatch(line) if len(line) <= MAX_LINE_CHARS else None
    if read is None or bool(read[2]) != (number > 1) or (read[4] is None) != (number == 1):
        example = "1. f(a)" if number == 1 else f"{number}. = f(b)  [axiom at 1]"
        raise _BadStepError(f"this is no step; line {number} looks like: {example}")
    if int(read[1]) != number:
        raise _BadStepError(f"the step is numbered {read[1]}, but it is number {number}")
    after = read_term(read[3], algebra.signature, variables=False)
    if number == 1:
        if after != before:
            raise _BadStepError(f"the chain starts with {after}, but the goal with {before}")
        return after
    by = _BY.fullmatch(" ".join(read[4].split()))
    if by is None:
        raise _BadStepError(
            f"{clipped(read[4], 80)!r} is no reason; one looks like: axiom backwards at 1.2 with x := a"
        )
    if by["name"] not in algebra.equations:
        raise _BadStepError(f"there is no equation {by['name']!r}")
    equation = algebra.equations[by["name"]]
    if by["backwards"]:
        equation = Equation(equation.right, equation.left)
    bound = _substitution(by["chosen"] or "", equation, algebra.signature)
    place = None if by["place"] is None else _path(by["place"])
    if not any(
        _rewrites(equation, one, other, dict(bound), algebra.signature)
        for one, other in _places(before, after, place)
    ):
        where = f"at {by['place']}" if by["place"] else "at any place"
        raise _BadStepError(f"{equation} does not make {after} of {before} {where}")
    return after


def _path(place: str) -> tuple[int, ...]:
    """The arguments' indices on the way to a place."""
    return () if place == "root" else tuple(int(one) - 1 for one in place.split("."))


def _places(
    before: FunctionTerm, after: FunctionTerm, path: tuple[int, ...] | None
) -> Iterator[tuple[FunctionTerm, FunctionTerm]]:
    """The pairs of subterms at one place, or at each, outside which two terms are the same."""
    for depth in range(MAX_NESTED + 2):
        if path is None or depth == len(path):
            yield before, after
        if before.name != after.name:
            return
        differ = [
            at
            for at, (one, other) in enumerate(zip(before.args, after.args, strict=True))
            if one != other
        ]
        if path is not None and depth < len(path) and not differ:
            down = path[depth]
        elif len(differ) == 1:
            down = differ[0]
        else:
            return
        if not 0 <= down < len(before.args) or (
            path is not None and path[depth : depth + 1] != (down,)
        ):
            return
        before, after = before.args[down], after.args[down]


def matches(
    pattern: FunctionTerm,
    term: FunctionTerm,
    bound: dict[str, FunctionTerm],
    signature: Mapping[str, int],
) -> bool:
    """Whether a term is the pattern with terms for its variables; ``bound`` has them, and grows."""
    if pattern.name not in signature:
        return bound.setdefault(pattern.name, term) == term
    return pattern.name == term.name and all(
        matches(one, other, bound, signature)
        for one, other in zip(pattern.args, term.args, strict=True)
    )


def _rewrites(
    equation: Equation,
    before: FunctionTerm,
    after: FunctionTerm,
    bound: dict[str, FunctionTerm],
    signature: Mapping[str, int],
) -> bool:
    """Whether an equation, with the same terms for its variables on both sides, makes one term of another."""
    return matches(equation.left, before, bound, signature) and matches(
        equation.right, after, bound, signature
    )


def _substitution(
    text: str, equation: Equation, signature: Mapping[str, int]
) -> dict[str, FunctionTerm]:
    """The terms that ``with`` gives for variables of an equation: ``x := f(a, b), y := c``."""
    bound: dict[str, FunctionTerm] = {}
    known = set(re.findall(r"[A-Za-z0-9_]+", str(equation))) - set(signature)
    for one in re.split(r",\s*(?=\w+\s*:=)", text) if text else ():
        variable, _, term = one.partition(":=")
        if variable.strip() not in known or variable.strip() in bound:
            raise _BadStepError(
                f"{clipped(variable.strip(), 40)!r} is no variable of {equation}, or is given twice"
            )
        bound[variable.strip()] = read_term(term, signature, variables=False)
    return bound
