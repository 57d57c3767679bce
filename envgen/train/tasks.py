"""Choose a training step's tasks: uniformly, by pass rate, or level by level (a curriculum).

A group whose rollouts all pass, or all fail, has no advantage and teaches nothing. ``band`` keeps a Beta
posterior of each task's pass rate and prefers tasks that are neither; ``ladder`` is a curriculum that starts
with the easiest level and unlocks the next ones. Each domain can have a share of the draws.

A sampler's state is JSON and holds the exact state of its generator: a resumed run draws the same tasks.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, JsonValue, model_validator

from envgen.core.canonical import content_hash
from envgen.core.errors import ConfigError, ResumeError
from envgen.core.limits import Label, Real
from envgen.core.registry import near_names
from envgen.core.seeding import derive
from envgen.core.types import Record, TaskSpec
from envgen.store.dataset import Dataset


class PoolTask(NamedTuple):
    """A task that may be drawn."""

    task_id: str
    domain: str
    """The category of its environment."""
    level: int | None = None


class TaskSamplerConfig(Record):
    """How tasks are chosen."""

    kind: Literal["uniform", "band", "ladder"] = "uniform"
    """uniform: all alike; band: prefer middling pass rates; ladder: a curriculum, level by level."""
    domain_weights: dict[Label, Real] | None = None
    """Domain -> its relative weight in the draws; 0 leaves it out. None: draw every task alike."""
    band_low: float = Field(default=0.1, ge=0, lt=1)
    """band: lowest preferred pass rate."""
    band_high: float = Field(default=0.9, gt=0, le=1)
    """band: highest preferred pass rate; rates are drawn from the posterior (Thompson sampling)."""
    floor: float = Field(default=0.05, ge=0, le=1)
    """band: share of the draws that is uniform, so that no task is given up for good."""
    memory: float = Field(default=64, gt=0)
    """band: most rollouts that a posterior counts; older ones fade, because they are an older policy's."""
    unlock_rate: float = Field(default=0.7, gt=0, le=1)
    """ladder: pass rate in the highest unlocked level at which the next level is unlocked."""
    unlock_window: int = Field(default=128, ge=1)
    """ladder: number of recent rollouts of that level over which the rate is measured."""
    frontier: float = Field(default=0.5, gt=0, le=1)
    """ladder: share of the draws from the highest unlocked level; the others come from lower levels."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.band_low >= self.band_high:
            raise ValueError(f"band_low {self.band_low} is not below band_high {self.band_high}")
        weights = self.domain_weights
        if weights is not None:
            bad = [d for d, w in weights.items() if not (math.isfinite(w) and w >= 0)]
            if bad:
                raise ValueError(f"the weight of domain {bad[0]!r} is {weights[bad[0]]}")
            if not any(weights.values()):
                raise ValueError("domain_weights has no weight above 0")
        return self


def task_pool(dataset: Dataset, task_ids: Iterable[str] | None = None) -> tuple[PoolTask, ...]:
    """The tasks of a dataset, variants included, with domain and level.

    Args:
        dataset: where from.
        task_ids: these only.

    Raises:
        ConfigError: if there is none, or an id is unknown.
    """
    chosen = tuple(dataset.tasks) if task_ids is None else tuple(task_ids)
    if unknown := [task_id for task_id in chosen if task_id not in dataset.tasks]:
        hint = near_names(unknown[0], dataset.own_task_ids)
        raise ConfigError(f"unknown task {unknown[0]!r}{hint}")
    if not chosen:
        raise ConfigError(f"{str(dataset.path)!r} has no task to train on", "generate one first")
    found = []
    for task_id in chosen:
        facts = dataset.facts(task_id)
        category = dataset.environments[facts.environment_id].category
        found.append(PoolTask(task_id, category, facts.level))
    return tuple(found)


def of_split(dataset: Dataset, task_ids: Iterable[str], split: str | None) -> list[str]:
    """Those of ``task_ids`` that are in a split; None: all.

    Raises:
        ConfigError: if there is none; it names the splits that there are.
    """
    splits = {task_id: dataset.facts(task_id).split for task_id in task_ids}
    chosen = [task_id for task_id, own in splits.items() if split in (None, own)]
    if chosen or not splits:
        return chosen
    there = ", ".join(
        f"{count} in {own!r}" for own, count in sorted(Counter(splits.values()).items())
    )
    raise ConfigError(
        f"{str(dataset.path)!r} has no task in split {split!r}: {there}",
        f"give --split {min(splits.values())} or --split all; `envgen variants` makes tasks of every split",
    )


def shared_specs(dataset: Dataset, task_ids: Iterable[str]) -> Iterator[tuple[str, TaskSpec]]:
    """(id, spec) of tasks; a variant's is that of the first variant of its parent.

    Variants share environment, level and inherited evidence, and unpacking each of 20,000 takes seconds.
    """
    parent = {name: parent for parent, pack in dataset.packs().items() for name in pack.entries}
    first: dict[str, TaskSpec] = {}
    for task_id in task_ids:
        kind = parent.get(task_id)
        if kind is None:
            yield task_id, dataset.tasks[task_id]
            continue
        if kind not in first:
            first[kind] = dataset.tasks[task_id]
        yield task_id, first[kind]


def make_sampler(config: TaskSamplerConfig, pool: Sequence[PoolTask], seed: int) -> TaskSampler:
    """The sampler that ``config`` names.

    Raises:
        ConfigError: if the pool is empty or lacks what the sampler needs.
    """
    kinds = {"uniform": TaskSampler, "band": BandSampler, "ladder": LadderSampler}
    return kinds[config.kind](config, pool, seed)


class TaskSampler:
    """Draws tasks and observes how many of their rollouts pass. This base class draws uniformly in a domain.

    Other kinds override the methods below the comment line.

    Args:
        config: the weights of domains.
        pool: what may be drawn.
        seed: of the draws.
    """

    def __init__(self, config: TaskSamplerConfig, pool: Sequence[PoolTask], seed: int) -> None:
        if not pool:
            raise ConfigError("the pool is empty", "give a dataset with tasks")
        self._config = config
        self._pool = tuple(pool)
        self._place = {task.task_id: i for i, task in enumerate(self._pool)}
        if len(self._place) < len(self._pool):
            raise ConfigError("a task is in the pool twice", "name each task once")
        self._rng = np.random.Generator(np.random.PCG64(derive(seed, "task sampler")))
        self._buckets, self._weights = _buckets(self._pool, config.domain_weights)
        self._identity = content_hash([list(task) for task in self._pool])

    def draw(self, n: int) -> list[str]:
        """Draw ``n`` task ids in random order; ids repeat only if there are fewer than ``n``.

        Raises:
            ValueError: if ``n`` is negative.
        """
        if n < 0:
            raise ValueError(f"can't draw {n} tasks")
        counts = self._rng.multinomial(n, self._weights)
        places = np.concatenate(
            [
                self._pick(domain, members, int(count))
                for (domain, members), count in zip(self._buckets.items(), counts, strict=True)
            ]
        )
        return [self._pool[i].task_id for i in self._rng.permutation(places)]

    def observe(self, task_id: str, passed: int, sampled: int) -> None:
        """Record that ``passed`` of ``sampled`` rollouts of a task passed.

        Raises:
            ConfigError: if the task is not in the pool.
            ValueError: if more passed than were sampled.
        """
        if task_id not in self._place:
            raise ConfigError(f"unknown task {task_id!r}", "it is not among those to be drawn")
        if not 0 <= passed <= sampled:
            raise ValueError(f"task {task_id!r}: {passed} of {sampled} rollouts can't have passed")
        self._note(self._place[task_id], passed, sampled)

    def state(self) -> dict[str, JsonValue]:
        """Return, as JSON, what ``load`` needs to draw the same tasks from here on."""
        rng: Any = self._rng.bit_generator.state
        return {
            "kind": self._config.kind,
            "pool": self._identity,
            "rng": rng,
            "observed": self._observed(),
        }

    def load(self, state: Mapping[str, JsonValue]) -> None:
        """Resume from ``state``.

        Raises:
            ResumeError: if the state is of another kind of sampler, or of other tasks.
        """
        if state["kind"] != self._config.kind:
            raise ResumeError(
                f"the run's task sampler is {state['kind']!r}, not {self._config.kind!r}",
                "resume with the settings of the run",
            )
        if state["pool"] != self._identity:
            raise ResumeError(
                "the run's tasks are not those of this dataset", "resume with the run's dataset"
            )
        rng: Any = state["rng"]
        self._rng.bit_generator.state = rng
        self._restore(state["observed"])

    # ------------------------------------------------------------------ what the kinds differ in

    def metrics(self) -> dict[str, float]:
        """Return metrics, named ``tasks/...``."""
        return {}

    def _pick(self, domain: str, members: NDArray[np.int64], count: int) -> NDArray[np.int64]:
        """Draw ``count`` of ``members``; none repeats before all were drawn."""
        rounds = [self._rng.permutation(members) for _ in range(-(-count // len(members)))]
        return np.concatenate([members[:0], *rounds])[:count]

    def _note(self, place: int, passed: int, sampled: int) -> None:
        """Record the outcome of a task's rollouts."""

    def _observed(self) -> dict[str, JsonValue]:
        """Return what was recorded, as JSON."""
        return {}

    def _restore(self, observed: Any) -> None:
        """Replace what was recorded by what ``_observed`` returned."""


