"""The objective against its equations, by exact enumeration over a small vocabulary."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from torch import Tensor

from envgen.train.config import GRPOConfig
from envgen.train.grpo import (
    Loss,
    TokenBatch,
    group_advantages,
    grpo_loss,
    kl_estimate,
    off_policy_mask,
    token_weights,
)

VOCABULARY = 7


def logits(seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(VOCABULARY, generator=generator, dtype=torch.float64)


def kl_gradient(theta: Tensor, old: Tensor, ref: Tensor, form: Literal["unbiased", "k3"]) -> Tensor:
    """The expectation over pi_old of the estimate's gradient: every outcome, weighted."""
    theta = theta.clone().requires_grad_()
    logp, logq = theta.log_softmax(-1), ref.log_softmax(-1)
    expected = (old.softmax(-1) * kl_estimate(logp, logq, old.log_softmax(-1), form)).sum()
    (gradient,) = torch.autograd.grad(expected, theta)
    return gradient


def exact_kl_gradient(theta: Tensor, ref: Tensor) -> Tensor:
    theta = theta.clone().requires_grad_()
    p = theta.softmax(-1)
    kl = (p * (theta.log_softmax(-1) - ref.log_softmax(-1))).sum()
    (gradient,) = torch.autograd.grad(kl, theta)
    return gradient


@pytest.mark.parametrize("on_policy", [True, False])
def test_unbiased_kl_has_the_gradient_of_the_kl(on_policy: bool) -> None:
    theta, ref = logits(1), logits(3)
    old = theta if on_policy else logits(2)
    found = kl_gradient(theta, old, ref, "unbiased")
    torch.testing.assert_close(found, exact_kl_gradient(theta, ref), rtol=0, atol=1e-14)


@pytest.mark.parametrize("on_policy", [True, False])
def test_plain_k3_does_not(on_policy: bool) -> None:
    theta, ref = logits(1), logits(3)
    old = theta if on_policy else logits(2)
    found = kl_gradient(theta, old, ref, "k3")
    assert (found - exact_kl_gradient(theta, ref)).abs().max() > 0.01


def test_a_detached_ratio_would_be_wrong() -> None:
    theta, ref = logits(1).requires_grad_(), logits(3)
    logp = theta.log_softmax(-1)
    ratio = (logp - logp.detach()).exp()
    k3 = kl_estimate(logp, ref.log_softmax(-1), logp.detach(), "k3")
    wrong = (theta.softmax(-1).detach() * ratio.detach() * k3).sum()
    (gradient,) = torch.autograd.grad(wrong, theta)
    assert (gradient - exact_kl_gradient(theta.detach(), ref)).abs().max() > 0.01


@given(st.lists(st.tuples(*[st.floats(-20, 0)] * 3), min_size=1, max_size=8))
def test_unbiased_kl_is_the_ratio_times_k3(drawn: list[tuple[float, float, float]]) -> None:
    logp, ref, sampled = torch.tensor(drawn, dtype=torch.float64).T
    logp = logp.clone().requires_grad_()
    plain = (logp - sampled).exp() * ((ref - logp).exp() - (ref - logp) - 1)
    found = kl_estimate(logp, ref, sampled, "unbiased")
    torch.testing.assert_close(found, plain, rtol=1e-6, atol=1e-6)
    (gradient,) = torch.autograd.grad(found.sum(), logp)
    # d/d logp of r (pi_ref / pi_theta - log(pi_ref / pi_theta) - 1) is -r log(pi_ref / pi_theta), by hand.
    ratio, gap = (logp - sampled).exp().detach(), (ref - logp).detach()
    torch.testing.assert_close(gradient / ratio, -gap, rtol=1e-13, atol=1e-13)


@given(
    rewards=st.lists(st.floats(-10, 10, width=32), min_size=2, max_size=8),
    others=st.lists(st.floats(-10, 10, width=32), min_size=2, max_size=8),
)
def test_advantages_are_centred_within_each_group(
    rewards: list[float], others: list[float]
) -> None:
    group = torch.tensor([0] * len(rewards) + [1] * len(others))
    found = group_advantages(torch.tensor(rewards + others), group)
    mean = sum(rewards) / len(rewards)
    expected = torch.tensor([reward - mean for reward in rewards])
    torch.testing.assert_close(found[: len(rewards)], expected, atol=1e-5, rtol=1e-5)
    if len(set(others)) == 1:
        assert not found[len(rewards) :].any()


