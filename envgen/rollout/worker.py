"""What a worker of a rollout does: keep one environment per thread and play episodes in it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event

from envgen.environments.general import GeneralEnv
from envgen.environments.hosts import open_dataset
from envgen.policies.base import Policy
from envgen.rollout.episode import EpisodeResult, run_episode
from envgen.rollout.gold import make_policy
from envgen.rollout.run import Chunk, RolloutConfig, episode_seed
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
    shared = dataset or open_dataset(config.dataset, unproven=config.unproven)
    player = policy or make_policy(config.policy, shared)
    local = threading.local()
    environments: list[GeneralEnv] = []

    def play(chunk: Chunk) -> list[EpisodeResult]:
        if not hasattr(local, "env"):
            local.env = GeneralEnv(
                shared,
                backend=config.backend,
                isolate=config.isolate,
                unproven=config.unproven,
            )
            environments.append(local.env)
        return [
            run_episode(
                local.env,
                player,
                chunk.task_id,
                sample=sample,
                seed=episode_seed(config.seed, chunk.task_id, sample),
                sampling=config.sampling,
                context=config.context if config.context.strategy != "none" else None,
                cancel=cancel,
            )
            for sample in chunk.samples
        ]

    try:
        yield play
    finally:
        for env in environments:
            env.close()
