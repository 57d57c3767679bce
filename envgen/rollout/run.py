"""Run a policy on the tasks of a dataset, n times each: stored as they come, resumed where they stopped."""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Event, Lock
from typing import Any, Literal, NamedTuple

from pydantic import Field, JsonValue

from envgen.core.errors import ConfigError, PolicyError, ResumeError, WorkerDiedError
from envgen.core.executor import Executor, ItemOutcome, LocalExecutor, WorkerSpec
from envgen.core.limits import Label, Whole
from envgen.core.types import (
    Record,
    Sampling,
    Style,
    TrajectoryError,
)
from envgen.policies.base import BudgetExceededError, CancelledPolicyError, Policy
from envgen.policies.budget import Budget
from envgen.policies.context import ContextConfig
from envgen.policies.preflight import preflight
from envgen.policies.registry import PolicyConfig, unknown_policy
from envgen.policies.repeats import Repeats
from envgen.policies.styles import thinks
from envgen.rollout.episode import EpisodeResult
from envgen.rollout.gold import POLICY_KINDS, make_policy
from envgen.rollout.pass_at_k import databases_of
from envgen.rollout.work import Chunk, Work, lost
from envgen.store.dataset import Dataset
from envgen.store.run_folder import RUN_FILE
from envgen.store.runs import UNJUDGED, RunStore

logger = logging.getLogger(__name__)

_CHUNK = 10
"""Episodes of one task that a worker process gets at a time."""
_WORTH_PROCESSES = 200


class RolloutConfig(Record):
    """The settings of a rollout."""

    dataset: Label
    """Dataset folder, or ``package:NAME``."""
    policy: PolicyConfig
    out: Label
    """Run folder; one that holds the same run is resumed."""
    n: int = Field(default=1, ge=1)
    """Episodes of each task. Raising it later adds episodes to the same run."""
    seed: Whole = 0
    task_ids: tuple[Label, ...] | None = None
    """None: all tasks."""
    variants: bool = False
    """Play the re-seeded variants, too."""
    style: Style | None = None
    """What the policy is asked for, in its system message: records of a cold start."""
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
    """Stop at this many dollars."""
    unproven: bool = False
    trust: bool = False
    """The dataset's code was written or read by the user: it may run without isolation."""
    retry_errors: bool = False
    """Forget the errored episodes of a resumed run first, and play them again."""
    preflight: bool = True
    """Ask a model server one small thing before anything is stored."""
    max_errors: int = Field(default=5, ge=0)
    """Stop after so many identical errors of a model in a row; 0: never."""
    db_url: Label | None = None

    @property
    def player(self) -> PolicyConfig:
        """The policy; a model in this process thinks if the style says so."""
        if self.style is None or policy_kind(self.policy.spec) != "dsa":
            return self.policy
        options = {"thinking": thinks(self.style), **self.policy.options}
        return self.policy.model_copy(update={"options": options})

    def identity(self) -> dict[str, JsonValue]:
        """Return the identity of a run: all that changes an episode, nothing that only places it."""
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
        later["trust"] = self.trust or None
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
    replies: int = 0
    """Of a model in this process, so far;"""
    replies_left: int = 0
    """and how many more the unfinished episodes may have at most."""


