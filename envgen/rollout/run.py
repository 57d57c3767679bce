"""Run a policy on the tasks of a dataset, n times each: stored as they come, resumed where they stopped."""

from __future__ import annotations

import logging
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from threading import Event
from typing import Any, Literal, NamedTuple

from pydantic import Field, JsonValue

from envgen.core import seeding
from envgen.core.errors import ConfigError, ResumeError, WorkerDiedError
from envgen.core.executor import Executor, LocalExecutor, Outcome, WorkerSpec
from envgen.core.types import (
    Record,
    Sampling,
    SourceKind,
    StopReason,
    Style,
    Trajectory,
    TrajectoryError,
)
from envgen.policies.base import BudgetExceededError, CancelledPolicyError, Policy
from envgen.policies.budget import Budget
from envgen.policies.context import ContextConfig
from envgen.policies.registry import PolicyConfig, unknown_policy
from envgen.policies.styles import thinks
from envgen.rollout.episode import EpisodeResult
from envgen.rollout.gold import POLICY_KINDS, make_policy
from envgen.sandboxes.zygote import choose
from envgen.store.dataset import Dataset
from envgen.store.runs import RunStore

logger = logging.getLogger(__name__)

_CHUNK = 10
"""Episodes of one task that a worker process gets at a time."""
_WORTH_PROCESSES = 200
_MAX_DEATHS = 3


class RolloutConfig(Record):
    """What is rolled out, and how."""

    dataset: str
    """Dataset folder, or ``package:NAME``."""
    policy: PolicyConfig
    out: str
    """Run folder; one that holds the same run is resumed."""
    n: int = Field(default=1, ge=1)
    """Samples a task. Raising it later adds samples to the same run."""
    seed: int = 0
    task_ids: tuple[str, ...] | None = None
    """None: all tasks."""
    variants: bool = False
    """Whether "all tasks" means the re-seeded variants too."""
    style: Style | None = None
    """What the policy is asked for, in its system message; see ``policies.styles``."""
    max_turns: int | None = Field(default=None, ge=1)
    """End an episode after so many replies, where its task would allow more."""
    sampling: Sampling = Sampling()
    context: ContextConfig = ContextConfig()
    """What to do when a model's window fills up."""
    concurrency: int | None = Field(default=None, ge=1)
    """Threads for a model (server), processes for an offline policy.

    None: 8 for a server, 32 for a model in this process, one a core for an offline policy.
    """
    executor: Literal["local", "ray"] = "local"
    """ray: workers are actors of the Ray cluster at hand (``concurrency`` of them)."""
    backend: Literal["auto", "bubblewrap", "docker", "process", "inline"] = "auto"
    isolate: Literal["environment", "episode"] = "environment"
    """episode: each has a sandbox of its own, not only each environment."""
    max_cost_usd: float | None = Field(default=None, ge=0)
    unproven: bool = False
    retry_errors: bool = False
    """Forget the errored episodes of a resumed run first, and play them again."""
    db_url: str | None = None

    @property
    def player(self) -> PolicyConfig:
        """The policy; a model in this process thinks if the style says so."""
        if self.style is None or policy_kind(self.policy.spec) != "dsa":
            return self.policy
        options = {"thinking": thinks(self.style), **self.policy.options}
        return self.policy.model_copy(update={"options": options})

    def identity(self) -> dict[str, JsonValue]:
        """What makes two runs the same: all that changes an episode, nothing that only places it."""
        found: dict[str, JsonValue] = {
            "kind": "rollout",
            "policy": self.policy.spec,
            "options": {
                name: value for name, value in self.policy.options.items() if name not in _PLACING
            },
            "seed": self.seed,
            "task_ids": list(self.task_ids) if self.task_ids is not None else None,
            "variants": self.variants,
            "sampling": self.sampling.model_dump(mode="json"),
            "context": self.context.model_dump(mode="json"),
        }
        later: dict[str, JsonValue] = {"style": self.style, "max_turns": self.max_turns}
        return found | {name: value for name, value in later.items() if value is not None}


