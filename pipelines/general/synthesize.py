"""One environment with its tasks, from a seed: draft, prove, draft siblings, prove them too.

This is the unit of parallel work: a ``EnvironmentJob`` in, a ``Yield`` out, both plain records.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

from pydantic import Field

from envgen.core.limits import Count, Label, Seconds, Text
from envgen.core.seeding import derive
from envgen.core.types import GateResult, GateStatus, Id, Record
from envgen.pipelines.boundary import broken, failure
from envgen.pipelines.general.author import ProceduralAuthor
from envgen.pipelines.general.draft import (
    Draft,
    DraftRequest,
    NoDraft,
    environment_bundle,
    task_bundle,
)
from envgen.pipelines.general.gates.dataset import random_valid_agreement
from envgen.pipelines.general.gates.prove import prove
from envgen.pipelines.general.gates.trial import Hosts, shared_hosts
from envgen.pipelines.general.semantics.identity import identity
from envgen.pipelines.general.targets import Achieved, Targets
from envgen.sandboxes.zygote import WorkerBackend
from envgen.store.bundles import EnvironmentBundle, TaskBundle

T = TypeVar("T")

DRAFTS, SIBLINGS = "drafts", "siblings"
"""The stages of the funnel."""
MAX_ATTEMPTS = 8
"""Drafts tried for one environment, and siblings tried for one task, before giving up."""
MAX_ENVIRONMENTS = 2
"""First tasks whose siblings are tried, where those of the one before were too few; the fullest is kept."""


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
    targets: Targets = Targets()
    attempts: Count = MAX_ATTEMPTS
    """Drafts of the environment before it is given up."""


class Stage(Record):
    """What became of the drafts of one stage: each is proven, or rejected for one reason."""

    tried: Count = 0
    rejected: dict[Label, Count] = Field(default_factory=dict)
    """Gate, or what a ``draft`` or ``sibling`` got stuck at -> drafts that ended there."""
    proven: Count = 0


class Yield(Record):
    """The yield of a job: at most one environment, its tasks, and what was rejected on the way."""

    index: Count
    environment: EnvironmentBundle | None = None
    tasks: tuple[TaskBundle, ...] = ()
    domain: Label = ""
    drafts: Stage = Stage()
    """First tasks, whose rows and tools become an environment."""
    siblings: Stage = Stage()
    """Further tasks over the same rows."""
    reasons: tuple[Text, ...] = ()
    """One line for each rejection, for the run's log."""
    nearest: Achieved | None = None
    """Of the proven drafts that missed a target, the figures of the nearest; None: none missed one."""
    proving_s: Seconds = 0.0
    """Seconds that the gates took."""
    measuring_s: Seconds = 0.0
    """Seconds that it took to measure how hard tasks are."""

    @property
    def stages(self) -> dict[str, Stage]:
        """Both stages by their names."""
        return {DRAFTS: self.drafts, SIBLINGS: self.siblings}


def synthesize(job: EnvironmentJob) -> Yield:
    """Make the environment of ``job``; deterministic in the job.

    Raises:
        SandboxUnavailableError: nothing can be proven on this machine.
    """
    maker = _Maker(job, ProceduralAuthor(), shared_hosts(job.backend, not job.page))
    attempts: list[_Attempt] = []
    for attempt in range(job.attempts):
        found = maker.environment(attempt)
        attempts += [found] if found else []
        if len(attempts) == MAX_ENVIRONMENTS or (found and len(found.tasks) >= job.tasks):
            break
    return maker.result(attempts)


class _Attempt(NamedTuple):
    environment: EnvironmentBundle | None
    tasks: tuple[TaskBundle, ...]


class _Proven(NamedTuple):
    draft: Draft
    task: TaskBundle


