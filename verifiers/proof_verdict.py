"""What the checkers of proofs say: the verdict that they give, and the one error that they raise."""

from __future__ import annotations

from dataclasses import dataclass

from envgen.core.errors import EnvgenError

MAX_PROOF_CHARS = 200_000
MAX_LINE_CHARS = 2_000


class ProofTextError(EnvgenError, ValueError):
    """Raised for a text that is no proof, formula, term or statement at all: nothing in it can be judged."""


@dataclass(frozen=True)
class ProofVerdict:
    """Accepted, or the first wrong line and why."""

    num_steps: int
    """Lines that were found right, in order; of an accepted proof all of them."""
    line: int = 0
    """The number of the first wrong line; 0 if the proof is accepted."""
    reason: str = ""
    """What is wrong there, in plain words."""

    @property
    def accepted(self) -> bool:
        """Whether every line is right, and the last one is the goal."""
        return self.line == 0


def proof_lines(text: str) -> list[str]:
    """The lines of a proof that say something, without the spaces around them.

    Raises:
        ProofTextError: if there are none, or far too many.
    """
    if len(text) > MAX_PROOF_CHARS:
        raise ProofTextError(
            f"the proof has {len(text)} characters", f"at most {MAX_PROOF_CHARS} are read"
        )
    lines = [line.strip() for line in text.split("\n")]
    lines = [line for line in lines if line]
    if not lines:
        raise ProofTextError("the proof is empty", "write one step a line")
    return lines


def clipped(text: str, limit: int = 160) -> str:
    """A text that a reason may quote."""
    return text if len(text) <= limit else text[: limit - 3] + "..."