def test_advantages_divide_by_the_deviation_only_when_told() -> None:
    rewards, group = torch.tensor([1.0, 0.0, 0.0, 0.0]), torch.zeros(4, dtype=torch.int64)
    assert group_advantages(rewards, group).tolist() == [0.75, -0.25, -0.25, -0.25]
    std = group_advantages(rewards, group, normalize_std=True)
    torch.testing.assert_close(std, torch.tensor([0.75, -0.25, -0.25, -0.25]) / (0.5 + 1e-4))


@pytest.mark.parametrize("rewards", [[float("nan"), 1.0], [float("inf"), 0.0]])
def test_rewards_must_be_finite(rewards: list[float]) -> None:
    with pytest.raises(ValueError, match="not finite"):
        group_advantages(torch.tensor(rewards), torch.tensor([0, 0]))


def test_a_group_of_one_is_refused() -> None:
    with pytest.raises(ValueError, match="two rollouts"):
        group_advantages(torch.tensor([1.0, 0.0, 1.0]), torch.tensor([0, 0, 1]))


def test_tis_needs_recomputed_probabilities() -> None:
    with pytest.raises(ValidationError, match="recomputed"):
        GRPOConfig(tis_cap=2.0)
    assert GRPOConfig(tis_cap=2.0, old="recomputed").tis_cap == 2.0


def batch_of(
    lengths: list[int],
    advantages: list[float],
    seed: int = 0,
    config: GRPOConfig = GRPOConfig(),  # noqa: B008
) -> TokenBatch:
    generator = torch.Generator().manual_seed(seed)
    total, rollouts = sum(lengths), len(lengths)
    length_I = torch.tensor(lengths, dtype=torch.float64)

    def draw() -> Tensor:
        return -torch.rand(total, generator=generator, dtype=torch.float64) - 0.5

    return TokenBatch(
        logp_N=draw().requires_grad_(),
        old_N=draw(),
        rollout_N=torch.repeat_interleave(torch.arange(rollouts), torch.tensor(lengths)),
        advantage_I=torch.tensor(advantages, dtype=torch.float64),
        length_I=length_I,
        weight_I=token_weights(length_I, len(length_I), float(length_I.sum()), config),
        ref_N=draw(),
        sampler_N=draw(),
    )


def slow_objective(batch: TokenBatch, config: GRPOConfig, delta: float) -> Tensor:
    """(5) to (9) as written, rollout by rollout and token by token."""
    total = torch.zeros((), dtype=torch.float64)
    assert batch.ref_N is not None
    assert batch.sampler_N is not None
    all_tokens, group = float(batch.length_I.sum()), len(batch.length_I)
    for i in range(len(batch.length_I)):
        own = [t for t in range(len(batch.old_N)) if batch.rollout_N[t] == i]
        advantage = batch.advantage_I[i]
        mean = sum(float(batch.sampler_N[t] - batch.logp_N[t].detach()) for t in own) / float(
            batch.length_I[i]
        )
        kept = not (config.off_policy_mask and advantage < 0 and mean > delta)
        inner = torch.zeros((), dtype=torch.float64)
        for t in own:
            ratio = torch.exp(batch.logp_N[t] - batch.old_N[t])
            held = torch.clamp(ratio, 1 - config.clip_low, 1 + config.clip_high)
            surrogate = torch.minimum(ratio * advantage, held * advantage)
            if config.tis_cap is not None:
                weight = torch.exp(batch.old_N[t] - batch.sampler_N[t])
                surrogate = surrogate * torch.clamp(weight, max=config.tis_cap)
            gap = batch.ref_N[t] - batch.logp_N[t]
            divergence = torch.exp(gap) - gap - 1
            if config.kl_form == "unbiased":  # the tokens are the sampler's
                divergence = torch.exp(batch.logp_N[t] - batch.sampler_N[t]) * divergence
            inner = inner + (surrogate if kept else 0.0) - config.kl_coef * divergence
        if config.loss == "sequence":
            total = total + inner / batch.length_I[i] / group
        else:
            total = total + inner / all_tokens
    return total


CONFIGS: list[dict[str, Any]] = [
    {},
    {"kl_coef": 0.1},
    {"kl_coef": 0.1, "kl_form": "k3"},
    {"off_policy_mask": False},
    {"clip_low": 0.2, "clip_high": 0.28},
    {"loss": "token", "kl_coef": 0.05},
    {"old": "recomputed", "tis_cap": 1.1},
    {"old": "recomputed", "kl_coef": 0.1},
]


