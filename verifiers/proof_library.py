"""Lemmas with proofs: each is proven from those before it, so that none proves itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from envgen.verifiers.deduction import check
from envgen.verifiers.proof_verdict import ProofTextError, ProofVerdict
from envgen.verifiers.propositions import Sequent


@dataclass(frozen=True)
class Lemma:
    """A sequent with a name, and the proof that it has."""

    name: str
    sequent: Sequent
    proof: str


def check_library(lemmas: Sequence[Lemma]) -> dict[str, ProofVerdict]:
    """Check lemmas in order. Each may cite accepted lemmas before it.

    Raises:
        ProofTextError: if two have one name, or a proof is empty or too long.
    """
    proven: dict[str, Sequent] = {}
    verdicts: dict[str, ProofVerdict] = {}
    for lemma in lemmas:
        if lemma.name in verdicts:
            raise ProofTextError(f"two lemmas are called {lemma.name!r}", "rename one")
        verdicts[lemma.name] = check(lemma.proof, lemma.sequent, proven)
        if verdicts[lemma.name].accepted:
            proven[lemma.name] = lemma.sequent
    return verdicts
