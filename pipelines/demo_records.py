"""What the training demo is told, and what it tells; readable without PyTorch."""

from __future__ import annotations

from pydantic import Field

from envgen.core.limits import Whole
from envgen.core.types import Record
from envgen.rollout.bootstrap import Estimate


class TrainingDemoConfig(Record):
    """How much of everything; the defaults take about five minutes on two cores."""

    parents: int = Field(default=6, ge=1)
    """Proven tasks whose variants are played."""
    variants: int = Field(default=2_000, ge=10)
    """Of each, on rows of their own; about a twentieth is held out."""
    taught: int = Field(default=6_000, ge=1)
    """Training tasks that the teachers play; GRPO plays all."""
    gold_weight: float = Field(default=0.45, gt=0, lt=1)
    """Share of the right answer in what the expert teaches; the rest is the first row: the planted bias."""
    layers: int = Field(default=3, ge=1)
    """Of the model."""
    index_topk: int = Field(default=16, ge=1)
    """Keys that sparse attention sees; conversations are about 70 tokens long."""
    dense_epochs: float = Field(default=4.0, gt=0)
    """Over gold alone; the later stages learn from the expert."""
    index_epochs: float = Field(default=0.3, gt=0)
    """Of the indexer's warm-up."""
    sparse_epochs: float = Field(default=1.0, gt=0)
    """Over what the expert plays, with sparse attention."""
    tokens_per_batch: int = Field(default=5_000, ge=1)
    """Of the cold start."""
    filter_tasks: int = Field(default=16, ge=1)
    """Tasks that the filter looks at."""
    filter_samples: int = Field(default=100, ge=1)
    """Episodes of each."""
    grpo_steps: int = Field(default=50, ge=1)
    """Batches of rollouts."""
    groups: int = Field(default=16, ge=1)
    """Tasks in a batch."""
    group_size: int = Field(default=16, ge=2)
    """Rollouts of each."""
    held_out: int = Field(default=512, ge=1)
    """Most tasks of the test split that are judged by; none of their databases is ever trained on."""
    processes: int = Field(default=1, ge=1)
    """That learn together, each on a core; with another number only the last bits differ."""
    seed: Whole = 0


class Measured(Record):
    """pass@1 on the held-out tasks, with 95 % intervals over databases."""

    greedy: Estimate
    sampled: Estimate
    """At temperature 1."""
    call_valid_rate: Estimate | None
    """Share of the calls at temperature 1 that could be carried out."""
    valid_rollout_rate: Estimate | None
    """Share of the rollouts at temperature 1 in which all could."""


class TrainingDemoSummary(Record):
    """What came out."""

    seed: int
    parents: int
    variants: int
    """Of all parents together."""
    gold_weight: float
    """What the planted bias leaves of the right answer."""
    held_out_tasks: int
    held_out_databases: int
    first_row: float
    """Greedy pass@1 of a policy that takes the first row."""
    ceiling: Measured
    """Of a cold start from right answers alone, which never met the planted bias."""
    before: Measured
    """Of the biased cold start,"""
    after: Measured
    """and after GRPO."""
    greedy_lift: Estimate
    """Paired, over databases."""
    sampled_lift: Estimate
    missed: tuple[str, ...] = ()
    """A sentence for each condition of ``rollout.learned`` that was missed; empty: the policy learned."""
    filter_kept: int
    filter_dropped: int
    sft_steps: int
    grpo_steps: int
    sft_tokens_per_second: float
    grpo_tokens_per_second: float
    """Model tokens, sampling and update together."""
    stages: dict[str, float]
    """Seconds."""