_PLACING = frozenset(
    {
        "api_key_env",
        "backoff_s",
        "cache_tokens",
        "connect_timeout_s",
        "headers",
        "max_backoff_s",
        "max_batch",
        "max_retries",
        "price",
        "threads",
        "timeout_s",
    }
)
"""Options of a model client that change no reply."""


class Progress(NamedTuple):
    """How far a run is."""

    done: int
    total: int
    passed: int
    errors: int
    cost_usd: float
    seconds: float


class RolloutSummary(Record):
    """What a run holds now."""

    policy: str
    tasks: int
    samples: int
    """Episodes stored, errored ones included."""
    wanted: int
    new: int
    """Of these, made by this call."""
    passed: int
    errors: int
    mean_calls: float
    reached_verifier: float
    """Share of this call's episodes whose answer the verifier judged."""
    stops: dict[str, int]
    """How this call's episodes ended."""
    faults: dict[str, int] = Field(default_factory=dict)
    """What went wrong in this call's errored episodes, most frequent first; at most ten texts."""
    misfits: dict[str, int] = Field(default_factory=dict)
    """Why episodes of this call are no records of the style that was asked for."""
    cost_usd: float
    seconds: float
    ended: Literal["complete", "cost", "interrupted"]


def rollout(
    config: RolloutConfig,
    *,
    progress: Callable[[Progress], None] | None = None,
    cancel: Event | None = None,
) -> RolloutSummary:
    """Run ``config.policy`` on every task, ``config.n`` times each.

    Each episode is stored as it completes; run again, the same config goes on where it stopped, with the
    same results (times aside). ``cancel`` and a spent budget end it cleanly with what there is; so does
    Ctrl-C, which is raised again once everything is stored.

    Args:
        config: what to run.
        progress: called after each stored episode.
        cancel: set to stop early.

    Raises:
        ConfigError: for unknown tasks or policies.
        DatasetError: when the dataset is corrupt, or unproven and that was not asked for.
        ResumeError: when the folder holds another run, or the model's weights have changed since.
        SandboxUnavailableError: when the dataset's code can't be isolated here and isn't trusted.
    """
    from envgen.environments.hosts import open_dataset

    if config.policy.spec.partition(":")[0] not in POLICY_KINDS:
        raise unknown_policy(config.policy.spec)  # before the folder belongs to this config
    dataset = open_dataset(config.dataset, unproven=config.unproven)
    task_ids = _task_ids(dataset, config)
    if any(dataset.facts(task_id).family == "general" for task_id in task_ids):
        trusted = dataset.source is not SourceKind.FOREIGN
        choose(config.backend, trusted, config.isolate)  # or refuse at once
    with RunStore.open(
        Path(config.out),
        config=config.identity(),
        dataset_hash=dataset.manifest.content_hash,
        db_url=config.db_url,
    ) as store:
        return _Run(config, dataset, task_ids, store, progress, cancel or Event()).run()


def _task_ids(dataset: Dataset, config: RolloutConfig) -> tuple[str, ...]:
    if config.task_ids is None:
        return tuple(dataset.tasks) if config.variants else dataset.own_task_ids
    for task_id in config.task_ids:
        if task_id not in dataset.tasks:
            raise ConfigError(f"the dataset has no task {task_id!r}", "see envgen list")
    return tuple(dict.fromkeys(config.task_ids))


class Chunk(NamedTuple):
    """Samples of one task for one worker."""

    task_id: str
    samples: tuple[int, ...]


