"""Whether two episodes went alike."""

from __future__ import annotations

from envgen.core.types import Trajectory


def equal_but_times(first: Trajectory, second: Trajectory) -> bool:
    """Whether two trajectories are the same, times aside."""
    blank = {"started_at": 0.0, "wall_s": 0.0, "agent_s": 0.0}
    return first.model_copy(update=blank) == second.model_copy(update=blank)
