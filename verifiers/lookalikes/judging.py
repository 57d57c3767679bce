"""Judge a change by look-alikes: several runs, each in a fresh workspace and with its own secrets."""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial

from envgen.core.code_types import CodeTests, Status, VerdictKind
from envgen.core.errors import VerifierError
from envgen.core.types import Score
from envgen.sandboxes.workspace import Halt, Workspace, WorkspaceLimits
from envgen.sandboxes.workspace.store import judging
from envgen.verifiers.code_run import Exam, TestRun, read_tests, run_tests
from envgen.verifiers.lookalikes.paper import LANGUAGES, Copy, Paper, runs_of, sitting

SIDE_BY_SIDE = 2
"""Runs of one judgement at a time."""
SAMPLE = 6
"""Questions about pass-to-pass tests in a run,"""
SAMPLE_COPIES = 2
"""and how many look-alikes each has at most."""


class Examiner:
    """Asks the questions of a code task's verifier.

    Args:
        workspace: the repository at the base commit.
        tests: with questions that were proven on the gold patch.
        exam: the run of all tests.
        limits: of the sandboxes.
        draw: where secrets come from; the default can't be predicted.
        wary: the change may remember: before each run this machine forgets what was read, runs come one
            after the other, and none of another judgement in this workspace is under way. Gold needs
            none of that.
    """

    def __init__(
        self,
        workspace: Workspace,
        tests: CodeTests,
        exam: Exam,
        limits: WorkspaceLimits | None = None,
        draw: random.Random | None = None,
        *,
        wary: bool = False,
    ) -> None:
        self.workspace, self.tests, self.exam, self.limits = workspace, tests, exam, limits
        self.draw = draw or secrets.SystemRandom()
        self.wary = wary
        self.language = LANGUAGES.get(workspace.recipe.language)
        self._sources: dict[str, bytes] | None = None

    def faults(self, change: bytes) -> Generator[list[str]]:
        """Find what is wrong with a change that passes every test; on close, what still runs ends.

        Raises:
            VerifierError: if the look-alikes could not be made.
            SandboxError: if a sandbox failed.
        """
        runs = range(runs_of(self.language) if self.tests.questions and self.language else 0)
        work = [partial(self.sat, self.paper(n), change) for n in runs]
        if self.tests.gutted:
            work.append(partial(self._gutted, change))
        halt = Halt()
        place = self.workspace.folder
        apart = judging(place, alone=True) if work and self.wary else nullcontext()
        with apart, ThreadPoolExecutor(1 if self.wary else SIDE_BY_SIDE) as pool:
            try:
                for run in [pool.submit(_within, halt, one) for one in work]:
                    if found := run.result():
                        yield found
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                halt.set()
                raise

    def paper(self, n: int, *, whole: bool = False) -> Paper:
        """The look-alikes of the nth run: all fail-to-pass questions and a sample of the others.

        With ``whole``, for rehearsals, all questions are asked alike.
        """
        assert self.language is not None
        known = {test for test, one in self.tests.verdicts.items() if one.runs}
        asked = [one for one in self.tests.questions if known.intersection(one.tests)]
        rest = [one for one in self.tests.questions if not known.intersection(one.tests)]
        sources, most = self.sources(), self.tests.copies
        sample = rest if whole else self.draw.sample(rest, min(SAMPLE, len(rest)))
        try:
            sizes = (most, most if whole else SAMPLE_COPIES)
            return sitting(asked, sample, self.language, sources, sizes, n, self.draw)
        except (KeyError, SyntaxError, ValueError, IndexError) as error:
            raise VerifierError(
                f"the questions of the verifier don't fit its test files: {error!r}",
                "make the dataset again",
            ) from error

    def sources(self) -> dict[str, bytes]:
        """The files with questions, as they are after the test patch."""
        if self._sources is None:
            files = dict.fromkeys(question.file for question in self.tests.questions)
            self._sources = read_tests(self.workspace, self.exam, files, limits=self.limits)
        return self._sources

    def sat(self, paper: Paper, change: bytes) -> list[str]:
        """Do one run, and return its faults."""
        run = self.run(paper, change)
        if run.report is None:
            return [f"look-alikes: {run.status}: {run.reason}"]
        return [_reason(copy, fault) for copy, fault in paper.faults(run.report).items()]

    def run(self, paper: Paper, change: bytes) -> TestRun:
        """Run the files of a paper, and only those if the runner can select files."""
        exam = self.exam.model_copy(
            update={
                "rendered": paper.files,
                "only": tuple(paper.files),
                "canary_files": (),
                "rounds": paper.values,
                "rounds_variable": paper.variable,
            }
        )
        return self._tested(exam, change)

    def _tested(self, exam: Exam, change: bytes) -> TestRun:
        if self.wary:
            self.workspace.forget()
        return run_tests(self.workspace, exam, change, limits=self.limits)

    def _gutted(self, change: bytes) -> list[str]:
        kinds = self.tests.verdicts
        wanted = [test for test in kinds if kinds[test].kind is VerdictKind.GUTTED_ONLY]
        files = dict.fromkeys(test.partition("::")[0] for test in wanted)
        exam = self.exam.model_copy(
            update={"gutted": self.tests.gutted, "only": tuple(files), "canary_files": ()}
        )
        run = self._tested(exam, change)
        statuses = {} if run.report is None else run.report.statuses()
        passed = [test for test in wanted if statuses.get(test) is Status.PASS]
        return [f"forged: {test} passes without the functions it is about" for test in passed]


def _within(halt: Halt, work: Callable[[], list[str]]) -> list[str]:
    with halt.covering():
        return work()


def examined(score: Score, faults: Sequence[str]) -> Score:
    """The score that the tests gave, or 0 with the faults that look-alikes found."""
    if not faults:
        return score
    return score.model_copy(
        update={"value": 0.0, "passed": False, "reasons": tuple(dict.fromkeys(faults))[:20]}
    )


def _reason(copy: Copy, fault: str) -> str:
    test = copy.question.tests[0]
    if fault == "forged":
        return f"forged: a look-alike of {test} that must fail did not"
    return (
        f"{fault}: the look-alike of {test} that must pass"
        if copy.right
        else f"forged: {test} vanished"
    )
