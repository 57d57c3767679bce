"""Spoil proofs in one place: near-proofs with the kind of error that was planted.

What comes out may still be a proof; that is for a checker to say.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random
from typing import NamedTuple

from envgen.core.errors import PipelineError
from envgen.verifiers.deduction import RULES
from envgen.verifiers.proof_verdict import ProofTextError
from envgen.verifiers.propositions import Proposition, atoms, read_proposition

_LINE = re.compile(r"([| ]*)(\d+)\. (.*?)  \[((?:lemma )?[a-z-]+)((?: [\d-]+)*)\]")
_NUMBER = re.compile(r"\d+")


class SpoiltProof(NamedTuple):
    """A text that differs from a proof, and how."""

    kind: str
    text: str


class WrittenStep(NamedTuple):
    """A step of a proof as text: ``| 3. P & Q  [and-intro 1 2]``."""

    bars: str
    formula: str
    rule: str
    cited: tuple[str, ...]

    def at(self, number: int) -> str:
        """The step as a line of the proof."""
        return f"{self.bars}{number}. {self.formula}  [{' '.join([self.rule, *self.cited])}]"


Steps = list[WrittenStep]


def read_steps(proof: str) -> Steps:
    """The steps of a well-formed proof.

    Raises:
        ProofTextError: if a line is none.
    """
    steps = []
    for line in proof.split("\n"):
        read = _LINE.fullmatch(line)
        if read is None:
            raise ProofTextError(f"no step: {line[:80]!r}")
        steps.append(WrittenStep(read[1], read[3], read[4], tuple(read[5].split())))
    return steps


def spoil(rng: Random, proof: str, kind: str | None = None) -> SpoiltProof:
    """A proof with one planted error.

    Args:
        rng: makes all choices.
        proof: a proof in natural deduction, one step a line.
        kind: of ``KINDS``; drawn if not given.

    Raises:
        PipelineError: if the proof has nothing that can be spoilt so.
    """
    steps = read_steps(proof)
    for _ in range(100):
        drawn = kind or rng.choice(sorted(KINDS))
        changed = KINDS[drawn](rng, list(steps))
        text = "\n".join(step.at(number) for number, step in enumerate(changed, start=1))
        if text not in (proof, ""):
            return SpoiltProof(drawn, text)
    raise PipelineError(f"the proof can't be spoilt by {kind!r}", "try another kind")


def _rule(rng: Random, steps: Steps) -> Steps:
    """Another rule's name."""
    at = rng.randrange(len(steps))
    steps[at] = steps[at]._replace(rule=rng.choice([*RULES, "premise", "assume"]))
    return steps


def _citation(rng: Random, steps: Steps) -> Steps:
    """Another line, earlier or later, in or out of scope."""
    at = rng.choice([at for at, step in enumerate(steps) if step.cited])
    cited = list(steps[at].cited)
    place = rng.randrange(len(cited))
    numbers = _NUMBER.findall(cited[place])
    numbers[rng.randrange(len(numbers))] = str(rng.randint(1, len(steps)))
    cited[place] = "-".join(numbers)
    steps[at] = steps[at]._replace(cited=tuple(cited))
    return steps


def _order(rng: Random, steps: Steps) -> Steps:
    """What a step cites, in another order, or one of them twice or left out."""
    at = rng.choice([at for at, step in enumerate(steps) if step.cited])
    cited = list(steps[at].cited)
    change = rng.randrange(3)
    if change == 0:
        rng.shuffle(cited)
    elif change == 1:
        cited[rng.randrange(len(cited))] = rng.choice(cited)
    else:
        del cited[rng.randrange(len(cited))]
    steps[at] = steps[at]._replace(cited=tuple(cited))
    return steps


def _formula(rng: Random, steps: Steps) -> Steps:
    """Another formula: one part of it changed, or another line's."""
    at = rng.randrange(len(steps))
    formula = read_proposition(steps[at].formula)
    if rng.random() < 0.2:
        other = rng.choice(steps).formula
    else:
        names = sorted({name for step in steps for name in atoms(read_proposition(step.formula))})
        other = str(changed_formula(rng, formula, [*names, "false"]))
    steps[at] = steps[at]._replace(formula=other)
    return steps


def changed_formula(rng: Random, formula: Proposition, names: list[str]) -> Proposition:
    """A formula with one connective or atom changed, one negation more or less, or two parts swapped."""
    if formula.parts and rng.random() < 0.6:
        place = rng.randrange(len(formula.parts))
        parts = list(formula.parts)
        parts[place] = changed_formula(rng, parts[place], names)
        return Proposition(formula.op, tuple(parts))
    if formula.op == "~" and rng.random() < 0.5:
        return formula.parts[0]
    if rng.random() < 0.3:
        return Proposition("~", (formula,))
    if len(formula.parts) == 2:
        if rng.random() < 0.4:
            return Proposition(formula.op, formula.parts[::-1])
        return Proposition(rng.choice(["&", "|", "->", "<->"]), formula.parts)
    return Proposition(rng.choice(names))


def _dropped(rng: Random, steps: Steps) -> Steps:
    """One step left out; what cites others is numbered anew, what cited it cites its neighbour."""
    return _moved(steps, rng.randrange(len(steps)), None)


def _swapped(rng: Random, steps: Steps) -> Steps:
    """One step moved to another place, with its number."""
    return _moved(steps, rng.randrange(len(steps)), rng.randrange(len(steps)))


def _moved(steps: Steps, place: int, target: int | None) -> Steps:
    """Take a step out, put it elsewhere or nowhere, and number what is cited anew."""
    order = [at for at in range(len(steps)) if at != place]
    if target is not None:
        order.insert(target, place)
    new = {str(old + 1): str(number) for number, old in enumerate(order, start=1)}
    new.setdefault(str(place + 1), str(max(place, 1)))
    return [
        steps[old]._replace(
            cited=tuple(_NUMBER.sub(lambda n: new.get(n[0], n[0]), one) for one in steps[old].cited)
        )
        for old in order
    ]


def _scope(rng: Random, steps: Steps) -> Steps:
    """One step a sub-proof further in or out."""
    at = rng.randrange(len(steps))
    bars = steps[at].bars
    steps[at] = steps[at]._replace(bars=bars + "| " if rng.random() < 0.4 else bars[2:])
    return steps


def _cut(rng: Random, steps: Steps) -> Steps:
    """The end is missing."""
    return steps[: rng.randint(1, len(steps))]


def _premise(rng: Random, steps: Steps) -> Steps:
    """A step is called a hypothesis."""
    at = rng.randrange(len(steps))
    steps[at] = steps[at]._replace(rule="premise", cited=())
    return steps


KINDS: dict[str, Callable[[Random, Steps], Steps]] = {
    "rule": _rule,
    "citation": _citation,
    "order": _order,
    "formula": _formula,
    "dropped": _dropped,
    "swapped": _swapped,
    "scope": _scope,
    "cut": _cut,
    "premise": _premise,
}
