"""Terms over a signature, and equations between them: ``mul(e, inv(x)) = inv(x)``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from envgen.verifiers.proof_verdict import ProofTextError, clipped

MAX_SYMBOLS = 200
"""Of a term: names in it."""
MAX_NESTED = 60
"""Maximum nesting depth of a term."""
_TOKEN = re.compile(r"\s*([A-Za-z0-9_]{1,32}(?![A-Za-z0-9_])|[(),])", re.ASCII)


class FunctionTerm(NamedTuple):
    """A function symbol over its arguments; constants and variables have none."""

    name: str
    args: tuple[FunctionTerm, ...] = ()

    def __str__(self) -> str:
        """As it is written: ``mul(x, inv(x))``."""
        return f"{self.name}({', '.join(map(str, self.args))})" if self.args else self.name


class Equation(NamedTuple):
    """Two terms that are equal."""

    left: FunctionTerm
    right: FunctionTerm

    def __str__(self) -> str:
        """As it is written: ``mul(e, x) = x``."""
        return f"{self.left} = {self.right}"


def read_equation(text: str, signature: Mapping[str, int]) -> Equation:
    """The equation that a text is; raises ProofTextError."""
    left, equals, right = text.partition("=")
    if not equals:
        raise ProofTextError(f"{clipped(text, 60)!r} is no equation: there is no =")
    return Equation(read_term(left, signature), read_term(right, signature))


def read_term(text: str, signature: Mapping[str, int], *, variables: bool = True) -> FunctionTerm:
    """The term that a text is.

    Args:
        text: ``mul(e, inv(x))``.
        signature: the number of arguments of each symbol.
        variables: whether other names may stand for variables.

    Raises:
        ProofTextError: if it is none, has unknown symbols, or is too long or nested too deep.
    """
    words: list[str] = []
    at, text = 0, text.strip()
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise ProofTextError(f"unknown symbol at {clipped(text[at:].strip(), 20)!r}")
        words.append(token[1])
        at = token.end()
    if len(words) > 4 * MAX_SYMBOLS or sum(word not in "()," for word in words) > MAX_SYMBOLS:
        raise ProofTextError(f"a term has more than {MAX_SYMBOLS} names")
    words = ["", *reversed(words)]
    term = _read(words, signature, variables, depth=0)
    if words[-1]:
        raise ProofTextError(f"{words[-1]!r} stands where the term should end")
    return term


def _read(
    words: list[str], signature: Mapping[str, int], variables: bool, depth: int
) -> FunctionTerm:
    """A term from the end of the words."""
    name = words.pop()
    if not name or name in "(),":
        raise ProofTextError(
            f"{name!r} stands where a term is expected" if name else "a term is missing"
        )
    if depth > MAX_NESTED:
        raise ProofTextError(f"a term is nested more than {MAX_NESTED} deep")
    if name not in signature and not variables:
        raise ProofTextError(f"unknown symbol {name!r}")
    args: list[FunctionTerm] = []
    if words[-1] == "(":
        while words.pop() in ("(", ","):
            args.append(_read(words, signature, variables, depth + 1))
            if words[-1] not in (",", ")"):
                raise ProofTextError("a parenthesis is not closed where it should be")
    if len(args) != signature.get(name, 0):
        raise ProofTextError(f"{name} takes {signature.get(name, 0)} arguments, not {len(args)}")
    return FunctionTerm(name, tuple(args))
