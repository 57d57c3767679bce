"""What training is told: the configs of the cold start and of GRPO, with all their parts.

Nothing here imports PyTorch, so that the command line reads a config, and shows its help, without it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, model_validator

from envgen.core.limits import Label, Line, Whole
from envgen.core.types import Record, Style
from envgen.sandboxes.zygote import WorkerBackend
from envgen.train.rewards import RewardConfig
from envgen.train.tasks import TaskSamplerConfig

if TYPE_CHECKING:
    from envgen.model.attention import IndexLoss


class ParallelConfig(Record):
    """How several processes train; part of a run's config."""

    processes: int = Field(default=1, ge=1)
    """Each takes its share of every batch. On GPUs: one each."""
    sharding: Literal["none", "fsdp"] = "none"
    """fsdp: each process keeps a part of weights, gradients and optimiser state (``sharding``), for models
    that no device holds whole in training; none: each has the whole model, which is faster if it fits. The
    engine that plays, and pi_ref, are whole in each process."""
    device: Line = "cpu"

    @model_validator(mode="after")
    def _several_to_share(self) -> Self:
        if self.sharding == "fsdp" and self.processes == 1:
            raise ValueError("sharding needs processes=2 or more, to share the model between")
        return self


class OptimizerConfig(Record):
    """AdamW (Loshchilov & Hutter 2019), or Muon for the matrices, with a warm-up and an optional cosine."""

    kind: Literal["adamw", "muon"] = "adamw"
    """muon: weights of the trunk with rows and columns are stepped by ``muon``, the rest by AdamW."""
    muon_lr: float = Field(default=2e-2, gt=0)
    """Learning rate of what Muon steps."""
    lr: float = Field(default=1e-3, gt=0)
    """Learning rate of what AdamW steps."""
    warmup_steps: int = Field(default=20, ge=0)
    """Steps in which the rate rises from 0."""
    total_steps: int | None = Field(default=None, ge=1)
    """Where the cosine reaches ``final``; None: the rate stays."""
    final: float = Field(default=0.1, ge=0, le=1)
    """Share of ``lr`` at the end."""
    beta1: float = Field(default=0.9, ge=0, lt=1)
    """Of AdamW."""
    beta2: float = Field(default=0.95, ge=0, lt=1)
    """Of AdamW."""
    weight_decay: float = Field(default=0.01, ge=0)
    """Of weights with rows and columns."""
    clip_norm: float = Field(default=1.0, gt=0)
    """Longest gradient of trunk and indexer each."""
    indexer: Literal["eq4", "frozen"] = "eq4"
    """eq4: the indexer keeps learning what attention looks at, as in the paper's sparse stage."""
    indexer_lr: float = Field(default=1e-3, gt=0)
    """Learning rate of the indexer."""

    def rate(self, step: int) -> float:
        """What ``lr`` is multiplied by in step ``step`` (from 0)."""
        ramp = min(1.0, (step + 1) / self.warmup_steps) if self.warmup_steps else 1.0
        if self.total_steps is None:
            return ramp
        done = min(1.0, step / self.total_steps)
        return ramp * (self.final + (1 - self.final) * (1 + math.cos(math.pi * done)) / 2)


class SFTConfig(Record):
    """What is learnt."""

    context_weight: float = Field(default=0.0, ge=0, le=1)
    """What a token counts that the model does not write (prompts, tool results); 0: nothing."""


