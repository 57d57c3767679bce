"""Estimates of a policy from its rollouts: pass@k, form and length, with intervals over databases.

Before and after training are compared on the same tasks, on the same draws of databases. Canaries (tasks
with a planted hole, and unsolvable twins) are counted apart, and never into pass@k.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from pydantic import Field

from envgen.core.errors import ConfigError
from envgen.core.limits import Count
from envgen.core.types import Record, Trajectory
from envgen.rollout.bootstrap import BootstrapConfig, Estimate, Ratio, difference, estimate
from envgen.rollout.pass_at_k import pass_at_k
from envgen.store.dataset import Dataset
from envgen.train.canary_report import Canary, CanaryReport, canary_of, canary_report
from envgen.train.tasks import shared_specs
from envgen.train.well_formed import calls_of, ended_cleanly


class TaskFacts(NamedTuple):
    """The facts of a task that evaluation needs."""

    database: str
    """Content hash of its database, or its environment: tasks over one are alike."""
    domain: str
    canary: Canary | None = None


class EvaluationConfig(Record):
    """The report of an evaluation."""

    ks: tuple[Count, ...] = Field(default=(1,), min_length=1)
    """The k of pass@k, each 1 or more."""
    bootstrap: BootstrapConfig = BootstrapConfig()


class Evaluation(Record):
    """One policy's figures. Rollouts that an error spoiled are counted in ``errors`` alone."""

    policy: str
    tasks: int
    databases: int
    rollouts: int
    errors: int
    pass_at: dict[int, Estimate | None]
    """k -> mean over the tasks with k error-free rollouts."""
    undecided: dict[int, int]
    """k -> tasks with fewer."""
    domains: dict[str, dict[int, Estimate | None]]
    """Domain -> the same for its tasks."""
    call_valid_rate: Estimate | None
    """Share of the tool calls that could be carried out; None if there was no call."""
    valid_rollout_rate: Estimate | None
    """Share of the rollouts in which every call could be carried out. A rollout that goes astray may call in
    vain until its turns are used up, so few of them decide what the share of the calls is, but not this."""
    clean_end_rate: Estimate | None
    """Share of the rollouts that submitted what the verifier could read."""
    model_tokens: Estimate | None
    """Mean tokens that the model wrote in a rollout."""
    canaries: CanaryReport | None
    """None: there was no canary."""
    tool_faults: dict[str, int] = Field(default_factory=dict)
    """What tools and verifiers did that no spec documents, most frequent first; at most ten texts. They count
    against the environment."""


class Comparison(Record):
    """After against before, over the same tasks."""

    before: Evaluation
    after: Evaluation
    pass_at: dict[int, Estimate | None]
    """k -> difference."""
    dropped: dict[int, int]
    """k -> tasks that one of the two has too few rollouts of."""
    call_valid_rate: Estimate | None
    model_tokens: Estimate | None

    def improved(self, k: int = 1) -> bool:
        """Whether the whole interval of the difference in pass@k is above 0."""
        found = self.pass_at[k]
        return found is not None and found.low is not None and found.low > 0


def task_facts(dataset: Dataset, task_ids: Iterable[str] | None = None) -> dict[str, TaskFacts]:
    """The facts of a dataset's tasks, variants included."""
    chosen = dataset.tasks if task_ids is None else task_ids
    return {
        task_id: TaskFacts(
            dataset.database_hash(task_id) or spec.environment_id,
            dataset.environments[spec.environment_id].category,
            canary_of(dataset, spec),
        )
        for task_id, spec in shared_specs(dataset, chosen)
    }


def evaluate(
    trajectories: Iterable[Trajectory],
    facts: Mapping[str, TaskFacts],
    config: EvaluationConfig | None = None,
) -> Evaluation:
    """The figures of one policy.

    Args:
        trajectories: its rollouts, in any order.
        facts: of their tasks; others may be in it.
        config: which figures.

    Raises:
        ConfigError: if there are no rollouts, they are of several policies, or of unknown tasks.
    """
    everything = list(trajectories)
    policy = _one_policy(everything, facts)
    played = _Played(everything, facts, config or EvaluationConfig())
    tallies, ks = played.tallies, played.config.ks
    canaries = {task_id: fact.canary for task_id, fact in facts.items() if fact.canary is not None}
    databases = {task_id: fact.database for task_id, fact in facts.items()}
    report = None
    if any(one.task_id in canaries for one in everything):
        report = canary_report(everything, canaries, databases, played.config.bootstrap)
    faults = Counter(fault[:500] for one in everything for fault in one.faults)
    return Evaluation(
        policy=policy,
        tasks=len(tallies),
        databases=len(set(played.clusters(tallies))),
        rollouts=sum(tally.n for tally in tallies.values()),
        errors=sum(tally.errors for tally in tallies.values()),
        pass_at={k: played.pass_at(k) for k in ks},
        undecided={k: sum(tally.n < k for tally in tallies.values()) for k in ks},
        domains={
            domain: {k: played.pass_at(k, domain) for k in ks}
            for domain in sorted({facts[task_id].domain for task_id in tallies})
        },
        call_valid_rate=played.share("valid", "calls"),
        valid_rollout_rate=played.share("flawless", "n"),
        clean_end_rate=played.share("clean", "n"),
        model_tokens=played.mean("tokens"),
        canaries=report,
        tool_faults=dict(faults.most_common(10)),
    )


