"""``envgen validate``: every gate again, from the files alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Literal

from envgen.core.seeding import derive
from envgen.core.types import Evidence, GateResult, GateStatus, Record, SourceKind
from envgen.pipelines.boundary import broken
from envgen.pipelines.general.author import ProceduralAuthor, draft_of
from envgen.pipelines.general.draft import Draft, failure
from envgen.pipelines.general.gates.dataset import Group, dataset_evidence
from envgen.pipelines.general.gates.prove import prove
from envgen.pipelines.general.gates.trial import Hosts
from envgen.pipelines.general.stored import StoredComparison, incomparable, replayed
from envgen.pipelines.packed.pack import PACKED, prove_again
from envgen.pipelines.tables import tables
from envgen.sandboxes.zygote import WorkerBackend, choose
from envgen.store.dataset import Dataset
from envgen.store.writer import trusted_evidence

Method = Literal["compared", "judged by evaluation", "replayed", "packed"]
"""A way to judge a task: ``compared``, all that is stored with what envgen derives from the constraint IR;
``judged by evaluation`` of the IR, the programs and probes played (another version or author wrote them);
``replayed``, gold and probes alone (variants); ``packed``, by the gates that need no IR."""


class TaskValidation(Record):
    """The findings of validation about one task."""

    task_id: str
    method: Method
    passed: bool
    evidence: Evidence

    @property
    def failure(self) -> GateResult | None:
        """The first gate that did not hold."""
        return failure(self.evidence)


class ValidationReport(Record):
    """The findings of validation about a dataset."""

    path: str
    tasks: tuple[TaskValidation, ...]
    variants_checked: int = 0
    dataset_evidence: Evidence = ()
    """The gates about the dataset as a whole; ``not_run`` where it has too few tasks for them."""

    @property
    def passed(self) -> bool:
        """Whether every task held, and the dataset as a whole."""
        failed = any(result.status is GateStatus.FAILED for result in self.dataset_evidence)
        return not failed and all(task.passed for task in self.tasks)


def validate(
    path: str | Path,
    *,
    seed: int = 0,
    backend: WorkerBackend = "auto",
    variants: int = 20,
    trust: bool = False,
    progress: Callable[[int, int, str], None] | None = None,
) -> ValidationReport:
    """Prove a dataset again. Hashes are checked on opening; code runs in a sandbox.

    Args:
        path: the dataset folder; missing evidence is no hindrance here.
        seed: seeds the gates' random choices (another seed tries other re-seeds and samples).
        backend: the sandbox to use.
        variants: how many variants, drawn at random, have gold and probes replayed.
        trust: the caller wrote or read the dataset's code, which so may run without isolation.
        progress: called after each task.
    """
    dataset = Dataset.open(path, unproven=True, trust=trust)
    # At once, or a task that fails early would hide that nothing can be proven.
    choose(backend, dataset.trusted)
    own = list(dataset.own_task_ids)
    others = sorted(set(dataset.tasks) - set(own))
    sampled = Random(derive(seed, "variants")).sample(others, min(variants, len(others)))
    results = []
    with Hosts(backend=backend, trusted=dataset.trusted) as hosts:
        for i, task_id in enumerate([*own, *sampled], 1):
            replay = task_id in sampled
            results.append(_validate_task(dataset, task_id, hosts, seed, replay))
            if progress:
                progress(i, len(own) + len(sampled), task_id)
    return ValidationReport(
        path=str(path),
        tasks=tuple(results),
        variants_checked=len(sampled),
        dataset_evidence=(
            tables(dataset),
            *_whole(dataset),
            *trusted_evidence(dataset.source is SourceKind.TRUSTED),
        ),
    )


def _whole(dataset: Dataset) -> Evidence:
    """The gates about the dataset as a whole; a failure where its files can't be read."""
    try:
        return dataset_evidence(_groups(dataset))
    except Exception as error:  # the boundary: the report is about the tasks, too
        return (broken("dataset", error),)


def _groups(dataset: Dataset) -> Iterator[Group]:
    """Environments with the tasks of their own (variants are their parents' kind by intent)."""
    for environment_id in dataset.environments:
        own = [i for i in dataset.own_task_ids if dataset.tasks[i].environment_id == environment_id]
        environment = dataset.environment_files(environment_id).bundle()
        yield environment, [dataset.task_files(task_id) for task_id in own]


def _validate_task(
    dataset: Dataset, task_id: str, hosts: Hosts, seed: int, replay_only: bool
) -> TaskValidation:
    found: list[GateResult] = []
    packed = dataset.environments[dataset.tasks[task_id].environment_id].author == PACKED
    method: Method = "packed" if packed else "replayed"
    try:
        if packed:
            found += prove_again(dataset, task_id, hosts, derive(seed, task_id))
        elif replay_only or (draft := draft_of(dataset, task_id)) is None:
            for result in replayed(dataset, task_id, hosts):
                found.append(result)
        else:
            said = incomparable(dataset.task_files(task_id), draft, ProceduralAuthor.name)
            method = "judged by evaluation" if said else "compared"
            found += _proven(dataset, draft, hosts, seed, said)
    except Exception as error:  # files that are no task fail it, not the run
        found.append(broken("probes" if found else "files", error))
    evidence = tuple(found)
    passed = failure(evidence) is None
    return TaskValidation(task_id=task_id, method=method, passed=passed, evidence=evidence)


def _proven(dataset: Dataset, draft: Draft, hosts: Hosts, seed: int, said: str) -> Evidence:
    """Every gate again, then what is stored beside what they found."""
    author = ProceduralAuthor()
    known = not said or author.knows(draft)  # what claims to be compiled here must compile again
    proof = prove(draft, hosts, author=author if known else None, seed=seed, incomparable=said)
    if not proof.passed:
        return proof.evidence
    comparison = StoredComparison(dataset, draft, proof, hosts, seed, said)
    return (*proof.evidence, *comparison.evidence())
