"""The last proof of a code task: its gold patch is played from the written dataset, as an agent plays."""

from __future__ import annotations

from envgen.core.types import GateResult
from envgen.environments.code import CodeEnv
from envgen.environments.code_hosts import CodeHosts
from envgen.pipelines.code.prove import BuildConfig
from envgen.pipelines.played import played
from envgen.store.dataset import Dataset


def gold_played(dataset: Dataset, task_id: str, build: BuildConfig) -> GateResult:
    """Whether the gold patch of a task, through the agent's own tools, scores 1.

    The workspace that proved it is opened again, not built anew.
    """
    access = {
        name: getattr(build, name)
        for name in ("certificates", "variables", "mounts", "reach", "cache_root")
    }
    env = CodeEnv(dataset, backend=build.backend, hosts=CodeHosts(dataset, build.backend, access))
    try:
        return played(env, task_id)
    finally:
        env.close()
