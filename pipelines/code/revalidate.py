"""``envgen validate`` on code tasks: build them from the dataset's files alone and judge known patches."""

from __future__ import annotations

from collections.abc import Callable

from envgen.core.surrogates import to_bytes
from envgen.core.types import GateResult, GateStatus, Record
from envgen.environments.code_hosts import CodeBackend, CodeHosts
from envgen.pipelines.boundary import broken
from envgen.pipelines.tables import tables
from envgen.store.dataset import Dataset
from envgen.verifiers.code import CodeVerifier

Progress = Callable[[int, int, str], None]


class CodeTaskReport(Record):
    """What judging a task's known patches gave."""

    task_id: str
    gold: int = 0
    """Runs in which the gold patch scored 1."""
    empty: int = 0
    """Runs in which no change at all scored 0."""
    repeats: int
    tests_alone: float = 0.0
    """Score of the test patch without the gold patch."""
    failure: str = ""
    """Why it does not hold; empty when it does."""

    @property
    def passed(self) -> bool:
        """Whether gold scored 1 and nothing else did, every time."""
        return not self.failure


class CodeReport(Record):
    """What validating a dataset of code tasks found."""

    tasks: tuple[CodeTaskReport, ...]
    tables: GateResult
    """Whether the dataset's Parquet tells what its tasks' files tell."""

    @property
    def passed(self) -> bool:
        """Whether every task holds, and the tables."""
        return self.tables.status is GateStatus.PASSED and all(task.passed for task in self.tasks)


def revalidate(
    dataset: Dataset,
    *,
    repeats: int = 3,
    backend: CodeBackend = "auto",
    progress: Progress | None = None,
) -> CodeReport:
    """Judge the gold patch, no patch and the test patch alone of every code task.

    Workspaces are built from the dataset's trees and frozen recipes.

    Args:
        dataset: with code tasks; others are passed over.
        repeats: runs of gold and of no patch.
        backend: where.
        progress: called after each task.
    """
    hosts = CodeHosts(dataset, backend)
    names = [name for name in dataset.own_task_ids if dataset.tasks[name].family == "code"]
    reports = []
    for name in names:
        reports.append(_task(hosts, name, repeats))
        if progress is not None:
            told = "holds" if reports[-1].passed else "fails"
            progress(len(reports), len(names), f"{name}: {told}")
    return CodeReport(tasks=tuple(reports), tables=tables(dataset))


def _task(hosts: CodeHosts, name: str, repeats: int) -> CodeTaskReport:
    try:
        return _judged(hosts.verifier(name), name, to_bytes(hosts.task(name).gold_patch), repeats)
    except Exception as error:  # the boundary: one task fails, the run goes on
        failure = broken(name, error).reason
        return CodeTaskReport(task_id=name, repeats=repeats, failure=failure)


def _judged(verifier: CodeVerifier, name: str, gold: bytes, repeats: int) -> CodeTaskReport:
    golds = [verifier.verify_patch(gold) for _ in range(repeats)]
    empties = [verifier.verify_patch(b"") for _ in range(repeats)]
    alone = verifier.verify_patch(to_bytes(verifier.tests.test_patch))
    failure = ""
    if bad := next((score for score in golds if not score.passed), None):
        failure = f"gold: {'; '.join(bad.reasons[:3])}"
    elif any(score.value for score in empties):
        failure = "no change at all scores 1"
    elif alone.value:
        failure = "the test patch alone scores 1"
    return CodeTaskReport(
        task_id=name,
        gold=sum(score.passed for score in golds),
        empty=sum(not score.value for score in empties),
        repeats=repeats,
        tests_alone=alone.value,
        failure=failure[:2_000],
    )