class ColdStartConfig(ParallelConfig):
    """What is learnt, from whom, and how."""

    data: Label
    """The dataset that was rolled out."""
    rollouts: tuple[Label, ...] = ()
    """Run folders of teachers."""
    teachers: tuple[Label, ...] = ()
    """Policies that are played first, into ``teachers/`` of the run's folder."""
    episodes: int = Field(default=1, ge=1)
    """Of each of these teachers, for every task. What they have in common is run once, so that several
    answers to one question cost little."""
    weights: tuple[Annotated[float, Field(gt=0)], ...] = ()
    """What a token of each of ``rollouts`` and then ``teachers`` counts: 0.4 of gold and 0.6 of a heuristic
    make an expert that is right four times in ten where they differ. Empty: 1."""
    split: Literal["train", "validation", "test"] | None = "train"
    """Learn from tasks of this split only; None: every task."""
    model: Line
    """Model folder to start from."""
    attention: Literal["sparse", "dense"] = "sparse"
    """dense: no key is left out, as in a model's first stage and in the indexer's warm-up."""
    trunk: Literal["learns", "frozen"] = "learns"
    """frozen: only the indexer learns; with dense attention that is its warm-up (paper, eq. 3)."""
    passed_only: bool = False
    """Learn from rollouts that passed only; by default a teacher's mistakes are learnt, too."""
    epochs: float = Field(default=1.0, gt=0)
    """Passes over the rows."""
    tokens_per_batch: int = Field(default=4_096, ge=1)
    """Of an optimiser's step."""
    pack_tokens: int = Field(default=512, ge=0)
    """Most tokens of rows that are packed behind a common prefix; see ``packing``."""
    sft: SFTConfig = SFTConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    """``total_steps`` is filled in: the cosine ends with the last step."""
    router_bias_rate: float = Field(default=1e-3, ge=0)
    """Step of the load-balancing bias after each update; 0: frozen."""
    index_loss_weight: float = Field(default=1.0, gt=0)
    """Of the indexer's loss, beside the replies'."""
    validation_rows: int = Field(default=64, ge=0)
    """Rows set aside to measure the loss on."""
    save_every: int = Field(default=200, ge=1)
    """Steps between checkpoints."""
    seed: Whole = 0
    trust: bool = False
    """The dataset's code was written or read by the user: it may run without isolation."""

    @property
    def index_loss(self) -> IndexLoss | None:
        """What the indexer learns from: eq. 4, eq. 3 where attention is dense, nothing if it is frozen."""
        if self.optimizer.indexer == "frozen":
            return None
        return self.attention

    @property
    def loss_name(self) -> str:
        """The metric that falls as the model learns: the indexer's loss if only the indexer learns."""
        return "index/loss" if self.trunk == "frozen" else "sft/loss"

    @model_validator(mode="after")
    def _something_to_learn(self) -> Self:
        if not self.rollouts and not self.teachers:
            raise ValueError("name rollouts of teachers, or teachers to play, such as gold")
        if self.weights and len(self.weights) != len(self.rollouts) + len(self.teachers):
            raise ValueError(f"{len(self.weights)} weights; give one for each run and teacher")
        if self.trunk == "frozen" and self.optimizer.indexer == "frozen":
            raise ValueError("trunk and indexer are both frozen: nothing would be learnt")
        return self


class SamplingConfig(Record):
    """How rollouts are drawn."""

    groups: int = Field(default=16, ge=1)
    """Tasks in a step."""
    group_size: int = Field(default=8, ge=2)
    """G, rollouts of each."""
    temperature: float = Field(default=1.0, gt=0)
    """Greedy replies have no probabilities to learn from."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Nucleus sampling."""
    top_k: Whole = -1
    """Draw from so many tokens; -1: from all."""
    max_kept: int | None = Field(default=None, ge=1)
    """Most tokens that one is drawn from, so that sampling masks stay small."""
    max_new_tokens: int = Field(default=256, ge=1)
    """Of one reply."""
    max_turns: int | None = Field(default=None, ge=1)
    """Replies of a rollout, where its task would allow more: a policy that goes astray may else call in
    vain for all of them, and one such rollout takes longer to learn from than a hundred others."""
    concurrency: int | None = Field(default=None, ge=1)
    """Episodes that run at once, tools and verifiers, while the others wait; all of a step are open. It
    changes no result. None: one a core, 4 at least. Raise it where tools mostly wait, lower it where each
    takes much memory (a code task's tests up to its recipe's ``memory_bytes``)."""
    max_batch: int = Field(default=128, ge=1)
    """Replies that are written together."""
    cache_tokens: int | None = Field(default=None, ge=1)
    """Of all conversations; None: room for ``max_batch`` of 1,024 tokens, or of a smaller window."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Of the engine; below the trainer's precision it has weights of its own, copied after each update."""
    index_fp8: bool | None = None
    """Round the engine's index queries and keys to e4m3, as inference servers do; None: as the model says."""
    capture_topk: bool = True
    """Record the key sets of sparse attention, so that training repeats them: near-equal index scores fall
    either way with the last bit. 4 bytes a token, layer and kept key; turn it off for large models."""
    style: Style | None = None
    """What the policy is asked for, in its system message, as its cold start was; see ``policies.styles``."""
    backend: WorkerBackend = "auto"
    """Where the environments' code runs; ``inline`` is the fastest, for tasks that were generated here."""