class BandSampler(TaskSampler):
    """Thompson sampling: draw a rate from each task's Beta posterior; play tasks whose rate is in the band.

    The prior is Beta(1, 1). If too few rates are in the band, the nearest ones follow.
    """

    def __init__(self, config: TaskSamplerConfig, pool: Sequence[PoolTask], seed: int) -> None:
        super().__init__(config, pool, seed)
        self._passed = np.zeros(len(self._pool))
        self._failed = np.zeros(len(self._pool))

    def posterior(self, task_id: str) -> tuple[float, float]:
        """Alpha and beta of a task's pass rate."""
        place = self._place[task_id]
        return 1 + float(self._passed[place]), 1 + float(self._failed[place])

    def metrics(self) -> dict[str, float]:
        """How many tasks are expected to be inside the band."""
        mean = (1 + self._passed) / (2 + self._passed + self._failed)
        low, high = self._config.band_low, self._config.band_high
        return {
            "tasks/seen_share": float(((self._passed + self._failed) > 0).mean()),
            "tasks/in_band_share": float(((mean >= low) & (mean <= high)).mean()),
            "tasks/mean_rate": float(mean.mean()),
        }

    def _pick(self, domain: str, members: NDArray[np.int64], count: int) -> NDArray[np.int64]:
        found = members[:0]
        while len(found) < count:
            found = np.concatenate((found, self._round(members, count - len(found))))
        return found

    def _round(self, members: NDArray[np.int64], count: int) -> NDArray[np.int64]:
        """Draw at most ``count`` different members: first the uniform share, then by distance to the band."""
        shuffled = self._rng.permutation(members)
        num_uniform = self._rng.binomial(min(count, len(members)), self._config.floor)
        uniform, rest = shuffled[:num_uniform], shuffled[num_uniform:]
        rate = self._rng.beta(1 + self._passed[rest], 1 + self._failed[rest])
        low, high = self._config.band_low, self._config.band_high
        distance = np.maximum(np.maximum(low - rate, rate - high), 0.0)
        order = np.argsort(distance, kind="stable")  # ties stay shuffled
        return np.concatenate((uniform, rest[order]))[:count]

    def _note(self, place: int, passed: int, sampled: int) -> None:
        held = self._passed[place] + self._failed[place]
        keep = _kept(held, sampled, self._config.memory)
        self._passed[place] = keep * self._passed[place] + passed
        self._failed[place] = keep * self._failed[place] + sampled - passed

    def _observed(self) -> dict[str, JsonValue]:
        seen = np.flatnonzero(self._passed + self._failed)
        return {
            self._pool[i].task_id: [float(self._passed[i]), float(self._failed[i])] for i in seen
        }

    def _restore(self, observed: Any) -> None:
        self._passed[:], self._failed[:] = 0.0, 0.0
        for task_id, (passed, failed) in observed.items():
            place = self._place[task_id]
            self._passed[place], self._failed[place] = passed, failed


