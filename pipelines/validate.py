"""``envgen validate``: every gate again, from a dataset's files alone, whatever families it holds."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

from pydantic import Field

from envgen.core.families import find_family
from envgen.core.limits import Label, Text, Whole
from envgen.core.types import Evidence, GateResult, GateStatus, Id, Record, SourceKind
from envgen.pipelines.boundary import broken, failure, outcomes
from envgen.pipelines.card import Dealt, said_of_itself, unchecked
from envgen.pipelines.evidence import Sameness, evidence_gate
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

    task_id: Id
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
    parallel: ClassVar[bool] = True
    """Whether several processes may prove tasks of one dataset at once."""
    dealt_by: ClassVar[Literal["tasks", "environments", ""]] = "tasks"
    """What its splits are dealt out to, by ``group``; empty: they are their author's word."""
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
        facts = self.dataset.facts
        return [name for name in self.dataset.own_task_ids if facts(name).family == self.family]

    def task_ids(self) -> list[str]:
        """The tasks to prove."""
        return self.own

    @abstractmethod
    def validate(self, task_id: str) -> TaskValidation:
        """Prove a task again; what it raises fails the task (``validated``)."""

    def same(self, found: TaskValidation) -> Sameness | None:
        """How far the evidence of a task must be what was just found; None: that is compared elsewhere."""
        return "results"

    def wanted(self, found: TaskValidation) -> Evidence:
        """The evidence that a task must carry, by what was just found."""
        return found.evidence

    def compared(self, found: TaskValidation) -> TaskValidation:
        """Findings with one more gate: the task's evidence is what proving it gives, no gate is missing.

        A task without any evidence was never said to be proven.
        """
        same = self.same(found) if found.passed else None
        stored = self.dataset.tasks[found.task_id].evidence if same else ()
        if same is None or not stored:
            return found
        wanted, by_evaluation = self.wanted(found), self.options.by_evaluation
        gate = evidence_gate(stored, wanted, same, by_evaluation=by_evaluation)
        evidence = (*found.evidence, gate)
        passed = failure(evidence) is None
        return found.model_copy(update={"evidence": evidence, "passed": passed})

    def group(self, task_id: str) -> str:
        """What tasks (or environments) of one split share; empty where nothing tells."""
        return ""

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
        return validator.compared(validator.validate(task_id))
    except Exception as error:  # the boundary: one task fails, the run goes on
        return _broken(validator, task_id, error)


class ProofItem(NamedTuple):
    """A task to prove, and whose it is."""

    family: str
    task_id: str


@contextmanager
def validators(
    dataset: Dataset, options: ValidateOptions, families: Sequence[str]
) -> Iterator[dict[str, TaskValidator]]:
    """The validators of these families over one dataset, by name; closed at the end."""
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(find_family(name).load("validator")(dataset, options))
            for name in families
        }


@contextmanager
def worker(**kwargs: Any) -> Iterator[Callable[[ProofItem], TaskValidation]]:
    """A worker process of ``prove_all``."""
    with validators(**kwargs) as own:
        yield lambda item: validated(own[item.family], item.task_id)


def prove_all(
    own: Mapping[str, TaskValidator],
    items: Sequence[ProofItem],
    workers: int | None,
    progress: Callable[[int, int, str], None] | None,
    keep: Callable[[TaskValidation], None] | None = None,
) -> list[TaskValidation]:
    """Prove tasks, first in this process, and what is left after some seconds in worker processes.

    Args:
        own: the validators, by family.
        items: what to prove.
        workers: processes; default: one per core. The results don't depend on it.
        progress: called after each task.
        keep: called with each result as it comes.

    Returns:
        The results, in the order of ``items``.
    """
    results: dict[ProofItem, TaskValidation] = {}

    def note(item: ProofItem, found: TaskValidation) -> None:
        results[item] = found
        if keep:
            keep(found)
        if progress:
            progress(len(results), len(items), item.task_id)

    started = time.monotonic()
    left = []
    for item in items:
        late = time.monotonic() - started > _ALONE_S
        if late and workers != 1 and own[item.family].parallel:
            left.append(item)
        else:
            note(item, validated(own[item.family], item.task_id))
    if left:
        first = next(iter(own.values()))
        kwargs = {
            "dataset": first.dataset,
            "options": first.options,
            "families": sorted({item.family for item in left}),
        }
        alone = partial(_validated, own)
        for item, outcome in outcomes(_WORKER, alone, left, workers, ahead=1, kwargs=kwargs):
            if outcome.error is None:
                note(item, outcome.value)
            else:  # what fails a task comes as a value: a process died, or nothing can be proven here
                note(item, _broken(own[item.family], item.task_id, outcome.error))
    return [results[item] for item in items]


_WORKER = f"{__name__}:worker"
_ALONE_S = 2.0
"""Seconds of proving, after which worker processes are worth their start."""


def _validated(own: Mapping[str, TaskValidator], item: ProofItem) -> TaskValidation:
    return validated(own[item.family], item.task_id)


def _broken(validator: TaskValidator, task_id: str, error: BaseException) -> TaskValidation:
    method = next(iter(validator.methods))
    evidence = (broken("files", error),)
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
    workers: int | None = None,
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
        workers: processes; default: one per core. Code tasks are proven one after the other.
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
    names = sorted({dataset.facts(task_id).family for task_id in dataset.own_task_ids})
    how: list[str] = []
    gates: list[GateResult] = []
    with validators(dataset, chosen, names) as own:
        items = [ProofItem(name, task_id) for name in names for task_id in own[name].task_ids()]
        results = prove_all(own, items, workers, progress)
        for name, validator in own.items():
            mine = [r for r, item in zip(results, items, strict=True) if item.family == name]
            how += validator.how(mine, len(results))
            gates += validator.dataset_evidence()
        dealt = _dealt(own)
    plain = set(dataset.own_task_ids)
    return ValidationReport(
        path=str(path),
        how="; ".join(filter(None, (*how, unchecked(dataset, dealt)))),
        tasks=tuple(results),
        variants_checked=sum(task.task_id not in plain for task in results),
        dataset_evidence=(
            tables(dataset),
            said_of_itself(dataset, dealt),
            *gates,
            *trusted_evidence(dataset.source is SourceKind.TRUSTED),
        ),
    )


def _dealt(own: Mapping[str, TaskValidator]) -> Dealt:
    """What splits were dealt out by; nothing where it is told of some tasks only, or families were merged."""
    if len(own) != 1:
        return Dealt("", {})
    (validator,) = own.values()
    try:
        groups = {task_id: validator.group(task_id) for task_id in validator.own}
    except Exception as error:  # the boundary: what can't be read fails its own task, too
        broken("card", error)
        return Dealt("", {})
    return Dealt(validator.dealt_by if all(groups.values()) else "", groups)