class _Run:
    """One call of ``rollout``."""

    def __init__(
        self,
        config: RolloutConfig,
        dataset: Dataset,
        task_ids: tuple[str, ...],
        store: RunStore,
        progress: Callable[[Progress], None] | None,
        cancel: Event,
    ) -> None:
        self._config = config
        self._dataset = dataset
        self._task_ids = task_ids
        self._store = store
        self._progress = progress
        self._cancel = _Linked(cancel)
        self._start = time.monotonic()
        self._ended: Literal["complete", "cost", "interrupted"] = "complete"
        self._stops: Counter[str] = Counter()
        self._faults: Counter[str] = Counter()
        self._misfits: Counter[str] = Counter()
        self._calls = self._reached = self._new = 0
        counts = store.counts().values()
        self._passed = sum(count.c for count in counts)
        self._errors = sum(count.errors for count in counts)
        spent = store.stage("spent_usd")
        totals = store.totals()
        self._cost = max(totals["cost_usd"], spent if isinstance(spent, int | float) else 0.0)
        self._budget = Budget(config.max_cost_usd, self._cost)

    def run(self) -> RolloutSummary:
        if self._config.retry_errors:
            self._store.discard_errors()
        done = self._store.done()
        todo = [
            (task_id, sample)
            for task_id in self._task_ids
            for sample in range(self._config.n)
            if (task_id, sample) not in done
        ]
        self._wanted = len(self._task_ids) * self._config.n
        self._before = self._wanted - len(todo)
        policy = make_policy(self._config.player, self._dataset, budget=self._budget)
        try:
            self._note(policy)
            self._run_all(todo, policy)
        finally:
            self._cancel.set()
            getattr(policy, "close", lambda: None)()
            if self._budget.spent_usd:
                self._store.put_stage("spent_usd", self._budget.spent_usd)
        if self._ended == "complete" and self._before + self._new < self._wanted:
            self._ended = "interrupted"
        self._store.flush()
        return self._summary(policy.name)

    def _note(self, policy: Policy) -> None:
        version = self._store.stage("policy_version")
        if version is not None and version != policy.version:
            raise ResumeError(
                f"{self._config.out!r} holds episodes of {policy.name} in another version ({version}, "
                f"now {policy.version})",
                "choose another --out for the new weights",
            )
        levels: dict[str, JsonValue] = {
            task_id: self._dataset.facts(task_id).level for task_id in self._task_ids
        }
        noted: dict[str, JsonValue] = {"levels": levels, "policy": policy.name}
        if policy.version:
            noted["policy_version"] = policy.version
        for stage, value in noted.items():
            if self._store.stage(stage) != value:
                self._store.put_stage(stage, value)

    def _run_all(self, todo: list[tuple[str, int]], policy: Any) -> None:
        """Run everything; work that a dying worker took along is tried again, one by one."""
        executor, size, kwargs = self._form(len(todo), policy)
        deaths: Counter[tuple[str, int]] = Counter()
        chunks = deque(_chunks(todo, size))
        while chunks:
            running = executor.run(WorkerSpec(_WORKER, kwargs), self._feed(chunks))
            whole = False
            try:
                for outcome in running:
                    self._take(outcome, chunks, deaths)
                    if self._cancel.is_set():
                        break
                whole = True
            finally:
                if not whole:
                    self._cancel.set()  # requests under way are dropped
                running.close()  # type: ignore[attr-defined]  # every form is a generator
            if self._ended != "complete" or self._cancel.is_set():
                return

    def _form(self, num_todo: int, policy: Any) -> tuple[Executor, int, dict[str, Any]]:
        """(executor, chunk size, what a worker is told).

        Threads share the live policy and its budget; processes and actors make their own policy.
        """
        config = self._config
        kwargs: dict[str, Any] = {"config": config}
        if config.executor == "ray":
            if config.max_cost_usd is not None:
                raise ConfigError("actors share no budget", "use the local executor with max_cost")
            from envgen.scale.ray_executor import RayExecutor

            return RayExecutor(config.concurrency or os.cpu_count() or 1), _CHUNK, kwargs
        threads = _THREADS.get(policy_kind(config.policy.spec))
        if threads is None:
            processes = config.concurrency or os.cpu_count() or 1
            if processes > 1 and num_todo >= _WORTH_PROCESSES:
                return LocalExecutor(processes), _CHUNK, kwargs
        threads = 1 if threads is None else config.concurrency or threads
        kwargs |= {"policy": policy, "cancel": self._cancel, "dataset": self._dataset}
        return LocalExecutor(0, threads), 1, kwargs

    def _feed(self, chunks: deque[Chunk]) -> Iterator[Chunk]:
        while chunks and self._ended == "complete" and not self._cancel.is_set():
            yield chunks.popleft()

    def _take(
        self, outcome: Outcome, chunks: deque[Chunk], deaths: Counter[tuple[str, int]]
    ) -> None:
        if outcome.error is None:
            for result in outcome.value:
                self._add(result)
        elif isinstance(outcome.error, BudgetExceededError):
            self._ended = "cost"
        elif isinstance(outcome.error, CancelledPolicyError):
            self._ended = "interrupted"
        elif isinstance(outcome.error, WorkerDiedError):
            for sample in outcome.item.samples:
                key = (outcome.item.task_id, sample)
                deaths[key] += 1
                if deaths[key] < _MAX_DEATHS:
                    chunks.append(Chunk(key[0], (sample,)))
                else:
                    self._add(_lost(key, self._config, outcome.error))
        else:
            raise outcome.error

    def _add(self, result: EpisodeResult) -> None:
        trajectory = result.trajectory
        self._store.add(trajectory, result.tokens)
        self._new += 1
        self._calls += trajectory.num_calls
        self._reached += trajectory.reached_verifier
        self._stops[str(trajectory.stop)] += 1
        if result.misfit is not None:
            self._misfits[result.misfit] += 1
        if trajectory.error is not None:
            self._errors += 1
            self._faults[f"{trajectory.error.kind}: {trajectory.error.text}"[:500]] += 1
        self._passed += trajectory.score is not None and trajectory.score.passed
        self._cost += trajectory.usage.cost_usd
        if self._progress is not None:
            self._progress(
                Progress(
                    self._before + self._new,
                    self._wanted,
                    self._passed,
                    self._errors,
                    self._cost,
                    time.monotonic() - self._start,
                )
            )

    def _summary(self, policy: str) -> RolloutSummary:
        counts = self._store.counts()
        return RolloutSummary(
            policy=policy,
            tasks=len(self._task_ids),
            samples=sum(count.n + count.errors for count in counts.values()),
            wanted=self._wanted,
            new=self._new,
            passed=sum(count.c for count in counts.values()),
            errors=sum(count.errors for count in counts.values()),
            mean_calls=self._calls / self._new if self._new else 0.0,
            reached_verifier=self._reached / self._new if self._new else 0.0,
            stops=dict(sorted(self._stops.items())),
            faults=dict(self._faults.most_common(10)),
            misfits=dict(self._misfits.most_common()),
            cost_usd=max(self._cost, self._budget.spent_usd),
            seconds=time.monotonic() - self._start,
            ended=self._ended,
        )


