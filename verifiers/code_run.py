"""Run a repository's tests in a fresh workspace, after a change nobody trusts.

The change is applied first; then test files and the runner's configuration are put back as they were on
the base commit, the test patch is applied, and canaries with random names are set among the tests: one
that passes and one that fails. The patched code runs inside the test runner and could write any report;
one without both verdicts on the canaries is forged (``FORGED``), and nothing in it counts.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Any

from pydantic import Field

from envgen.core.code_types import Status, TestReport
from envgen.core.errors import ConfigError, ReportError, SandboxError, VerifierError, WorkspaceError
from envgen.core.patches import split_patch
from envgen.core.types import Record
from envgen.sandboxes.base import WORK, ExecResult
from envgen.sandboxes.workspace import OpenWorkspace, Workspace, WorkspaceLimits
from envgen.verifiers import program_canaries
from envgen.verifiers.junit import read_junit
from envgen.verifiers.junit.cases import UNBUILT
from envgen.verifiers.junit.sources import MAX_BYTES, MAX_FILES
from envgen.verifiers.lookalikes.gutting import changed_lines, gutted, touched_functions
from envgen.verifiers.lookalikes.programs import in_round
from envgen.verifiers.program_canaries import ALARMS
from envgen.verifiers.runners import runner
from envgen.verifiers.runners.base import Canaries, Registering, Runner, Terse, joined

BUILD_S = 1800.0
_LIST_S = 60.0
_TAIL = 2_000
_FATAL = re.compile(rb"^(?:PHP )?(?:Fatal|Parse) error: ", re.M)
"""PHP compiles what it loads: one test file that can't be compiled ends the whole run."""
_NAMED = re.compile(rb"^(?:--- |\+\+\+ )(?:[ab]/)?([^\t\r\n]+)", re.M)


class RunStatus(StrEnum):
    """How a run of a test suite ended."""

    RAN = "ran"
    REFUSED = "refused"
    """The change does not apply."""
    NOT_BUILT = "not_built"
    """A build command failed, or what holds the tests could not be compiled when it was loaded."""
    TIMED_OUT = "timed_out"
    NO_REPORT = "no_report"
    """The runner left no report, or a broken one: its tests are unknown."""
    FORGED = "forged"
    """The report lacks a canary, or has the wrong verdict on one."""
    NOT_LOADED = "not_loaded"
    """The runner says why the canaries are missing: their folder can't be loaded."""


class TestRun(Record):
    """One run of a test suite."""

    __test__ = False

    status: RunStatus
    report: TestReport | None = None
    """Without the canaries; only of a run that ``RAN``."""
    canary_files: tuple[str, ...] = ()
    """Test files that had alarms."""
    unsound_files: tuple[str, ...] = ()
    """Test files with alarms, of a run without a report: one of them may be why."""
    alarms: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Alarm -> tests that pass, and do not when it is set off; of an exam that explores."""
    registered: dict[str, str] = Field(default_factory=dict)
    """Test -> a digest of what the build files registered as it; of an exam that explores."""
    reason: str = ""
    """What went wrong, with the last lines of the output."""
    tests_s: float = 0.0
    """Seconds of the runner's command."""
    wall_s: float = 0.0
    """Seconds of everything, opening the workspace included."""


def _each_alarm() -> dict[str, tuple[str, ...]]:
    return dict.fromkeys(ALARMS, ())


