"""Check natural deduction (propositional, classical, Fitch style): accepted, or the first wrong line and why.

One step a line, numbered from 1; ``|`` before the number for each sub-proof that the line is in::

    1. P -> Q          [premise]
    2. ~Q              [premise]
    | 3. P             [assume]
    | 4. Q             [implies-elim 1 3]
    | 5. false         [not-elim 2 4]
    6. ~P              [not-intro 3-5]

``assume`` opens a sub-proof, a line further out closes it; ``3-5`` cites a closed one. The connectives are
``~ & | -> <->`` (each binds closer than the next; ``->`` groups to the right, ``&`` and ``|`` to the left).
``[lemma NAME 1 2 with P := Q & R]`` cites a lemma; what ``with`` does not say is found by matching.

To trust it, read the syntax (``formulas``), ``RULES``, ``matches`` and ``Scope``: a rule is a pattern, as in
textbooks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from envgen.verifiers.proof_verdict import (
    MAX_LINE_CHARS,
    ProofTextError,
    ProofVerdict,
    clipped,
    proof_lines,
)
from envgen.verifiers.propositions import PLAIN, Proposition, Sequent, atoms, read_proposition

MAX_SUBPROOFS = 32
"""Sub-proofs inside each other."""
_LINE = re.compile(r"([| ]*)(\d{1,5})\.([^\[\]]*)\[([^\[\]]*)\]", re.ASCII)
_CITED = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?", re.ASCII)


class Subproof(NamedTuple):
    """The assumption and the last formula of a sub-proof."""

    first: Proposition
    last: Proposition


Cited = Proposition | Subproof


class _Pattern(NamedTuple):
    """Of a rule: what its cited lines look like and what it concludes."""

    cited: tuple[Cited, ...]
    conclusion: Proposition


def _pattern(text: str) -> _Pattern:
    """``A, A .. B => C``: a line, a sub-proof, the conclusion."""
    above, _, conclusion = text.partition("=>")
    cited: list[Cited] = []
    for one in above.split(","):
        ends = [read_proposition(end) for end in one.split("..")]
        cited.append(Subproof(*ends) if len(ends) == 2 else ends[0])
    return _Pattern(tuple(cited), read_proposition(conclusion))


RULES = {
    "reiterate": "A => A",
    "and-intro": "A, B => A & B",
    "and-elim-left": "A & B => A",
    "and-elim-right": "A & B => B",
    "or-intro-left": "A => A | B",
    "or-intro-right": "B => A | B",
    "or-elim": "A | B, A .. C, B .. C => C",
    "implies-intro": "A .. B => A -> B",
    "implies-elim": "A -> B, A => B",
    "not-intro": "A .. false => ~A",
    "not-elim": "~A, A => false",
    "explosion": "false => A",
    "double-negation": "~~A => A",
    "raa": "~A .. false => A",
    "iff-intro": "A .. B, B .. A => A <-> B",
    "iff-elim-left": "A <-> B, A => B",
    "iff-elim-right": "A <-> B, B => A",
}
"""Beside them there are ``premise``, ``assume`` and ``lemma``."""
_RULES = {name: _pattern(text) for name, text in RULES.items()}


def matches(pattern: Proposition, formula: Proposition, bound: dict[str, Proposition]) -> bool:
    """Whether a formula is the pattern with formulas for its atoms; ``bound`` has them, and grows."""
    if pattern.parts:
        return pattern.op == formula.op and all(
            matches(one, other, bound)
            for one, other in zip(pattern.parts, formula.parts, strict=True)
        )
    if pattern.op == "false":
        return formula == pattern
    return bound.setdefault(pattern.op, formula) == formula


class _WrongError(Exception):
    """A line is wrong; the reason is its argument."""


@dataclass
class Scope:
    """The lines so far, and which of them may be cited. Line 0 stands for the proof itself."""

    formulas: list[Proposition] = field(default_factory=lambda: [Proposition("false")])
    home: list[int] = field(default_factory=lambda: [0])
    """Of each line: the assumption that opened the innermost sub-proof that it is in, or 0."""
    open: list[int] = field(default_factory=lambda: [0])
    """The assumptions of the sub-proofs that are open, the innermost last."""
    closed: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By the assumption of a closed sub-proof: its last line, and the home of the whole."""

    def close_to(self, depth: int) -> None:
        """Close sub-proofs until so many are open."""
        while len(self.open) - 1 > depth:
            assumption = self.open.pop()
            self.closed[assumption] = (len(self.formulas) - 1, self.open[-1])

    def add(self, formula: Proposition, *, assumed: bool) -> None:
        """Take a line that was found right."""
        if assumed:
            self.open.append(len(self.formulas))
        self.formulas.append(formula)
        self.home.append(self.open[-1])

    def unfinished(self, goal: Proposition) -> str:
        """Why the lines are no whole proof of a goal; empty if they are."""
        if len(self.open) > 1:
            return f"the assumption of line {self.open[-1]} is never discharged"
        if self.formulas[-1] != goal:
            return f"the proof ends with {self.formulas[-1]}, but the goal is {goal}"
        return ""

    def line(self, number: int) -> Proposition:
        """The formula of a line that may be cited now."""
        if not 1 <= number < len(self.formulas):
            raise _WrongError(f"line {number} is cited, which is not an earlier line")
        if self.home[number] not in self.open:
            raise _WrongError(
                f"line {number} is cited, which is in a closed sub-proof (of line {self.home[number]})"
            )
        return self.formulas[number]

    def subproof(self, first: int, last: int) -> Subproof:
        """Assumption and last formula of a closed sub-proof that may be cited now."""
        if first in self.open[1:]:
            raise _WrongError(f"sub-proof {first}-{last} is cited, which is still open")
        if first not in self.closed:
            raise _WrongError(f"{first}-{last} is cited, but line {first} starts no sub-proof")
        end, home = self.closed[first]
        if end != last:
            raise _WrongError(f"{first}-{last} is cited, but the sub-proof is {first}-{end}")
        if self.home[end] != first:
            raise _WrongError(f"sub-proof {first}-{last} ends inside another one")
        if home not in self.open:
            raise _WrongError(f"sub-proof {first}-{last} is cited, which is in a closed one")
        return Subproof(self.formulas[first], self.formulas[last])


