"""The contract of a verifier: it turns a submission into a score."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from envgen.core.types import Score, Submission


@runtime_checkable
class Verifier(Protocol):
    """Scores what an episode produced.

    A wrong answer is a ``Score`` whose ``reasons`` say what is wrong; a verifier that can't judge
    raises ``VerifierError``, it never scores 0.0 for its own faults. The same submission gets the
    same score every time.
    """

    def verify(self, submission: Submission) -> Score:
        """Score one submission.

        Raises:
            VerifierError: if the verifier crashed, hung or broke its contract.
        """
        ...


@runtime_checkable
class BatchVerifier(Verifier, Protocol):
    """A verifier that scores many submissions at once, faster than one by one."""

    def verify_many(self, submissions: Sequence[Submission]) -> list[Score]:
        """Score submissions; as many scores, in the same order.

        Raises:
            VerifierError: if it could not judge one of them.
        """
        ...
