"""Theorems of propositional logic by forward derivation: from hypotheses, by rules, to a far formula.

The hypotheses hold together (a hidden row of the truth table makes all of them true), the goal follows
from all of those that its derivation used and from no fewer of them, and the proof is what was needed; the
other hypotheses are distractors. Every draw comes from the generator that is given.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import and_
from random import Random
from typing import NamedTuple

from envgen.core.errors import PipelineError
from envgen.pipelines.proof.truth import column, columns, follows
from envgen.verifiers.deduction import matches
from envgen.verifiers.proof_library import Lemma
from envgen.verifiers.propositions import Proposition

LEVELS = range(1, 9)
MAX_SIZE = 13
"""Atoms and connectives of a derived formula."""
TRIES = 400
GIVEN = ("premise", "assume")
FALSE = Proposition("false")


class Theorem(NamedTuple):
    """What is to be proven, and a proof."""

    hypotheses: tuple[str, ...]
    goal: str
    proof: str


@dataclass(eq=False)
class Derived:
    """A formula, and how it came to be."""

    formula: Proposition
    rule: str
    cited: tuple[Derived | Enclosed, ...] = ()


@dataclass(eq=False)
class Enclosed:
    """A sub-proof: its assumption, what was derived in it, and what it ends with."""

    assumption: Derived
    inside: list[Derived] = field(default_factory=list)
    end: Derived | None = None


def steps_of_level(level: int) -> int:
    """So many steps, at least, a proof of a level has, its premises and assumptions left out."""
    return 2 * level


def depth_of_level(level: int) -> int:
    """So deep, at least, its sub-proofs are."""
    return level // 3


def derive(rng: Random, level: int, lemmas: Sequence[Lemma] = ()) -> Theorem:
    """A theorem whose proof has ``2 * level`` steps or a few more, and sub-proofs ``level // 3`` deep.

    It needs at least ``2 + level // 3`` hypotheses, each of them.

    Args:
        rng: makes all choices.
        level: 1 to 8.
        lemmas: the proof may cite those of them whose hypotheses name all of their atoms.

    Raises:
        PipelineError: if no draw gave one.
    """
    if level not in LEVELS:
        raise PipelineError(f"levels are 1 to {LEVELS[-1]}, got {level}")
    for _ in range(TRIES):
        names = "PQRSTUVW"[: 3 + (level + 1) // 2]
        theorem = _attempt(rng, level, names, lemmas)
        if theorem is not None:
            return theorem
    raise PipelineError(f"no theorem of level {level} in {TRIES} draws", "try another seed")


def _attempt(rng: Random, level: int, names: str, lemmas: Sequence[Lemma]) -> Theorem | None:
    """Draw hypotheses, derive, and take a far formula; None if none is far enough."""
    of_atoms, every = columns(names), (1 << (1 << len(names))) - 1
    row = 1 << rng.randrange(1 << len(names))  # of the truth table; all hypotheses are true there
    hypotheses: list[Proposition] = []
    while len(hypotheses) < 3 + level:
        drawn = _hypothesis(rng, names)
        if drawn not in hypotheses and column(drawn, of_atoms, every) & row:
            hypotheses.append(drawn)
    premises = [Derived(formula, "premise") for formula in hypotheses]
    known = {one.formula: one for one in premises}
    known.update(_by_lemmas(premises, rng.sample(lemmas, len(lemmas) // 2), known))
    _forward(rng, known, rounds=3 + level, depth=depth_of_level(level) + 1)
    goals = [one for one in known.values() if _far(one, level, of_atoms, every)]
    if not goals:
        return None
    goal = rng.choice(goals)
    needed = needed_for(goal)
    if all(one in needed for one in premises):
        return None  # no distractor among them
    return Theorem(
        tuple(str(one.formula) for one in premises),
        str(goal.formula),
        written([one for one in [*premises, *known.values()] if one in needed], goal, needed),
    )


def _far(one: Derived, level: int, of_atoms: dict[str, int], every: int) -> bool:
    """Whether a formula's proof has the length and depth of the level, and nothing shorter is in sight.

    No fewer hypotheses imply the formula, nor do they imply one from which it follows in a step or two.
    """
    if one.rule == "premise":
        return False
    needed = needed_for(one)
    least, size = steps_of_level(level), sum(step.rule not in GIVEN for step in needed)
    used = [column(step.formula, of_atoms, every) for step in needed if step.rule == "premise"]
    if not least <= size <= least + 4 + level or len(used) < 2 + level // 3:
        return False
    if depth_of(needed) < depth_of_level(level):
        return False
    op, parts = one.formula.op, one.formula.parts
    stronger: tuple[Proposition, ...] = ()
    if op == "|":
        stronger = parts
    elif op == "->":
        stronger = (_denied(parts[0]), parts[1])
    elif op == "~" and parts[0].op == "~":
        stronger = parts[0].parts
    given = _all(used, every)
    if any(follows(given, column(part, of_atoms, every)) for part in stronger):
        return False
    goal = column(one.formula, of_atoms, every)
    return not any(
        follows(_all(used[:left_out] + used[left_out + 1 :], every), goal)
        for left_out in range(len(used))
    )


def _all(rows: list[int], every: int) -> int:
    """The rows that all of them have."""
    return reduce(and_, rows, every)


def _hypothesis(rng: Random, names: str) -> Proposition:
    """A formula that rules can work on: two or three literals."""
    one, two, three = (_literal(rng, name) for name in rng.sample(names, 3))
    joined = Proposition(rng.choice("&|"), (two, three))
    return rng.choice(
        [
            one,
            Proposition("->", (one, two)),
            Proposition("->", (one, two)),
            Proposition("->", (one, joined)),
            Proposition("->", (joined, one)),
            Proposition("|", (one, two)),
            Proposition("&", (one, two)),
            Proposition("<->", (one, two)),
            Proposition("|", (one, joined)),
        ]
    )


def _literal(rng: Random, name: str) -> Proposition:
    atom = Proposition(name)
    return Proposition("~", (atom,)) if rng.random() < 0.25 else atom


Known = dict[Proposition, Derived]


def _forward(rng: Random, known: Known, rounds: int, depth: int) -> list[Derived]:
    """Add what follows from what is known; sub-proofs up to so deep.

    All that plain rules give comes before any sub-proof, so none proves what can be had without it.
    """
    added = _saturate(known)
    for _ in range(rounds):
        if FALSE in known:
            break
        if depth and rng.random() < 0.8:
            found = _subproof(rng, known, max(1, rounds // 2), depth - 1)
        else:
            found = _joined(rng, list(known.values()))
        if found is not None and found.formula not in known and _size(found.formula) <= MAX_SIZE:
            known[found.formula] = found
            added += [found, *_saturate(known)]
    return added


def _by_lemmas(premises: list[Derived], lemmas: Sequence[Lemma], known: Known) -> Known:
    """What lemmas give, all of whose hypotheses are premises.

    Lemmas of lemmas would go on without end, and most of them would say nothing new.
    """
    found: Known = {}
    for lemma in lemmas:
        first, *others = lemma.sequent.hypotheses or (None,)
        for one in premises:
            bound: dict[str, Proposition] = {}
            if first is None or not matches(first, one.formula, bound):
                continue
            rest = [filled(other, bound) for other in others]
            formula = filled(lemma.sequent.goal, bound)
            if formula is None or formula in known or _size(formula) > MAX_SIZE:
                continue
            cited = [known.get(other) for other in rest if other is not None]
            if len(cited) == len(rest) and all(cited):
                steps = (one, *(other for other in cited if other is not None))
                found.setdefault(formula, Derived(formula, f"lemma {lemma.name}", steps))
    return found


def filled(pattern: Proposition, bound: dict[str, Proposition]) -> Proposition | None:
    """A pattern with formulas for its atoms; None if one has none."""
    if not pattern.parts:
        return pattern if pattern.op == "false" else bound.get(pattern.op)
    parts = [filled(part, bound) for part in pattern.parts]
    known = tuple(part for part in parts if part is not None)
    return Proposition(pattern.op, known) if len(known) == len(parts) else None


def _saturate(known: Known) -> list[Derived]:
    """Add everything that rules without sub-proofs give; what needs fewer steps comes first."""
    added: list[Derived] = []
    while True:
        fresh: Known = {}
        for formula, rule, cited in consequences(list(known.values()), known):
            if formula not in known and formula not in fresh:
                fresh[formula] = Derived(formula, rule, cited)
        if not fresh:
            return added
        known.update(fresh)
        added += fresh.values()


def _joined(rng: Random, lines: list[Derived]) -> Derived:
    """Two lines, joined by ``&``."""
    one, other = rng.sample(lines, 2)
    return Derived(Proposition("&", (one.formula, other.formula)), "and-intro", (one, other))


Following = tuple[Proposition, str, tuple[Derived, ...]]
"""A formula, the rule that gives it, and from what."""


def consequences(lines: list[Derived], known: Known) -> Iterator[Following]:
    """Everything that one rule without sub-proofs gives, but for joining anything with anything."""
    for one in lines:
        op, parts = one.formula.op, one.formula.parts
        if op == "&":
            yield (parts[0], "and-elim-left", (one,))
            yield (parts[1], "and-elim-right", (one,))
        elif op == "->" and parts[0] in known:
            yield (parts[1], "implies-elim", (one, known[parts[0]]))
        elif op == "<->":
            if parts[0] in known:
                yield (parts[1], "iff-elim-left", (one, known[parts[0]]))
            if parts[1] in known:
                yield (parts[0], "iff-elim-right", (one, known[parts[1]]))
        elif op == "~" and parts[0] in known:
            yield (FALSE, "not-elim", (one, known[parts[0]]))
        elif op == "~" and parts[0].op == "~":
            yield (parts[0].parts[0], "double-negation", (one,))
        if op in ("->", "|") and one.rule == "premise":  # join what a hypothesis asks for
            for part in parts:
                if part.op == "&" and part.parts[0] in known and part.parts[1] in known:
                    yield (part, "and-intro", (known[part.parts[0]], known[part.parts[1]]))
                if part.op == "|" and part.parts[0] in known:
                    yield (part, "or-intro-left", (known[part.parts[0]],))
                if part.op == "|" and part.parts[1] in known:
                    yield (part, "or-intro-right", (known[part.parts[1]],))


def _subproof(rng: Random, known: Known, rounds: int, depth: int) -> Derived | None:
    """Something that a new sub-proof, or two of them, give."""
    disjunctions = [one for one in known.values() if one.formula.op == "|"]
    if disjunctions and rng.random() < 0.4:
        return _cases(rng, known, rng.choice(disjunctions), rounds, depth)
    wanted = [part for one in known for part in one.parts[:1] if one.op in ("->", "<->", "|")]
    wanted += [one.parts[1] for one in known if one.op == "<->"]
    wanted += [_denied(one.parts[-1]) for one in known if one.op == "->"]
    wanted = [one for one in wanted if one not in known]
    if not wanted:
        return None
    opened, inner = _enclosed(rng, known, rng.choice(wanted), rounds, depth)
    assumed = opened.assumption.formula
    if FALSE in inner and needs(inner[FALSE], opened.assumption):
        opened.end = inner[FALSE]
        if assumed.op == "~" and rng.random() < 0.7:
            return Derived(assumed.parts[0], "raa", (opened,))
        return Derived(Proposition("~", (assumed,)), "not-intro", (opened,))
    ends = [one for one in opened.inside if needs(one, opened.assumption)]
    if not ends:
        return None
    opened.end = rng.choice(ends[-4:])
    back = Proposition("->", (opened.end.formula, assumed))
    if back in known and rng.random() < 0.5:
        return None
    return Derived(Proposition("->", (assumed, opened.end.formula)), "implies-intro", (opened,))


def _cases(rng: Random, known: Known, either: Derived, rounds: int, depth: int) -> Derived | None:
    """What follows in both cases: what both reach, what one does (the other is absurd), or one of each."""
    cases = [
        _enclosed(rng, known, part, rounds, depth)
        for part in either.formula.parts
        if part not in known
    ]
    if len(cases) < 2:
        return None
    (first, in_first), (second, in_second) = cases
    reached = [
        [one for one in case.inside if needs(one, case.assumption)] or [case.assumption]
        for case in (first, second)
    ]
    own = {one.formula: one for one in reached[0]}
    both = [one.formula for one in reached[1] if one.formula in own]
    if both:
        conclusion = rng.choice(both)
        first.end, second.end = in_first[conclusion], in_second[conclusion]
    elif FALSE in in_first or FALSE in in_second:
        absurd, why, other, ends = (
            (first, in_first[FALSE], second, reached[1])
            if FALSE in in_first
            else (second, in_second[FALSE], first, reached[0])
        )
        other.end = rng.choice(ends)
        conclusion = other.end.formula
        absurd.end = Derived(conclusion, "explosion", (why,))
        absurd.inside.append(absurd.end)
    else:
        left, right = rng.choice(reached[0]), rng.choice(reached[1])
        conclusion = Proposition("|", (left.formula, right.formula))
        if conclusion in known:
            return None
        first.end = Derived(conclusion, "or-intro-left", (left,))
        second.end = Derived(conclusion, "or-intro-right", (right,))
        first.inside.append(first.end)
        second.inside.append(second.end)
    return Derived(conclusion, "or-elim", (either, first, second))


def _enclosed(
    rng: Random, known: Known, formula: Proposition, rounds: int, depth: int
) -> tuple[Enclosed, Known]:
    """A sub-proof of an assumption, not ended yet, and all that is known in it."""
    opened = Enclosed(Derived(formula, "assume"))
    inner = {**known, formula: opened.assumption}
    opened.inside = _forward(rng, inner, rounds, depth)
    return opened, inner


def _denied(formula: Proposition) -> Proposition:
    return formula.parts[0] if formula.op == "~" else Proposition("~", (formula,))


def _size(formula: Proposition) -> int:
    return 1 + sum(map(_size, formula.parts))


def needed_for(goal: Derived) -> set[Derived]:
    """All that a formula's derivation used, itself included."""
    needed, todo = set[Derived](), [goal]
    while todo:
        one = todo.pop()
        if one not in needed:
            needed.add(one)
            for cited in one.cited:
                if isinstance(cited, Derived):
                    todo.append(cited)
                else:
                    assert cited.end is not None
                    todo += [cited.assumption, cited.end]
    return needed


