"""The records of the code family: how a repository is built and tested, and what its tests said."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from envgen.core.limits import (
    Commit,
    Count,
    Day,
    InstanceId,
    Instant,
    Label,
    Line,
    Package,
    Release,
    Repository,
    RepositoryFile,
    Seconds,
    Text,
    Word,
)
from envgen.core.types import Name, Record

CodeLanguage = Literal["python", "javascript", "typescript", "c", "cpp", "go", "java", "php"]
StatementKind = Literal["issue", "pull_request", "commit"]
"""Where a problem statement comes from."""
TestId = Text
"""``file?::classname::name``, without times, addresses and temporary paths (``read_junit``)."""
REPOSITORY = "/work/repo"
"""Where the repository lies in a workspace."""
DEPENDENCIES = "/env"
"""Where what it depends on lies: read-only once it is built."""


Pin = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x08\x0a-\x1f\x7f]*$", max_length=1 << 16)]
"""One line of a list of pins; a lock file's line about one package may have thousands of characters."""


class Recipe(Record):
    """How to build a repository at one commit and run its tests; commands run in ``REPOSITORY``."""

    language: CodeLanguage
    version: Release = ""
    """Of the language, e.g. ``3.11``; empty: the layer's."""
    runner: Name
    """A name in ``envgen.verifiers.runners``."""
    layer: Name = "host"
    """The language layer: ``host`` or a name that ``envgen images list`` shows."""
    packages: tuple[Package, ...] = ()
    """Distribution packages that the layer must have."""
    install: tuple[Text, ...] = ()
    """Shell commands that fill ``DEPENDENCIES``; the network is open."""
    build: tuple[Text, ...] = ()
    """Shell commands after every change of the tree; the network is closed."""
    variables: dict[Word, Label] = Field(default_factory=dict)
    """Environment variables of install, build and tests."""
    options: Line = ""
    """Words added to the runner's command line."""
    cutoff: Day | None = None
    """Dependencies are of this day or older (ISO date): that of the base commit."""
    pins: tuple[Pin, ...] = ()
    """What the install resolved to; with it a later build installs the same."""
    author: Line = "rules"
    """``rules``, or the name of the model that wrote it."""
    test_s: float = Field(default=1800.0, gt=0, le=86_400.0)
    """Seconds the tests may take."""
    memory_bytes: int = Field(default=4 << 30, ge=1 << 26)
    """Never more than three quarters of the machine's."""
    disk_bytes: int = Field(default=4 << 30, ge=1 << 20)
    """Of each folder in memory never more than half of the machine's."""


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
    seconds: Seconds = 0.0
    message: Text = ""
    printed: TestId = ""
    """The id as the runner printed it, if parts of it (paths, addresses, times) became placeholders."""


class TestReport(Record):
    """The result of one run of a test suite, read from its JUnit XML alone."""

    __test__ = False

    cases: tuple[TestCase, ...]
    """One per id, in order of first appearance; duplicates are merged, the worst status wins."""
    repaired: bool = False
    """The XML was invalid and was mended before it could be read."""
    files: tuple[Label, ...] = ()
    """The files it was read from."""

    def statuses(self) -> dict[TestId, Status]:
        """Test id -> status."""
        return {case.id: case.status for case in self.cases}


class VerdictKind(StrEnum):
    """The verdict that an answer to a look-alike gives."""

    MANY = "many"
    """One of many values was expected, and the code knew which."""
    EXCEPTION = "exception"
    """One of several types of exception was."""
    ONE_BIT = "one bit"
    """One of two: the opposite of what broken code says is right."""
    GUTTED_ONLY = "gutted only"
    """It was merely seen to fail without the functions of the change."""
    NONE = "none"
    """What the report says is believed."""


class Instance(Record):
    """An issue-PR pair before it is built: what mining and imports produce."""

    id: InstanceId
    """``owner__name-number``, as SWE-bench names them."""
    repo: Repository
    """``owner/name``."""
    base_commit: Commit
    base_patch: Text = ""
    """Applied to the base commit before anything else: the bug, where a data set made one."""
    head_commit: Commit | None = None
    language: CodeLanguage
    kind: StatementKind
    pull_number: Count | None = None
    issue_numbers: tuple[Count, ...] = ()
    problem_statement: Text
    hints: Text = ""
    """What was said under the issue before the first commit."""
    gold_patch: Text
    """A git diff, encoded as UTF-8; binary files, and files whose text is no UTF-8, come as git's
    binary patches (a lone surrogate could not be stored as JSON)."""
    test_patch: Text
    neutral_files: tuple[RepositoryFile, ...] = ()
    """Files of the change that are in neither patch (documentation, change log, lock files)."""
    created_at: Instant | Literal[""] = ""
    """ISO 8601, UTC."""
    version: Line = ""
    licence: Line = ""
    expected_fail_to_pass: tuple[Text, ...] = ()
    """What a published record claims; ids as it writes them."""
    expected_pass_to_pass: tuple[Text, ...] = ()
    recipe: Recipe | None = None
    """Known when the record brings it."""
    extra: dict[Label, Text] = Field(default_factory=dict)
    """Fields of a published record that nothing here reads, as JSON; exports give them back."""