def check(text: str, sequent: Sequent, lemmas: Mapping[str, Sequent] | None = None) -> ProofVerdict:
    """Judge a proof.

    Args:
        text: the proof, one step a line.
        sequent: what it has to prove, from hypotheses that ``premise`` may state.
        lemmas: what ``lemma`` may cite; the caller answers for their truth (``proof_library``).

    Raises:
        ProofTextError: if the text is empty or too long. A line that can't be read is a wrong line.
    """
    scope, verdict = follow(proof_lines(text), sequent, lemmas)
    if verdict.accepted and (reason := scope.unfinished(sequent.goal)):
        return ProofVerdict(verdict.num_steps - 1, verdict.num_steps, clipped(reason, 600))
    return verdict


def follow(
    lines: Sequence[str], sequent: Sequent, lemmas: Mapping[str, Sequent] | None = None
) -> tuple[Scope, ProofVerdict]:
    """Judge lines that need not be a whole proof; the scope has those before the first wrong one."""
    scope, number = Scope(), 0
    try:
        for number, line in enumerate(lines, start=1):
            _take(line, number, scope, sequent, lemmas or {})
    except (_WrongError, ProofTextError) as error:
        return scope, ProofVerdict(number - 1, number, clipped(str(error), 600))
    return scope, ProofVerdict(number)


