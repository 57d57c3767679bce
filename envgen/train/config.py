"""The settings of training: the configs of the cold start and of GRPO, with all their parts.

Nothing here imports PyTorch, so the command line can read a config and show its help without it.
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
from envgen.verifiers.rubrics.config import RubricJudgeConfig

if TYPE_CHECKING:
    from envgen.model.attention import IndexLoss


class ParallelConfig(Record):
    """How many processes train, and whether they shard the model; part of a run's config."""

    processes: int = Field(default=1, ge=1)
    """Processes that share every batch; with GPUs, each process needs one."""
    sharding: Literal["none", "fsdp"] = "none"
    """fsdp: each process keeps a shard of the weights, gradients and optimiser state, for models that don't
    fit on one device in training. none: each process holds the whole model, which is faster if it fits. The
    inference engine and pi_ref are whole in each process either way."""
    device: Line = "cpu"

    @model_validator(mode="after")
    def _several_to_share(self) -> Self:
        if self.sharding == "fsdp" and self.processes == 1:
            raise ValueError("sharding=fsdp needs processes=2 or more to shard the model over")
        return self


class OptimizerConfig(Record):
    """AdamW (Loshchilov & Hutter 2019), or Muon for matrices; linear warm-up, optional cosine decay."""

    kind: Literal["adamw", "muon"] = "adamw"
    """muon: Muon updates the trunk's weight matrices, AdamW everything else."""
    muon_lr: float = Field(default=2e-2, gt=0)
    """Learning rate of the weights that Muon updates."""
    lr: float = Field(default=1e-3, gt=0)
    """Learning rate of the weights that AdamW updates."""
    warmup_steps: int = Field(default=20, ge=0)
    """Steps over which the learning rate rises linearly from 0."""
    total_steps: int | None = Field(default=None, ge=1)
    """Step at which the cosine schedule reaches ``final``; None: the learning rate stays constant."""
    final: float = Field(default=0.1, ge=0, le=1)
    """Learning rate at ``total_steps``, as a share of ``lr``."""
    beta1: float = Field(default=0.9, ge=0, lt=1)
    """AdamW's decay of the first moment."""
    beta2: float = Field(default=0.95, ge=0, lt=1)
    """AdamW's decay of the second moment."""
    weight_decay: float = Field(default=0.01, ge=0)
    """Weight decay of the trunk's matrices; vectors and the indexer have none."""
    clip_norm: float = Field(default=1.0, gt=0)
    """Clip the gradient norms of trunk and indexer, each by itself, to this."""
    indexer: Literal["eq4", "frozen"] = "eq4"
    """eq4: the indexer keeps learning the attention distribution, as in the paper's sparse stage."""
    indexer_lr: float = Field(default=1e-3, gt=0)
    """Learning rate of the indexer."""

    def rate(self, step: int) -> float:
        """Return the factor of the learning rate in step ``step`` (from 0)."""
        ramp = min(1.0, (step + 1) / self.warmup_steps) if self.warmup_steps else 1.0
        if self.total_steps is None:
            return ramp
        done = min(1.0, step / self.total_steps)
        return ramp * (self.final + (1 - self.final) * (1 + math.cos(math.pi * done)) / 2)


class SFTConfig(Record):
    """Weights of the supervised loss."""

    context_weight: float = Field(default=0.0, ge=0, le=1)
    """Loss weight of tokens that the model does not write (prompts, tool results); 0 masks them out."""