class GRPOConfig(Record):
    """The objective. Which defaults are the paper's, and which are ours: ``docs/training.md``."""

    advantage: Literal["mean", "std", "none"] = "mean"
    """std: also divide by the group's standard deviation (Shao et al. 2024), as TRL does. none: A_i = R_i,
    which with rewards of 0 and 1 is online rejection sampling: what passed is learnt, the rest is not."""
    clip_low: float = Field(default=0.2, ge=0, lt=1)
    """Ratios below 1 less this are clipped."""
    clip_high: float = Field(default=0.2, ge=0)
    """Larger than ``clip_low``: clip-higher (DAPO, Yu et al. 2025)."""
    loss: Literal["sequence", "token"] = "sequence"
    """sequence: mean over rollouts of means over their tokens. token: mean over all tokens (DAPO)."""
    kl_coef: float = Field(default=0.0, ge=0)
    """beta. The paper: domains differ; mathematics does well with little or none."""
    kl_form: Literal["unbiased", "k3"] = "unbiased"
    """k3: without the ratio; its gradient is another divergence's (for comparison)."""
    off_policy_mask: bool = True
    """M of (9)."""
    off_policy_delta: float = Field(default=0.1, gt=0)
    """delta of (9), in nats a token. It counts what updates have moved and what engine and trainer differ
    by; the latter alone is ``policy/mismatch_p95``. Chosen by ``benchmarks/delta_sweep.py``."""
    keep_sampling_mask: bool = True
    """Leave out tokens that the sampler could not draw."""
    keep_routing: bool = True
    """Repeat the experts that the sampler chose."""
    keep_topk: bool = True
    """Repeat the sampler's key sets where it recorded them: ours, not in the paper."""
    old: Literal["sampler", "recomputed"] = "sampler"
    """recomputed: pi_old of (6) is the trainer's own policy before the first update (PPO's form)."""
    tis_cap: float | None = Field(default=None, gt=0)
    """Truncated importance sampling: weigh tokens by min(pi_recomputed / pi_sampler, cap)."""
    zero_variance: Literal["keep", "drop"] = "keep"
    """drop: leave groups of equal rewards out of sums and denominators."""

    @model_validator(mode="after")
    def _tis_needs_recomputed(self) -> Self:
        if self.tis_cap is not None and self.old == "sampler":
            raise ValueError(
                'tis_cap corrects from recomputed to sampler probabilities: it needs old="recomputed"'
            )
        return self


class UpdateConfig(Record):
    """How a batch of rollouts is learnt from."""

    mini_batches: int = Field(default=1, ge=1)
    """Optimiser steps a batch; above 1 the later ones are off-policy."""
    part_tokens: int = Field(default=16_384, ge=1)
    """Tokens that are run at once, shared prefixes counted once."""
    pack_tokens: int = Field(default=512, ge=1)
    """Most tokens of rows that are packed behind a common prefix; longer rows as ``packing`` says."""
    index_loss_weight: float = Field(default=1.0, gt=0)
    """Of the indexer's loss, beside the objective."""
    router_bias_rate: float = Field(default=0.0, ge=0)
    """Step of the load-balancing bias; by default it is frozen, so that replayed routes stay likely."""


class HeldOutConfig(Record):
    """Which tasks are held out, and when they are played."""

    every: int | None = Field(default=None, ge=1)
    """Steps between evaluations; before the first step and after the last there is one, too. None: none."""
    data: Label | None = None
    """Their dataset; None: the one that is trained on."""
    split: Literal["train", "validation", "test"] | None = "test"
    """Tasks of this split only; None: of all."""
    tasks: int | None = Field(default=64, ge=1)
    """So many of them at most, drawn once; None: all."""
    temperature: float = Field(default=0.0, ge=0)
    """0: greedy."""


class TrainGRPOConfig(ParallelConfig):
    """What is learnt, and how."""

    data: Label
    """The dataset that is played."""
    model: Line
    """Model folder to start from."""
    split: Literal["train", "validation", "test"] | None = "train"
    """Play tasks of this split only; None: every task."""
    task_ids: tuple[Label, ...] | None = None
    """Play these only; None: all of the split, variants included."""
    steps: int = Field(default=100, ge=1)
    """Batches of rollouts."""
    sampling: SamplingConfig = SamplingConfig()
    tasks: TaskSamplerConfig = TaskSamplerConfig()
    rewards: RewardConfig = RewardConfig()
    objective: GRPOConfig = GRPOConfig()
    update: UpdateConfig = UpdateConfig()
    optimizer: OptimizerConfig = OptimizerConfig(
        lr=3e-4, indexer_lr=1e-4, warmup_steps=5, weight_decay=0.0
    )
    reference: Label | None = None
    """Model folder of pi_ref; None: ``model``."""
    permute_rewards: bool = False
    """A control: rewards are shuffled within each group, so there is nothing to learn."""
    eval: HeldOutConfig = HeldOutConfig()
    save_every: int = Field(default=25, ge=1)
    """Steps between checkpoints."""
    seed: Whole = 0
    trust: bool = False
    """The dataset's code was written or read by the user: it may run without isolation."""

    @model_validator(mode="after")
    def _reference_repeats_key_sets(self) -> Self:
        if (
            self.objective.kl_coef > 0
            and self.objective.keep_topk
            and not self.sampling.capture_topk
        ):
            # Otherwise pi_ref would choose its own, and the KL were not 0 where the two agree.
            sampling = self.sampling.model_copy(update={"capture_topk": True})
            object.__setattr__(self, "sampling", sampling)
        return self
