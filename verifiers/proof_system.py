"""What an agent needs of a proof system: steps with open goals, whole proofs judged, what may be cited."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from envgen.verifiers.proof_verdict import ProofVerdict


class WrongStepError(Exception):
    """Raised for the first step that doesn't follow; the ones before it are right.

    Attributes:
        number: of the step, from 1.
        reason: what is wrong with it, in plain words.
    """

    def __init__(self, number: int, reason: str) -> None:
        self.number, self.reason = number, reason
        super().__init__(f"step {number}: {reason}")


class ProofState(NamedTuple):
    """A proof that is being written."""

    lines: tuple[str, ...]
    """The steps so far, as they are shown."""
    open_goals: tuple[str, ...]
    """What is left to show; none: ``ProofSystem.text`` of these steps is a whole proof."""


class Known(NamedTuple):
    """A rule, an axiom or a lemma that steps may cite."""

    name: str
    statement: str


class ProofSystem(Protocol):
    """A statement to prove, with all that a proof of it may cite."""

    def follow(self, steps: Sequence[str]) -> ProofState:
        """Where these steps lead.

        Raises:
            WrongStepError: at the first that is wrong, or that can't be read.
        """

    def text(self, steps: Sequence[str]) -> str:
        """Right steps as the text of a proof, which ``check`` judges."""

    def check(self, proof: str) -> ProofVerdict:
        """Judge a whole proof.

        Raises:
            ProofTextError: if the text is empty or too long.
        """

    def known(self) -> Sequence[Known]:
        """All that steps may cite beside the statement's own hypotheses."""