class Exam(Record):
    """The commands that are run, and the files put back before."""

    test_patch: bytes = b""
    test_files: tuple[str, ...] = ()
    """Put back as on the base commit."""
    test_paths: tuple[str, ...] = ()
    """Regular expressions; what the change touches of such paths is put back, too."""
    only: tuple[str, ...] = ()
    """Run these test files only, where the runner can; empty: all."""
    near: tuple[str, ...] = ()
    """A test file beside which the canaries go; empty: into the folder that has most tests."""
    canary_files: tuple[str, ...] | None = None
    """Test files that get alarms (C and C++). None: those of the test patch."""
    bare_files: tuple[str, ...] = ()
    """Test files that get none, whatever ``canary_files`` says."""
    alarms: dict[str, tuple[str, ...]] = Field(default_factory=_each_alarm)
    """Alarms that test programs get -> tests that must not pass when it is set off."""
    registered: dict[str, str] = Field(default_factory=dict)
    """Test -> a digest of what must be registered as it."""
    explore: bool = False
    """Find out what alarms do and what is registered: ``TestRun`` has it."""
    canaries: bool = True
    """Off, whatever a report says is believed: only to show what the canaries catch."""
    spoil: bytes = b""
    """What to overwrite the change's own files with, to see whether any test notices."""
    rendered: dict[str, bytes] = Field(default_factory=dict)
    """Test files with look-alikes: they stand there instead of what the test patch says, from before the
    build on, so that nothing of the change ever sees the true ones."""
    rounds: tuple[str, ...] = ()
    """What ``rounds_variable`` is in each of several runs, after one build; the report has all of them."""
    rounds_variable: str = ""
    gutted: tuple[str, ...] = ()
    """Functions that raise (``file::Class.function``), beside those that the change touches."""


def run_tests(
    workspace: Workspace,
    exam: Exam,
    change: bytes = b"",
    *,
    limits: WorkspaceLimits | None = None,
    variables: dict[str, str] | None = None,
) -> TestRun:
    """Run the tests once on the workspace's tree with ``change``.

    Args:
        workspace: the repository, built.
        exam: which tests.
        change: a git diff of the base commit.
        limits: of the sandbox.
        variables: environment variables beside the recipe's.

    Raises:
        VerifierError: the test patch does not apply to the base commit.
        SandboxError: the sandbox failed.
        WorkspaceError: the workspace can't be opened.
    """
    started = time.monotonic()
    with workspace.open(limits) as opened:
        running = _Run(opened, workspace, exam, variables or {})
        run = running.run(change)
    changes: dict[str, Any] = {"wall_s": time.monotonic() - started}
    if run.report is None:
        changes["unsound_files"] = tuple(running.armed)
    return run.model_copy(update=changes)


def read_tests(
    workspace: Workspace, exam: Exam, files: Iterable[str], *, limits: WorkspaceLimits | None = None
) -> dict[str, bytes]:
    """Test files as the test patch leaves them; those that can't be read are left out.

    Raises:
        VerifierError: the test patch does not apply to the base commit.
        SandboxError: the sandbox failed.
        WorkspaceError: the workspace can't be opened.
    """
    found = {}
    with workspace.open(limits) as opened:
        try:
            opened.apply(exam.test_patch)
        except WorkspaceError as error:
            raise VerifierError(f"the tests can't be set: {error}", error.hint) from error
        for path in files:
            try:
                found[path] = opened.read(path)
            except SandboxError:  # deleted, or a link
                continue
    return found


def touched_paths(change: bytes) -> tuple[str, ...]:
    """The paths that a git diff touches, both of a rename.

    Raises:
        ConfigError: if it is no git diff.
    """
    paths = [path for part in split_patch(change) for path in part.paths]
    # What git apply would take for a diff without a header of its own.
    named = (match[1].decode("utf-8", "surrogateescape") for match in _NAMED.finditer(change))
    return tuple(dict.fromkeys((*paths, *(path for path in named if path != "/dev/null"))))


