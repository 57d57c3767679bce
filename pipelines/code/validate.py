"""Prove an instance: its gold patch mends tests, breaks none, and does so every time.

Three states are run, each several times (``compare``): the base commit, with the test patch, with test
patch and gold patch. All runs go the way a submission's run goes: what a verifier restores is restored, and
canaries are among the tests. What holds is then run ten times more, since three runs miss a test that fails
one time in twenty 86 % of the time.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Sequence

from envgen.core import seeding
from envgen.core.code_types import CodeTests, Instance, Status, TestReport
from envgen.core.errors import ConfigError, SandboxError, VerifierError, WorkspaceError
from envgen.core.patches import split_patch
from envgen.core.surrogates import to_bytes
from envgen.core.types import Evidence, GateResult, GateStatus
from envgen.pipelines.code.compare import Kind, PatchEffect, State, compare, merge
from envgen.pipelines.code.split import SOURCE_SUFFIXES
from envgen.pipelines.code.validation import Reason, RejectedError, ValidateConfig, Validation
from envgen.pipelines.code.verdicts import REHEARSALS, patient, prove_verdicts, verdict_gate
from envgen.sandboxes.workspace import Workspace, WorkspaceLimits
from envgen.verifiers import program_canaries
from envgen.verifiers.code import exam_of, score_run
from envgen.verifiers.code_run import Exam, RunStatus, TestRun, run_tests, touched_paths

logger = logging.getLogger(__name__)

Log = Callable[[str], None]
_TEST_NAME = re.compile(r"^(?!conftest\.).*(?:test|spec).*\.\w+$", re.IGNORECASE)
_MOST_PLACES = 2
"""Folders that canaries are tried in, beside the usual one."""
_GARBAGE = b'envgen: this file is broken on purpose ((( {{{ "\n'


def validate_instance(
    instance: Instance,
    workspace: Workspace,
    config: ValidateConfig,
    *,
    test_files: Sequence[str],
    test_paths: Sequence[str] = (),
    freeze: Callable[[], Workspace] | None = None,
    limits: WorkspaceLimits | None = None,
    log: Log | None = None,
) -> Validation:
    """Prove an instance in its built workspace.

    Args:
        instance: with its patches.
        workspace: the base commit, built.
        config: how often.
        test_files: the test files of the base commit.
        test_paths: regular expressions of test paths.
        freeze: builds the workspace anew as its users will; what would be kept is run in it again.
        limits: of the sandboxes.
        log: is told each step as it starts.
    """
    started = time.monotonic()
    prover = _Prover(instance, workspace, config, freeze, limits, log or (lambda _: None))
    try:
        found = prover.prove(tuple(test_files), tuple(test_paths))
    except RejectedError as error:
        found = Validation(
            instance_id=instance.id,
            reason=error.reason,
            details=error.details,
            counts=prover.counts(),
        )
    except (SandboxError, WorkspaceError) as error:
        found = Validation(instance_id=instance.id, reason=Reason.ENVGEN, details=str(error))
    return found.model_copy(
        update={
            "runs": prover.runs,
            "tests_s": prover.tests_s,
            "wall_s": time.monotonic() - started,
        }
    )


class _Prover:
    def __init__(
        self,
        instance: Instance,
        workspace: Workspace,
        config: ValidateConfig,
        freeze: Callable[[], Workspace] | None,
        limits: WorkspaceLimits | None,
        log: Log,
    ) -> None:
        self.instance, self.workspace, self.config = instance, workspace, config
        self.freeze = freeze
        self.more = max(config.more, 1) if freeze is not None else config.more
        self.limits, self.log = limits, log
        self.gold = to_bytes(instance.gold_patch)
        self.test_patch = to_bytes(instance.test_patch)
        self.runs = 0
        self.tests_s = self.gold_s = 0.0
        self.comparison: PatchEffect | None = None
        self.printed: dict[str, str] = {}
        self.canary_files: set[str] | None = None
        self.alarms: dict[str, set[str]] | None = None
        self.registered: set[tuple[str, str]] | None = None
        self.base_files: frozenset[str] = frozenset()

    def counts(self) -> dict[str, int]:
        """How many tests are of each kind, as far as it came."""
        found = self.comparison
        if found is None:
            return {}
        lists = ("fail_to_pass", "pass_to_pass", "pass_to_fail", "unstable")
        sizes = {name: len(getattr(found, name)) for name in lists}
        return sizes | {str(kind): n for kind, n in found.counts().items()}

    def prove(self, test_files: tuple[str, ...], test_paths: tuple[str, ...]) -> Validation:
        touched = touched_paths(self.test_patch)
        self.base_files = frozenset(test_files)
        files = tuple(dict.fromkeys((*test_files, *touched)))
        only = self._runnable(touched) if self.config.only_touched else ()
        exam = Exam(test_patch=self.test_patch, test_files=files, test_paths=test_paths, only=only)
        exam, comparison = self._placed(self._with_canaries(exam), touched)
        if not comparison.fail_to_pass:
            raise self._without_fail_to_pass(exam, comparison)
        if comparison.pass_to_fail:
            raise RejectedError(Reason.PASS_TO_FAIL, _listed(comparison.pass_to_fail))
        tests = CodeTests(
            runner=self.workspace.recipe.runner,
            test_patch=self.instance.test_patch,
            test_files=files,
            test_paths=test_paths,
            canary_files=tuple(sorted(self.canary_files or ())),
            alarms=self._known_alarms(comparison),
            registered=self._known_registered(comparison),
            only=exam.only,
            near=exam.near,
            fail_to_pass=comparison.fail_to_pass,
            pass_to_pass=comparison.pass_to_pass,
            unstable=comparison.unstable,
            printed=self._known_printed(comparison),
        )
        tests = self._verdicts(self._run_more(tests))
        return Validation(
            instance_id=self.instance.id,
            tests=tests,
            evidence=self._evidence(tests),
            counts=self.counts(),
        )

    def _runnable(self, paths: Sequence[str]) -> tuple[str, ...]:
        """Those that a runner may be given: it refuses data, and what the test patch takes away."""
        endings = SOURCE_SUFFIXES[self.workspace.recipe.language]
        parts = split_patch(self.test_patch)
        gone = {part.old for part in parts} - {part.new for part in parts}
        return tuple(path for path in paths if path.endswith(endings) and path not in gone)

    def _placed(self, exam: Exam, touched: Sequence[str]) -> tuple[Exam, PatchEffect]:
        """Compare, with canaries in the first folder whose tests are collected in each state."""
        first: RejectedError | None = None
        for near in ((), *self._places(touched)):
            placed = exam.model_copy(update={"near": near})
            try:
                return placed, self._compare(placed, touched)
            except RejectedError as error:
                if error.reason is not Reason.CANARIES:
                    raise
                first = first or error
                self.log(f"the canaries of {near or 'the usual folder'} are not collected")
            self.canary_files, self.alarms, self.registered = None, None, None
        assert first is not None
        raise first

    def _places(self, touched: Sequence[str]) -> list[tuple[str]]:
        """A test file of each folder that may be tried beside the usual one: the patch's own come first."""
        folders: dict[str, list[str]] = {}
        for path in sorted(self._runnable([*self.base_files])):
            folder, _, name = path.rpartition("/")
            if _TEST_NAME.search(name):
                folders.setdefault(folder, []).append(path)
        usual = max(folders, key=lambda folder: len(folders[folder]), default="")
        own = [path.rpartition("/")[0] for path in touched]
        by_size = sorted(folders, key=lambda folder: -len(folders[folder]))
        order = [folder for folder in dict.fromkeys((*own, *by_size)) if folder in folders]
        return [(folders[folder][0],) for folder in order if folder != usual][:_MOST_PLACES]

    def _compare(self, exam: Exam, touched: Sequence[str]) -> PatchEffect:
        """One run of each state at first: what falls then needs no more of them."""
        base = [self._base(exam)]
        after = [self._after(exam)]
        if not any(case.status is Status.PASS for run in (*base, *after) for case in run.cases):
            raise RejectedError(Reason.NO_TESTS, f"{len(after[0].cases)} tests, none passes")
        before = [self._before(exam)]
        self.comparison = compare(merge(base), merge(before), merge(after), touched)
        if not self.comparison.fail_to_pass:
            return self.comparison
        for _ in range(self.config.repeats - 1):
            base.append(self._base(exam))
            before.append(self._before(exam))
            after.append(self._after(exam))
        states = [self._merged(runs) for runs in (base, before, after)]
        self.comparison = compare(states[0], states[1], states[2], touched)
        self.printed = _printed(after)
        return self.comparison

    def _with_canaries(self, exam: Exam) -> Exam:
        """Leave out the alarms inside test files that can't stand there.

        One that does not compile takes its whole program or project with it.
        """
        if self.workspace.recipe.language not in program_canaries.LANGUAGES:
            return exam
        runs = self.runs
        tried = self._run("canaries in the test files", exam, self.gold)
        if tried.unsound_files:  # maybe not all of them
            exam = exam.model_copy(update={"alarms": {"main": ()}})
            tried = self._run("fewer canaries in the test files", exam, self.gold)
        # it says nothing of the change
        self.runs, self.canary_files, self.alarms = runs, None, None
        return exam.model_copy(update={"bare_files": tried.unsound_files})

    def _known_registered(self, comparison: PatchEffect) -> dict[str, str]:
        judged = {*comparison.fail_to_pass, *comparison.pass_to_pass}
        return {test: digest for test, digest in sorted(self.registered or ()) if test in judged}

    def _known_printed(self, comparison: PatchEffect) -> dict[str, str]:
        judged = {*comparison.fail_to_pass, *comparison.pass_to_pass}
        return {test: name for test, name in sorted(self.printed.items()) if test in judged}

    def _known_alarms(self, comparison: PatchEffect) -> dict[str, tuple[str, ...]]:
        """What each alarm is known to make fail, of the tests that judge and of those it adds."""
        judged = {*comparison.fail_to_pass, *comparison.pass_to_pass}
        found = {
            alarm: tuple(sorted(test for test in tests if test in judged or "{nonce}" in test))
            for alarm, tests in (self.alarms or {}).items()
        }
        return {alarm: tests for alarm, tests in found.items() if tests}

    def _merged(self, reports: Sequence[TestReport | None]) -> State:
        try:
            return merge(reports)
        except ValueError as error:
            raise RejectedError(Reason.UNSTABLE, str(error)) from error

    def _base(self, exam: Exam) -> TestReport:
        """Of the base commit; nothing is run where the test patch brings all test files."""
        only = tuple(sorted(self.base_files.intersection(exam.only)))
        if exam.only and not only:
            return _NO_TESTS
        try:
            run = self._run("base", Exam(only=only, near=exam.near))
        except RejectedError as error:
            if error.reason is not Reason.NO_TESTS:
                raise
            return _NO_TESTS
        if run.report is None:
            raise RejectedError(_BASE_REASONS.get(run.status, Reason.BASE_RUN), _summary(run))
        return run.report

    def _before(self, exam: Exam) -> TestReport | None:
        run = self._run("before", exam)
        if run.report is None and run.status is not RunStatus.NOT_BUILT:
            raise RejectedError(_CANARIES.get(run.status, Reason.BEFORE_RUN), _summary(run))
        return run.report

    def _after(self, exam: Exam) -> TestReport:
        run = self._run("after", exam.model_copy(update={"explore": True}), self.gold)
        if run.status is RunStatus.REFUSED:
            raise RejectedError(Reason.GOLD_PATCH, run.reason)
        if run.report is None:
            raise RejectedError(_CANARIES.get(run.status, Reason.AFTER_RUN), _summary(run))
        return run.report

    def _run(self, what: str, exam: Exam, change: bytes = b"") -> TestRun:
        self.runs += 1
        self.log(f"run {self.runs}: {what}")
        try:
            run = run_tests(self.workspace, exam, change, limits=self._patience())
        except VerifierError as error:
            raise RejectedError(Reason.TEST_PATCH, str(error)) from error
        except ConfigError as error:  # from canaries: no file shows where tests are
            raise RejectedError(Reason.NO_TESTS, str(error)) from error
        self.tests_s += run.tests_s
        if run.report is not None and change == self.gold:
            self.gold_s = max(self.gold_s, run.wall_s)
        if run.report is not None and exam.test_patch and exam.canary_files is None:
            sound = set(run.canary_files)
            self.canary_files = sound if self.canary_files is None else self.canary_files & sound
        if run.report is not None and exam.explore:
            heard = {alarm: set(tests) for alarm, tests in run.alarms.items()}
            known = heard if self.alarms is None else self.alarms
            self.alarms = {alarm: known[alarm] & heard[alarm] for alarm in known.keys() & heard}
            listed = set(run.registered.items())
            self.registered = listed if self.registered is None else self.registered & listed
        return run

    def _patience(self) -> WorkspaceLimits | None:
        if not self.gold_s:
            return self.limits
        return patient(self.limits, self.workspace.recipe.test_s, self.gold_s)

    def _without_fail_to_pass(self, exam: Exam, comparison: PatchEffect) -> RejectedError:
        """Say why no test is fail-to-pass: flaky ones only, code nobody imports, or none at all."""
        kinds = ", ".join(f"{n} {kind}" for kind, n in comparison.counts().items())
        if self.runs > 3:
            return RejectedError(Reason.UNSTABLE, f"after {self.runs} runs: {kinds}")
        if not self._matters(exam):
            return RejectedError(
                Reason.NOT_IMPORTED, f"broken on purpose: {_listed(touched_paths(self.gold))}"
            )
        return RejectedError(Reason.NO_FAIL_TO_PASS, kinds)

    def _matters(self, exam: Exam) -> bool:
        """Whether the tests notice when the files of the gold patch are broken on purpose."""
        sound = self._after(exam).statuses()
        broken = self._run(
            "broken on purpose", exam.model_copy(update={"spoil": _GARBAGE}), self.gold
        )
        return broken.report is None or broken.report.statuses() != sound

    def _run_more(self, tests: CodeTests) -> CodeTests:
        """Run what is kept again; drop what does not end alike.

        Raises:
            RejectedError: if no fail-to-pass test is left.
        """
        if self.freeze is not None:
            self.workspace = self.freeze()
        exam = exam_of(tests)
        short = exam.model_copy(update={"only": self._runnable(touched_paths(self.test_patch))})
        unsteady: set[str] = set()
        for _ in range(self.more):
            after = score_run(self._more_run("after", exam, self.gold), tests)
            before = score_run(self._more_run("before", short, b""), tests)
            good = {str(Status.PASS), str(Status.XFAIL)}
            unsteady |= {name for name, status in after.tests.items() if status not in good}
            unsteady |= {name for name in tests.fail_to_pass if before.tests.get(name) in good}
        if not unsteady:
            return tests
        left = {
            name: tuple(test for test in getattr(tests, name) if test not in unsteady)
            for name in ("fail_to_pass", "pass_to_pass")
        }
        if not left["fail_to_pass"]:
            raise RejectedError(Reason.UNSTABLE, _listed(sorted(unsteady)))
        unstable = tuple(sorted({*tests.unstable, *unsteady}))
        return tests.model_copy(update={**left, "unstable": unstable})

    def _verdicts(self, tests: CodeTests) -> CodeTests:
        """With the questions by which verdicts are proven."""
        proven = prove_verdicts(
            self.workspace,
            tests,
            self.gold,
            limits=self.limits,
            log=self.log,
            draw=seeding.rng(0, "verdicts", tests.test_patch),  # secrets are drawn when it judges
            rehearsals=min(self.config.repeats, REHEARSALS),
        )
        self.runs += proven.runs
        self.tests_s += proven.tests_s
        return proven.tests

    def _more_run(self, what: str, exam: Exam, change: bytes) -> TestRun:
        run = self._run(what, exam, change)
        if run.report is None and not (run.status is RunStatus.NOT_BUILT and not change):
            raise RejectedError(Reason.UNSTABLE, f"run {self.runs}: {_summary(run)}")
        return run

    def _evidence(self, tests: CodeTests) -> Evidence:
        found = self.comparison
        assert found is not None
        times = self.config.repeats + self.more
        kinds = found.counts()
        mended = [found.kinds.get(name, Kind.FAILED) for name in tests.fail_to_pass]
        return (
            _passed("gold", times, 1.0, runs=times),
            _passed("empty_patch", times, 0.0, runs=times),
            _passed(
                "fail_to_pass",
                len(tests.fail_to_pass),
                float(len(tests.fail_to_pass)),
                failed=mended.count(Kind.FAILED),
                not_built=mended.count(Kind.NOT_BUILT),
            ),
            _passed(
                "pass_to_fail",
                max(1, len(tests.pass_to_pass)),
                0.0,
                pass_to_pass=len(tests.pass_to_pass),
            ),
            verdict_gate(tests),
            _passed(
                "stable", times, float(len(tests.unstable)), **{str(k): n for k, n in kinds.items()}
            ),
        )


_CANARIES = dict.fromkeys((RunStatus.FORGED, RunStatus.NOT_LOADED), Reason.CANARIES)
_NO_TESTS = TestReport(cases=())
_BASE_REASONS = {RunStatus.NOT_BUILT: Reason.INSTALL, **_CANARIES}


def _passed(gate: str, n: int, figure: float, **details: int) -> GateResult:
    return GateResult(
        gate=gate, status=GateStatus.PASSED, n=n, figure=figure, details=dict(details)
    )


def _summary(run: TestRun) -> str:
    return f"{run.status}: {run.reason}"


def _listed(names: Sequence[str], most: int = 5) -> str:
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


def _printed(reports: Sequence[TestReport]) -> dict[str, str]:
    """Map each test whose id has placeholders to its printed id; empty if that differs between runs."""
    names: dict[str, set[str]] = {}
    for report in reports:
        for case in report.cases:
            if case.printed:
                names.setdefault(case.id, set()).add(case.printed)
    return {test: min(found) if len(found) == 1 else "" for test, found in names.items()}
