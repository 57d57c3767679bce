"""Judge a change by look-alikes: several runs, each in a fresh workspace and with its own secrets."""

from __future__ import annotations

import functools
import logging
import random
import secrets
from collections import Counter
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from typing import NamedTuple

from envgen.core.canonical import content_hash
from envgen.core.code_types import CodeTests, Status, TestId, VerdictKind
from envgen.core.errors import VerifierError
from envgen.core.types import Score
from envgen.sandboxes.workspace import Halt, Workspace, WorkspaceLimits
from envgen.sandboxes.workspace.store import judging
from envgen.verifiers.code_run import Exam, RunStatus, TestRun, read_tests, run_tests
from envgen.verifiers.lookalikes.paper import LANGUAGES, Copy, Paper, runs_of, sitting

logger = logging.getLogger(__name__)

SIDE_BY_SIDE = 2
"""Runs of one judgement at a time."""
SAMPLE = 6
"""Questions about pass-to-pass tests in a run,"""
SAMPLE_COPIES = 2
"""and how many look-alikes each has at most."""
_REASONS = 20


class Faults(NamedTuple):
    """What one run found wrong with a change."""

    reasons: tuple[str, ...]
    tests: dict[TestId, str]
    """How the tests that were asked about ended: ``pass``, ``fail``, ``missing`` or ``forged``."""

    def score(self) -> Score:
        """The score of the change."""
        return Score(value=0.0, passed=False, reasons=self.reasons[:_REASONS], tests=self.tests)


class Examiner:
    """Asks the questions of a code task's verifier.

    Args:
        workspace: the repository at the base commit.
        tests: with questions that were proven on the gold patch.
        exam: the run of all tests.
        limits: of the sandboxes.
        draw: where what is new in each run comes from; the default can't be predicted.
        wary: the change may remember: at first this machine forgets what was read and looked up as well
            as it can, runs come one after the other, and none of another judgement in this workspace is
            under way. Gold needs none of that.
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

    def faults(self, change: bytes) -> Generator[Faults]:
        """Find what is wrong with a change, run by run in random order; on close, what still runs ends.

        Raises:
            VerifierError: if the look-alikes could not be made.
            SandboxError: if a sandbox failed.
        """
        runs = runs_of(self.language) if self.tests.questions and self.language else 0
        work = [partial(self.sat, self.paper(), change) for _ in range(runs)]
        self.draw.shuffle(work)
        if self.tests.gutted:  # the true tests stand in it
            work.append(partial(self._gutted, change))
        halt = Halt()
        place = self.workspace.folder
        apart = judging(place, alone=True) if work and self.wary else nullcontext()
        with apart, ThreadPoolExecutor(1 if self.wary else SIDE_BY_SIDE) as pool:
            if work and self.wary and not self.workspace.forget():
                _warn()
            try:
                for run in [pool.submit(_within, halt, one) for one in work]:
                    if (found := run.result()).reasons:
                        yield found
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                halt.set()
                raise

    def paper(self, *, whole: bool = False) -> Paper:
        """The look-alikes of a run: all fail-to-pass questions and a sample of the others.

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
            return sitting(asked, sample, self.language, sources, sizes, self._secret(), self.draw)
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

    def _secret(self) -> str:
        """The task's; of a verifier that has none, its content is the same in all judgements, too."""
        return self.tests.secret or content_hash(self.tests.model_dump(mode="json"))

    def sat(self, paper: Paper, change: bytes) -> Faults:
        """Do one run, and return its faults."""
        run = self.run(paper, change)
        if run.report is None:
            where = "" if run.status in _BEFORE_TESTS else " (with look-alikes)"
            return Faults((f"{run.status}: {run.reason}{where}",), {})
        return self._told(paper, paper.faults(run.report))

    def _told(self, paper: Paper, faults: dict[Copy, str]) -> Faults:
        """Faults in words, by the tests that they are about: what is forged, then what is not solved."""
        forged: dict[str, None] = {}
        broken: dict[str, None] = {}
        tests = {test: "pass" for copy in paper.copies for test in copy.question.tests}
        unsolved = {copy.question: fault for copy, fault in faults.items() if copy.right}
        for question, fault in unsolved.items():
            state = "fail" if fault == "failed" else fault
            tests |= dict.fromkeys(question.tests, state)
            kind = "fail" if question.tests[0] in self.tests.fail_to_pass else "pass"
            for test in question.tests:
                broken[f"{kind}_to_pass: {test} is {state}, as a look-alike that must pass"] = None
        passed = Counter(copy.question for copy, fault in faults.items() if fault == "forged")
        for copy, fault in faults.items():
            test = copy.question.tests[0]
            if copy.question in unsolved and passed[copy.question] < 2:
                continue  # a wrong answer may be one of the options; what can't be loaded loses all copies
            if fault == "forged":
                forged[f"forged: a look-alike of {test} that must fail did not"] = None
            elif copy.question not in unsolved:
                forged[f"forged: {test} vanished"] = None
            else:
                continue
            tests |= dict.fromkeys(copy.question.tests, "forged")
        return Faults((*forged, *broken), tests)

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
        return run_tests(self.workspace, exam, change, limits=self.limits)

    def _gutted(self, change: bytes) -> Faults:
        kinds = self.tests.verdicts
        wanted = [test for test in kinds if kinds[test].kind is VerdictKind.GUTTED_ONLY]
        files = dict.fromkeys(test.partition("::")[0] for test in wanted)
        exam = self.exam.model_copy(
            update={"gutted": self.tests.gutted, "only": tuple(files), "canary_files": ()}
        )
        run = run_tests(self.workspace, exam, change, limits=self.limits)
        statuses = {} if run.report is None else run.report.statuses()
        passed = [test for test in wanted if statuses.get(test) is Status.PASS]
        reasons = (f"forged: {test} passes without the functions it is about" for test in passed)
        return Faults(tuple(reasons), dict.fromkeys(passed, "forged"))


_BEFORE_TESTS = (RunStatus.REFUSED, RunStatus.NOT_BUILT)


@functools.cache
def _warn() -> None:
    """Say it once."""
    logger.warning(
        "this process can't make the kernel forget names that were looked up: a patch may remember which"
        " tests an earlier judgement met; judge as root of the machine, or see docs/code.md"
    )


def _within(halt: Halt, work: Callable[[], Faults]) -> Faults:
    with halt.covering():
        return work()
