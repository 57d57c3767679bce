"""What a change does to a test suite: which tests it fixes, keeps, breaks, and which say nothing.

Three states of a repository are compared (the scheme of Multi-SWE-bench): ``base``, the commit as it was;
``before``, with the test patch only; ``after``, with the test patch and the gold patch. Each was run several
times, and a test that did not end alike in all runs of a state is unstable: nobody is judged by it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

from pydantic import Field

from envgen.core.code_types import Status, TestId, TestReport
from envgen.core.types import Record
from envgen.verifiers.junit.cases import UNBUILT

_GOOD = frozenset({Status.PASS, Status.XFAIL})
_BAD = frozenset({Status.FAIL, Status.ERROR})
_EVERYTHING = "build"
"""The package of a runner that tells only that something could not be compiled."""
_PARAMETERS = re.compile(r"\[|\(| with data set |#\d|/\d+$|\{")


class Kind(StrEnum):
    """Why a test stands in none of the three lists, or how it failed before."""

    FAILED = "failed"
    """It ran before, and failed or ended with an error."""
    NOT_BUILT = "not_built"
    """Before, what holds it could not be built or loaded."""
    PARAMETRISED = "parametrised"
    """Its id stands on one side only, and others with the same stem stand on the other."""
    REMOVED = "removed"
    """The test patch removed it."""
    RENAMED = "renamed"
    """The test patch removed it, and put others in the same place."""
    MISSING = "missing"
    """It is absent before, and nothing says why."""
    SKIPPED = "skipped"
    """It is skipped after."""
    FAILS = "fails"
    """It fails before and after."""


class State(NamedTuple):
    """One state of the repository, by all runs of it.

    Attributes:
        statuses: of the tests that ended alike in every run.
        unstable: the others, those absent from some runs among them.
        built: whether there was something to run; in a state that can't be built, nothing passes.
    """

    statuses: dict[TestId, Status]
    unstable: frozenset[TestId]
    built: bool = True


class PatchEffect(Record):
    """What the gold patch does to the tests."""

    fail_to_pass: tuple[TestId, ...]
    pass_to_pass: tuple[TestId, ...]
    pass_to_fail: tuple[TestId, ...]
    unstable: tuple[TestId, ...]
    kinds: dict[TestId, Kind] = Field(default_factory=dict)
    """How each fail-to-pass test failed before, and why each other test was left out."""

    def counts(self) -> dict[Kind, int]:
        """How many tests are of each kind."""
        found: dict[Kind, int] = {}
        for kind in self.kinds.values():
            found[kind] = found.get(kind, 0) + 1
        return dict(sorted(found.items()))


def merge(reports: Sequence[TestReport | None]) -> State:
    """One state from the reports of its runs; None stands for a tree that could not be built.

    Raises:
        ValueError: without reports, or if the tree could be built only sometimes.
    """
    if not reports:
        raise ValueError("a state needs at least one run")
    built = [report for report in reports if report is not None]
    if not built:
        return State({}, frozenset(), built=False)
    if len(built) < len(reports):
        raise ValueError(f"the tree was built in {len(built)} of {len(reports)} runs")
    runs = [report.statuses() for report in built]
    ids = dict.fromkeys(name for run in runs for name in run)
    stable, unstable = {}, set()
    for name in ids:
        seen = {run.get(name) for run in runs}
        status = runs[0].get(name)
        if len(seen) == 1 and status is not None:
            stable[name] = status
        else:
            unstable.add(name)
    return State(stable, frozenset(unstable))


def compare(base: State, before: State, after: State, test_files: Collection[str]) -> PatchEffect:
    """Sort the tests by what became of them.

    A test is fail-to-pass if it passes after and either failed before or could not be built before; absence
    alone proves nothing. One that could not be built before but passes on the base commit is
    pass-to-pass, unless the test patch touches its file: then it has new content.

    Args:
        base: the commit as it was.
        before: with the test patch.
        after: with the test patch and the gold patch.
        test_files: what the test patch touches.
    """
    return _Sorter(base, before, after, frozenset(test_files)).sort()


def stem(test: TestId) -> TestId:
    """A test's id without its parameters: ``f::c::t[1-2]`` and ``f::c::t[3-4]`` share one."""
    owner, name = _split(test)
    return f"{owner}::{_PARAMETERS.split(name, maxsplit=1)[0].rstrip() or name}"


def place(test: TestId) -> str:
    """Where a test stands: its id without its name."""
    return _split(test)[0]


def file_of(test: TestId) -> str:
    """The file in a test's id; empty where the runner tells none."""
    return place(test).partition("::")[0] if "::" in place(test) else ""


def _split(test: TestId) -> tuple[str, str]:
    """An id's owner and name; colons in parameters don't count."""
    cut = test.find("[")
    owner, _, name = test[: cut if cut > 0 else len(test)].rpartition("::")
    return owner, name + (test[cut:] if cut > 0 else "")


