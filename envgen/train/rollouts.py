"""Sample a batch of rollouts for training: groups of episodes of the same task, played by the policy."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray

from envgen.core.seeding import derive
from envgen.core.types import Sampling
from envgen.environments.episodes import EpisodeEnv
from envgen.environments.families import make_env
from envgen.model.engine import Engine, EngineConfig
from envgen.model.modeling import DSAForCausalLM
from envgen.policies.dsa import DSAPolicy, DSAPolicyConfig
from envgen.policies.encoding import Encoding
from envgen.policies.local_model import LocalModel
from envgen.rollout.episode import EpisodeResult, run_episode
from envgen.store.dataset import Dataset
from envgen.train.config import SamplingConfig
from envgen.train.lockstep import LockstepEngine
from envgen.train.rows import Row, rollout_rows
from envgen.train.sharding import is_sharded, state_of, whole
from envgen.train.teachers import Modes
from envgen.verifiers.rubrics.config import RubricJudgeConfig
from envgen.verifiers.rubrics.episodes import judged, open_judge
from envgen.verifiers.rubrics.rubric import Rubric

if TYPE_CHECKING:
    from envgen.core.types import Trajectory


class Episode(NamedTuple):
    """One episode to play."""

    task_id: str
    group: int
    sample: int
    seed: int
    """The environment's seed: equal within a group."""
    sampling_seed: int


@dataclass(frozen=True)
class Rollouts:
    """A batch: I rollouts in groups, and their rows of tokens."""

    trajectories: list[Trajectory]
    rows: list[Row]
    group_I: NDArray[np.int64]
    """Index of each rollout's group, 0 .. groups - 1."""
    errored: tuple[str, ...]
    """Errors of the episodes that are left out of the batch."""
    assembly_s: float = 0.0
    """Seconds spent on making the rows."""

    @property
    def lengths_I(self) -> NDArray[np.int64]:
        """|o_i|: number of model tokens of each rollout, over all its rows: [I]."""
        found = np.zeros(len(self.group_I), np.int64)
        for row in self.rows:
            found[row.rollout] += row.num_model_tokens
        return found


class Sampler:
    """Plays groups of episodes with a model in this process.

    Args:
        model: shared with the trainer; call ``refresh`` after its weights changed.
        encoding: of the model.
        dataset: what is played.
        config: how.
        name: of the model's folder, for the record.
        judge: who scores answers to open questions.

    Raises:
        ConfigError: if the judge has not passed its test, or can't be used.
    """

    def __init__(
        self,
        model: DSAForCausalLM,
        encoding: Encoding,
        dataset: Dataset,
        config: SamplingConfig,
        name: str = "trained",
        judge: RubricJudgeConfig | None = None,
    ) -> None:
        self._judge = None if judge is None else open_judge(judge)
        self._judges = 1 if judge is None else judge.concurrency
        longest = model.config.max_position_embeddings
        cache_tokens = config.cache_tokens or config.max_batch * min(longest, 1_024)
        self._model = model
        self._played = engine_model(model, getattr(torch, config.dtype), config.index_fp8)
        self._engine = Engine(
            self._played, EngineConfig(max_batch=config.max_batch, cache_tokens=cache_tokens)
        )
        concurrency = config.concurrency or max(4, os.cpu_count() or 1)
        self._lockstep = LockstepEngine(self._engine, concurrency)
        self.config = config
        policy_config = DSAPolicyConfig(
            model=name,
            max_new_tokens=config.max_new_tokens,
            max_kept=config.max_kept,
            capture_topk=config.capture_topk,
        )
        local = LocalModel(Modes(encoding).of(config.style), cast(Engine, self._lockstep))
        self._policy = DSAPolicy(policy_config, local=local)
        self._dataset = dataset
        self._free: dict[tuple[str, str], list[EpisodeEnv]] = {}
        self._lock = threading.Lock()

    def refresh(self, version: str) -> None:
        """Copy the trainer's current weights to the engine, as ``version``."""
        publish(self._model, self._played)
        self._engine.refresh(version)

    def close(self) -> None:
        """Close all environments."""
        for envs in self._free.values():
            for env in envs:
                env.close()
        self._free.clear()

    def draw(
        self, task_ids: Sequence[str], seed: int, numbers: Sequence[int] | None = None
    ) -> Rollouts:
        """Play one group of rollouts for each task.

        Args:
            task_ids: one for each group.
            seed: derives all seeds of the episodes.
            numbers: index of each group, from which its seeds are derived; None: 0, 1, ...

        Returns:
            The groups with at least two error-free rollouts.
        """
        size = self.config.group_size
        episodes = [
            Episode(
                task_id,
                group,
                sample,
                derive(seed, "episode", group),
                derive(seed, "sample", group, sample),
            )
            for group, task_id in zip(numbers or range(len(task_ids)), task_ids, strict=True)
            for sample in range(size)
        ]
        results = self._lockstep.play(
            episodes, lambda one: self._play(self._dataset, one, self.config.temperature)
        )
        scored = self._scored(self._dataset, results)
        pairs = zip(results, scored, strict=True)
        return collect(episodes, [replace(one, trajectory=two) for one, two in pairs])

    def play(
        self, dataset: Dataset, task_ids: Sequence[str], seeds: Sequence[int], temperature: float
    ) -> list[Trajectory]:
        """Play one rollout of each task, for evaluation.

        Args:
            dataset: of the tasks; it need not be the one that is trained on.
            task_ids: tasks to play.
            seeds: one for each task; derives the seeds of its episode.
            temperature: 0 is greedy.
        """
        episodes = [
            Episode(task_id, i, 0, derive(seed, "episode"), derive(seed, "sample"))
            for i, (task_id, seed) in enumerate(zip(task_ids, seeds, strict=True))
        ]
        results = self._lockstep.play(episodes, lambda one: self._play(dataset, one, temperature))
        return self._scored(dataset, results)

    def _scored(self, dataset: Dataset, results: Sequence[EpisodeResult]) -> list[Trajectory]:
        """The episodes, those of open questions with their judge's scores."""

        def rubric_of(task_id: str) -> Rubric:
            return Rubric.model_validate_json(dataset.task_files(task_id).verifier)

        played = [one.trajectory for one in results]
        return judged(played, rubric_of, self._judge, self._judges)

    def _play(self, dataset: Dataset, episode: Episode, temperature: float) -> EpisodeResult:
        config, family = self.config, dataset.facts(episode.task_id).family
        with self._lock:
            free = self._free.setdefault((str(dataset.path), family), [])
            env = free.pop() if free else None
        if env is None:
            env = make_env(dataset, family, backend=config.backend)
        sampling = Sampling(
            temperature=temperature,
            top_p=config.top_p,
            top_k=config.top_k,
            seed=episode.sampling_seed,
        )
        try:
            return run_episode(
                env,
                self._policy,
                episode.task_id,
                sample=episode.sample,
                seed=episode.seed,
                sampling=sampling,
                style=config.style,
                max_turns=config.max_turns,
            )
        finally:
            with self._lock:
                free.append(env)


