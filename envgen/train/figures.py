"""Metrics of GRPO: figures of an update and its rollouts, warnings, a run's summary."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from envgen.core.types import Record
from envgen.train.grpo import varied
from envgen.train.parallel import Ranks
from envgen.train.rewards import RewardTable, joined
from envgen.train.rollouts import Rollouts
from envgen.train.well_formed import calls_of

logger = logging.getLogger(__name__)
KEPT_MASS_ALARM = 0.5
MASKED_ALARM = 0.5


@dataclass
class Figures:
    """Figures of one update, as sums or lists over its parts."""

    log_ratios: list[Tensor] = field(default_factory=list)
    divergences: list[Tensor] = field(default_factory=list)
    """The left side of (9) before the first update: the mismatch of engine and trainer."""
    negatives: int = 0
    masked: int = 0
    clipped: int = 0
    tokens: int = 0
    tokens_run: int = 0
    entropy: float = 0.0
    kept_mass: float = 0.0
    least_kept_mass: float = 1.0
    ref_kept_mass: float = 0.0
    ref_tokens: int = 0
    """Tokens that pi_ref scored."""
    kl: float = 0.0
    index_loss: float = 0.0
    loss: float = 0.0
    norms: list[tuple[float, float]] = field(default_factory=list)
    assembly_s: float = 0.0

    @classmethod
    def merged(cls, parts: Sequence[Figures]) -> Figures:
        """Merge the figures of all processes; gradient norms are the same in each."""
        total = cls(norms=parts[0].norms)
        for part in parts:
            total.log_ratios += part.log_ratios
            total.divergences += part.divergences
            total.assembly_s = max(total.assembly_s, part.assembly_s)
            total.least_kept_mass = min(total.least_kept_mass, part.least_kept_mass)
            for name in SUMMED:
                setattr(total, name, getattr(total, name) + getattr(part, name))
        return total

    def named(self) -> dict[str, float]:
        """Return the figures under their names in ``metrics.jsonl``."""
        found: dict[str, float] = {"update/tokens_run": self.tokens_run}
        if self.norms:
            trunk, indexer = np.array(self.norms).mean(0)
            found |= {"update/loss": self.loss / len(self.norms), "update/grad_norm": float(trunk)}
            found |= {
                "index/loss": self.index_loss / len(self.norms),
                "index/grad_norm": float(indexer),
            }
        if self.tokens:
            ratio_N = torch.cat(self.log_ratios).abs()
            found |= {
                "policy/entropy": self.entropy / self.tokens,
                "policy/kept_mass": self.kept_mass / self.tokens,
                "policy/least_kept_mass": self.least_kept_mass,
                "policy/clip_fraction": self.clipped / self.tokens,
                "policy/kl": self.kl / self.tokens,
                "policy/log_ratio_p99": quantile(ratio_N, 0.99),
                "policy/log_ratio_max": float(ratio_N.max()),
            }
        if self.ref_tokens:
            found["policy/ref_kept_mass"] = self.ref_kept_mass / self.ref_tokens
        if self.negatives:
            found["policy/masked_negatives"] = self.masked / self.negatives
        if self.divergences:
            apart = torch.cat(self.divergences)
            found |= {f"policy/mismatch_p{q}": quantile(apart, q / 100) for q in (50, 95, 100)}
        return found


SUMMED = (
    "negatives", "masked", "clipped", "tokens", "tokens_run", "entropy", "kept_mass", "ref_kept_mass",
    "ref_tokens", "kl", "index_loss", "loss",
)  # fmt: skip
"""Figures that add up over processes."""


def quantile(values: Tensor, q: float) -> float:
    """Return a quantile by sorting, because ``torch.quantile`` takes 2^24 values at most."""
    ordered = values.sort().values
    return float(ordered[min(len(ordered) - 1, round(q * (len(ordered) - 1)))])


class StepFigures(NamedTuple):
    """A step over all processes."""

    rewards: RewardTable
    update: Figures
    rollouts: dict[str, float]
    model_tokens: int

    def line(
        self, sampling_s: float, update_s: float, tasks: Mapping[str, float]
    ) -> dict[str, float | None]:
        """Return the step's line of ``metrics.jsonl``; ``tasks`` holds the task sampler's metrics."""
        return {
            **self.rewards.metrics(),
            **self.rollouts,
            **tasks,
            **self.update.named(),
            "time/sampling_s": sampling_s,
            "time/update_s": update_s,
            "time/assembly_s": self.update.assembly_s,
            "time/model_tokens_per_s": self.model_tokens / (sampling_s + update_s),
        }

    def in_words(self) -> str:
        """Return a text for the progress bar."""
        named = self.update.named()
        entropy = f", entropy {named['policy/entropy']:.3f}" if "policy/entropy" in named else ""
        tokens = self.rollouts["rollout/model_tokens"]
        return f"pass {self.rewards.passed_I.mean():.3f}, {tokens:.0f} tokens{entropy}"


def step_figures(
    ranks: Ranks, rollouts: Rollouts, rewards: RewardTable, update: Figures
) -> StepFigures:
    """Gather what all processes did in a step."""
    tables = ranks.gather(rewards)
    described = ranks.gather(_describe(rollouts, rewards))
    counts = [len(one.total_I) for one in tables]
    return StepFigures(
        rewards=joined(tables),
        update=Figures.merged(ranks.gather(update)),
        rollouts={
            name: float(np.average([one[name] for one in described], weights=counts))
            for name in ROLLOUT_FIGURES
        },
        model_tokens=sum(ranks.gather(int(rollouts.lengths_I.sum()))),
    )


ROLLOUT_FIGURES = (
    "groups/zero_variance", "rollout/model_tokens", "rollout/turns", "rollout/valid_calls",
    "rollout/errored", "rollout/tool_faults",
)  # fmt: skip


def _describe(rollouts: Rollouts, rewards: RewardTable) -> dict[str, float]:
    """Average over this process's rollouts; zeros, which get weight 0, if it has none."""
    if not rollouts.trajectories:
        return dict.fromkeys(ROLLOUT_FIGURES, 0.0)
    group_I, reward_I = torch.from_numpy(rollouts.group_I), torch.from_numpy(rewards.total_I)
    calls = [calls_of(one) for one in rollouts.trajectories]
    values = (
        float((~varied(reward_I, group_I)).float().mean()),
        float(rollouts.lengths_I.mean()),
        float(np.mean([len(one.turns) for one in rollouts.trajectories])),
        sum(one.valid for one in calls) / max(1, sum(one.total for one in calls)),
        len(rollouts.errored) / (len(rollouts.errored) + len(calls)),
        sum(bool(one.faults) for one in rollouts.trajectories) / len(calls),
    )
    return dict(zip(ROLLOUT_FIGURES, values, strict=True))