def needs(one: Derived, assumption: Derived) -> bool:
    """Whether a derivation used an assumption."""
    return assumption in needed_for(one)


def depth_of(needed: set[Derived]) -> int:
    """How deep the sub-proofs are among what a derivation used."""
    return max(map(_nested, needed))


def _nested(one: Derived) -> int:
    """How deep the sub-proofs are that a step cites."""
    return max(
        (
            1 + max(map(_nested, _used(cited)), default=0)
            for cited in one.cited
            if isinstance(cited, Enclosed)
        ),
        default=0,
    )


def _used(subproof: Enclosed) -> list[Derived]:
    """Of what was derived in a sub-proof, in order, what its end used."""
    assert subproof.end is not None
    needed = needed_for(subproof.end)
    return [one for one in subproof.inside if one in needed]


def written(lines: list[Derived], goal: Derived, needed: set[Derived]) -> str:
    """The proof as text: these lines, and the sub-proofs that they cite, up to the goal."""
    text: list[str] = []
    numbers: dict[Derived, int] = {}

    def write(one: Derived, depth: int) -> None:
        spans = [
            enclose(cited, depth + 1) if isinstance(cited, Enclosed) else str(numbers[cited])
            for cited in one.cited
        ]
        numbers[one] = len(text) + 1
        by = " ".join([one.rule, *spans])
        text.append(f"{'| ' * depth}{numbers[one]}. {one.formula}  [{by}]")

    def enclose(subproof: Enclosed, depth: int) -> str:
        write(subproof.assumption, depth)
        for one in subproof.inside:
            if one in needed and one not in numbers:
                write(one, depth)
                if one is subproof.end:
                    break
        return f"{numbers[subproof.assumption]}-{len(text)}"

    for one in lines:
        if one not in numbers:
            write(one, 0)
        if one is goal:
            break
    return "\n".join(text)
