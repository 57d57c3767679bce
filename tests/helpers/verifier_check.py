"""Put a verifier to the test: does it keep its contract, and does it hold under attack?"""

from __future__ import annotations

from pathlib import Path

from pydantic import JsonValue

from envgen.core.errors import ContractError, VerifierError
from envgen.core.types import Score, Submission
from envgen.verifiers.attacks import AttackReport, attack
from envgen.verifiers.base import BatchVerifier, Verifier
from envgen.verifiers.general import GeneralVerifier

REPEATS = 3


def check_verifier(
    verifier: Verifier, gold: JsonValue, initial: str | Path, final: str | Path | None = None
) -> AttackReport:
    """Check a verifier against its contract and the attack battery.

    The right answer passes with 1.0 and no reasons, every time; what fails has reasons and scores
    below 1; nothing submitted is a score, no error; a batch scores as its members do; and no attack
    gets through, with schema checking and (where the verifier has it) without.

    Args:
        verifier: to be checked.
        gold: an answer that is right.
        initial: the database before the episode.
        final: the database after it; ``initial`` if None.

    Raises:
        ContractError: listing everything that is wrong.
    """
    after = initial if final is None else final
    right = Submission(answer=gold, initial=str(initial), final=str(after))
    nothing = Submission(initial=str(initial), final=str(after))
    problems: list[str] = []
    for submission, name in ((right, "the right answer"), (nothing, "no answer")):
        scores = []
        for _ in range(REPEATS):
            try:
                scores.append(verifier.verify(submission))
            except VerifierError as error:
                problems.append(f"{name} breaks it: {error}")
                break
        problems += _score_problems(name, scores, passes=submission is right)
    problems += _batch_problems(verifier, [right, nothing, right])
    unchecked = verifier.unchecked() if isinstance(verifier, GeneralVerifier) else None
    report = attack(verifier, gold, initial, after, unchecked=unchecked)
    problems += report.lines()
    if problems:
        raise ContractError("the verifier breaks its contract:\n  " + "\n  ".join(problems[:50]))
    return report


def _score_problems(name: str, scores: list[Score], *, passes: bool) -> list[str]:
    problems = []
    if any(score != scores[0] for score in scores):
        problems.append(f"{name} gets different scores: {sorted(s.value for s in scores)}")
    for score in scores[:1]:
        if score.passed != passes:
            problems.append(f"{name} {'fails' if passes else 'passes'}: {list(score.reasons)}")
        if score.passed and (score.value < 1.0 or score.reasons):
            problems.append(f"{name} passes with {score.value} and {list(score.reasons)}")
        if not score.passed and not score.reasons:
            problems.append(f"{name} fails without a reason")
    return problems


def _batch_problems(verifier: Verifier, submissions: list[Submission]) -> list[str]:
    if not isinstance(verifier, BatchVerifier):
        return []
    try:
        together = verifier.verify_many(submissions)
        alone = [verifier.verify(one) for one in submissions]
    except VerifierError:
        return []  # told by the single calls
    return [] if together == alone else ["a batch scores differently from its members"]