def warn_of_step(figures: StepFigures, step: int, delta: float) -> None:
    """Warn if a step looks wrong: no rollout passed, or as ``warn_of_update``.

    Args:
        figures: of the step.
        step: its number, from 0.
        delta: of (9).
    """
    passed_I = figures.rewards.passed_I
    if step == 0 and not passed_I.any():
        logger.warning(
            "step 1: none of %d rollouts passed; GRPO learns from groups of which some pass and some "
            "don't. If the next steps are alike, give the policy a longer cold start (`envgen train sft`) "
            "or take easier tasks",
            len(passed_I),
        )
    warn_of_update(figures.update, step, delta)


def warn_of_update(figures: Figures, step: int, delta: float) -> None:
    """Warn if an update's mismatch, masked share or kept mass is out of bounds."""
    named = figures.named()
    if (apart := named.get("policy/mismatch_p95", 0.0)) > delta:
        logger.warning(
            "step %d: engine and trainer differ by %.2g nats a token before any update in the worst 5 %% of "
            "rollouts, above objective.off_policy_delta=%g; give the engine the trainer's precision, keep "
            "routing and key sets, or raise delta",
            step + 1,
            apart,
            delta,
        )
    if named.get("policy/masked_negatives", 0.0) > MASKED_ALARM:
        logger.warning(
            "step %d: the off-policy mask drops %.0f %% of the rollouts with negative advantage; raise "
            "objective.off_policy_delta, or make fewer mini-batches",
            step + 1,
            100 * named["policy/masked_negatives"],
        )
    for name, whose in (("policy/kept_mass", "policy"), ("policy/ref_kept_mass", "reference")):
        if named.get(name, 1.0) < KEPT_MASS_ALARM:
            logger.warning(
                "step %d: the tokens that the sampler kept hold %.2f of the %s's probability; "
                "loosen top_p or top_k",
                step + 1,
                named[name],
                whose,
            )


class TrainGRPOSummary(Record):
    """The result of a run."""

    out: str
    steps: int
    rollouts: int
    """In this call, like the seconds."""
    tokens: int
    """Model tokens."""
    pass_rate: float | None
    """Of the last step; None if there was none to do."""
    seconds: float
    sampling_seconds: float
    update_seconds: float
    assembly_seconds: float
    """Part of the two above: making batches from trajectories."""


class RunTotals:
    """The cost of a run so far."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._rollouts = self._tokens = 0
        self._sampling_s = self._update_s = self._assembly_s = 0.0
        self._pass_rate: float | None = None

    def add(self, step: StepFigures, sampling_s: float, update_s: float) -> None:
        """Add a step."""
        self._rollouts += len(step.rewards.total_I)
        self._tokens += step.model_tokens
        self._sampling_s += sampling_s
        self._update_s += update_s
        self._assembly_s += step.update.assembly_s
        self._pass_rate = float(step.rewards.passed_I.mean())

    def summary(self, out: Path, steps: int) -> TrainGRPOSummary:
        """The totals of ``steps`` steps."""
        return TrainGRPOSummary(
            out=str(out),
            steps=steps,
            rollouts=self._rollouts,
            tokens=self._tokens,
            pass_rate=self._pass_rate,
            seconds=time.monotonic() - self._started,
            sampling_seconds=self._sampling_s,
            update_seconds=self._update_s,
            assembly_seconds=self._assembly_s,
        )
