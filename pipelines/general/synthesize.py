"""One environment with its tasks, from a seed: draft, prove, draft siblings, prove them too.

This is the unit of parallel work: a ``Job`` in, a ``Yield`` out, both plain records.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic import Field

from envgen.core.seeding import derive
from envgen.core.types import (
    Difficulty,
    EnvironmentSpec,
    GateResult,
    GateStatus,
    Id,
    Limits,
    Record,
    TaskSpec,
)
from envgen.pipelines.general.agreement import random_valid_agreement
from envgen.pipelines.general.author import ProceduralAuthor
from envgen.pipelines.general.draft import Draft, DraftRequest
from envgen.pipelines.general.gates.prove import Proof, prove
from envgen.pipelines.general.gates.trial import Hosts
from envgen.pipelines.general.tables import write_sqlite
from envgen.sandboxes.zygote import WorkerBackend
from envgen.store.bundles import EnvironmentBundle, TaskBundle

MAX_ATTEMPTS = 8
"""Drafts tried for one environment, and siblings tried for one task, before giving up."""


class Job(Record):
    """One environment to make."""

    index: int
    domain: Id
    level: int
    tasks: int
    seed: int
    backend: WorkerBackend = "auto"
    agreement_episodes: int = 128
    """Most random-valid episodes a task may cost; rarer densities are not_run."""


class Yield(Record):
    """What a job gave: at most one environment, its tasks, and what was rejected on the way."""

    index: int
    environment: EnvironmentBundle | None = None
    tasks: tuple[TaskBundle, ...] = ()
    drafted: int = 0
    rejected: dict[str, int] = Field(default_factory=dict)
    """Gate (or ``draft``) -> drafts it rejected."""
    reasons: tuple[str, ...] = ()
    """One line for each rejection, for the run's log."""


def synthesize(job: Job) -> Yield:
    """Make the environment of ``job``; deterministic in the job."""
    hosts = _hosts(job.backend)
    author = ProceduralAuthor()
    maker = _Maker(job, author, hosts)
    for attempt in range(MAX_ATTEMPTS):
        request = DraftRequest(domain=job.domain, level=job.level)
        draft = author.draft(request, derive(job.seed, "draft", attempt))
        proof = maker.judge(draft)
        if draft is None or proof is None:
            continue
        environment = environment_bundle(draft)
        accepted = [(draft, proof)]
        for sibling_attempt in range(MAX_ATTEMPTS * (job.tasks - 1)):
            if len(accepted) == job.tasks:
                break
            sibling = author.sibling(draft, derive(job.seed, "sibling", sibling_attempt))
            if sibling is not None and sibling.task_id in {one.task_id for one, _ in accepted}:
                continue
            if sibling is not None and any(sibling.prompt == one.prompt for one, _ in accepted):
                continue
            sibling_proof = maker.judge(sibling)
            if sibling is not None and sibling_proof is not None:
                accepted.append((sibling, sibling_proof))
        tasks = tuple(task_bundle(one, found) for one, found in accepted)
        agreed = random_valid_agreement(
            environment, tasks, episodes=job.agreement_episodes, backend=job.backend, seed=job.seed
        )
        kept = []
        for task, result in zip(tasks, agreed, strict=True):
            if result.status is GateStatus.FAILED:
                maker.reject(result)
                continue
            spec = task.spec.model_copy(update={"evidence": (*task.spec.evidence, result)})
            kept.append(task.model_copy(update={"spec": spec}))
        if kept:
            return maker.result(environment, tuple(kept))
    return maker.result(None, ())


@cache
def _hosts(backend: WorkerBackend) -> Hosts:
    """The process's sandboxed interpreters; procedural drafts are this package's own code."""
    return Hosts(backend=backend, trusted=True)


class _Maker:
    """Counts what happened while a job ran."""

    def __init__(self, job: Job, author: ProceduralAuthor, hosts: Hosts) -> None:
        self.job = job
        self.author = author
        self.hosts = hosts
        self.drafted = 0
        self.rejected: Counter[str] = Counter()
        self.reasons: list[str] = []

    def judge(self, draft: Draft | None) -> Proof | None:
        """The proof of a draft that passed; None (and a count) otherwise."""
        self.drafted += 1
        if draft is None:
            self.rejected["draft"] += 1
            return None
        seed = derive(self.job.seed, "gates", draft.task_id)
        proof = prove(draft, self.hosts, author=self.author, seed=seed)
        failure = proof.failure
        if failure is None:
            return proof
        self.reject(failure)
        return None

    def reject(self, failure: GateResult) -> None:
        """Count a rejection."""
        self.rejected[failure.gate] += 1
        self.reasons.append(
            f"{self.job.domain} level {self.job.level}: {failure.gate}: {failure.reason}"
        )

    def result(self, environment: EnvironmentBundle | None, tasks: tuple[TaskBundle, ...]) -> Yield:
        """The job's yield."""
        return Yield(
            index=self.job.index,
            environment=environment,
            tasks=tasks,
            drafted=self.drafted,
            rejected=dict(sorted(self.rejected.items())),
            reasons=tuple(self.reasons),
        )


def environment_bundle(draft: Draft) -> EnvironmentBundle:
    """The environment part of a draft, with its database as SQLite bytes."""
    with TemporaryDirectory(prefix="envgen-bundle-") as folder:
        path = Path(folder) / "database.sqlite"
        write_sqlite(draft.relations, draft.tables, path)
        database = path.read_bytes()
    spec = EnvironmentSpec(
        id=draft.environment_id,
        category=draft.category,
        title=draft.title,
        description=draft.description,
        language=draft.language,
        tools=draft.tools,
        policy_text=draft.policy_text,
        author=draft.author,
        seed=draft.seed,
        licence=draft.licence,
        sources=draft.sources,
    )
    return EnvironmentBundle(
        spec=spec, database=database, tools_source=draft.tools_source, blueprint=draft.blueprint
    )


def task_bundle(draft: Draft, proof: Proof) -> TaskBundle:
    """The task part of a proven draft."""
    gold = proof.gold
    calls = gold.calls if gold else ()
    difficulty = Difficulty(
        level=draft.level,
        lineage=draft.lineage,
        density=proof.density,
        minimum_calls=len(calls),
        distinct_tools=len({call.name for call in calls}),
    )
    spec = TaskSpec(
        id=draft.task_id,
        environment_id=draft.environment_id,
        prompt=draft.prompt,
        submit_schema=draft.submit_schema,
        rules=draft.rules,
        limits=limits_for(len(calls)),
        difficulty=difficulty,
        evidence=proof.evidence,
    )
    constraints = None if draft.problem is None else draft.problem.model_dump(mode="json")
    return TaskBundle(
        spec=spec,
        solution=draft.solution,
        verifier=draft.verifier,
        constraints=constraints,
        gold=gold,
        probes=proof.probes,
    )


def limits_for(gold_calls: int) -> Limits:
    """Turns: four times gold's calls, and room to explore; one call a turn must suffice."""
    return Limits(turns=16 + 4 * gold_calls, tokens=32_768, seconds=600.0)
