"""One environment with its tasks, from a seed: draft, prove, draft siblings, prove them too.

This is the unit of parallel work: a ``EnvironmentJob`` in, a ``Yield`` out, both plain records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

from pydantic import Field

from envgen.core.limits import Count, Label, Text
from envgen.core.seeding import derive
from envgen.core.types import GateResult, GateStatus, Id, Record
from envgen.pipelines.boundary import broken
from envgen.pipelines.general.author import ProceduralAuthor
from envgen.pipelines.general.draft import (
    Draft,
    DraftRequest,
    NoDraft,
    environment_bundle,
    failure,
    task_bundle,
)
from envgen.pipelines.general.gates.dataset import random_valid_agreement
from envgen.pipelines.general.gates.prove import prove
from envgen.pipelines.general.gates.trial import Hosts, shared_hosts
from envgen.sandboxes.zygote import WorkerBackend
from envgen.store.bundles import EnvironmentBundle, TaskBundle

T = TypeVar("T")

MAX_ATTEMPTS = 8
"""Drafts tried for one environment, and siblings tried for one task, before giving up."""


class EnvironmentJob(Record):
    """One environment to make."""

    index: int
    domain: Id
    level: int
    tasks: int
    seed: int
    backend: WorkerBackend = "auto"
    page: Text = ""
    """The domain's page as JSON; empty: the package's. Code that comes of a page from elsewhere is
    not trusted."""
    agreement_episodes: int = 128
    """Most random-valid episodes a task may cost; rarer densities are not_run."""


class Yield(Record):
    """The yield of a job: at most one environment, its tasks, and what was rejected on the way."""

    index: Count
    environment: EnvironmentBundle | None = None
    tasks: tuple[TaskBundle, ...] = ()
    drafted: Count = 0
    rejected: dict[Label, Count] = Field(default_factory=dict)
    """Gate, or what a ``draft`` or ``sibling`` got stuck at -> drafts that ended there."""
    reasons: tuple[Text, ...] = ()
    """One line for each rejection, for the run's log."""


def synthesize(job: EnvironmentJob) -> Yield:
    """Make the environment of ``job``; deterministic in the job.

    Raises:
        SandboxUnavailableError: nothing can be proven on this machine.
    """
    maker = _Maker(job, ProceduralAuthor(), shared_hosts(job.backend, not job.page))
    for attempt in range(MAX_ATTEMPTS):
        first = maker.first(attempt)
        if first is None:
            continue
        environment = maker.tried("bundle", partial(environment_bundle, first.draft))
        if environment is None:
            continue
        kept = maker.agreeing(environment, (first.task, *maker.siblings(first)))
        if kept:
            return maker.result(environment, kept)
    return maker.result(None, ())


class _Proven(NamedTuple):
    draft: Draft
    task: TaskBundle


class _Maker:
    """Makes one environment's tasks, and counts what happened on the way."""

    def __init__(self, job: EnvironmentJob, author: ProceduralAuthor, hosts: Hosts) -> None:
        self.job = job
        self.author = author
        self.hosts = hosts
        self.drafted = 0
        self.rejected: Counter[str] = Counter()
        self.reasons: list[str] = []

    def first(self, attempt: int) -> _Proven | None:
        """The task whose rows and tools become the environment."""
        request = DraftRequest(domain=self.job.domain, level=self.job.level, page=self.job.page)
        seed = derive(self.job.seed, "draft", attempt)
        return self._judge("draft", lambda: self.author.draft(request, seed))

    def siblings(self, first: _Proven) -> list[TaskBundle]:
        """Other tasks over the same rows, as many as the job asks for or can be found."""
        found = [first]
        for attempt in range(MAX_ATTEMPTS * (self.job.tasks - 1)):
            if len(found) == self.job.tasks:
                break
            seed = derive(self.job.seed, "sibling", attempt)
            proven = self._judge("sibling", partial(self._sibling, found, seed))
            if proven is not None:
                found.append(proven)
        return [one.task for one in found[1:]]

    def _sibling(self, found: list[_Proven], seed: int) -> Draft | NoDraft:
        sibling = self.author.sibling(found[0].draft, seed)
        if isinstance(sibling, NoDraft):
            return sibling
        for one in found:
            if sibling.task_id == one.draft.task_id or sibling.prompt == one.draft.prompt:
                return NoDraft("repeated", "the same task again")
        return sibling

    def _judge(self, what: str, make: Callable[[], Draft | NoDraft]) -> _Proven | None:
        """A draft that every gate passed; None (and a count) otherwise."""
        self.drafted += 1
        draft = self.tried(f"{what}: error", make)
        if isinstance(draft, NoDraft):
            self._count(f"{what}: {draft.step}", draft.reason)
        if not isinstance(draft, Draft):
            return None
        proof = prove(draft, self.hosts, author=self.author)
        failed = failure(proof.evidence)
        if failed is not None:
            self.reject(failed)
            return None
        task = self.tried("bundle", partial(task_bundle, draft, proof))
        return None if task is None else _Proven(draft, task)

    def tried(self, step: str, make: Callable[[], T]) -> T | None:
        """Call ``make``; an exception is counted for ``step`` and gives None."""
        try:
            return make()
        except Exception as error:  # the boundary: one draft is lost, the run goes on
            self.reject(broken(step, error))
            return None

    def agreeing(
        self, environment: EnvironmentBundle, tasks: tuple[TaskBundle, ...]
    ) -> tuple[TaskBundle, ...]:
        """The tasks whose density agrees with what random-valid does."""
        job, kept = self.job, []
        agreed = random_valid_agreement(
            environment, tasks, episodes=job.agreement_episodes, backend=job.backend
        )
        for task, result in zip(tasks, agreed, strict=True):
            if result.status is GateStatus.FAILED:
                self.reject(result)
                continue
            spec = task.spec.model_copy(update={"evidence": (*task.spec.evidence, result)})
            kept.append(task.model_copy(update={"spec": spec}))
        return tuple(kept)

    def reject(self, failure: GateResult) -> None:
        """Count a gate's rejection."""
        self._count(failure.gate, failure.reason)

    def _count(self, step: str, reason: str) -> None:
        self.rejected[step] += 1
        self.reasons.append(f"{self.job.domain} level {self.job.level}: {step}: {reason}")

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