def _take(
    line: str, number: int, scope: Scope, sequent: Sequent, lemmas: Mapping[str, Sequent]
) -> None:
    """Add a line to the lines so far if it follows from them."""
    read = _LINE.fullmatch(line.translate(PLAIN)) if len(line) <= MAX_LINE_CHARS else None
    if read is None:
        raise _WrongError("this is no step; a step looks like: 3. P & Q  [and-intro 1 2]")
    if int(read[2]) != number:
        raise _WrongError(f"the step is numbered {read[2]}, but it is number {number}")
    depth, formula = read[1].count("|"), read_proposition(read[3])
    by, _, chosen = read[4].partition(" with ")
    rule, *cited = by.replace(",", " ").split() or [""]
    assumed = rule == "assume"
    if depth > MAX_SUBPROOFS:
        raise _WrongError(f"sub-proofs are nested more than {MAX_SUBPROOFS} deep")
    if depth > len(scope.open) - 1 + assumed or (assumed and not depth):
        raise _WrongError("only an assumption goes one | further in, and each assumption needs one")
    scope.close_to(depth - assumed)
    if chosen and rule != "lemma":
        raise _WrongError("only a lemma is cited with formulas for its atoms")
    if rule in ("premise", "assume"):
        if cited:
            raise _WrongError(f"{rule} cites nothing")
        if rule == "premise" and formula not in sequent.hypotheses:
            raise _WrongError(f"{formula} is no hypothesis")
        scope.add(formula, assumed=assumed)
        return
    bound: dict[str, Proposition] = {}
    if rule == "lemma":
        rule, cited = " ".join(["lemma", *cited[:1]]), cited[1:]
        if rule[6:] not in lemmas:
            raise _WrongError(f"there is no lemma {rule[6:]!r} that is proven before this")
        pattern = _Pattern(*lemmas[rule[6:]])
        bound = _substitution(chosen, pattern)
    elif rule in _RULES:
        pattern = _RULES[rule]
    else:
        raise _WrongError(f"there is no rule {clipped(rule, 40)!r}")
    _judge(rule, pattern, [_cite(one, scope) for one in cited], formula, bound)
    scope.add(formula, assumed=False)


def _cite(cited: str, scope: Scope) -> Cited:
    """What a number, or a range, stands for."""
    numbers = _CITED.fullmatch(cited)
    if numbers is None:
        raise _WrongError(f"{clipped(cited, 40)!r} is no line, and no sub-proof such as 3-5")
    first, last = int(numbers[1]), numbers[2]
    return scope.line(first) if last is None else scope.subproof(first, int(last))


def _substitution(text: str, lemma: _Pattern) -> dict[str, Proposition]:
    """The formulas that ``with`` gives for atoms of a lemma."""
    known = atoms(lemma.conclusion).union(
        *(atoms(one) for one in lemma.cited if isinstance(one, Proposition))
    )
    bound: dict[str, Proposition] = {}
    for one in text.split(",") if text.strip() else ():
        atom, _, formula = one.partition(":=")
        if atom.strip() not in known or atom.strip() in bound:
            raise _WrongError(
                f"{clipped(atom.strip(), 40)!r} is no atom of the lemma, or is given twice"
            )
        bound[atom.strip()] = read_proposition(formula)
    return bound


def _judge(
    rule: str,
    pattern: _Pattern,
    cited: list[Cited],
    formula: Proposition,
    bound: dict[str, Proposition],
) -> None:
    """Compare what is cited, and then the formula, with the rule."""
    if len(cited) != len(pattern.cited):
        raise _WrongError(
            f"{rule} ({_shown(pattern)}) cites {len(pattern.cited)}, not {len(cited)}"
        )
    for place, (wanted, given) in enumerate(zip(pattern.cited, cited, strict=True), start=1):
        if isinstance(wanted, Subproof) and isinstance(given, Subproof):
            fits = matches(wanted.first, given.first, bound) and matches(
                wanted.last, given.last, bound
            )
        elif isinstance(wanted, Proposition) and isinstance(given, Proposition):
            fits = matches(wanted, given, bound)
        else:
            kind = "a line" if isinstance(wanted, Proposition) else "a sub-proof such as 3-5"
            raise _WrongError(f"{rule} cites {kind} at place {place}")
        if not fits:
            raise _WrongError(
                f"{rule} ({_shown(pattern)}) does not fit {_text(given)} at place {place}"
            )
    if not matches(pattern.conclusion, formula, bound):
        raise _WrongError(f"{rule} ({_shown(pattern)}) does not give {formula} from what is cited")


def _shown(pattern: _Pattern) -> str:
    """A rule as textbooks write it."""
    return f"{', '.join(map(_text, pattern.cited))} => {pattern.conclusion}"


def _text(cited: Cited) -> str:
    """A line's formula, or the ends of a sub-proof."""
    return str(cited) if isinstance(cited, Proposition) else f"{cited.first} .. {cited.last}"
