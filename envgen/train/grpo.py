"""Group relative policy optimisation as DeepSeek-V3.2 states it (section 3.1), token by token.

For a question, G rollouts o_i are sampled from pi_old; rewards R_i give advantages A_i.

    A_i = R_i - mean_j R_j                                                               no deviation
    r_it = pi_theta(o_it) / pi_old(o_it)                                                         (6)
    D_it = r_it * (pi_ref / pi_theta - log(pi_ref / pi_theta) - 1)                  unbiased KL  (7)
    M_i = 0 if A_i < 0 and mean_t log(pi_old / pi_theta) > delta, else 1       off-policy mask   (9)
    J = 1/G sum_i 1/|o_i| sum_t [ M_i min(r A_i, clip(r, 1 - eps, 1 + eps) A_i) - beta D_it ]    (8)

Each part is a switch. The forms that are the default are the paper's; eps, beta and delta, which it gives no
values of, and the repeating of key sets are ours. A table in ``docs/training.md`` has all of them.

What the symbols are here:

* o_i is a whole rollout: all tokens that the model wrote in all its turns. A rollout that fills several rows
  (a new user turn or a context reset re-rendered its past) has one A, one |o_i| and one mean in (9).
* pi_old is what the sampler said, at sampling temperature and after truncation (``old="sampler"``), so r and
  (9) see both several updates a batch and the difference between engine and trainer. With
  ``old="recomputed"`` the surrogate's r sees the updates only; (7) and (9) go on looking at the sampler.
* pi_theta and pi_ref are renormalised on the sampler's own support (keep sampling mask) and repeat its expert
  and key choices (keep routing); that happens where log-probabilities are made (``scoring.py``).

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
"""Added to a group's deviation, as in TRL."""


def advantages(reward_I: Tensor, group_I: Tensor, config: GRPOConfig) -> Tensor:
    """A_i of the objective, in the form that ``config.advantage`` names: [I].

    Args:
        reward_I: float32 [I].
        group_I: int64 [I], number of each rollout's group, 0 .. groups - 1.
        config: of the objective.

    Raises:
        ValueError: as ``group_advantages``.
    """
    if config.advantage == "none":
        return reward_I
    return group_advantages(reward_I, group_I, normalize_std=config.advantage == "std")


def group_advantages(rewards_I: Tensor, group_I: Tensor, *, normalize_std: bool = False) -> Tensor:
    """Centre rewards within each group; the group's mean is the baseline.

    Args:
        rewards_I: float32 [I].
        group_I: int64 [I], number of each rollout's group, 0 .. groups - 1.
        normalize_std: also divide by the group's standard deviation + 1e-4; the variance is unbiased, over
            one less than the group's size.

    Returns:
        Advantages [I]; exactly 0 in a group of equal rewards.

    Raises:
        ValueError: if a reward is not finite or a group has one rollout only.
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
    centred[~varied(rewards_I, group_I)] = 0.0
    if normalize_std:
        squares = torch.zeros_like(count).index_add_(0, group_I, centred**2)
        deviation = (squares / (count - 1).clamp_min(1)).sqrt()
        centred = centred / (deviation[group_I] + STD_FLOOR)
    return centred.to(rewards_I.dtype)


def varied(rewards_I: Tensor, group_I: Tensor) -> Tensor:
    """Whether each rollout's group holds different rewards: bool [I]."""
    groups = int(group_I.max()) + 1
    low = rewards_I.new_full((groups,), float("inf")).scatter_reduce_(0, group_I, rewards_I, "amin")
    high = rewards_I.new_full((groups,), float("-inf")).scatter_reduce_(
        0, group_I, rewards_I, "amax"
    )
    return (high > low)[group_I]


@dataclass(frozen=True)
class TokenBatch:
    """Model tokens of whole rollouts, in one long row.

    A mini-batch may be run in parts, whose losses and gradients add up: ``weight_I`` is of the mini-batch.
    """

    logp_N: Tensor
    """log pi_theta, with gradient."""
    old_N: Tensor
    """log pi_old."""
    rollout_N: Tensor
    """int64: whose token it is."""
    advantage_I: Tensor
    length_I: Tensor
    """|o_i|: all model tokens of the rollout."""
    weight_I: Tensor
    """What each token of a rollout counts; see ``token_weights``."""
    ref_N: Tensor | None = None
    """log pi_ref; needed with ``kl_coef`` > 0."""
    sampler_N: Tensor | None = None
    """log-probabilities of the sampler, where ``old_N`` is not that; (7) and (9) look at these."""
    kl_scale_I: Tensor | None = None
    """What ``kl_coef`` is multiplied by for each rollout, where domains differ; None: 1."""

    @property
    def said_N(self) -> Tensor:
        """Log-probabilities of the distribution that the tokens were drawn from: the engine's."""
        return self.old_N if self.sampler_N is None else self.sampler_N


