"""Run policies in environments: episodes, runs, pass@k, the filter."""

from __future__ import annotations

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
