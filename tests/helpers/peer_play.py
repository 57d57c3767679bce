"""What a scripted agent gets in envgen's own rollout, to compare peers with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from envgen.environments.families import make_env
from envgen.rollout.episode import run_episode
from envgen.rollout.gold import make_policy
from envgen.store.dataset import Dataset

ROOT = Path(__file__).parents[2]
TASKS = 20
"""Of each family that a peer plays."""
SEED = 11
Peer = Callable[..., Path]
"""(name, *packages) -> the Python of an environment that has them."""


def some_tasks(dataset: Dataset, most: int) -> list[str]:
    """Tasks from all over the dataset, no two with one prompt: a policy server tells them apart by that."""
    names, prompts = sorted(dataset.own_task_ids), dict[str, str]()
    for name in names:
        prompts.setdefault(dataset.tasks[name].prompt, name)
    kept = list(prompts.values())
    step = max(1, len(kept) // most)
    return kept[::step][:most]


def own_rewards(dataset: Dataset, spec: str, tasks: Sequence[str]) -> dict[str, float]:
    """Task -> score of one episode by ``spec``, in this process."""
    policy, found = make_policy(spec, dataset), dict[str, float]()
    for name in tasks:
        env = make_env(dataset, dataset.facts(name).family)
        try:
            played = run_episode(env, policy, name, sample=0, seed=SEED).trajectory
        finally:
            env.close()
        assert played.score is not None, played.error
        found[name] = played.score.value
    return found