def collect(episodes: Sequence[Episode], results: Sequence[EpisodeResult]) -> Rollouts:
    """Collect the error-free episodes in groups of two or more, with their rows; the result may be empty."""
    valid = [i for i, r in enumerate(results) if r.trajectory.error is None and r.trajectory.turns]
    sizes: dict[int, int] = {}
    for i in valid:
        sizes[episodes[i].group] = sizes.get(episodes[i].group, 0) + 1
    groups = {group: n for n, group in enumerate(g for g in sorted(sizes) if sizes[g] > 1)}
    kept = [i for i in valid if episodes[i].group in groups]
    started = time.perf_counter()
    rows: list[Row] = []
    for rollout, i in enumerate(kept):
        rows += rollout_rows(results[i].trajectory, results[i].tokens, rollout)
    return Rollouts(
        trajectories=[results[i].trajectory for i in kept],
        rows=rows,
        group_I=np.array([groups[episodes[i].group] for i in kept], np.int64),
        errored=tuple(r.trajectory.error.text for r in results if r.trajectory.error),
        assembly_s=time.perf_counter() - started,
    )


def engine_model(
    model: DSAForCausalLM, dtype: torch.dtype, index_fp8: bool | None = None
) -> DSAForCausalLM:
    """Return the engine's model: the trainer's own, or a copy that ``publish`` fills.

    Args:
        model: the trainer's, in float32.
        dtype: of the engine.
        index_fp8: round index queries and keys to e4m3; None: as the model says.
    """
    fp8 = model.config.index_fp8 if index_fp8 is None else index_fp8
    if dtype is torch.float32 and fp8 == model.config.index_fp8 and not is_sharded(model):
        return model
    own = type(model)(model.config.model_copy(update={"index_fp8": fp8})).to(model.device)
    return own.cast(dtype).eval().requires_grad_(False)


@torch.no_grad()
def publish(model: DSAForCausalLM, played: DSAForCausalLM) -> None:
    """Copy the trainer's weights to ``played``, the router's correction biases (buffers) included.

    With a sharded model all processes must call it.
    """
    if played is model:
        return
    state = state_of(model)
    for name, own in played.state_dict().items():
        own.copy_(whole(state[name]))
