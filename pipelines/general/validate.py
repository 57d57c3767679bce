"""``envgen validate``: every gate again, from the files alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Literal

from envgen.core.canonical import dumps
from envgen.core.seeding import derive
from envgen.core.types import (
    Evidence,
    GateResult,
    GateStatus,
    Probe,
    Record,
    SourceKind,
    ToolSpec,
)
from envgen.environments.runner import run_gold
from envgen.pipelines.boundary import broken
from envgen.pipelines.general.author import ProceduralAuthor
from envgen.pipelines.general.draft import Draft
from envgen.pipelines.general.gates.diversity import dataset_evidence
from envgen.pipelines.general.gates.probe_run import gold_probe, judge, probe_submissions
from envgen.pipelines.general.gates.prove import prove
from envgen.pipelines.general.gates.trial import Hosts
from envgen.pipelines.general.reload import draft_of
from envgen.pipelines.general.stored import Origin, StoredComparison, foreign, origin_of
from envgen.pipelines.packed.pack import PACKED, prove_again
from envgen.pipelines.tables import tables
from envgen.sandboxes.tools import ToolHost, tool_host
from envgen.sandboxes.zygote import WorkerBackend, choose
from envgen.store.bundles import EnvironmentBundle, TaskBundle
from envgen.store.dataset import Dataset
from envgen.store.writer import trusted_evidence
from envgen.verifiers.holes import is_unsolvable

Method = Literal["compared", "judged by evaluation", "replayed", "packed"]
"""How a task was judged: ``compared``, all that is stored with what envgen derives from the constraint IR;
``judged by evaluation`` of the IR, the programs and probes played (another version or author wrote them);
``replayed``, gold and probes alone (variants); ``packed``, by the gates that need no IR."""


class TaskValidation(Record):
    """What validation found about one task."""

    task_id: str
    method: Method
    passed: bool
    evidence: Evidence

    @property
    def failure(self) -> GateResult | None:
        """The first gate that did not hold."""
        for result in self.evidence:
            if result.status in (GateStatus.FAILED, GateStatus.NOT_RUN):
                return result
        return None


class ValidationReport(Record):
    """What validation found about a dataset."""

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
    choose(
        backend, dataset.trusted
    )  # else a task that fails early would hide that nothing can be proven
    own = list(dataset.own_task_ids)
    others = sorted(set(dataset.tasks) - set(own))
    sampled = Random(derive(seed, "variants")).sample(others, min(variants, len(others)))
    results, origin = [], origin_of()
    with Hosts(backend=backend, trusted=dataset.trusted) as hosts:
        for i, task_id in enumerate([*own, *sampled]):
            replay = task_id in sampled
            results.append(
                _validate_task(dataset, task_id, hosts, seed, origin, replay_only=replay)
            )
            if progress:
                progress(i + 1, len(own) + len(sampled), task_id)
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
        return dataset_evidence(_bundles(dataset))
    except Exception as error:  # the boundary: the report is about the tasks, too
        return (broken("dataset", error),)


def _bundles(dataset: Dataset) -> Iterator[tuple[EnvironmentBundle, list[TaskBundle]]]:
    """Environments with the tasks of their own (variants are their parents' kind by intent)."""
    for environment_id in dataset.environments:
        files = dataset.environment_files(environment_id)
        environment = EnvironmentBundle(
            spec=files.spec,
            database=files.database.read_bytes() if files.database else None,
            tools_source=files.tools_source,
            blueprint=files.blueprint,
        )
        own = [i for i in dataset.own_task_ids if dataset.tasks[i].environment_id == environment_id]
        yield environment, [dataset.task_files(task_id) for task_id in own]


def _validate_task(
    dataset: Dataset, task_id: str, hosts: Hosts, seed: int, origin: Origin, *, replay_only: bool
) -> TaskValidation:
    environment = dataset.environments[dataset.tasks[task_id].environment_id]
    method: Method = "packed" if environment.author == PACKED else "replayed"
    try:
        if environment.author == PACKED:
            evidence = prove_again(dataset, task_id, hosts, derive(seed, task_id))
        elif replay_only or (draft := draft_of(dataset, task_id)) is None:
            evidence = _replayed(dataset, task_id, hosts)
        else:
            said = foreign(dataset.task_files(task_id), draft)
            method = "judged by evaluation" if said else "compared"
            evidence = _proven(dataset, draft, hosts, seed, origin, said)
    except Exception as error:  # files that are no task fail it, not the run
        evidence = (broken("files", error),)
    failed = any(one.status in (GateStatus.FAILED, GateStatus.NOT_RUN) for one in evidence)
    return TaskValidation(task_id=task_id, method=method, passed=not failed, evidence=evidence)


def _proven(
    dataset: Dataset, draft: Draft, hosts: Hosts, seed: int, origin: Origin, said: str
) -> Evidence:
    """Every gate again, then what is stored beside what they found."""
    author = ProceduralAuthor() if draft.author == ProceduralAuthor.name else None
    proof = prove(draft, hosts, author=author, seed=seed, foreign=said)
    if not proof.passed:
        return proof.evidence
    comparison = StoredComparison(dataset, draft, proof, hosts, seed, origin)
    return (*proof.evidence, *comparison.evidence())


def _replayed(dataset: Dataset, task_id: str, hosts: Hosts) -> Evidence:
    found: list[GateResult] = []
    try:
        for result in _replay(dataset, task_id, hosts):
            found.append(result)
    except Exception as error:  # the boundary: one task fails, the run goes on
        found.append(broken("probes" if found else "gold", error))
    return tuple(found)


def _replay(dataset: Dataset, task_id: str, hosts: Hosts) -> Iterator[GateResult]:
    """Run gold again and put every stored probe to the verifier."""
    task = dataset.task_files(task_id)
    files = dataset.environment_files(task.spec.environment_id)
    database = dataset.database(task_id)
    if database is None or task.gold is None:
        yield GateResult(gate="gold", status=GateStatus.FAILED, n=1, reason="no database or gold")
        return
    with (
        closing(
            tool_host(
                files.tools_source,
                files.spec.tools,
                database,
                backend=hosts.backend,
                trusted=hosts.trusted,
            )
        ) as tools,
        TemporaryDirectory(prefix="envgen-validate-") as folder,
    ):
        run = run_gold(task.solution, files.spec.tools, tools, hosts.solutions())
        same = run.fault is None and dumps(run.gold.answer) == dumps(task.gold.answer)
        yield GateResult(
            gate="gold",
            status=GateStatus.PASSED if same else GateStatus.FAILED,
            n=1,
            reason="" if same else "the solution gives another answer than gold.jsonl",
        )
        probes = task.probes or (_gold_probe(task),)
        yield _probes(task, probes, files.spec.tools, database, Path(folder), tools, hosts)


def _gold_probe(task: TaskBundle) -> Probe:
    gold = task.gold
    assert gold is not None  # the caller checked
    return gold_probe(gold, expected=not is_unsolvable(task.spec))


def _probes(
    task: TaskBundle,
    probes: tuple[Probe, ...],
    specs: Sequence[ToolSpec],
    database: Path,
    folder: Path,
    tools: ToolHost,
    hosts: Hosts,
) -> GateResult:
    submissions = probe_submissions(probes, specs, database, folder, tools)
    scores = judge(task.verifier, submissions, hosts)
    wrong = [
        f"{probe.origin} {probe.clause or ''}".strip()
        for probe, score in zip(probes, scores, strict=True)
        if score.passed != probe.expected
    ]
    return GateResult(
        gate="probes",
        status=GateStatus.FAILED if wrong else GateStatus.PASSED,
        n=len(probes),
        figure=1.0 - len(wrong) / len(probes),
        reason=f"wrong verdicts on {', '.join(wrong[:3])}" if wrong else "",
    )
