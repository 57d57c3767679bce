"""Checking proofs: steps a second, and spoilt proofs that are accepted.

    python -P benchmarks/proof_checker.py [--theorems 200] [--mutants 20000]

Proofs and spoilt proofs of all eight levels, natural deduction and chains of equal terms. A step of a spoilt
proof counts if it was judged: those up to the first wrong one. Spoilt proofs that are accepted are proofs
(steps that may be swapped, say): ``tests/verifiers`` has a second checker that reads each. The same texts are
judged once more where a hypothesis is missing without which the goal does not follow (by truth tables): none
may be accepted. Times are processor time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from random import Random
from typing import NamedTuple

from envgen.core.seeding import rng
from envgen.pipelines.proof.derive import derive
from envgen.pipelines.proof.derive_chain import ALGEBRAS, derive_chain
from envgen.pipelines.proof.spoil import SpoiltProof, spoil
from envgen.pipelines.proof.spoil_chain import spoil_chain
from envgen.pipelines.proof.truth import column, columns, follows
from envgen.verifiers.deduction import check
from envgen.verifiers.equational import check_chain
from envgen.verifiers.proof_verdict import ProofVerdict
from envgen.verifiers.propositions import Proposition, Sequent, atoms

TARGET_STEPS = 5_000


class CheckedTheorem(NamedTuple):
    """A proof, and how to judge and spoil it."""

    proof: str
    judge: Callable[[str], ProofVerdict]
    spoil: Callable[[Random], SpoiltProof]
    judge_unprovable: Callable[[str], ProofVerdict] | None = None
    """With a hypothesis less, without which the goal does not follow."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--theorems", type=int, default=200)
    parser.add_argument("--mutants", type=int, default=20_000)
    arguments = parser.parse_args()
    for name, make in (("natural deduction", deduction), ("chains of terms", chain)):
        theorems = [make(number) for number in range(arguments.theorems)]
        measure(f"{name}, proofs", [(one.judge, one.proof) for one in theorems])
        mutants = spoilt(theorems, arguments.mutants)
        measure(f"{name}, spoilt proofs", [(one.judge, text) for text, one in mutants.items()])
        unprovable = [
            (one.judge_unprovable, text)
            for text, one in mutants.items()
            if one.judge_unprovable is not None
        ]
        if unprovable and measure(f"{name}, of what does not follow", unprovable):
            raise SystemExit("a proof was accepted of what does not follow")


def spoilt(theorems: list[CheckedTheorem], wanted: int) -> dict[str, CheckedTheorem]:
    """So many different spoilt proofs, fewer if there are no more to be had soon."""
    found: dict[str, CheckedTheorem] = {}
    for number in range(3 * wanted):
        if len(found) == wanted:
            break
        one = theorems[number % len(theorems)]
        found[one.spoil(rng(2, number)).text] = one
    return found


def measure(name: str, proofs: list[tuple[Callable[[str], ProofVerdict], str]]) -> int:
    """Print how fast texts are judged; how many are accepted."""
    started = time.process_time()
    verdicts = [judge(text) for judge, text in proofs]
    seconds = time.process_time() - started
    steps = sum(verdict.num_steps + (not verdict.accepted) for verdict in verdicts)
    accepted = sum(verdict.accepted for verdict in verdicts)
    verb = "meets" if steps / seconds >= TARGET_STEPS else "MISSES"
    print(
        f"{name}: {steps / seconds:,.0f} steps/s ({verb} {TARGET_STEPS:,}); "
        f"{accepted:,} of {len(proofs):,} texts accepted"
    )
    return accepted


def deduction(number: int) -> CheckedTheorem:
    """A theorem of propositional logic."""
    theorem = derive(rng(1, number), number % 8 + 1)
    sequent = Sequent.read(theorem.hypotheses, theorem.goal)
    needed = needed_hypothesis(sequent)
    fewer = tuple(one for one in sequent.hypotheses if one != needed)
    return CheckedTheorem(
        theorem.proof,
        lambda text: check(text, sequent),
        lambda draws: spoil(draws, theorem.proof),
        None if needed is None else lambda text: check(text, Sequent(fewer, sequent.goal)),
    )


def needed_hypothesis(sequent: Sequent) -> Proposition | None:
    """A hypothesis without which the goal does not follow from the others; None if there is none."""
    names = sorted(atoms(sequent.goal).union(*map(atoms, sequent.hypotheses)))
    every, of_atoms = (1 << (1 << len(names))) - 1, columns(names)
    goal = column(sequent.goal, of_atoms, every)
    for left_out in sequent.hypotheses:
        given = every
        for one in sequent.hypotheses:
            given &= every if one == left_out else column(one, of_atoms, every)
        if not follows(given, goal):
            return left_out
    return None


def chain(number: int) -> CheckedTheorem:
    """An equation."""
    theorem = derive_chain(rng(1, number), number % 8 + 1)
    algebra = ALGEBRAS[theorem.algebra]
    return CheckedTheorem(
        theorem.proof,
        lambda text: check_chain(text, algebra, theorem.goal),
        lambda draws: spoil_chain(draws, theorem.proof, algebra),
    )


if __name__ == "__main__":
    main()