class Leaf(Record):
    """A literal that an expectation is made of, by its place in the bytes of a test file."""

    start: int = Field(ge=0)
    end: int = Field(ge=0)
    kind: Literal["text", "pattern", "number", "boolean", "exception", "condition"]


class Site(Record):
    """An expectation of a test that can be varied."""

    leaves: tuple[Leaf, ...] = Field(min_length=1)
    kind: VerdictKind
    at: int = Field(ge=0)
    """Where the assertion begins."""
    wrong: tuple[Label, ...] = ()
    """Of an exception: the types, as source, that the gold patch is known not to raise."""


class Cut(Record):
    """A stretch of a test file that a look-alike has another text for."""

    start: int = Field(ge=0)
    end: int = Field(ge=0)
    text: Label = ""


class Question(Record):
    """A test, or one case of a parametrised test, that look-alikes are made of."""

    file: RepositoryFile
    start: int = Field(ge=0)
    end: int = Field(ge=0)
    """Where the test stands in the bytes of its file; look-alikes take that place."""
    name: Label
    name_at: int = Field(ge=0)
    cuts: tuple[Cut, ...] = ()
    """What takes the other cases out of a table of parameters."""
    tests: tuple[TestId, ...] = Field(min_length=1)
    """Its cases; more than one where a table can't be cut: they share an answer."""
    sites: tuple[Site, ...] = ()
    """In the order of the source. Of a verifier: each was proven on the gold patch."""


class Verdict(Record):
    """How well the verdict on a fail-to-pass test is proven."""

    kind: VerdictKind
    runs: int = Field(default=0, ge=0)
    """Runs in which its look-alikes are judged."""
    odds: float = Field(default=1.0, ge=0, le=1)
    """The chance of a blind guess."""


class CodeTests(Record):
    """A code task's verifier: the tests a submission must pass. ``verifier.json`` holds it."""

    runner: Name
    test_patch: Text
    """As in ``Instance``."""
    test_files: tuple[RepositoryFile, ...]
    """Test files of the base commit and of the patch: restored before the patch is applied."""
    test_paths: tuple[Label, ...] = ()
    """Regular expressions of test paths; what a submission changes or adds there is put back, too."""
    canary_files: tuple[RepositoryFile, ...] = ()
    """Test files of C and C++ that get alarms."""
    alarms: dict[Label, tuple[TestId, ...]] = Field(default_factory=dict)
    """Alarms of C and C++ test programs (``main``, ``assertions``) -> tests that can't pass when it is set
    off."""
    registered: dict[TestId, Label] = Field(default_factory=dict)
    """Test -> a digest of what the build files register as it, where they do (CTest, Meson)."""
    only: tuple[RepositoryFile, ...] = ()
    """Run these test files only, where the runner can; empty: all."""
    near: tuple[Label, ...] = ()
    """A test file beside which canaries are collected; empty: in the folder that has most tests."""
    fail_to_pass: tuple[TestId, ...] = Field(min_length=1)
    pass_to_pass: tuple[TestId, ...] = ()
    unstable: tuple[TestId, ...] = ()
    """Tests whose status changed between runs of the same tree; nobody is judged by them."""
    questions: tuple[Question, ...] = ()
    """What look-alikes are made of: fail-to-pass tests, and a sample of others."""
    copies: int = Field(default=16, ge=2, le=64)
    """Most look-alikes of one question in a run."""
    secret: Label = ""
    """Makes the options of look-alikes, the same in all judgements."""
    gutted: tuple[Label, ...] = ()
    """Functions of the gold patch (``file::Class.function``) without which the tests of kind
    ``gutted only`` fail."""
    verdicts: dict[TestId, Verdict] = Field(default_factory=dict)
    """Of each fail-to-pass test."""
    printed: dict[TestId, TestId] = Field(default_factory=dict)
    """The printed id of each test whose id holds placeholders (``<tmp>``); empty if every run printed a
    different one."""