class _Linked(Event):
    """An event that is also set when the caller's is; setting it leaves the caller's alone."""

    def __init__(self, outer: Event) -> None:
        super().__init__()
        self._outer = outer

    def is_set(self) -> bool:
        return super().is_set() or self._outer.is_set()


_WORKER = "envgen.rollout.worker:episode_worker"
_THREADS = {"openai": 8, "vllm": 8, "sglang": 8, "dsa": 32}
"""How many requests are under way at a time; a local model answers them as one batch."""


def policy_kind(spec: str) -> str:
    """What comes before the colon; of a recorded policy what it records."""
    kind, _, rest = spec.partition(":")
    return policy_kind(rest.partition(":")[2]) if kind == "record" else kind


def episode_seed(run_seed: int, task_id: str, sample: int) -> int:
    """The seed of one episode."""
    return seeding.derive(run_seed, task_id, sample)


def _chunks(todo: Iterable[tuple[str, int]], size: int) -> Iterator[Chunk]:
    waiting: dict[str, list[int]] = {}
    for task_id, sample in todo:
        waiting.setdefault(task_id, []).append(sample)
    for task_id, samples in waiting.items():
        for i in range(0, len(samples), size):
            yield Chunk(task_id, tuple(samples[i : i + size]))


def _lost(key: tuple[str, int], config: RolloutConfig, error: BaseException) -> EpisodeResult:
    task_id, sample = key
    trajectory = Trajectory(
        task_id=task_id,
        sample=sample,
        policy=config.policy.spec,
        seed=episode_seed(config.seed, task_id, sample),
        style=config.style,
        messages=(),
        stop=StopReason.ERROR,
        error=TrajectoryError(kind=type(error).__name__, text=str(error)),
    )
    return EpisodeResult(trajectory)