class _Sorter:
    def __init__(
        self, base: State, before: State, after: State, test_files: frozenset[str]
    ) -> None:
        self.base, self.before, self.after = base.statuses, before.statuses, after.statuses
        self.built = before.built
        self.test_files = test_files
        self.unstable = base.unstable | before.unstable | after.unstable
        self.stems_before = {stem(name) for name in before.statuses}
        self.stems_after = {stem(name) for name in after.statuses}
        self.new_places = {place(name) for name in after.statuses if name not in base.statuses}
        self.broken = _broken(before, after)
        self.kinds: dict[TestId, Kind] = {}

    def sort(self) -> PatchEffect:
        fixed: list[TestId] = []
        kept: list[TestId] = []
        regained: list[TestId] = []
        for name, status in self.after.items():
            if name in self.unstable:
                continue
            if name in self.broken:  # the stand-in of a file that could not be loaded
                self.kinds[name] = Kind.FAILS
            elif status is Status.SKIP:
                self.kinds[name] = Kind.SKIPPED
            elif status in _GOOD:
                self._good(name, status, fixed, kept, regained)
            elif self.base.get(name) not in _GOOD and self.before.get(name) not in _GOOD:
                self.kinds[name] = Kind.FAILS
        if (
            not fixed
        ):  # ids without files: what the test patch stopped from building is all there is
            fixed, regained = (
                [name for name in regained if not file_of(name)],
                [name for name in regained if file_of(name)],
            )
        kept += regained
        lost = [name for name in self._passing_once() if self._is_lost(name)]
        for name in (*kept, *lost):
            self.kinds.pop(name, None)
        return PatchEffect(
            fail_to_pass=tuple(sorted(fixed)),
            pass_to_pass=tuple(sorted(kept)),
            pass_to_fail=tuple(sorted(lost)),
            unstable=tuple(sorted(self.unstable)),
            kinds=dict(sorted(self.kinds.items())),
        )

    def _good(
        self,
        name: TestId,
        status: Status,
        fixed: list[TestId],
        kept: list[TestId],
        regained: list[TestId],
    ) -> None:
        """Sort a test that passes after."""
        earlier = self.before.get(name)
        if earlier in _GOOD:
            kept.append(name)
        elif status is not Status.PASS or earlier is Status.SKIP:
            self.kinds[name] = Kind.SKIPPED if earlier is Status.SKIP else Kind.FAILS
        elif earlier is not None:
            self.kinds[name] = Kind.FAILED
            fixed.append(name)
        elif self._was_not_built(name):
            self.kinds[name] = Kind.NOT_BUILT
            same = self.base.get(name) in _GOOD and file_of(name) not in self.test_files
            (regained if same else fixed).append(name)
        elif stem(name) in self.stems_before:
            self.kinds[name] = Kind.PARAMETRISED
        else:
            self.kinds[name] = Kind.MISSING

    def _was_not_built(self, name: TestId) -> bool:
        return not self.built or any(_holds(broken, name) for broken in self.broken)

    def _passing_once(self) -> Iterable[TestId]:
        """Tests that passed on the base commit or before."""
        names = dict.fromkeys((*self.base, *self.before))
        return (
            name
            for name in names
            if name not in self.unstable
            and (self.before.get(name) in _GOOD or self.base.get(name) in _GOOD)
        )

    def _is_lost(self, name: TestId) -> bool:
        """Whether a test that once passed does so no more, and not because the test patch says so."""
        status = self.after.get(name)
        if status in _GOOD:
            return False
        if status is Status.SKIP and self.before.get(name) is Status.SKIP:
            self.kinds[name] = Kind.SKIPPED  # the test patch skips it
            return False
        if status is not None:
            return True
        if stem(name) in self.stems_after:
            self.kinds[name] = Kind.PARAMETRISED
            return False
        if name not in self.before and self._may_be_removed(name):
            renamed = place(name) in self.new_places
            self.kinds[name] = Kind.RENAMED if renamed else Kind.REMOVED
            return False
        return True

    def _may_be_removed(self, name: TestId) -> bool:
        file = file_of(name)
        if file:
            return file in self.test_files
        return bool(self.test_files)


def _broken(before: State, after: State) -> frozenset[TestId]:
    """Ids that stand for a whole file, class or package that could not be loaded before.

    A runner reports such a thing as one error, which is gone or passes once it can be loaded.
    """
    holders = {prefix for name in after.statuses for prefix in _prefixes(name)}
    return frozenset(
        name
        for name, status in before.statuses.items()
        if status in _BAD
        and name not in after.statuses
        and (_bare(name) in holders or _bare(name) == UNBUILT)
    )


def _bare(name: TestId) -> str:
    """What a stand-in's id says about the thing it stands for: a file, a module or a class."""
    parts = [part for part in name.split("::") if part]
    return parts[-1] if parts else ""


def _prefixes(name: TestId) -> set[str]:
    """All that a stand-in for this test's file, class or package could be called."""
    parts = name.split("::")
    found = {parts[0]} if len(parts) > 2 and parts[0] else set()
    owner = parts[-2] if len(parts) > 1 else ""
    steps = owner.split(".")
    found |= {".".join(steps[: i + 1]) for i in range(len(steps))}
    if parts[0].endswith(".py"):
        found.add(parts[0].removesuffix(".py").replace("/", "."))
    return found - {""}


def _holds(broken: TestId, name: TestId) -> bool:
    if _bare(broken) != UNBUILT:
        return _bare(broken) in _prefixes(name)
    package = place(broken).strip(":")
    return package in ("", _EVERYTHING) or package in _prefixes(name)
