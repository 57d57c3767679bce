"""The verifier of code tasks: a diff is judged by the repository's tests, in a fresh workspace."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

from envgen.core.code_types import CodeTests, Status, TestId
from envgen.core.errors import VerifierError, WorkspaceError
from envgen.core.types import Score, Submission
from envgen.sandboxes.workspace import Workspace, WorkspaceLimits
from envgen.sandboxes.workspace.store import judging
from envgen.verifiers.code_run import Exam, RunStatus, TestRun, run_tests
from envgen.verifiers.general import NO_SUBMISSION
from envgen.verifiers.lookalikes.judging import Examiner

MISSING = "missing"
"""What the table of tests says of one that is not in the report."""
_SHOWN = 20
"""Reasons that name a test, of each list."""
_GOOD = frozenset({Status.PASS, Status.XFAIL})


class CodeVerifier:
    """Scores 1 iff every fail-to-pass and pass-to-pass test passes on the submitted diff, else 0.

    Look-alikes are asked first, the true tests run last: whoever fails the look-alikes never meets them,
    and after whoever meets them nothing is asked. A diff that does not apply, does not build, hangs, leaves
    no report or forges one scores 0. The score's ``tests`` tell how each test ended; of a diff that fails
    look-alikes, those that the run asked about.

    Args:
        workspace: the repository at the base commit.
        tests: the task's ``verifier.json``.
        limits: of the sandbox that the tests run in.
    """

    def __init__(
        self, workspace: Workspace, tests: CodeTests, limits: WorkspaceLimits | None = None
    ) -> None:
        self.workspace = workspace
        self.tests = tests
        self._limits = limits
        self._examiner = Examiner(workspace, tests, exam_of(tests), limits, wary=True)

    def verify(self, submission: Submission) -> Score:
        """Score a submission whose ``raw`` is a git diff of the base commit.

        Raises:
            VerifierError: if the tests could not be set or run, whatever the diff.
        """
        if submission.raw is None:
            return Score(value=0.0, passed=False, reasons=(NO_SUBMISSION,))
        return self.verify_patch(submission.raw.encode("utf-8", "surrogateescape"))

    def verify_patch(self, patch: bytes) -> Score:
        """Score a git diff of the base commit. Raises VerifierError."""
        try:
            with closing(self._examiner.faults(patch)) as faults:
                if found := next(faults, None):
                    return found.score()
            # who meets the true tests must not tell those who are being asked which ones are true
            with judging(self.workspace.folder, alone=False):
                run = run_tests(self.workspace, exam_of(self.tests), patch, limits=self._limits)
            return score_run(run, self.tests)
        except WorkspaceError as error:
            raise VerifierError(f"the workspace can't be opened: {error}", error.hint) from error


def exam_of(tests: CodeTests) -> Exam:
    """The inputs of a code task's verifier."""
    return Exam(
        test_patch=tests.test_patch.encode("utf-8", "surrogateescape"),
        test_files=tests.test_files,
        test_paths=tests.test_paths,
        canary_files=tests.canary_files,
        alarms=tests.alarms,
        registered=tests.registered,
        only=tests.only,
        near=tests.near,
    )


def score_run(run: TestRun, tests: CodeTests) -> Score:
    """The score of a run of a code task's tests."""
    if run.report is None:
        return Score(value=0.0, passed=False, reasons=(f"{run.status}: {run.reason}",))
    assert run.status is RunStatus.RAN
    statuses = run.report.statuses()
    table = {test: str(statuses.get(test, MISSING)) for test in _judged(tests)}
    # A fail-to-pass test must pass outright: an expected failure says that what it asks for still isn't
    # there. One that passed before may go on to fail as expected. A missing test counts as broken in both,
    # or a change could get rid of tests instead of passing them.
    reasons = [
        *_broken("fail_to_pass", tests.fail_to_pass, statuses, {Status.PASS}),
        *_broken("pass_to_pass", tests.pass_to_pass, statuses, _GOOD),
    ]
    passed = not reasons
    return Score(value=float(passed), passed=passed, reasons=tuple(reasons), tests=table)


def _judged(tests: CodeTests) -> tuple[TestId, ...]:
    return (*tests.fail_to_pass, *tests.pass_to_pass)


def _broken(
    name: str,
    wanted: tuple[TestId, ...],
    statuses: Mapping[TestId, Status],
    good: frozenset[Status] | set[Status],
) -> list[str]:
    """A reason for each test that does not hold; beyond the first ones, their number."""
    bad = [test for test in wanted if statuses.get(test) not in good]
    shown = [f"{name}: {test} is {statuses.get(test, MISSING)}" for test in bad[:_SHOWN]]
    more = [f"{name}: {len(bad) - _SHOWN} more"] if len(bad) > _SHOWN else []
    return [*shown, *more]