class _Maker:
    """Makes one environment's tasks, and counts what happened on the way."""

    def __init__(self, job: EnvironmentJob, author: ProceduralAuthor, hosts: Hosts) -> None:
        self.job = job
        self.author = author
        self.hosts = hosts
        self.drafted: Counter[str] = Counter()
        self.rejected: dict[str, Counter[str]] = {DRAFTS: Counter(), SIBLINGS: Counter()}
        self.reasons: list[str] = []
        self.nearest: Achieved | None = None
        self.proving_s = self.measuring_s = 0.0

    def environment(self, attempt: int) -> _Attempt | None:
        """An environment with its tasks, as many as the job asks for or its rows allow."""
        first = self.first(attempt)
        if first is None:
            return None
        environment = self.tried("bundle", partial(environment_bundle, first.draft), DRAFTS)
        if environment is None:
            return None
        kept = self.agreeing(environment, (first.task, *self.siblings(first, attempt)))
        return _Attempt(environment, kept) if kept else None

    def first(self, attempt: int) -> _Proven | None:
        """The task whose rows and tools become the environment."""
        request = DraftRequest(domain=self.job.domain, level=self.job.level, page=self.job.page)
        seed = derive(self.job.seed, "draft", attempt)
        return self._judge(DRAFTS, "draft", lambda: self.author.draft(request, seed))

    def siblings(self, first: _Proven, draft: int) -> list[TaskBundle]:
        """Other tasks over the same rows, as many as the job asks for or can be found."""
        found, own = [first], (draft,) if draft else ()
        for attempt in range(MAX_ATTEMPTS * (self.job.tasks - 1)):
            if len(found) == self.job.tasks:
                break
            seed = derive(self.job.seed, "sibling", *own, attempt)
            proven = self._judge(SIBLINGS, "sibling", partial(self._sibling, found, seed))
            if proven is not None:
                found.append(proven)
        return [one.task for one in found[1:]]

    def _sibling(self, found: list[_Proven], seed: int) -> Draft | NoDraft:
        sibling = self.author.sibling(found[0].draft, seed)
        if isinstance(sibling, NoDraft):
            return sibling
        for one in found:
            if _asks_the_same(sibling, one.draft):
                return NoDraft("repeated", "it asks the same as another task of the environment")
        return sibling

    def _judge(self, stage: str, what: str, make: Callable[[], Draft | NoDraft]) -> _Proven | None:
        """A draft that every gate passed; None (and a count) otherwise."""
        self.drafted[stage] += 1
        draft = self.tried(f"{what}: error", make, stage)
        if isinstance(draft, NoDraft):
            self._count(stage, f"{what}: {draft.step}", draft.reason)
        if not isinstance(draft, Draft):
            return None
        started = time.monotonic()
        proof = prove(draft, self.hosts, author=self.author)
        self.measuring_s += proof.measuring_s
        self.proving_s += time.monotonic() - started - proof.measuring_s
        failed = failure(proof.evidence)
        if failed is not None:
            self.reject(failed, stage)
            return None
        task = self.tried("bundle", partial(task_bundle, draft, proof), stage)
        return None if task is None or self._misses(task, stage) else _Proven(draft, task)

    def _misses(self, task: TaskBundle, stage: str) -> bool:
        """Whether a task misses a target, which is counted; the nearest such task is remembered."""
        targets, found = self.job.targets, Achieved.of(task.spec.difficulty)
        missed = [name for name, _ in targets.missed(found)]
        if missed:
            self._count(stage, f"target: {missed[0]}", str(found))
            if not self.nearest or targets.distance(found) < targets.distance(self.nearest):
                self.nearest = found
        return bool(missed)

    def tried(self, step: str, make: Callable[[], T], stage: str) -> T | None:
        """Call ``make``; an exception is counted for ``step`` and gives None."""
        try:
            return make()
        except Exception as error:  # the boundary: one draft is lost, the run goes on
            self.reject(broken(step, error), stage)
            return None

    def agreeing(
        self, environment: EnvironmentBundle, tasks: tuple[TaskBundle, ...]
    ) -> tuple[TaskBundle, ...]:
        """The tasks, the first before its siblings, whose density agrees with what random-valid does."""
        job, kept = self.job, []
        agreed = random_valid_agreement(
            environment, tasks, episodes=job.agreement_episodes, backend=job.backend
        )
        for i, (task, result) in enumerate(zip(tasks, agreed, strict=True)):
            if result.status is GateStatus.FAILED:
                self.reject(result, SIBLINGS if i else DRAFTS)
                continue
            spec = task.spec.model_copy(update={"evidence": (*task.spec.evidence, result)})
            kept.append(task.model_copy(update={"spec": spec}))
        return tuple(kept)

    def reject(self, failure: GateResult, stage: str) -> None:
        """Count a gate's rejection."""
        self._count(stage, failure.gate, failure.reason)

    def _count(self, stage: str, step: str, reason: str) -> None:
        self.rejected[stage][step] += 1
        self.reasons.append(f"{self.job.domain} level {self.job.level}: {step}: {reason}")

    def result(self, attempts: list[_Attempt]) -> Yield:
        """The job's yield: of all environments the one with most tasks, the earliest of those."""
        best = max(attempts, key=lambda one: len(one.tasks), default=_Attempt(None, ()))
        for one in attempts:
            for i in range(len(one.tasks) if one is not best else 0):
                why = "another draft over other rows has more siblings"
                self._count(SIBLINGS if i else DRAFTS, "fewer siblings", why)
        return Yield(
            index=self.job.index,
            environment=best.environment,
            tasks=best.tasks,
            domain=self.job.domain,
            drafts=self._stage(DRAFTS),
            siblings=self._stage(SIBLINGS),
            reasons=tuple(self.reasons),
            nearest=self.nearest,
            proving_s=self.proving_s,
            measuring_s=self.measuring_s,
        )

    def _stage(self, name: str) -> Stage:
        tried, rejected = self.drafted[name], self.rejected[name]
        return Stage(
            tried=tried,
            rejected=dict(sorted(rejected.items())),
            proven=tried - rejected.total(),
        )


def _asks_the_same(one: Draft, other: Draft) -> bool:
    """Whether two drafts over the same rows are one task, perhaps in other words."""
    if one.problem is None or other.problem is None:
        return one.task_id == other.task_id or one.prompt == other.prompt
    return identity(one.problem) == identity(other.problem)