class RolloutSummary(Record):
    """The state of a run."""

    policy: str
    tasks: int
    samples: int
    """Episodes stored, errored ones included."""
    wanted: int
    new: int
    """Of these, made by this call."""
    spoiled: int = 0
    """Of the new ones, those that an error spoiled."""
    passed: int
    errors: int
    unjudged: int = 0
    """Answers to open questions, which only a judge can score: `envgen judge`."""
    mean_calls: float
    reached_verifier: float
    """Share of the episodes whose answer the verifier judged."""
    stops: dict[str, int]
    """How the episodes ended."""
    faults: dict[str, int] = Field(default_factory=dict)
    """What went wrong in this call's errored episodes, most frequent first; at most ten texts."""
    tool_faults: dict[str, int] = Field(default_factory=dict)
    """What tools and verifiers did in this call's episodes that no spec documents, most frequent first; at
    most ten texts. They count against the environment; the episodes went on, or were scored."""
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
        ConfigError: for unknown tasks or policies, and for a model server that can't be used.
        DatasetError: when the dataset is corrupt, or unproven and that was not asked for.
        PolicyError: when a model fails again and again in the same way (``max_errors``); what was played
            is stored.
        ResumeError: when the folder holds another run, or the model's weights have changed since.
        SandboxUnavailableError: when the dataset's code can't be isolated here and isn't trusted.
    """
    from envgen.environments.families import check_backend
    from envgen.environments.hosts import open_dataset

    if config.policy.spec.partition(":")[0] not in POLICY_KINDS:
        raise unknown_policy(config.policy.spec)  # before the folder belongs to this config
    dataset = open_dataset(config.dataset, unproven=config.unproven, trust=config.trust)
    task_ids = _task_ids(dataset, config)
    check_backend(dataset, task_ids, config.backend, config.isolate)
    with ExitStack() as stack:
        store: RunStore | None = None
        if (Path(config.out) / RUN_FILE).is_file():
            store = stack.enter_context(_store(config, dataset))
        todo = _todo(config, task_ids, store)
        budget = Budget(config.max_cost_usd, 0.0 if store is None else _spent(store))
        policy = make_policy(config.player, dataset, budget=budget)
        stack.callback(getattr(policy, "close", lambda: None))
        if todo and config.preflight and not budget.empty:
            preflight(policy, config.sampling, tools=config.style != "reasoning")
        if store is None:  # only now: a policy that can't play leaves no folder behind
            store = stack.enter_context(_store(config, dataset))
        session = _RolloutRun(config, dataset, task_ids, store, progress, cancel or Event(), budget)
        return session.run(policy, todo)


def _store(config: RolloutConfig, dataset: Dataset) -> RunStore:
    return RunStore.open(
        Path(config.out),
        config=config.identity(),
        dataset_hash=dataset.manifest.content_hash,
        db_url=config.db_url,
    )


def _todo(
    config: RolloutConfig, task_ids: tuple[str, ...], store: RunStore | None
) -> list[tuple[str, int]]:
    """(task id, sample) of what is not stored yet."""
    if store is not None and config.retry_errors:
        store.discard_errors()
    done = set() if store is None else store.done()
    every = ((task_id, sample) for task_id in task_ids for sample in range(config.n))
    return [one for one in every if one not in done]


def _spent(store: RunStore) -> float:
    noted = store.stage("spent_usd")
    return max(store.totals()["cost_usd"], noted if isinstance(noted, int | float) else 0.0)


def _task_ids(dataset: Dataset, config: RolloutConfig) -> tuple[str, ...]:
    if config.task_ids is None:
        found = tuple(dataset.tasks) if config.variants else dataset.own_task_ids
        if not found:
            raise ConfigError(f"{config.dataset!r} holds no task to play", "see envgen list")
        return found
    for task_id in config.task_ids:
        if task_id not in dataset.tasks:
            raise ConfigError(f"the dataset has no task {task_id!r}", "see envgen list")
    return tuple(dict.fromkeys(config.task_ids))


class _RolloutRun:
    """One call of ``rollout``."""

    def __init__(
        self,
        config: RolloutConfig,
        dataset: Dataset,
        task_ids: tuple[str, ...],
        store: RunStore,
        progress: Callable[[Progress], None] | None,
        cancel: Event,
        budget: Budget,
    ) -> None:
        self._config = config
        self._dataset = dataset
        self._task_ids = task_ids
        self._store = store
        self._progress = progress
        self._cancel = _Linked(cancel)
        self._start = time.monotonic()
        self._ended: Literal["complete", "cost", "interrupted"] = "complete"
        self._faults: Counter[str] = Counter()
        self._tool_faults: Counter[str] = Counter()
        self._misfits: Counter[str] = Counter()
        self._new = self._spoiled = 0
        self._replies = self._replies_of_ended = self._most_replies = 0
        counts = store.counts().values()
        self._passed = sum(count.c for count in counts)
        self._errors = sum(count.errors for count in counts) - store.unjudged()
        self._cost = _spent(store)
        self._budget = budget
        self._repeats = Repeats(config.max_errors)
        self._fatal = ""

    def run(self, policy: Policy, todo: list[tuple[str, int]]) -> RolloutSummary:
        self._wanted = len(self._task_ids) * self._config.n
        self._before = self._wanted - len(todo)
        self._count_replies(policy)
        try:
            self._note(policy)
            self._run_all(todo, policy)
        finally:
            self._cancel.set()
            if self._budget.spent_usd:
                self._store.put_stage("spent_usd", self._budget.spent_usd)
        self._store.flush()
        if self._fatal:
            stored = f"{self._before + self._new} of {self._wanted} episodes stored"
            raise PolicyError(
                f"stopped after {self._config.max_errors} identical errors in a row: {self._fatal} "
                f"({stored}, {self._errors} of them errors)",
                "look at the server, then go on with the same command and --retry-errors; "
                "--max-errors N bears more",
            )
        if self._ended == "complete" and self._before + self._new < self._wanted:
            self._ended = "interrupted"
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
        databases: dict[str, JsonValue] = {**databases_of(self._dataset, self._task_ids)}
        noted: dict[str, JsonValue] = {
            "levels": levels,
            "databases": databases,
            "policy": policy.name,
        }
        if policy.version:
            noted["policy_version"] = policy.version
        for stage, value in noted.items():
            if self._store.stage(stage) != value:
                self._store.put_stage(stage, value)

    def _run_all(self, todo: list[tuple[str, int]], policy: Any) -> None:
        """Play everything; what a dying worker held is tried again."""
        executor, size, kwargs = self._form(len(todo), policy)
        work = Work(todo, size)
        while work:
            running = executor.run(WorkerSpec(_WORKER, kwargs), self._feed(work))
            whole = False
            try:
                for outcome in running:
                    self._take(outcome, work)
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

    def _feed(self, work: Work) -> Iterator[Chunk]:
        for chunk in work.round():
            if self._ended != "complete" or self._cancel.is_set():
                return
            yield chunk

    def _take(self, outcome: ItemOutcome, work: Work) -> None:
        if outcome.error is None:
            for result in outcome.value:
                self._add(result)
        elif isinstance(outcome.error, BudgetExceededError):
            self._ended = "cost"
        elif isinstance(outcome.error, CancelledPolicyError):
            self._ended = "interrupted"
        elif isinstance(outcome.error, WorkerDiedError):
            config = self._config
            for key in work.died(outcome.item):
                one = lost(key, config.policy.spec, config.seed, config.style, outcome.error)
                self._add(one)
        else:
            raise outcome.error

    def _add(self, result: EpisodeResult) -> None:
        trajectory = result.trajectory
        self._store.add(trajectory, result.tokens)
        self._new += 1
        self._tool_faults.update(fault[:500] for fault in trajectory.faults)
        if result.misfit is not None:
            self._misfits[result.misfit] += 1
        if trajectory.error is not None and trajectory.error.kind != UNJUDGED:
            self._errors += 1
            self._spoiled += 1
            self._faults[f"{trajectory.error.kind}: {trajectory.error.text}"[:500]] += 1
        self._count_errors(trajectory.error)
        self._passed += trajectory.score is not None and trajectory.score.passed
        self._cost += trajectory.usage.cost_usd
        self._replies_of_ended += len(trajectory.turns)
        self._tell()

    def _tell(self) -> None:
        if self._progress is None:
            return
        done = self._before + self._new
        begun = self._replies - self._replies_of_ended
        self._progress(
            Progress(
                done,
                self._wanted,
                self._passed,
                self._errors,
                self._cost,
                time.monotonic() - self._start,
                self._replies,
                max(0, (self._wanted - done) * self._most_replies - begun),
            )
        )

    def _count_replies(self, policy: Any) -> None:
        """Have a model in this process say when it has replied: its episodes may all end together."""
        if policy_kind(self._config.policy.spec) != "dsa" or not hasattr(policy, "on_reply"):
            return
        some = (self._dataset.tasks[task_id] for task_id in self._task_ids[:20])
        longest = max(task.limits.turns for task in some)
        self._most_replies = min(longest, self._config.max_turns or longest)
        counting = Lock()

        def replied() -> None:
            with counting:
                self._replies += 1
                self._tell()

        policy.on_reply = replied

    def _count_errors(self, error: TrajectoryError | None) -> None:
        """Stop a run whose model does nothing but fail in the same way."""
        if error is None:
            self._repeats.clear()
        elif error.kind in _OF_POLICIES and policy_kind(self._config.policy.spec) in _THREADS:
            if self._repeats.too_many(error.text):
                self._fatal = error.text
                self._cancel.set()  # what is under way would only fail, too

    def _summary(self, policy: str) -> RolloutSummary:
        counts, calls = self._store.counts(), self._store.totals()["num_calls"]
        samples = sum(count.n + count.errors for count in counts.values())
        unjudged = self._store.unjudged()
        stops, reached = self._store.endings()
        return RolloutSummary(
            policy=policy,
            tasks=len(self._task_ids),
            samples=samples,
            wanted=self._wanted,
            new=self._new,
            spoiled=self._spoiled,
            passed=sum(count.c for count in counts.values()),
            errors=sum(count.errors for count in counts.values()) - unjudged,
            unjudged=unjudged,
            mean_calls=calls / samples if samples else 0.0,
            reached_verifier=reached / samples if samples else 0.0,
            stops=stops,
            faults=dict(self._faults.most_common(10)),
            tool_faults=dict(self._tool_faults.most_common(10)),
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


_OF_POLICIES = frozenset({"PolicyError", "DeadlineExceededError"})
"""Kinds of errors that are a model's and not an environment's: these may be no task's fault."""
_WORKER = "envgen.rollout.worker:episode_worker"
_THREADS = {"openai": 8, "vllm": 8, "sglang": 8, "dsa": 32}
"""How many requests are under way at a time; a local model answers them as one batch."""


def policy_kind(spec: str) -> str:
    """What comes before the colon; of a recorded policy what it records."""
    kind, _, rest = spec.partition(":")
    return policy_kind(rest.partition(":")[2]) if kind == "record" else kind