@pytest.mark.parametrize("settings_", CONFIGS, ids=[",".join(c) or "paper" for c in CONFIGS])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_loss_and_gradient_equal_the_slow_reference(settings_: dict[str, Any], seed: int) -> None:
    config = GRPOConfig(off_policy_delta=0.02, **settings_)
    batch = batch_of([3, 1, 7, 4], [0.5, -0.5, 0.25, -0.25], seed, config)
    found = grpo_loss(batch, config, off_policy_mask(batch, config))
    expected = -slow_objective(batch, config, delta=0.02)
    torch.testing.assert_close(found.loss, expected)
    (ours,) = torch.autograd.grad(found.loss, batch.logp_N)
    (reference,) = torch.autograd.grad(expected, batch.logp_N)
    torch.testing.assert_close(ours, reference, atol=1e-12, rtol=1e-10)


@pytest.mark.parametrize("gap", [50.0, 100.0, 500.0])
def test_the_loss_is_finite_where_the_policy_has_vanished(gap: float) -> None:
    one = torch.ones(1)
    batch = TokenBatch(
        logp_N=(-1 - gap * one).requires_grad_(),
        old_N=-1.5 * one,
        rollout_N=torch.zeros(1, dtype=torch.int64),
        advantage_I=0 * one,
        length_I=one,
        weight_I=one,
        ref_N=-one,
    )
    found = grpo_loss(batch, GRPOConfig(kl_coef=1.0), torch.tensor([False]))
    torch.testing.assert_close(found.loss.detach(), torch.tensor(0.5).exp())
    (gradient,) = torch.autograd.grad(found.loss, batch.logp_N)
    assert gradient.abs().item() < 1e-15


def masked(batch: TokenBatch, delta: float, **changes: Any) -> Loss:
    config = GRPOConfig(kl_coef=0.1, off_policy_delta=delta, **changes)
    return grpo_loss(batch, config, off_policy_mask(batch, config))


def test_the_mask_takes_the_surrogate_and_leaves_the_kl() -> None:
    batch = batch_of([4, 4], [-1.0, 1.0])
    far = replace(batch, sampler_N=batch.logp_N.detach() + 1.0)
    found = masked(far, 0.5)
    assert found.masked_I.tolist() == [True, False]
    only_kl = grpo_loss(
        replace(far, advantage_I=torch.tensor([0.0, 1.0], dtype=torch.float64)),
        GRPOConfig(kl_coef=0.1, off_policy_mask=False),
        torch.tensor([True, True]),
    )
    torch.testing.assert_close(found.loss, only_kl.loss)


@settings(max_examples=50)
@given(advantage=st.sampled_from([-1.0, 0.0, 1.0]), above=st.sampled_from([-0.25, 0.0, 0.25]))
def test_the_mask_is_strict_on_both_sides(advantage: float, above: float) -> None:
    delta = 0.5
    batch = batch_of([4], [advantage])
    far = replace(batch, sampler_N=batch.logp_N.detach() + delta + above)
    found = off_policy_mask(far, GRPOConfig(off_policy_delta=delta))
    assert found.item() == (advantage < 0 and above > 0)


def test_splitting_a_rollout_into_rows_changes_nothing() -> None:
    """Rows only order tokens: one advantage, one length and one mean belong to the rollout."""
    batch = batch_of([6, 3], [-0.5, 0.5])
    order = torch.tensor([5, 0, 7, 1, 2, 8, 3, 4, 6])
    shuffled = replace(
        batch,
        logp_N=batch.logp_N.detach()[order].requires_grad_(),
        old_N=batch.old_N[order],
        ref_N=batch.ref_N[order] if batch.ref_N is not None else None,
        sampler_N=batch.sampler_N[order] if batch.sampler_N is not None else None,
        rollout_N=batch.rollout_N[order],
    )
    one, other = masked(batch, 0.01), masked(shuffled, 0.01)
    torch.testing.assert_close(one.loss, other.loss)
    (first,) = torch.autograd.grad(one.loss, batch.logp_N)
    (second,) = torch.autograd.grad(other.loss, shuffled.logp_N)
    torch.testing.assert_close(first[order], second)


def test_on_policy_the_gradient_is_the_policy_gradient() -> None:
    batch = batch_of([2, 5], [0.5, -0.5])
    same = replace(batch, old_N=batch.logp_N.detach(), sampler_N=None)
    config = GRPOConfig(off_policy_delta=0.01)
    found = grpo_loss(same, config, off_policy_mask(same, config))
    (gradient,) = torch.autograd.grad(found.loss, batch.logp_N)
    expected = -(same.advantage_I / same.length_I / 2)[same.rollout_N]
    torch.testing.assert_close(gradient, expected)
    assert not found.masked_I.any()
