"""The last proof of a code task: its gold patch is played from the written dataset, as an agent plays.

What the dataset holds is read again and checked by its types, so no task is kept that can't be opened.
"""

from __future__ import annotations

from envgen.environments.code import CodeEnv
from envgen.environments.code_hosts import CodeHosts
from envgen.pipelines.code.prove import BuildConfig
from envgen.rollout.episode import run_episode
from envgen.rollout.gold import GoldPolicy
from envgen.store.dataset import Dataset


def gold_fault(dataset: Dataset, task_id: str, build: BuildConfig) -> str:
    """Why the gold patch of a task, through the agent's own tools, does not score 1; empty if it does.

    The workspace that proved it is opened again, not built anew.
    """
    access = {
        name: getattr(build, name)
        for name in ("certificates", "variables", "mounts", "reach", "cache_root")
    }
    env = CodeEnv(dataset, backend=build.backend, hosts=CodeHosts(dataset, build.backend, access))
    try:
        played = run_episode(env, GoldPolicy(dataset), task_id, sample=0, seed=0).trajectory
    finally:
        env.close()
    if played.error is not None:
        return f"{played.error.kind}: {played.error.text}"[:2_000]
    if played.score is None or not played.score.passed:
        reasons = played.score.reasons if played.score else ()
        return f"it ended with {played.stop} and scored 0: {'; '.join(reasons[:3])}"[:2_000]
    return ""