class ColdStartConfig(ParallelConfig):
    """A cold start: the teachers, the model that learns from them, and the training settings."""

    data: Label
    """The dataset whose tasks the teachers play."""
    rollouts: tuple[Label, ...] = ()
    """Run folders of ``envgen rollout`` to learn from."""
    teachers: tuple[Label, ...] = ()
    """Policies to play every task with first; their runs go into ``teachers/`` of the run's folder."""
    episodes: int = Field(default=1, ge=1)
    """Episodes that each of ``teachers`` plays of every task. Episodes of one task share a prefix, which is
    run once, so several answers to one question cost little."""
    weights: tuple[Annotated[float, Field(gt=0)], ...] = ()
    """Loss weight of a token, one for each of ``rollouts`` and then of ``teachers``: with 0.4 for gold and
    0.6 for a heuristic, the student agrees with gold four times in ten where the two differ. Empty: 1."""
    split: Literal["train", "validation", "test"] | None = "train"
    """Learn from tasks of this split only; None: every task."""
    model: Line
    """Model folder to start from."""
    attention: Literal["sparse", "dense"] = "sparse"
    """dense: attend to all keys, as in a model's first stage and in the indexer's warm-up."""
    trunk: Literal["learns", "frozen"] = "learns"
    """frozen: only the indexer learns; with dense attention this is its warm-up (paper, eq. 3)."""
    passed_only: bool = False
    """Learn only from rollouts that passed; by default teachers' mistakes are learnt, too."""
    epochs: float = Field(default=1.0, gt=0)
    """Passes over the rows."""
    tokens_per_batch: int = Field(default=4_096, ge=1)
    """Tokens of one optimiser step, padding included."""
    pack_tokens: int = Field(default=512, ge=0)
    """Most tokens of a pack of rows that share a prefix; 0: rows share no packs. See ``packing``."""
    sft: SFTConfig = SFTConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    """Optimiser settings; the run sets ``total_steps`` so that the cosine ends with the last step."""
    router_bias_rate: float = Field(default=1e-3, ge=0)
    """Update size of the router's load-balancing bias after each step; 0 freezes it."""
    index_loss_weight: float = Field(default=1.0, gt=0)
    """Weight of the indexer's loss, beside the language-modelling loss."""
    validation_rows: int = Field(default=64, ge=0)
    """Rows held out to measure the loss on."""
    save_every: int = Field(default=200, ge=1)
    """Steps between checkpoints."""
    seed: Whole = 0
    trust: bool = False
    """The dataset's code was written or read by the user: it may run without isolation."""

    @property
    def index_loss(self) -> IndexLoss | None:
        """The indexer's loss: eq. 4 with sparse attention, eq. 3 with dense attention; None if frozen."""
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
            raise ValueError(
                "no rollouts to learn from: name run folders, or teachers such as gold"
            )
        if self.weights and len(self.weights) != len(self.rollouts) + len(self.teachers):
            raise ValueError(
                f"{len(self.weights)} weights for {len(self.rollouts)} rollouts and "
                f"{len(self.teachers)} teachers; give one for each"
            )
        if self.trunk == "frozen" and self.optimizer.indexer == "frozen":
            raise ValueError("trunk and indexer are both frozen: nothing would be learnt")
        return self


class SamplingConfig(Record):
    """How rollouts are sampled."""

    groups: int = Field(default=16, ge=1)
    """Tasks per step."""
    group_size: int = Field(default=8, ge=2)
    """G, the rollouts of each task."""
    temperature: float = Field(default=1.0, gt=0)
    """Sampling temperature; above 0, because greedy replies have no probabilities to learn from."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Nucleus sampling: keep the most probable tokens whose mass reaches this."""
    top_k: Whole = -1
    """Sample among the k most probable tokens; -1: among all."""
    max_kept: int | None = Field(default=None, ge=1)
    """Limit on the tokens that top-p and top-k keep, so that sampling masks stay small."""
    max_new_tokens: int = Field(default=256, ge=1)
    """Most tokens of one reply."""
    max_turns: int | None = Field(default=None, ge=1)
    """Most replies of a rollout; None: as many as its task allows. A policy that goes astray may otherwise
    call tools in vain to the end, and one such rollout takes longer to learn from than a hundred others."""
    concurrency: int | None = Field(default=None, ge=1)
    """Episodes whose tools and verifiers run at the same time; the other open episodes of the step wait. It
    changes no result. None: one per core, at least 4. Raise it if tools mostly wait; lower it if each one
    takes much memory (the tests of a code task take up to its recipe's ``memory_bytes``)."""
    max_batch: int = Field(default=128, ge=1)
    """Most replies that the engine decodes in one batch."""
    cache_tokens: int | None = Field(default=None, ge=1)
    """Size of the engine's cache in tokens; None: ``max_batch`` times 1,024, or times a smaller window."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Precision of the engine; at bfloat16 it has its own weights, copied from the trainer's every step."""
    index_fp8: bool | None = None
    """Round the engine's index queries and keys to e4m3, as inference servers do; None: as the model says."""
    capture_topk: bool = True
    """Record the key sets of sparse attention, so that training attends to the same keys: rounding decides
    between nearly equal index scores. Takes 4 bytes per token, layer and key: off for large models."""
    style: Style | None = None
    """Prompting style in the system message, the one of the cold start; see ``policies.styles``."""
    backend: WorkerBackend = "auto"
    """Where the environments' code runs; ``inline`` is the fastest, for tasks generated on this machine."""


