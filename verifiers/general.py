"""The verifier of general-agent tasks: strict parsing and schema on the host, rules in a sandbox."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import JsonValue

from envgen.core.errors import VerifierError
from envgen.core.schema import Validator
from envgen.core.types import Schema, Score, Submission
from envgen.sandboxes.verifier import VerifierHost, VerifierInput, VerifierReply
from envgen.verifiers.parse import AnswerError, parse_answer, whole_numbers

NO_SUBMISSION = "no_submission"
MALFORMED = "malformed"
SCHEMA = "schema"
"""Reasons that stand before any rule of the task; the last two are followed by ``: details``."""


class GeneralVerifier:
    """Runs a task's ``verifier.py`` on a submission.

    The submission's ``raw`` text is parsed strictly (a code fence around it is taken off, 75.0 is 75 where
    the schema says integer) and checked against the submit schema before the code sees it; where ``raw``
    is None, ``answer`` is taken as parsed.

    Args:
        source: the text of ``verifier.py``: ``def verify(answer, initial, final) -> list[str]``.
        submit_schema: what may be submitted; None allows any JSON.
        host: runs the code.
        check_schema: off lets every JSON value through, so that the code itself is attacked.
        timeout_s: for one submission.
    """

    def __init__(
        self,
        source: str,
        submit_schema: Schema | None,
        host: VerifierHost,
        *,
        check_schema: bool = True,
        timeout_s: float = 10.0,
    ) -> None:
        self.source = source
        self.submit_schema = submit_schema
        self.check_schema = check_schema
        self._host = host
        self._timeout_s = timeout_s
        self._validator = Validator({} if submit_schema is None else submit_schema)

    def unchecked(self) -> GeneralVerifier:
        """The same verifier without its schema check."""
        return GeneralVerifier(
            self.source,
            self.submit_schema,
            self._host,
            check_schema=False,
            timeout_s=self._timeout_s,
        )

    def moved(self, host: VerifierHost) -> GeneralVerifier:
        """The same verifier on another host."""
        return GeneralVerifier(
            self.source,
            self.submit_schema,
            host,
            check_schema=self.check_schema,
            timeout_s=self._timeout_s,
        )

    def verify(self, submission: Submission) -> Score:
        """Score one submission.

        Raises:
            VerifierError: if the code crashed, hung or returned nonsense, or a database is missing.
        """
        return self.verify_many([submission])[0]

    def verify_many(self, submissions: Sequence[Submission]) -> list[Score]:
        """Score submissions, all of them in one call of the host.

        Raises:
            VerifierError: at the first that could not be judged.
        """
        scores: list[Score | None] = []
        inputs: list[VerifierInput] = []
        for submission in submissions:
            judged = self._judge(submission)
            scores.append(judged if isinstance(judged, Score) else None)
            if isinstance(judged, VerifierInput):
                inputs.append(judged)
        replies = iter(self._run(inputs))
        return [_score(next(replies)) if score is None else score for score in scores]

    def _run(self, inputs: list[VerifierInput]) -> list[VerifierReply]:
        if not inputs:
            return []
        replies = self._host.verify_many(self.source, inputs, self._timeout_s)
        if len(replies) != len(inputs):
            raise VerifierError(f"{len(inputs)} submissions got {len(replies)} verdicts")
        return replies

    def _judge(self, submission: Submission) -> Score | VerifierInput:
        """A score where the host can tell, else what to ask the code."""
        answer: JsonValue = submission.answer
        if submission.raw is not None:
            try:
                answer = parse_answer(submission.raw)
                if self.check_schema:
                    answer = whole_numbers(answer, self.submit_schema)
            except AnswerError as error:
                return _failed(f"{MALFORMED}: {error}")
        elif answer is None and self.check_schema:
            return _failed(NO_SUBMISSION)
        if self.check_schema:
            fault = self._validator.fault(answer)
            if fault is not None:
                return _failed(f"{SCHEMA}: {fault}")
        if submission.initial is None:
            raise VerifierError("a submission without the initial database can't be judged")
        final = submission.initial if submission.final is None else submission.final
        return VerifierInput(answer, Path(submission.initial), Path(final))


def _failed(reason: str) -> Score:
    return Score(value=0.0, passed=False, reasons=(reason,))


def _score(reply: VerifierReply) -> Score:
    if reply.fault is not None or reply.broken is None:
        raise VerifierError(f"the verifier is broken: {reply.fault or 'no verdict'}")
    if reply.broken:
        return Score(value=0.0, passed=False, reasons=tuple(reply.broken))
    return Score(value=1.0, passed=True)
