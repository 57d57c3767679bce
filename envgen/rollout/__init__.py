"""Run policies in environments: episodes, runs, pass@k, the filter.

``episode.py`` plays one episode, ``run.py`` a run: its ``RolloutConfig.identity`` says which runs are one and
the same; ``work.py`` deals episodes to processes (``worker.py``) and counts those that die.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from envgen.rollout.episode import EpisodeResult, run_episode
from envgen.rollout.filter import FilterConfig, FilterReport, filter, reestimate
from envgen.rollout.gold import GoldPolicy, make_policy
from envgen.rollout.pass_at_k import PassReport, pass_at_k, pass_report, run_report
from envgen.rollout.run import Progress, RolloutConfig, RolloutSummary, rollout

__all__ = [
    "EpisodeResult",
    "FilterConfig",
    "FilterReport",
    "GoldPolicy",
    "PassReport",
    "Progress",
    "RolloutConfig",
    "RolloutSummary",
    "filter",
    "make_policy",
    "pass_at_k",
    "pass_report",
    "reestimate",
    "rollout",
    "run_episode",
    "run_report",
]


class _RolloutRoom(ModuleType):
    """This room as ``envgen.rollout``: importing binds that name to the module, and it is a verb, too."""

    def __call__(self, config: RolloutConfig, **options: Any) -> RolloutSummary:
        """See ``envgen.rollout.run.rollout``."""
        return rollout(config, **options)


sys.modules[__name__].__class__ = _RolloutRoom
