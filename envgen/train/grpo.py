"""Group relative policy optimisation as DeepSeek-V3.2 states it (section 3.1), token by token.

For each question, pi_old samples G rollouts o_i, whose rewards R_i give the advantages A_i.

    A_i = R_i - mean_j R_j                                          not divided by a deviation   (5)
    r_it = pi_theta(o_it) / pi_old(o_it)                                                         (6)
    D_it = r_it * (pi_ref / pi_theta - log(pi_ref / pi_theta) - 1)                  unbiased KL  (7)
    M_i = 0 if A_i < 0 and mean_t log(pi_old / pi_theta) > delta, else 1       off-policy mask   (9)
    J = 1/G sum_i 1/|o_i| sum_t [ M_i min(r A_i, clip(r, 1 - eps, 1 + eps) A_i) - beta D_it ]    (8)

Each part is a switch whose default is the paper's form. The paper gives no values of eps, beta and delta;
they are ours, and so is replaying key sets. A table in ``docs/training.md`` lists all switches.

The symbols:

* o_i is a whole rollout: all tokens that the model wrote, in all its turns. A rollout may fill several rows
  (a new user turn or a context reset renders its past again); it still has one A, one |o_i| and one mean in
  (9).
* pi_old is the sampler's distribution, at its temperature and after truncation (``old="sampler"``). So r and
  (9) measure both the updates since sampling and the mismatch between engine and trainer. With
  ``old="recomputed"``, r in the surrogate measures the updates only; (7) and (9) still use the sampler's.
* pi_theta and pi_ref are renormalised over the tokens that the sampler kept (keep sampling mask), and replay
  its expert and key choices (keep routing). ``scoring.py`` and the model's ``Replay`` do this.

Shapes: N model tokens of a mini-batch, I rollouts, in any number of groups.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from envgen.train.config import GRPOConfig

STD_FLOOR = 1e-4
"""Added to a group's standard deviation before dividing by it, as in TRL."""


def advantages(reward_I: Tensor, group_I: Tensor, config: GRPOConfig) -> Tensor:
    """Return the advantages A_i of (5), in the form that ``config.advantage`` names: [I].

    Args:
        reward_I: float32 [I].
        group_I: int64 [I], index of each rollout's group, 0 .. groups - 1.
        config: the objective.

    Raises:
        ValueError: as ``group_advantages``.
    """
    if config.advantage == "none":
        return reward_I
    return group_advantages(reward_I, group_I, normalize_std=config.advantage == "std")


def group_advantages(rewards_I: Tensor, group_I: Tensor, *, normalize_std: bool = False) -> Tensor:
    """Subtract the group's mean reward, GRPO's baseline (5), from each reward.

    Args:
        rewards_I: float32 [I].
        group_I: int64 [I], index of each rollout's group, 0 .. groups - 1.
        normalize_std: also divide by the group's sample standard deviation (with Bessel's correction)
            + ``STD_FLOOR``.

    Returns:
        Advantages [I]; exactly 0 in a group with equal rewards.

    Raises:
        ValueError: if a reward is not finite, or a group has a single rollout.
    """
    if not bool(torch.isfinite(rewards_I).all()):
        raise ValueError(f"rewards are not finite: {rewards_I.tolist()}")
    sizes = torch.bincount(group_I)
    if int(sizes[sizes > 0].min()) < 2:
        raise ValueError("a group needs two rollouts or more: one alone has no baseline")
    wide = rewards_I.double()
    count = sizes.double().clamp_min(1)
    mean = torch.zeros_like(count).index_add_(0, group_I, wide) / count
    centred = wide - mean[group_I]
    # The mean of equal rewards may differ from them in the last bit. What is left must be exactly 0, not
    # nearly: without a KL term, rollouts with advantage 0 are not run at all, and a crumb would be run for
    # nothing.
    centred[~varied(rewards_I, group_I)] = 0.0
    if normalize_std:
        squares = torch.zeros_like(count).index_add_(0, group_I, centred**2)
        deviation = (squares / (count - 1).clamp_min(1)).sqrt()
        centred = centred / (deviation[group_I] + STD_FLOOR)
    return centred.to(rewards_I.dtype)


def varied(rewards_I: Tensor, group_I: Tensor) -> Tensor:
    """Return whether the rewards of each rollout's group differ: bool [I]."""
    groups = int(group_I.max()) + 1
    low = rewards_I.new_full((groups,), float("inf")).scatter_reduce_(0, group_I, rewards_I, "amin")
    high = rewards_I.new_full((groups,), float("-inf")).scatter_reduce_(
        0, group_I, rewards_I, "amax"
    )
    return (high > low)[group_I]


@dataclass(frozen=True)
class TokenBatch:
    """The N tokens that the model wrote in I whole rollouts, concatenated.

    A mini-batch may be run in parts whose losses and gradients add up, so ``weight_I`` is normalised over
    the whole mini-batch.
    """

    logp_N: Tensor
    """log pi_theta, with gradient."""
    old_N: Tensor
    """log pi_old."""
    rollout_N: Tensor
    """int64: the rollout that each token belongs to, 0 .. I - 1."""
    advantage_I: Tensor
    length_I: Tensor
    """|o_i|: the number of model tokens of the rollout."""
    weight_I: Tensor
    """Loss weight of each token of a rollout; see ``token_weights``."""
    ref_N: Tensor | None = None
    """log pi_ref; needed with ``kl_coef`` > 0."""
    sampler_N: Tensor | None = None
    """The engine's log-probabilities, used by (7) and (9); None: ``old_N`` holds them."""
    kl_scale_I: Tensor | None = None
    """Factor of ``kl_coef`` for each rollout, for domains with their own; None: 1."""

    @property
    def behaviour_N(self) -> Tensor:
        """Log-probabilities of the behaviour policy, which drew the tokens: the engine's."""
        return self.old_N if self.sampler_N is None else self.sampler_N


