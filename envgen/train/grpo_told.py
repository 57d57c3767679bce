"""What is told of a run of GRPO: its steps over all processes, its log, its summary."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from envgen.core.types import Record
from envgen.train.figures import Figures
from envgen.train.grpo import varied
from envgen.train.parallel import Ranks
from envgen.train.rewards import RewardTable, joined
from envgen.train.rollouts import Rollouts
from envgen.train.update import KEPT_MASS_ALARM, MASKED_ALARM
from envgen.train.well_formed import calls_of

logger = logging.getLogger(__name__)


class TrainGRPOSummary(Record):
    """What came out."""

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
    """Of both: making batches of trajectories."""

    @property
    def assembly_share(self) -> float | None:
        """Of the steps' time; None if there was no step."""
        spent = self.sampling_seconds + self.update_seconds
        return self.assembly_seconds / spent if spent else None


class Told(NamedTuple):
    """A step over all processes."""

    table: RewardTable
    figures: Figures
    described: dict[str, float]
    model_tokens: int


class Spent:
    """What a run has cost so far."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._rollouts = self._tokens = 0
        self._sampling_s = self._update_s = self._assembly_s = 0.0
        self._pass_rate: float | None = None
        self.last: tuple[float, float] = (0.0, 0.0)
        """Seconds of sampling and update in the last step."""

    def note(self, told: Told, sampling_s: float, update_s: float) -> None:
        """Add a step."""
        self._rollouts += len(told.table.total_I)
        self._tokens += told.model_tokens
        self._sampling_s, self._update_s = self._sampling_s + sampling_s, self._update_s + update_s
        self._assembly_s += told.figures.assembly_s
        self._pass_rate = float(told.table.passed_I.mean())
        self.last = (sampling_s, update_s)

    def summary(self, out: Path, steps: int) -> TrainGRPOSummary:
        """All of it."""
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


def everywhere(ranks: Ranks, drawn: Rollouts, table: RewardTable, figures: Figures) -> Told:
    """What all processes did in a step."""
    gather = ranks.gather
    described = gather(_described(drawn, table))
    tables = gather(table)
    counts = [len(one.total_I) for one in tables]
    return Told(
        table=joined(tables),
        figures=Figures.merged(gather(figures)),
        described={
            name: float(np.average([one[name] for one in described], weights=counts))
            for name in described[0]
        },
        model_tokens=sum(gather(int(drawn.lengths_I.sum()))),
    )


DESCRIBED = (
    "groups/zero_variance", "rollout/model_tokens", "rollout/turns", "rollout/valid_calls",
    "rollout/errored", "rollout/tool_faults",
)  # fmt: skip


def _described(drawn: Rollouts, table: RewardTable) -> dict[str, float]:
    """Means over this process's rollouts; zeros, which count nothing, if it has none."""
    if not drawn.trajectories:
        return dict.fromkeys(DESCRIBED, 0.0)
    group_I, reward_I = torch.from_numpy(drawn.group_I), torch.from_numpy(table.total_I)
    turns = [len(one.turns) for one in drawn.trajectories]
    made = [calls_of(one) for one in drawn.trajectories]
    calls = sum(one.made for one in made)
    values = (
        float((~varied(reward_I, group_I)).float().mean()),
        float(drawn.lengths_I.mean()),
        float(np.mean(turns)),
        sum(one.valid for one in made) / max(1, calls),
        len(drawn.errored) / (len(drawn.errored) + len(made)),
        sum(bool(one.faults) for one in drawn.trajectories) / len(made),
    )
    return dict(zip(DESCRIBED, values, strict=True))


def line_of(told: Told, spent: Spent, tasks: Mapping[str, float]) -> dict[str, float | None]:
    """What is written of a step; ``tasks`` is what the task sampler says."""
    sampling_s, update_s = spent.last
    return {
        **told.table.metrics(),
        **told.described,
        **tasks,
        **told.figures.named(),
        "time/sampling_s": sampling_s,
        "time/update_s": update_s,
        "time/assembly_s": told.figures.assembly_s,
        "time/model_tokens_per_s": told.model_tokens / (sampling_s + update_s),
    }


def in_words(told: Told) -> str:
    """A step for a progress bar."""
    named = told.figures.named()
    entropy = f", entropy {named['policy/entropy']:.3f}" if "policy/entropy" in named else ""
    tokens = told.described["rollout/model_tokens"]
    return f"pass {told.table.passed_I.mean():.3f}, {tokens:.0f} tokens{entropy}"


def warn(told: Told, step: int, delta: float) -> None:
    """Say what is wrong with a step, if anything is; ``delta`` is that of (9)."""
    if not told.table.passed_I.any() and step == 0:
        logger.warning(
            "step 1: none of %d rollouts passed; GRPO learns from groups of which some pass and some "
            "don't. If the next steps are alike, give the policy a longer cold start (`envgen train sft`) "
            "or take easier tasks",
            len(told.table.passed_I),
        )
    warn_of_figures(told.figures, step, delta)


def warn_of_figures(figures: Figures, step: int, delta: float) -> None:
    """Say what is wrong with a step's figures."""
    named = figures.named()
    if (apart := named.get("policy/mismatch_p95", 0.0)) > delta:
        logger.warning(
            "step %d: before any update engine and trainer differ by %.2g nats a token in a rollout of "
            "twenty, more than objective.off_policy_delta=%g allows; give the engine the trainer's "
            "precision, keep routing and key sets, or raise it",
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
                "step %d: what the sampler kept has %.2f of the %s's probability; loosen top_p or top_k",
                step + 1,
                named[name],
                whose,
            )
