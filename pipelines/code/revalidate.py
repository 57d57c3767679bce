"""``envgen validate`` on code tasks: build them from the dataset's files alone and judge known patches."""

from __future__ import annotations

from envgen.core.surrogates import to_bytes
from envgen.core.types import Evidence, GateResult, GateStatus
from envgen.environments.code_hosts import CodeHosts, code_backend
from envgen.pipelines.boundary import broken, failure
from envgen.pipelines.evidence import Sameness
from envgen.pipelines.validate import TaskValidation, TaskValidator, ValidateOptions
from envgen.store.dataset import Dataset
from envgen.verifiers.code import CodeVerifier

PROVEN_BY = ("gold", "empty_patch", "fail_to_pass", "pass_to_fail", "verdicts", "stable")
"""The gates of a code task's proof (``validate_instance``)."""


class CodeValidator(TaskValidator):
    """Judges the gold patch, no patch and the test patch alone of every code task.

    Workspaces are built from the dataset's trees and frozen recipes.
    """

    family = "code"
    parallel = False  # workspaces of one repository share a cache
    dealt_by = ""
    methods = {"built": "built anew, and their known patches judged"}

    def __init__(self, dataset: Dataset, options: ValidateOptions) -> None:
        super().__init__(dataset, options)
        self._hosts = CodeHosts(dataset, code_backend(options.backend))

    def validate(self, task_id: str) -> TaskValidation:
        """See ``TaskValidator``."""
        try:
            gold = to_bytes(self._hosts.task(task_id).gold_patch)
            evidence = _judged(self._hosts.verifier(task_id), gold, self.options.repeats)
        except Exception as error:  # the boundary: one task fails, the run goes on
            evidence = (broken("built", error),)
        passed = failure(evidence) is None
        return TaskValidation(task_id=task_id, method="built", passed=passed, evidence=evidence)

    def same(self, found: TaskValidation) -> Sameness | None:
        """See ``TaskValidator``: how often tests were run is whoever made it's word."""
        return "names"

    def wanted(self, found: TaskValidation) -> Evidence:
        """See ``TaskValidator``: the gates of the proof, which runs more than is run again."""
        return tuple(GateResult(gate=name, status=GateStatus.PASSED, n=1) for name in PROVEN_BY)


def _judged(verifier: CodeVerifier, gold: bytes, repeats: int) -> tuple[GateResult, ...]:
    golds = [verifier.verify_patch(gold) for _ in range(repeats)]
    empties = [verifier.verify_patch(b"") for _ in range(repeats)]
    alone = verifier.verify_patch(to_bytes(verifier.tests.test_patch))
    bad = next((score for score in golds if not score.passed), None)
    paid = "no change at all scores 1" if any(score.value for score in empties) else ""
    return (
        _gate("gold", repeats, "" if bad is None else f"gold: {'; '.join(bad.reasons[:3])}"),
        _gate("empty", repeats, paid),
        _gate("tests_alone", 1, "the test patch alone scores 1" if alone.value else ""),
    )


def _gate(name: str, n: int, fault: str) -> GateResult:
    status = GateStatus.FAILED if fault else GateStatus.PASSED
    return GateResult(gate=name, status=status, n=n, reason=fault[:2_000])