class GRPOConfig(Record):
    """The GRPO objective; ``docs/training.md`` says which defaults are the paper's and which are ours."""

    advantage: Literal["mean", "std", "none"] = "mean"
    """mean: A_i = R_i - mean(R) (eq. 5). std: also divide by the group's standard deviation (Shao et al.
    2024), as TRL does. none: A_i = R_i; with rewards of 0 and 1 this is online rejection sampling, which
    learns from passing rollouts only."""
    clip_low: float = Field(default=0.2, ge=0, lt=1)
    """Clip ratios below 1 - ``clip_low`` (eps of eq. 5)."""
    clip_high: float = Field(default=0.2, ge=0)
    """Clip ratios above 1 + ``clip_high``; larger than ``clip_low``: clip-higher (DAPO, Yu et al. 2025)."""
    loss: Literal["sequence", "token"] = "sequence"
    """sequence: mean over rollouts of the means over their tokens (eq. 5). token: mean over all tokens
    (DAPO)."""
    kl_coef: float = Field(default=0.0, ge=0)
    """beta of eq. 5. The paper: domains differ; mathematics does well with little or none."""
    kl_form: Literal["unbiased", "k3"] = "unbiased"
    """unbiased: eq. 7. k3: without the ratio; its gradient is not the KL's (for comparison)."""
    off_policy_mask: bool = True
    """Mask failed rollouts that have become unlikely (M of eq. 9)."""
    off_policy_delta: float = Field(default=0.1, gt=0)
    """delta of eq. 9, in nats per token. The divergence that it limits has two causes: updates since the
    rollout, and rounding between engine and trainer, which alone is ``policy/mismatch_p95``. The default
    was measured (Which delta, in ``docs/training.md``)."""
    keep_sampling_mask: bool = True
    """Renormalise over the tokens that top-p and top-k kept when the token was sampled."""
    keep_routing: bool = True
    """Replay the experts that the sampler's router chose."""
    keep_topk: bool = True
    """Replay the sampler's recorded key sets of sparse attention; ours, not in the paper."""
    old: Literal["sampler", "recomputed"] = "sampler"
    """pi_old of eq. 6. sampler: the engine's probabilities. recomputed: the trainer's before the first update
    (PPO's form)."""
    tis_cap: float | None = Field(default=None, gt=0)
    """Truncated importance sampling: weight tokens by min(pi_recomputed / pi_sampler, cap)."""
    zero_variance: Literal["keep", "drop"] = "keep"
    """drop: leave groups with equal rewards out of sums and denominators."""

    @model_validator(mode="after")
    def _tis_needs_recomputed(self) -> Self:
        if self.tis_cap is not None and self.old == "sampler":
            raise ValueError(
                'tis_cap corrects from recomputed to sampler probabilities: it needs old="recomputed"'
            )
        return self


class UpdateConfig(Record):
    """How the trainer learns from a batch of rollouts."""

    mini_batches: int = Field(default=1, ge=1)
    """Optimiser steps per batch; from the second on, training is off-policy."""
    part_tokens: int = Field(default=16_384, ge=1)
    """Tokens of one forward and backward pass, shared prefixes counted once; gradients accumulate."""
    pack_tokens: int = Field(default=512, ge=1)
    """Most tokens of a pack of rows that share a prefix; ``packing`` allows more for longer rows."""
    index_loss_weight: float = Field(default=1.0, gt=0)
    """Weight of the indexer's loss (eq. 4), beside the objective."""
    router_bias_rate: float = Field(default=0.0, ge=0)
    """Update size of the router's load-balancing bias; frozen by default, so that replayed routes stay
    likely."""


class HeldOutConfig(Record):
    """The held-out tasks of a run, and when they are evaluated."""

    every: int | None = Field(default=None, ge=1)
    """Evaluate every so many steps, and before the first and after the last one; None: never."""
    data: Label | None = None
    """The dataset of the held-out tasks; None: the training dataset."""
    split: Literal["train", "validation", "test"] | None = "test"
    """Evaluate tasks of this split only; None: of every split."""
    tasks: int | None = Field(default=64, ge=1)
    """Number of tasks, drawn once; None: all."""
    temperature: float = Field(default=0.0, ge=0)
    """Sampling temperature; 0 is greedy."""


class TrainGRPOConfig(ParallelConfig):
    """A GRPO run: the tasks, the model, and the settings of each part of a step."""

    data: Label
    """The dataset whose tasks are played."""
    model: Line
    """Model folder to start from."""
    split: Literal["train", "validation", "test"] | None = "train"
    """Play tasks of this split only; None: every task."""
    task_ids: tuple[Label, ...] | None = None
    """Play these tasks only; None: all tasks of the split, variants included."""
    steps: int = Field(default=100, ge=1)
    """Steps; each samples a batch of rollouts and learns from it."""
    sampling: SamplingConfig = SamplingConfig()
    tasks: TaskSamplerConfig = TaskSamplerConfig()
    rewards: RewardConfig = RewardConfig()
    judge: RubricJudgeConfig | None = None
    """Who scores answers to open questions; it must have passed `envgen test-judge`."""
    objective: GRPOConfig = GRPOConfig()
    update: UpdateConfig = UpdateConfig()
    optimizer: OptimizerConfig = OptimizerConfig(
        lr=3e-4, indexer_lr=1e-4, warmup_steps=5, weight_decay=0.0
    )
    reference: Label | None = None
    """Model folder of pi_ref; None: ``model``."""
    permute_rewards: bool = False
    """A control experiment: shuffle rewards within each group, so there is nothing to learn."""
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
            # Otherwise pi_ref would choose its own keys, and the KL of equal policies would not be 0.
            sampling = self.sampling.model_copy(update={"capture_topk": True})
            object.__setattr__(self, "sampling", sampling)
        return self