def compare(
    before: Iterable[Trajectory],
    after: Iterable[Trajectory],
    facts: Mapping[str, TaskFacts],
    config: EvaluationConfig | None = None,
) -> Comparison:
    """Two policies on the same tasks: figures, differences, and the intervals of the differences.

    Raises:
        ConfigError: as ``evaluate``, and if the tasks differ.
    """
    config = config or EvaluationConfig()
    before, after = list(before), list(after)
    old, new = evaluate(before, facts, config), evaluate(after, facts, config)
    one, other = _Played(before, facts, config), _Played(after, facts, config)
    if alone := sorted(one.tallies.keys() ^ other.tallies.keys()):
        raise ConfigError(
            f"only one of the two policies played task {alone[0]!r} ({len(alone)} such tasks)",
            "evaluate both on the same tasks",
        )
    pass_at: dict[int, Estimate | None] = {}
    dropped: dict[int, int] = {}
    for k in config.ks:
        kept = [t for t in one.tallies if min(one.tallies[t].n, other.tallies[t].n) >= k]
        dropped[k] = len(one.tallies) - len(kept)
        pass_at[k] = difference(
            one.rates(kept, k), other.rates(kept, k), one.clusters(kept), config.bootstrap
        )

    def shift(part: str, whole: str) -> Estimate | None:
        clusters = one.clusters(one.tallies)
        return difference(
            one.ratio(part, whole), other.ratio(part, whole), clusters, config.bootstrap
        )

    return Comparison(
        before=old,
        after=new,
        pass_at=pass_at,
        dropped=dropped,
        call_valid_rate=shift("valid", "calls"),
        model_tokens=shift("tokens", "n"),
    )


class _TaskTally:
    """The outcome of one task."""

    def __init__(self) -> None:
        self.n = self.c = self.errors = 0
        """Error-free rollouts, passes among them, and spoiled ones."""
        self.valid = self.calls = self.flawless = self.clean = self.tokens = 0

    def add(self, trajectory: Trajectory) -> None:
        if trajectory.error is not None:
            self.errors += 1
            return
        self.n += 1
        self.c += trajectory.score is not None and trajectory.score.passed
        calls = calls_of(trajectory)
        self.valid += calls.valid
        self.calls += calls.total
        self.flawless += calls.valid == calls.total
        self.clean += ended_cleanly(trajectory)
        self.tokens += sum(turn.usage.completion_tokens for turn in trajectory.turns)


class _Played:
    """One policy's rollouts, task by task; canaries are left out."""

    def __init__(
        self,
        trajectories: Sequence[Trajectory],
        facts: Mapping[str, TaskFacts],
        config: EvaluationConfig,
    ) -> None:
        self.config, self._facts = config, facts
        found: dict[str, _TaskTally] = {}
        for trajectory in trajectories:
            if facts[trajectory.task_id].canary is None:
                found.setdefault(trajectory.task_id, _TaskTally()).add(trajectory)
        self.tallies = dict(sorted(found.items()))

    def clusters(self, task_ids: Iterable[str]) -> list[str]:
        """The database of each task: intervals resample these."""
        return [self._facts[task_id].database for task_id in task_ids]

    def rates(self, task_ids: Iterable[str], k: int) -> Ratio:
        """pass@k of each task, for their mean."""
        some = [self.tallies[task_id] for task_id in task_ids]
        return Ratio.mean([pass_at_k(tally.n, tally.c, k) for tally in some])

    def pass_at(self, k: int, domain: str | None = None) -> Estimate | None:
        """Mean pass@k of the tasks (of a domain) that have k rollouts."""
        decided = [
            task_id
            for task_id, tally in self.tallies.items()
            if tally.n >= k and domain in (None, self._facts[task_id].domain)
        ]
        rates, clusters = self.rates(decided, k), self.clusters(decided)
        return estimate(rates, clusters, self.config.bootstrap, proportion=True)

    def ratio(self, part: str, whole: str) -> Ratio:
        """Two counts of each task, for the ratio of their sums."""
        some = list(self.tallies.values())
        return Ratio.of([getattr(t, part) for t in some], [getattr(t, whole) for t in some])

    def share(self, part: str, whole: str) -> Estimate | None:
        """How much of one count another one is, 0 to 1."""
        clusters = self.clusters(self.tallies)
        return estimate(self.ratio(part, whole), clusters, self.config.bootstrap, proportion=True)

    def mean(self, count: str) -> Estimate | None:
        """A count, for each rollout."""
        return estimate(self.ratio(count, "n"), self.clusters(self.tallies), self.config.bootstrap)


def _one_policy(trajectories: Sequence[Trajectory], facts: Mapping[str, TaskFacts]) -> str:
    if not trajectories:
        raise ConfigError("the run has no rollouts to evaluate", "roll the policy out first")
    for one in trajectories:
        if one.task_id not in facts:
            raise ConfigError(
                f"unknown task {one.task_id!r}", "give the dataset that was rolled out"
            )
    policies = {(one.policy, one.policy_version) for one in trajectories}
    if len(policies) > 1:
        names = ", ".join(sorted(f"{name} {version}".strip() for name, version in policies))
        raise ConfigError(f"rollouts of several policies: {names}", "evaluate one at a time")
    return trajectories[0].policy
