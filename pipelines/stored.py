"""The gate of tasks that follow from their solution: everything stored is what a maker writes again."""

from __future__ import annotations

from collections.abc import Callable

from envgen.core.types import GateResult, GateStatus
from envgen.pipelines.assemble import TaskDraft
from envgen.pipelines.boundary import guarded
from envgen.store.dataset import Dataset

_OF_THE_WRITER = (
    "solution", "verifier", "gold", "constraints", "probes", "split", "evidence", "pass_at",
)  # fmt: skip
"""Fields of a task that say where its texts are, and what was found out about it."""
_OF_THE_ENVIRONMENT = ("blueprint", "tools_source", "database")
IMPORTED = GateResult(
    gate="stored",
    status=GateStatus.NOT_RUN,
    reason="it was imported: nothing says what its answer follows from",
)
"""Of a task without a solution."""


def stored(dataset: Dataset, task_id: str, again: Callable[[], TaskDraft]) -> GateResult:
    """Whether a task and its environment are what ``again`` makes of the task's solution."""
    return guarded("stored", lambda: _stored(dataset, task_id, again()))


def _stored(dataset: Dataset, task_id: str, again: TaskDraft) -> GateResult:
    files = dataset.task_files(task_id)
    own = {name: getattr(files.spec, name) for name in _OF_THE_WRITER}
    task = again.task.model_copy(update={"spec": again.task.spec.model_copy(update=own)})
    environment = dataset.environment_files(files.spec.environment_id).bundle()
    kept = {name: getattr(environment.spec, name) for name in _OF_THE_ENVIRONMENT}
    spec = again.environment.spec.model_copy(update=kept)
    for name in type(files).model_fields:
        if getattr(files, name) != getattr(task, name):
            return failed("stored", f"its {name} is not what its solution gives")
    wanted = again.environment.model_copy(update={"spec": spec})
    if environment != wanted or environment.spec.tools_source is not None:
        return failed("stored", "its environment is not what its solution gives")
    return passed("stored")


def passed(gate: str, n: int = 1, figure: float | None = None) -> GateResult:
    """A gate that held in ``n`` trials."""
    return GateResult(gate=gate, status=GateStatus.PASSED, n=n, figure=figure)


def failed(gate: str, reason: str) -> GateResult:
    """A gate that did not hold."""
    return GateResult(gate=gate, status=GateStatus.FAILED, n=1, reason=reason)
