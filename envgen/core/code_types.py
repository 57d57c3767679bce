"""The records of the code family: how a repository is built and tested, and what its tests said."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field

from envgen.core.types import Record

CodeLanguage = Literal["python", "javascript", "typescript", "c", "cpp", "go", "java", "php"]
TestId = str
"""``file?::classname::name``, without times, addresses and temporary paths (``read_junit``)."""
REPOSITORY = "/work/repo"
"""Where the repository lies in a workspace."""
DEPENDENCIES = "/env"
"""Where what it depends on lies: read-only once it is built."""


class Recipe(Record):
    """How to build a repository at one commit and run its tests; commands run in ``REPOSITORY``."""

    language: CodeLanguage
    version: str = ""
    """Of the language, e.g. ``3.11``; empty: the layer's."""
    runner: str
    """A name in ``envgen.verifiers.runners``."""
    layer: str = "host"
    """The language layer: ``host`` or a name that ``envgen images list`` shows."""
    packages: tuple[str, ...] = ()
    """Distribution packages that the layer must have."""
    install: tuple[str, ...] = ()
    """Shell commands that fill ``DEPENDENCIES``; the network is open."""
    build: tuple[str, ...] = ()
    """Shell commands after every change of the tree; the network is closed."""
    variables: dict[str, str] = Field(default_factory=dict)
    """Environment variables of install, build and tests."""
    options: str = ""
    """Words added to the runner's command line."""
    cutoff: str | None = None
    """Dependencies are of this day or older (ISO date): that of the base commit."""
    pins: tuple[str, ...] = ()
    """What the install resolved to; with it a later build installs the same."""
    author: str = "rules"
    """``rules``, or the name of the model that wrote it."""
    test_s: float = Field(default=1800.0, gt=0)
    """Seconds the tests may take."""
    memory_bytes: int = Field(default=4 << 30, ge=1 << 26)
    disk_bytes: int = Field(default=4 << 30, ge=1 << 20)


class Status(StrEnum):
    """How a test ended."""

    PASS = "pass"
    FAIL = "fail"
    ERROR = "error"
    SKIP = "skip"
    XFAIL = "xfail"


class TestCase(Record):
    """One test's result."""

    __test__ = False

    id: TestId
    status: Status
    seconds: float = 0.0
    message: str = ""


class TestReport(Record):
    """What one run of a test suite said, by its JUnit XML alone."""

    __test__ = False

    cases: tuple[TestCase, ...]
    """One per id, in order of first appearance; duplicates are merged, the worst status wins."""
    repaired: bool = False
    """The XML was invalid and was mended before it could be read."""
    files: tuple[str, ...] = ()
    """The files it was read from."""

    def statuses(self) -> dict[TestId, Status]:
        """Test id -> status."""
        return {case.id: case.status for case in self.cases}


class Instance(Record):
    """An issue-PR pair before it is built: what mining and imports produce."""

    id: str
    """``owner__name-number``, as SWE-bench names them."""
    repo: str
    """``owner/name``."""
    base_commit: str
    base_patch: str = ""
    """Applied to the base commit before anything else: the bug, where a data set made one."""
    head_commit: str | None = None
    language: CodeLanguage
    kind: Literal["issue", "pull_request", "commit"]
    """Where the problem statement comes from."""
    pull_number: int | None = None
    issue_numbers: tuple[int, ...] = ()
    problem_statement: str
    hints: str = ""
    """What was said under the issue before the first commit."""
    gold_patch: str
    """A git diff, encoded as UTF-8; binary files, and files whose text is no UTF-8, come as git's
    binary patches (a lone surrogate could not be stored as JSON)."""
    test_patch: str
    neutral_files: tuple[str, ...] = ()
    """Files of the change that are in neither patch (documentation, change log, lock files)."""
    created_at: str = ""
    """ISO 8601, UTC."""
    version: str = ""
    licence: str = ""
    expected_fail_to_pass: tuple[str, ...] = ()
    """What a published record claims; ids as it writes them."""
    expected_pass_to_pass: tuple[str, ...] = ()
    recipe: Recipe | None = None
    """Known when the record brings it."""
    extra: dict[str, str] = Field(default_factory=dict)
    """Fields of a published record that nothing here reads, as JSON; exports give them back."""


class CodeTests(Record):
    """A code task's verifier: the tests a submission must pass. ``verifier.json`` holds it."""

    runner: str
    test_patch: str
    """As in ``Instance``."""
    test_files: tuple[str, ...]
    """Test files of the base commit and of the patch: restored before the patch is applied."""
    test_paths: tuple[str, ...] = ()
    """Regular expressions of test paths; what a submission changes or adds there is put back, too."""
    canary_files: tuple[str, ...] = ()
    """Test files that get a canary: a copy of one of their tests, turned round."""
    alarms: dict[str, tuple[TestId, ...]] = Field(default_factory=dict)
    """Alarms of C and C++ test programs (``main``, ``assertions``) -> tests that can't pass when it is set
    off."""
    registered: dict[TestId, str] = Field(default_factory=dict)
    """Test -> a digest of what the build files register as it, where they do (CTest, Meson)."""
    only: tuple[str, ...] = ()
    """Run these test files only, where the runner can; empty: all."""
    fail_to_pass: tuple[TestId, ...] = Field(min_length=1)
    pass_to_pass: tuple[TestId, ...] = ()
    unstable: tuple[TestId, ...] = ()
    """Tests whose status changed between runs of the same tree; nobody is judged by them."""
