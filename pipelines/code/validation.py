"""What proving an instance takes and finds: how often, why it fell, what holds."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from envgen.core.code_types import CodeTests
from envgen.core.limits import Count, InstanceId, Label, Seconds, Text
from envgen.core.types import Evidence, Record


class Reason(StrEnum):
    """Why an instance was not kept; the funnel counts them."""

    NO_TREE = "no_tree"
    """The base commit can't be taken from the clone."""
    STATEMENT = "statement"
    """It says nothing, or does not tell the names without which no fail-to-pass test builds."""
    NO_RECIPE = "no_recipe"
    """Nothing in the repository says how to build and test it."""
    INSTALL = "install"
    """Dependencies can't be had, or a build command fails on the base commit."""
    NO_TESTS = "no_tests"
    """No test passes, with the gold patch either, or no file is one that the runner takes for tests."""
    BASE_RUN = "base_run"
    """The tests of the base commit hang, or leave no report."""
    CANARIES = "canaries"
    """The project's run does not collect the canaries, or turns their verdicts round."""
    TEST_PATCH = "test_patch"
    """The test patch does not apply."""
    GOLD_PATCH = "gold_patch"
    """The gold patch does not apply."""
    BEFORE_RUN = "before_run"
    """With the test patch, the tests hang or leave no report."""
    AFTER_RUN = "after_run"
    """With the gold patch, the tree does not build, or its tests hang or leave no report."""
    NO_FAIL_TO_PASS = "no_fail_to_pass"
    """No test fails before and passes after."""
    NOT_IMPORTED = "not_imported"
    """The gold patch's files may hold anything: the tests don't use them."""
    PASS_TO_FAIL = "pass_to_fail"
    UNSTABLE = "unstable"
    """Only tests that do not end alike in all runs are fail-to-pass."""
    PLAYED = "played"
    """Proven, but its gold patch, played from the written dataset by the agent's own tools, does not pass."""
    MACHINE = "machine"
    """This machine lacks a program, an interpreter or a language layer: tried again by the next run."""
    ENVGEN = "envgen"
    """A fault of ours, or of this machine: tried again by the next run."""


PASSING_FAULTS = frozenset({Reason.MACHINE, Reason.ENVGEN})
"""Reasons that say nothing about the instance."""


class ValidateConfig(Record):
    """How thoroughly instances are proven."""

    repeats: int = Field(default=3, ge=1)
    """Runs of each state."""
    more: int = Field(default=10, ge=0)
    """Runs of what is kept, beside those."""
    only_touched: bool = False
    """Run only the test files that the test patch touches, where the runner can."""


class Validation(Record):
    """What proving one instance found."""

    instance_id: InstanceId
    reason: Reason | None = None
    """Why it was not kept; None: it was."""
    details: Text = ""
    tests: CodeTests | None = None
    evidence: Evidence = ()
    runs: Count = 0
    tests_s: Seconds = 0.0
    """Seconds in test runners, all runs together."""
    wall_s: Seconds = 0.0
    counts: dict[Label, Count] = Field(default_factory=dict)
    """Tests by what became of them."""

    @property
    def kept(self) -> bool:
        """Whether the instance is proven."""
        return self.reason is None


class RejectedError(Exception):
    """Raised where an instance falls; its arguments are the reason and details."""

    def __init__(self, reason: Reason, details: str = "") -> None:
        super().__init__(reason, details)
        self.reason, self.details = reason, details
