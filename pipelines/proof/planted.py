"""Plant one error whose step is known: a second opinion says that what stands there does not follow.

Near-proofs of this kind show that a checker finds errors, and label them exactly for judges.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from envgen.pipelines.proof.models import Table, holds, models
from envgen.pipelines.proof.spoil import WrittenStep, changed_formula, read_steps
from envgen.pipelines.proof.spoil_chain import changed_term, read_chain, written_chain
from envgen.verifiers.equational import Algebra
from envgen.verifiers.propositions import Sequent, atoms, read_proposition
from envgen.verifiers.terms import Equation, read_term


class PlantedError(NamedTuple):
    """A text that is right up to one step."""

    text: str
    step: int
    """The number of the first wrong one."""


def planted(rng: Random, proof: str, sequent: Sequent) -> Iterator[PlantedError]:
    """For each step of a proof in natural deduction: the same with a formula there that does not follow.

    Truth tables say that it does not follow from the hypotheses and the assumptions over it.
    """
    steps = read_steps(proof)
    formulas = [read_proposition(step.formula) for step in steps]
    names = sorted(frozenset().union(*map(atoms, formulas)))
    table = Table([*formulas, *sequent.hypotheses])
    for at, step in enumerate(steps):
        if step.rule in ("premise", "assume"):
            continue
        given = [*sequent.hypotheses, *(formulas[one] for one in _over(steps, at))]
        for _ in range(20):
            other = changed_formula(rng, formulas[at], [*names, "false"])
            if not table.follows(given, other):
                spoilt = [*steps[:at], step._replace(formula=str(other)), *steps[at + 1 :]]
                text = "\n".join(one.at(number) for number, one in enumerate(spoilt, start=1))
                yield PlantedError(text, at + 1)
                break


def _over(steps: list[WrittenStep], at: int) -> list[int]:
    """The assumptions of the sub-proofs that a step is in."""
    found, depth = [], steps[at].bars.count("|")
    for before in range(at - 1, -1, -1):
        bars = steps[before].bars.count("|")
        if steps[before].rule == "assume" and bars == depth:
            found.append(before)
            depth -= 1
    return found


def planted_in_chain(rng: Random, proof: str, algebra: Algebra) -> Iterator[PlantedError]:
    """For each link of a chain: the same with a term there that some model tells from the one before."""
    links = read_chain(proof)
    small = models(tuple(sorted(algebra.signature.items())))
    for at in range(1, len(links)):
        before = read_term(links[at - 1][0], algebra.signature)
        for _ in range(20):
            text = changed_term(rng, links[at][0], algebra)
            other = Equation(before, read_term(text, algebra.signature))
            if any(not holds(other, model) for model in small):
                spoilt = [*links[:at], (text, links[at][1]), *links[at + 1 :]]
                yield PlantedError(written_chain(spoilt), at + 1)
                break
