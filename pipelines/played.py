"""The gate of played tasks: gold, played from the written dataset as an agent plays, scores 1.

What the dataset holds is read again and checked by its types, so no task is kept that can't be opened.
"""

from __future__ import annotations

from envgen.core.types import GateResult, GateStatus
from envgen.environments.episodes import EpisodeEnv
from envgen.pipelines.boundary import guarded
from envgen.rollout.episode import run_episode
from envgen.rollout.gold import GoldPolicy


def played(env: EpisodeEnv, task_id: str) -> GateResult:
    """Whether a task's gold run, through the agent's own tools, scores 1."""
    return guarded("played", lambda: _played(env, task_id))


def _played(env: EpisodeEnv, task_id: str) -> GateResult:
    found = run_episode(env, GoldPolicy(env.dataset), task_id, sample=0, seed=0).trajectory
    fault = ""
    if found.error is not None:
        fault = f"{found.error.kind}: {found.error.text}"
    elif found.score is None or not found.score.passed:
        reasons = found.score.reasons if found.score else ()
        fault = f"it ended with {found.stop} and scored 0: {'; '.join(reasons[:3])}"
    status = GateStatus.FAILED if fault else GateStatus.PASSED
    return GateResult(gate="played", status=status, n=1, reason=fault[:2_000])