class _Ladder:
    """One domain's levels, ascending, and how far they are unlocked."""

    def __init__(self, pool: Sequence[PoolTask], members: NDArray[np.int64]) -> None:
        level_M = np.array([pool[i].level for i in members])
        self.levels = sorted(set(level_M.tolist()))
        self.groups = [members[level_M == level] for level in self.levels]
        self.top = 0
        """Index of the highest unlocked level."""
        self.passed = self.sampled = 0.0
        """Of its rollouts."""


class LadderSampler(TaskSampler):
    """A curriculum: the next level is unlocked when the highest unlocked one is passed often enough.

    With ``domain_weights`` each domain has its own curriculum.
    """

    def __init__(self, config: TaskSamplerConfig, pool: Sequence[PoolTask], seed: int) -> None:
        super().__init__(config, pool, seed)
        unknown = [task.task_id for task in self._pool if task.level is None]
        if unknown:
            raise ConfigError(
                f"task {unknown[0]!r} has no level ({len(unknown)} in all)",
                "tasks.kind=ladder needs levels; choose uniform or band",
            )
        self._ladders = {name: _Ladder(self._pool, some) for name, some in self._buckets.items()}

    def metrics(self) -> dict[str, float]:
        """The highest unlocked level, and its recent pass rate."""
        found: dict[str, float] = {}
        for domain, ladder in self._ladders.items():
            name = f"tasks/{domain}_level" if domain else "tasks/level"
            found[name] = float(ladder.levels[ladder.top])
            if ladder.sampled:
                found[f"{name}_rate"] = ladder.passed / ladder.sampled
        return found

    def _pick(self, domain: str, members: NDArray[np.int64], count: int) -> NDArray[np.int64]:
        ladder = self._ladders[domain]
        top, below = ladder.groups[ladder.top], ladder.groups[: ladder.top]
        if not below:
            return super()._pick(domain, top, count)
        at_top = int(self._rng.binomial(count, self._config.frontier))
        lower = super()._pick(domain, np.concatenate(below), count - at_top)
        return np.concatenate((super()._pick(domain, top, at_top), lower))

    def _note(self, place: int, passed: int, sampled: int) -> None:
        task = self._pool[place]
        ladder = self._ladders.get(task.domain if self._config.domain_weights else "")
        if (
            ladder is None or task.level != ladder.levels[ladder.top]
        ):  # None: a domain without weight
            return
        window = self._config.unlock_window
        keep = _kept(ladder.sampled, sampled, window)
        ladder.passed = keep * ladder.passed + passed
        ladder.sampled = keep * ladder.sampled + sampled
        full = ladder.sampled >= window * (1 - 1e-9)
        often = ladder.passed >= self._config.unlock_rate * ladder.sampled * (1 - 1e-9)
        if full and often and ladder.top + 1 < len(ladder.levels):
            ladder.top += 1
            ladder.passed = ladder.sampled = 0.0

    def _observed(self) -> dict[str, JsonValue]:
        return {
            domain: [ladder.top, ladder.passed, ladder.sampled]
            for domain, ladder in self._ladders.items()
        }

    def _restore(self, observed: Any) -> None:
        for domain, (top, passed, sampled) in observed.items():
            ladder = self._ladders[domain]
            ladder.top, ladder.passed, ladder.sampled = int(top), passed, sampled


def _kept(held: float, sampled: float, memory: float) -> float:
    """Return the share of old evidence that is kept, so that old and new are at most ``memory``."""
    return 1.0 if held <= 0 else min(1.0, max(0.0, memory - sampled) / held)


def _buckets(
    pool: Sequence[PoolTask], weights: Mapping[str, float] | None
) -> tuple[dict[str, NDArray[np.int64]], NDArray[np.float64]]:
    """Places of the tasks by domain, and the domains' shares; one bucket, named "", without weights."""
    if weights is None:
        return {"": np.arange(len(pool))}, np.ones(1)
    places: dict[str, list[int]] = {}
    for i, task in enumerate(pool):
        places.setdefault(task.domain, []).append(i)
    for domain in weights:
        if domain not in places:
            raise ConfigError(f"unknown domain {domain!r}{near_names(domain, places)}")
    for domain in places:
        if domain not in weights:
            raise ConfigError(
                f"domain {domain!r} has tasks but no weight", "give one; 0 leaves it out"
            )
    kept = {d: np.array(places[d], np.int64) for d in sorted(places) if weights[d] > 0}
    shares = np.array([weights[domain] for domain in kept])
    return kept, shares / shares.sum()
