"""``envgen validate``: every gate again, from a dataset's files alone, whatever families it holds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from envgen.core.families import find_family
from envgen.core.limits import Label, Text, Whole
from envgen.core.types import Evidence, GateResult, GateStatus, Record, SourceKind, TaskSpec
from envgen.pipelines.boundary import broken, failure
from envgen.pipelines.card import said_of_itself, unchecked
from envgen.pipelines.tables import tables
from envgen.sandboxes.zygote import WorkerBackend
from envgen.store.dataset import Dataset
from envgen.store.writer import trusted_evidence


class ValidateOptions(Record):
    """How to prove a dataset again; ``validate`` tells what each of them means."""

    seed: Whole = 0
    backend: WorkerBackend = "auto"
    variants: int = Field(default=20, ge=0)
    by_evaluation: bool = False
    repeats: int = Field(default=3, ge=1)


class TaskValidation(Record):
    """The findings of validation about one task."""

    task_id: str
    method: Label
    """The way it was judged, as its family calls it."""
    passed: bool
    evidence: Evidence

    @property
    def failure(self) -> GateResult | None:
        """The first gate that did not hold."""
        return failure(self.evidence)


class ValidationReport(Record):
    """The findings of validation about a dataset."""

    path: str
    how: Text = ""
    """In a sentence, how its tasks were judged, and what nobody vouches for."""
    tasks: tuple[TaskValidation, ...]
    variants_checked: int = 0
    dataset_evidence: Evidence = ()
    """The gates about the dataset as a whole; ``not_run`` where it has too few tasks for them."""

    @property
    def passed(self) -> bool:
        """Whether every task held, and the dataset as a whole."""
        failed = any(result.status is GateStatus.FAILED for result in self.dataset_evidence)
        return not failed and all(task.passed for task in self.tasks)


class TaskValidator(ABC):
    """Proves the tasks of one family again; a context, for what it keeps open.

    Args:
        dataset: opened with ``unproven``; it may hold tasks of other families, too.
        options: how.
    """

    family: ClassVar[str]
    methods: ClassVar[Mapping[str, str]]
    """Each way to judge a task, and what ``how`` says of it; what must not be overlooked comes first."""

    def __init__(self, dataset: Dataset, options: ValidateOptions) -> None:
        self.dataset, self.options = dataset, options

    def __enter__(self) -> TaskValidator:
        return self

    def __exit__(self, *_: object) -> None:  # noqa: B027  # most keep nothing open
        """Close what it keeps open."""

    @property
    def own(self) -> list[str]:
        """The family's tasks, variants left out."""
        tasks = self.dataset.tasks
        return [name for name in self.dataset.own_task_ids if tasks[name].family == self.family]

    def task_ids(self) -> list[str]:
        """The tasks to prove."""
        return self.own

    @abstractmethod
    def validate(self, task_id: str) -> TaskValidation:
        """Prove a task again; what it raises fails the task (``validated``)."""

    def dataset_evidence(self) -> Evidence:
        """Gates about the family's tasks as a whole."""
        return ()

    def how(self, results: Sequence[TaskValidation], total: int) -> list[str]:
        """What the first line of the report says of the tasks, of ``total`` in the dataset."""
        numbers = Counter(task.method for task in results)
        return [
            f"{numbers[method]} of {total} tasks {words}"
            for method, words in self.methods.items()
            if numbers[method]
        ]


def validated(validator: TaskValidator, task_id: str) -> TaskValidation:
    """What a validator finds of a task. If it raises, the files are no task, and this one fails.

    Raises:
        SandboxUnavailableError: if nothing can be proven on this machine.
    """
    try:
        return validator.validate(task_id)
    except Exception as error:  # the boundary: one task fails, the run goes on
        evidence = (broken("files", error),)
        method = next(iter(validator.methods))
        return TaskValidation(task_id=task_id, method=method, passed=False, evidence=evidence)


def validate(
    path: str | Path,
    *,
    seed: int = 0,
    backend: WorkerBackend = "auto",
    variants: int = 20,
    trust: bool = False,
    by_evaluation: bool = False,
    repeats: int = 3,
    progress: Callable[[int, int, str], None] | None = None,
) -> ValidationReport:
    """Prove a dataset again. Hashes are checked on opening; code runs in a sandbox.

    Args:
        path: the dataset folder; missing evidence is no hindrance here.
        seed: seeds the gates' random choices (another seed tries other re-seeds and samples).
        backend: the sandbox to use.
        variants: how many variants, drawn at random, have gold and probes replayed.
        trust: the caller wrote or read the dataset's code, which so may run without isolation.
        by_evaluation: judge tasks that another version or author wrote by what they do: their IR is
            evaluated, programs and probes are played, and texts that differ from those rendered here are
            shown. No dataset can choose that for itself: without it every task is compared.
        repeats: runs of a code task's gold patch and of none.
        progress: called after each task.

    Raises:
        ConfigError: if a task's family is not installed.
        DatasetError: if the dataset is missing, corrupt or hostile.
        SandboxUnavailableError: if its code can't be isolated here and isn't trusted.
    """
    chosen = ValidateOptions(
        seed=seed, backend=backend, variants=variants, by_evaluation=by_evaluation, repeats=repeats
    )
    dataset = Dataset.open(path, unproven=True, trust=trust)
    families = [find_family(name) for name in sorted({t.family for t in _own(dataset)})]
    results: list[TaskValidation] = []
    how: list[str] = []
    gates: list[GateResult] = []
    with ExitStack() as stack:
        validators: list[TaskValidator] = [
            stack.enter_context(family.load("validator")(dataset, chosen)) for family in families
        ]
        todo = [(one, task_id) for one in validators for task_id in one.task_ids()]
        for done, (validator, task_id) in enumerate(todo, 1):
            results.append(validated(validator, task_id))
            if progress:
                progress(done, len(todo), task_id)
        for validator in validators:
            mine = [r for r, (whose, _) in zip(results, todo, strict=True) if whose is validator]
            how += validator.how(mine, len(results))
            gates += validator.dataset_evidence()
    own = set(dataset.own_task_ids)
    return ValidationReport(
        path=str(path),
        how="; ".join(filter(None, (*how, unchecked(dataset)))),
        tasks=tuple(results),
        variants_checked=sum(task.task_id not in own for task in results),
        dataset_evidence=(
            tables(dataset),
            said_of_itself(dataset),
            *gates,
            *trusted_evidence(dataset.source is SourceKind.TRUSTED),
        ),
    )


def _own(dataset: Dataset) -> list[TaskSpec]:
    return [dataset.tasks[name] for name in dataset.own_task_ids]
