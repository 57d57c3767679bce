"""``envgen validate``: every gate again, from the files alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Literal

from envgen.core.seeding import derive
from envgen.core.types import Evidence, GateResult, GateStatus, Record, SourceKind
from envgen.pipelines.boundary import broken
from envgen.pipelines.card import said_of_itself, unchecked
from envgen.pipelines.general.author import ProceduralAuthor, draft_of
from envgen.pipelines.general.draft import Draft, failure
from envgen.pipelines.general.gates.dataset import Group, dataset_evidence
from envgen.pipelines.general.gates.prove import prove
from envgen.pipelines.general.gates.trial import Hosts, not_applicable
from envgen.pipelines.general.stored import StoredComparison, incomparable, replayed, variant_texts
from envgen.pipelines.packed.pack import PACKED, prove_again
from envgen.pipelines.tables import tables
from envgen.sandboxes.zygote import WorkerBackend, choose
from envgen.store.dataset import Dataset
from envgen.store.writer import trusted_evidence

Method = Literal["compared", "judged by evaluation", "replayed", "packed"]
"""A way to judge a task: ``compared``, all that is stored with what envgen derives from the constraint IR;
``judged by evaluation`` of the IR, the programs and probes played (another version or author wrote them);
``replayed``, gold and probes alone (variants); ``packed``, by the gates that need no IR."""


BY_EVALUATION = "--by-evaluation judges it by what it does"
"""What else to do with tasks that another version or author wrote."""


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
    how: str = ""
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


def validate(
    path: str | Path,
    *,
    seed: int = 0,
    backend: WorkerBackend = "auto",
    variants: int = 20,
    trust: bool = False,
    by_evaluation: bool = False,
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
            results.append(_validate_task(dataset, task_id, hosts, seed, replay, by_evaluation))
            if progress:
                progress(i, len(own) + len(sampled), task_id)
    return ValidationReport(
        path=str(path),
        how="; ".join(filter(None, (_how(results), unchecked(dataset)))),
        tasks=tuple(results),
        variants_checked=len(sampled),
        dataset_evidence=(
            tables(dataset),
            said_of_itself(dataset),
            *_whole(dataset),
            *trusted_evidence(dataset.source is SourceKind.TRUSTED),
        ),
    )


_WORDS: dict[Method, str] = {
    "compared": "compared with all that its constraint IR gives, texts and figures included",
    "judged by evaluation": "JUDGED BY EVALUATION, as you asked: by what it does; nothing vouches for the "
    "words of its prompts and tools",
    "replayed": "replayed, and its texts compared with its parameters'",
    "packed": "judged by the gates that need no constraint IR",
}


def _how(results: Sequence[TaskValidation]) -> str:
    """What the first line of a report says."""
    numbers = Counter(task.method for task in results)
    order = sorted(numbers, key=lambda method: method != "judged by evaluation")
    return "; ".join(f"{numbers[m]} of {len(results)} tasks {_WORDS[m]}" for m in order)


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
    dataset: Dataset,
    task_id: str,
    hosts: Hosts,
    seed: int,
    replay_only: bool,
    by_evaluation: bool,
) -> TaskValidation:
    found: list[GateResult] = []
    packed = dataset.environments[dataset.tasks[task_id].environment_id].author == PACKED
    method: Method = "packed" if packed else "replayed"
    said = ""
    try:
        if packed:
            found += prove_again(dataset, task_id, hosts, derive(seed, task_id))
        elif replay_only or (draft := draft_of(dataset, task_id)) is None:
            for result in replayed(dataset, task_id, hosts):
                found.append(result)
            if replay_only and not packed:
                found.append(_variant(dataset, task_id, by_evaluation))
        else:
            said = incomparable(dataset.task_files(task_id), draft, ProceduralAuthor.name)
            method = "judged by evaluation" if said and by_evaluation else "compared"
            found += _proven(dataset, draft, hosts, seed, said if by_evaluation else "")
    except Exception as error:  # files that are no task fail it, not the run
        found.append(broken("probes" if found else "files", error))
    if said and not by_evaluation:
        found = [_with_hint(result, said) for result in found]
    evidence = tuple(found)
    passed = failure(evidence) is None
    return TaskValidation(task_id=task_id, method=method, passed=passed, evidence=evidence)


def _variant(dataset: Dataset, task_id: str, by_evaluation: bool) -> GateResult:
    """Whether a variant's texts are those of its parameters; shown alone where it is judged by evaluation."""
    found = variant_texts(dataset, task_id)
    if by_evaluation and found.status is GateStatus.FAILED:
        return not_applicable("differences", found.reason)
    return found


def _with_hint(result: GateResult, said: str) -> GateResult:
    """A failure of a task that another version or author wrote, with what else can be done."""
    if result.status is not GateStatus.FAILED:
        return result
    return result.model_copy(
        update={"reason": f"{result.reason} ({said}: {BY_EVALUATION})"[:4_000]}
    )


def _proven(dataset: Dataset, draft: Draft, hosts: Hosts, seed: int, said: str) -> Evidence:
    """Every gate again, then what is stored beside what they found."""
    author = ProceduralAuthor()
    known = not said or author.has_recipe(draft)  # what is compared must compile again
    proof = prove(draft, hosts, author=author if known else None, seed=seed, incomparable=said)
    if not proof.passed:
        return proof.evidence
    comparison = StoredComparison(dataset, draft, proof, hosts, seed, said)
    return (*proof.evidence, *comparison.evidence())
