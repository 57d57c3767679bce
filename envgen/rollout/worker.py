"""A rollout's worker: keeps an environment per thread and family, and plays episodes in it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event

from envgen.environments.episodes import EpisodeEnv
from envgen.environments.families import make_env
from envgen.environments.hosts import open_dataset
from envgen.policies.base import Policy
from envgen.rollout.episode import EpisodeResult, run_episode
from envgen.rollout.gold import make_policy
from envgen.rollout.run import RolloutConfig
from envgen.rollout.work import Chunk, episode_seed
from envgen.store.dataset import Dataset


@contextmanager
def episode_worker(
    config: RolloutConfig,
    policy: Policy | None = None,
    cancel: Event | None = None,
    dataset: Dataset | None = None,
) -> Iterator[Callable[[Chunk], list[EpisodeResult]]]:
    """Play chunks of episodes; thread-safe.

    Args:
        config: what is rolled out.
        policy: the live policy where threads share it; None: made from the config.
        cancel: set to stop.
        dataset: the open dataset where threads share it.
    """
    shared = dataset or open_dataset(config.dataset, unproven=config.unproven, trust=config.trust)
    player = policy or make_policy(config.player, shared)
    local = threading.local()
    environments: list[EpisodeEnv] = []

    def environment(task_id: str) -> EpisodeEnv:
        """This thread's environment for the task's family."""
        mine: dict[str, EpisodeEnv] = local.__dict__.setdefault("environments", {})
        family = shared.facts(task_id).family
        if family not in mine:
            mine[family] = make_env(
                shared,
                family,
                backend=config.backend,
                isolate=config.isolate,
                unproven=config.unproven,
            )
            environments.append(mine[family])
        return mine[family]

    def play(chunk: Chunk) -> list[EpisodeResult]:
        env = environment(chunk.task_id)
        return [
            run_episode(
                env,
                player,
                chunk.task_id,
                sample=sample,
                seed=episode_seed(config.seed, chunk.task_id, sample),
                sampling=config.sampling,
                context=config.context if config.context.strategy != "none" else None,
                cancel=cancel,
                style=config.style,
                max_turns=config.max_turns,
            )
            for sample in chunk.samples
        ]

    try:
        yield play
    finally:
        for env in environments:
            env.close()
