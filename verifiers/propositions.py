"""Formulas of propositional logic: ``~ & | -> <->``, atoms and ``false``.

Each connective binds closer than the next; ``->`` groups to the right, the others to the left. The signs of
textbooks are read, too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from envgen.verifiers.proof_verdict import ProofTextError, clipped

MAX_SYMBOLS = 120
"""Connectives and parentheses of a formula, which bounds how deep it is."""
_BINDS = {"<->": 1, "->": 2, "|": 3, "&": 4, "~": 5}
_TOKEN = re.compile(r"\s*(<->|->|[~&|()]|[A-Za-z][A-Za-z0-9_]{0,31}(?![A-Za-z0-9_]))", re.ASCII)
PLAIN = str.maketrans(
    {
        **{"\u00ac": "~", "\u2227": "&", "\u2228": "|", "\u2192": "->", "\u2194": "<->"},
        **{"\u22a5": "false", "\u2013": "-", "\u2502": "|", "\t": " "},
    }
)
"""Signs of textbooks, as ASCII."""


class Proposition(NamedTuple):
    """A connective over its parts; atoms and ``false`` have none."""

    op: str
    parts: tuple[Proposition, ...] = ()

    def __str__(self) -> str:
        """As it is written, with no more parentheses than it needs."""
        if not self.parts:
            return self.op
        binds = _BINDS[self.op]
        if self.op == "~":
            return "~" + _within(self.parts[0], binds)
        left, right = self.parts
        right_first = self.op == "->"
        return f"{_within(left, binds + right_first)} {self.op} {_within(right, binds + (not right_first))}"


def _within(part: Proposition, binds: int) -> str:
    """A part of a formula, in parentheses unless it binds at least so close."""
    return f"({part})" if part.parts and _BINDS[part.op] < binds else str(part)


def read_proposition(text: str) -> Proposition:
    """The formula that a text is.

    Raises:
        ProofTextError: if it is none, or has more than ``MAX_SYMBOLS`` connectives and parentheses.
    """
    text, words, at = text.translate(PLAIN).strip(), [], 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise ProofTextError(f"unknown symbol at {clipped(text[at:].strip(), 20)!r}")
        words.append(token[1])
        at = token.end()
    if sum(not word[0].isalpha() for word in words) > MAX_SYMBOLS:
        raise ProofTextError(f"a formula has more than {MAX_SYMBOLS} connectives and parentheses")
    words = ["", *reversed(words)]
    found = _read(words, least=1)
    if words[-1]:
        raise ProofTextError(f"{words[-1]!r} stands where a connective is expected")
    return found


def _read(words: list[str], least: int) -> Proposition:
    """A formula from the end of the words, of connectives that bind at least so close."""
    word = words.pop()
    if word == "~":
        found = Proposition("~", (_read(words, _BINDS["~"]),))
    elif word == "(":
        found = _read(words, least=1)
        if words.pop() != ")":
            raise ProofTextError("a parenthesis is not closed where it should be")
    elif word[:1].isalpha():
        found = Proposition(word)
    else:
        raise ProofTextError(
            f"{word!r} stands where a formula is expected" if word else "a formula is missing"
        )
    while words[-1] in _BINDS and least <= (binds := _BINDS[words[-1]]) < _BINDS["~"]:
        op = words.pop()
        found = Proposition(op, (found, _read(words, binds + (op != "->"))))
    return found


def atoms(formula: Proposition) -> frozenset[str]:
    """The names of a formula's atoms."""
    if formula.parts:
        return frozenset().union(*map(atoms, formula.parts))
    return frozenset() if formula.op == "false" else frozenset((formula.op,))


class Sequent(NamedTuple):
    """What is to be proven, or what a lemma says: the goal follows from the hypotheses."""

    hypotheses: tuple[Proposition, ...]
    goal: Proposition

    @classmethod
    def read(cls, hypotheses: Sequence[str], goal: str) -> Sequent:
        """What texts say; raises ProofTextError."""
        return cls(tuple(map(read_proposition, hypotheses)), read_proposition(goal))