class _Run:
    def __init__(
        self, opened: OpenWorkspace, workspace: Workspace, exam: Exam, variables: dict[str, str]
    ) -> None:
        self.opened, self.recipe, self.exam = opened, workspace.recipe, exam
        self.runner: Runner = runner(workspace.recipe.runner)
        self.variables = {**workspace.recipe.variables, **variables}
        self.nonce = secrets.token_hex(6)
        self.folder = f"{WORK}/.{secrets.token_hex(8)}"
        self.canaries: Canaries | None = None
        self.armed: dict[str, bytes] = {}
        self.variable = f"ENVGEN_{self.nonce}"
        self.registered: dict[str, str] = {}

    def run(self, change: bytes) -> TestRun:
        """Change, put back, build, run, read."""
        try:
            touched = touched_paths(change)
            self.opened.apply(change)
        except (WorkspaceError, ConfigError) as error:
            return TestRun(status=RunStatus.REFUSED, reason=str(error)[-_TAIL:])
        put_back = self._put_back(touched)
        self._set_tests(put_back)
        self._spoil(touched)
        if self.exam.gutted:
            self._gut(change)
        for command in self.recipe.build:
            built = self.opened.shell(command, BUILD_S, self.variables)
            if built.timed_out:
                return TestRun(status=RunStatus.TIMED_OUT, reason=f"{command!r}: {_tail(built)}")
            if built.exit_code:
                return TestRun(status=RunStatus.NOT_BUILT, reason=f"{command!r}: {_tail(built)}")
        if self.recipe.build:  # what was built may have changed the tests
            self._set_tests(put_back)
        self.registered = self._registered()
        return self._test()

    def _put_back(self, touched: Sequence[str]) -> tuple[str, ...]:
        if not touched and not self.exam.test_patch:
            return ()
        own = [path for path in touched if self._is_test(path)]
        return tuple(dict.fromkeys((*self.exam.test_files, *self.runner.config_files, *own)))

    def _is_test(self, path: str) -> bool:
        return any(re.search(rule, path) for rule in self.exam.test_paths)

    def _spoil(self, touched: Sequence[str]) -> None:
        """Overwrite what the change touches, if the exam says so."""
        if not self.exam.spoil:
            return
        for path in touched:
            if not self._is_test(path) and path not in self.exam.test_files:
                self.opened.write(path, self.exam.spoil)

    def _gut(self, change: bytes) -> None:
        """Make the exam's functions raise, and those that the change touches."""
        touched = changed_lines(change)
        wanted = [name.partition("::") for name in self.exam.gutted]
        for path in {*touched, *(path for path, _, _ in wanted)}:
            if self._is_test(path) or path in self.exam.test_files:
                continue
            try:
                source = self.opened.read(path)
            except SandboxError:  # deleted, or a link
                continue
            names = touched_functions(source, touched.get(path, ()))
            names |= {name for file, _, name in wanted if file == path}
            self.opened.write(path, gutted(source, names))

    def _set_tests(self, put_back: Sequence[str]) -> None:
        """Set the tests as they are to be run. May be called again."""
        try:
            self.opened.restore(put_back)
            self.opened.apply(self.exam.test_patch)
        except WorkspaceError as error:
            raise VerifierError(f"the tests can't be set: {error}", error.hint) from error
        if self.canaries is None:
            self.canaries = self.runner.canaries(self.nonce, _Files(self.opened), self.exam.near)
            sources = self._test_sources()
            language, alarms = self.recipe.language, self.exam.alarms
            self.armed = program_canaries.arm(language, sources, self.variable, alarms)
        for path, content in (self.exam.rendered | self.canaries.files).items():
            self.opened.write(path, content)
        for path, content in self.armed.items():
            self.opened.write(path, content)

    def _test_sources(self) -> dict[str, bytes]:
        """The files that may get a canary, as the test patch leaves them."""
        sources = {}
        wanted = self.exam.canary_files
        for path in touched_paths(self.exam.test_patch) if wanted is None else wanted:
            if path in self.exam.bare_files:
                continue
            try:
                sources[path] = self.opened.read(path)
            except SandboxError:  # deleted, or a link
                continue
        return sources

    def _registered(self) -> dict[str, str]:
        """List the tests that build files register, if it matters; before any code under test runs."""
        if not self.exam.registered and not self.exam.explore:
            return {}
        if not isinstance(self.runner, Registering):
            return {}
        listed = self.opened.shell(self.runner.listing(), _LIST_S, self.variables)
        try:
            return self.runner.registered(listed.stdout)
        except ReportError:  # nothing is registered as it must be then
            return {}

    def _test(self) -> TestRun:
        """Run the tests, in each round that the exam has."""
        if not self.exam.rounds:
            return self._once(self.variables)
        runs: list[TestRun] = []
        for value in self.exam.rounds:
            variables = {**self.variables, self.exam.rounds_variable: value}
            runs.append(self._once(variables))
            if runs[-1].report is None:
                break
        cases = tuple(
            case.model_copy(update={"id": in_round(n, case.id)})
            for n, run in enumerate(runs)
            for case in (run.report.cases if run.report else ())
        )
        last, seconds = runs[-1], sum(run.tests_s for run in runs)
        report = last.report and last.report.model_copy(update={"cases": cases})
        return last.model_copy(update={"report": report, "tests_s": seconds})

    def _once(self, variables: dict[str, str]) -> TestRun:
        done, report, reason = self._reported(self.folder, variables)
        seconds = done.wall_s
        if report is None:
            fatal = self.recipe.language == "php" and _FATAL.search(done.stdout + done.stderr)
            status = RunStatus.NOT_BUILT if fatal else RunStatus.NO_REPORT
            status = RunStatus.TIMED_OUT if done.timed_out else status
            return TestRun(status=status, reason=reason, tests_s=seconds)
        if self._canaries_unbuilt(report):
            reason = f"the tests around the canaries: {_tail(done)}"
            return TestRun(status=RunStatus.NOT_BUILT, reason=reason, tests_s=seconds)
        if where := self._not_loaded(report):
            reason = f"the runner can't load {where!r}: {_tail(done)}"
            return TestRun(status=RunStatus.NOT_LOADED, reason=reason, tests_s=seconds)
        fault = self._canary_fault(report) or self._registration_fault(report)
        alarms: dict[str, tuple[str, ...]] = {}
        if not fault and self.armed and self.exam.canaries:
            fault, alarms = self._alarms(report)
        if fault:
            reason = f"{fault}; exit code {done.exit_code}: {_tail(done)}"
            return TestRun(status=RunStatus.FORGED, reason=reason, tests_s=seconds)
        return TestRun(
            status=RunStatus.RAN,
            report=self._without_canaries(report),
            canary_files=tuple(self.armed),
            alarms=alarms,
            registered=self.registered if self.exam.explore else {},
            tests_s=seconds,
        )

    def _reported(
        self, folder: str, variables: dict[str, str]
    ) -> tuple[ExecResult, TestReport | None, str]:
        """Run the runner's line; its report, or why there is none."""
        assert self.canaries is not None
        only = (*self.exam.only, *self.canaries.files) if self.exam.only else ()
        moment = datetime.now(UTC)
        options = self.recipe.options
        meant_to_fail = self.exam.rendered or self.exam.gutted
        if meant_to_fail and isinstance(self.runner, Terse):
            options = joined(options, self.runner.terse)
        line = self.runner.shell(folder, only, options)
        done = self.opened.shell(line, env=variables)
        if done.timed_out:
            return done, None, f"stopped after {done.wall_s:.0f} s: {_tail(done)}"
        try:
            return done, read_junit(self._files(folder), moment=moment), ""
        except ReportError as error:
            return done, None, f"{error}; exit code {done.exit_code}: {_tail(done)}"

    def _registration_fault(self, report: TestReport) -> str:
        """Which test passes under a name that stands for something else; empty: none."""
        if not self.exam.canaries:
            return ""
        passing = self._passing(report)
        for test, digest in self.exam.registered.items():
            if test in passing and self.registered.get(test) != digest:
                return f"what the build files register as {test} is not that test"
        return ""

    def _alarms(self, report: TestReport) -> tuple[str, dict[str, tuple[str, ...]]]:
        """Set each alarm off: what is wrong then, or else which tests don't pass that did."""
        passed = self._passing(report)
        found = {}
        for alarm, wanted in self.exam.alarms.items():
            watched = passed if self.exam.explore else passed.intersection(wanted)
            if not watched:
                continue
            name = program_canaries.variable(self.variable, alarm)
            folder = f"{self.folder}-{alarm}"
            _, heard, fault = self._reported(folder, {**self.variables, name: "1"})
            fault = fault or (self._canary_fault(heard) if heard is not None else "")
            passing = set() if heard is None else watched & self._passing(heard)
            if self.exam.explore:
                found[alarm] = () if fault else tuple(sorted(watched - passing))
            elif fault or passing:
                fault = fault or f"{', '.join(sorted(passing)[:3])} pass"
                return f"with the alarm {alarm!r} set off, {fault}", {}
        return "", found

    def _passing(self, report: TestReport) -> set[str]:
        """The tests that pass, those added by an alarm under a name that stays the same."""
        assert self.canaries is not None
        passing = {case.id for case in report.cases if case.status is Status.PASS}
        return {test.replace(self.nonce, "{nonce}") for test in passing - {self.canaries.passing}}

    def _files(self, folder: str) -> dict[str, bytes]:
        """The report's files, copied out of the sandbox."""
        listed = self.opened.own(f"find {folder} -type f -name '*.xml' -print0", _LIST_S)
        found = listed.stdout.decode("utf-8", "surrogateescape").split("\0")
        names = [name for name in found if name]
        if not names:
            raise ReportError("the test run left no report")
        if listed.truncated or len(names) > MAX_FILES:
            raise ReportError(f"more than {MAX_FILES} report files")
        files, left = {}, MAX_BYTES
        try:
            for name in names:
                files[name] = self.opened.sandbox.read_file(name, left)
                left -= len(files[name])
        except SandboxError as error:
            raise ReportError(f"the report can't be read: {error}") from error
        return files

    def _canaries_unbuilt(self, report: TestReport) -> bool:
        """Whether the runner says that the package of the canaries could not be built.

        A change may say so too, by what it prints: nothing in such a report counts.
        """
        assert self.canaries is not None
        statuses = report.statuses()
        if self.canaries.passing in statuses or self.canaries.failing in statuses:
            return False
        package = self.canaries.passing.rpartition("::")[0]
        return f"{package}::{UNBUILT}" in statuses

    def _not_loaded(self, report: TestReport) -> str:
        """What the report says can't be loaded, of the canaries' file and folders, where they are missing."""
        assert self.canaries is not None
        statuses = report.statuses()
        seen = {self.canaries.passing, self.canaries.failing}.intersection(statuses)
        if seen or not self.exam.canaries:
            return ""
        paths = {str(one) for file in self.canaries.files for one in PurePosixPath(file).parents}
        paths |= self.canaries.files.keys()
        broken = (id_.partition("::")[0] for id_, one in statuses.items() if one is Status.ERROR)
        return next((where for where in broken if where in paths), "")

    def _canary_fault(self, report: TestReport) -> str:
        """Say what is wrong with the verdicts on the canaries; empty when nothing is."""
        if not self.exam.canaries:
            return ""
        assert self.canaries is not None
        statuses = report.statuses()
        passing, failing = statuses.get(self.canaries.passing), statuses.get(self.canaries.failing)
        if passing is not Status.PASS:
            return f"the canary that must pass is {passing or 'missing'}"
        if failing not in (Status.FAIL, Status.ERROR):
            return f"the canary that must fail is {failing or 'missing'}"
        return ""

    def _without_canaries(self, report: TestReport) -> TestReport:
        assert self.canaries is not None
        own = {self.canaries.passing, self.canaries.failing}
        cases = tuple(
            case for case in report.cases if case.id not in own and self.nonce not in case.id
        )
        return report.model_copy(update={"cases": cases})


class _Files(Mapping[str, bytes]):
    """The repository's files; contents are read when asked for."""

    def __init__(self, opened: OpenWorkspace) -> None:
        self._opened = opened
        listed = opened.own("git ls-files -z --cached --others --exclude-standard", _LIST_S)
        names = listed.stdout.decode("utf-8", "surrogateescape").split("\0")
        self._names = dict.fromkeys(name for name in names if name)

    def __getitem__(self, path: str) -> bytes:
        if path not in self._names:
            raise KeyError(path)
        try:
            return self._opened.read(path)
        except SandboxError as error:  # a link, or gone
            raise KeyError(path) from error

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _tail(result: ExecResult) -> str:
    output = (result.stdout + b"\n" + result.stderr).decode(errors="replace").strip()
    return output[-_TAIL:]