@dataclass(frozen=True)
class Loss:
    """The loss, and tensors for metrics."""

    loss: Tensor
    """-J: a scalar."""
    kl_N: Tensor | None
    """D of (7) for each token, detached."""
    ratio_N: Tensor
    """r of (6), detached."""
    masked_I: Tensor
    """bool: M = 0."""
    clipped_N: Tensor
    """bool: the clipped term is the minimum, so the token has no gradient."""


def off_policy_mask(batch: TokenBatch, config: GRPOConfig) -> Tensor:
    """Return True for the rollouts whose M in (9) is 0: bool [I].

    Only rollouts with negative advantage are masked: pushing down a sequence that pi_theta hardly produces
    any more teaches little and destabilises training. Both comparisons are strict.
    """
    return (batch.advantage_I < 0) & (divergence(batch) > config.off_policy_delta)


def divergence(batch: TokenBatch) -> Tensor:
    """Return mean_t log(pi_old / pi_theta) of each rollout, the left side of (9): [I], in nats, detached.

    pi_old is the engine's distribution even if r uses recomputed probabilities, so that both stale rollouts
    and the mismatch between engine and trainer count.
    """
    return rollout_mean((batch.behaviour_N - batch.logp_N).detach(), batch)


def grpo_loss(batch: TokenBatch, config: GRPOConfig, masked_I: Tensor) -> Loss:
    """Compute -J of (8) over a batch of whole rollouts.

    Args:
        batch: all tokens of its rollouts; a rollout must not be split, because (9) is a mean over all of it.
        config: the objective.
        masked_I: bool [I], True where M is 0, such as ``off_policy_mask(batch, config)``.
    """
    ratio_N = (batch.logp_N - batch.old_N).exp()
    advantage_N = batch.advantage_I[batch.rollout_N]
    plain_N = ratio_N * advantage_N
    held_N = ratio_N.clamp(1 - config.clip_low, 1 + config.clip_high) * advantage_N
    surrogate_N = torch.minimum(plain_N, held_N)
    if config.tis_cap is not None:
        assert batch.sampler_N is not None
        surrogate_N = surrogate_N * (batch.old_N - batch.sampler_N).exp().clamp_max(config.tis_cap)
    if config.off_policy_mask:
        surrogate_N = surrogate_N.masked_fill(masked_I[batch.rollout_N], 0.0)

    # M multiplies the surrogate only: the KL term still pulls a masked rollout towards pi_ref.
    objective_N, kl_N = surrogate_N, None
    if config.kl_coef > 0:
        assert batch.ref_N is not None
        kl_N = kl_estimate(batch.logp_N, batch.ref_N, batch.behaviour_N, config.kl_form)
        if batch.kl_scale_I is not None:
            kl_N = kl_N * batch.kl_scale_I[batch.rollout_N]
        objective_N = surrogate_N - config.kl_coef * kl_N
    return Loss(
        loss=-(objective_N * batch.weight_I[batch.rollout_N]).sum(),
        kl_N=None if kl_N is None else kl_N.detach(),
        ratio_N=ratio_N.detach(),
        masked_I=masked_I,
        clipped_N=(held_N < plain_N).detach(),
    )


def kl_estimate(
    logp_N: Tensor, ref_N: Tensor, behaviour_N: Tensor, form: Literal["unbiased", "k3"]
) -> Tensor:
    """Estimate KL(pi_theta || pi_ref) per token by (7), r * K3, or by K3 alone (Schulman 2020): [N], nats.

    r stays in the graph: even where its value is 1, its gradient makes that of the estimate unbiased. The
    engine drew the tokens, so E[r * K3] = KL(pi_theta || pi_ref) only if r divides by the engine's
    probability, whatever ``old`` the surrogate's ratio uses.
    """
    log_gap_N = ref_N - logp_N
    if form == "k3":
        return log_gap_N.exp() - log_gap_N - 1
    # r pi_ref / pi_theta = pi_ref / pi_old: one exponential, which does not overflow as pi_theta vanishes.
    return (ref_N - behaviour_N).exp() - (logp_N - behaviour_N).exp() * (log_gap_N + 1)


def token_weights(length_I: Tensor, rollouts: float, tokens: float, config: GRPOConfig) -> Tensor:
    """Return the loss weight of each token of a rollout in a mini-batch: [I].

    sequence: 1/G 1/|o_i| of (5), where G counts the rollouts of all groups. token: 1 / ``tokens``.

    Args:
        length_I: |o_i|.
        rollouts: number of rollouts in the mini-batch, those with advantage 0 included.
        tokens: number of model tokens of these rollouts.
        config: chooses between the two.
    """
    if config.loss == "sequence":
        return 1 / (rollouts * length_I)
    return torch.full_like(length_I, 1 / tokens)


def rollout_mean(values_N: Tensor, batch: TokenBatch) -> Tensor:
    """Average over each rollout's tokens: [I]; the denominator is |o_i|."""
    sums_I = values_N.new_zeros(len(batch.length_I)).index_add_(0, batch.rollout_N, values_N)
    return sums_I / batch.length_I


Advantages = Callable[[Tensor, Tensor, GRPOConfig], Tensor]
"""The signature of ``advantages``: (float32 rewards [I], int64 groups [I], config) -> float32 [I]."""
Mask = Callable[[TokenBatch, GRPOConfig], Tensor]
"""The signature of ``off_policy_mask``: bool [I], True where a rollout's surrogate is left out."""
LossFunction = Callable[[TokenBatch, GRPOConfig, Tensor], Loss]
"""The signature of ``grpo_loss``; the third argument is the mask. Losses of a mini-batch's parts add up."""