@dataclass(frozen=True)
class Loss:
    """The loss and what to watch."""

    loss: Tensor
    """-J: a scalar."""
    kl_N: Tensor | None
    """(7) per token, detached."""
    ratio_N: Tensor
    masked_I: Tensor
    """bool: M = 0."""
    clipped_N: Tensor
    """bool: the clip is what counts."""


def off_policy_mask(batch: TokenBatch, config: GRPOConfig) -> Tensor:
    """Where M of (9) is 0: strictly negative advantage and strictly more divergence than delta. bool [I]."""
    return (batch.advantage_I < 0) & (divergence(batch) > config.off_policy_delta)


def divergence(batch: TokenBatch) -> Tensor:
    """mean_t log(pi_old / pi_theta) of each rollout, what (9) looks at: [I], detached.

    pi_old is what the inference engine said, also where r is of recomputed probabilities: what is stale and
    what engine and trainer differ by both count.
    """
    return rollout_mean((batch.said_N - batch.logp_N).detach(), batch)


def grpo_loss(batch: TokenBatch, config: GRPOConfig, masked_I: Tensor) -> Loss:
    """-J of (8) over a batch of whole rollouts.

    Args:
        batch: all tokens of its rollouts; a rollout may not be split, for (9) looks at all of it.
        config: the objective.
        masked_I: where M is 0, such as ``off_policy_mask(batch, config)``.
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

    # M multiplies the surrogate only: a masked rollout is still pulled to pi_ref.
    objective_N, kl_N = surrogate_N, None
    if config.kl_coef > 0:
        assert batch.ref_N is not None
        kl_N = kl_estimate(batch.logp_N, batch.ref_N, batch.said_N, config.kl_form)
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
    logp_N: Tensor, ref_N: Tensor, said_N: Tensor, form: Literal["unbiased", "k3"]
) -> Tensor:
    """(7): K3 times r, which stays in the graph, also where its value is 1.

    Tokens come from the sampler, so E[r * K3] = KL(pi_theta || pi_ref), and the gradients are equal, only if
    r is pi_theta over what the sampler said, whatever ``old`` the surrogate's ratio has.
    """
    log_gap_N = ref_N - logp_N
    if form == "k3":
        return log_gap_N.exp() - log_gap_N - 1
    # r pi_ref / pi_theta = pi_ref / pi_old: as one exponential it can't overflow where pi_theta vanishes.
    return (ref_N - said_N).exp() - (logp_N - said_N).exp() * (log_gap_N + 1)


def token_weights(length_I: Tensor, rollouts: float, tokens: float, config: GRPOConfig) -> Tensor:
    """What each token of a rollout counts in a mini-batch: [I].

    sequence: 1/G 1/|o_i|, G over all groups. token: one over the number of all tokens.

    Args:
        length_I: |o_i|.
        rollouts: how many were sampled for the mini-batch, those of equal rewards too.
        tokens: of all these.
        config: which of the two.
    """
    if config.loss == "sequence":
        return 1 / (rollouts * length_I)
    return torch.full_like(length_I, 1 / tokens)


def rollout_mean(values_N: Tensor, batch: TokenBatch) -> Tensor:
    """Mean over each rollout's tokens: [I]; the denominator is |o_i|."""
    sums_I = values_N.new_zeros(len(batch.length_I)).index_add_(0, batch.rollout_N, values_N)
    return sums_I / batch.length_I


Advantages = Callable[[Tensor, Tensor, GRPOConfig], Tensor]
"""Like ``advantages``: (float32 rewards [I], int64 groups [I], config) to float32 [I]."""
Mask = Callable[[TokenBatch, GRPOConfig], Tensor]
"""Like ``off_policy_mask``: bool [I], True where a rollout's surrogate is left out."""
LossFunction = Callable[[TokenBatch, GRPOConfig, Tensor], Loss]
"""Like ``grpo_loss``: given the mask, too. The losses of the parts of a mini-batch are added up."""
