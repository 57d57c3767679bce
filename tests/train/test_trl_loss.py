"""The objective against TRL's trainer on what both have (``ed6a918:benchmarks/trl_loss.py`` asked TRL)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from envgen.train.config import GRPOConfig
from envgen.train.grpo import (
    Loss,
    TokenBatch,
    group_advantages,
    grpo_loss,
    off_policy_mask,
    token_weights,
)

PEER = json.loads((Path(__file__).parents[1] / "data" / "trl_loss.json").read_text())
ROLLOUTS = PEER["rollouts"]
CASES = PEER["cases"]


def config_of(settings: dict[str, Any]) -> GRPOConfig:
    """TRL's settings in our words."""
    high = settings["epsilon_high"]
    return GRPOConfig(
        advantage="mean" if settings["scale_rewards"] == "none" else "std",
        clip_low=settings["epsilon"],
        clip_high=settings["epsilon"] if high is None else high,
        loss="sequence" if settings["loss_type"] == "grpo" else "token",
        kl_coef=settings["beta"],
        kl_form="unbiased" if settings["use_bias_correction_kl"] else "k3",
        off_policy_mask=settings["off_policy_mask_threshold"] is not None,
        off_policy_delta=settings["off_policy_mask_threshold"] or 1.0,
        old="recomputed",
        tis_cap=settings["tis_cap"],
    )


def tokens(name: str) -> Tensor:
    """What is given of the tokens that the model wrote, rollout by rollout: float32 [N]."""
    return torch.tensor(
        [
            value
            for one in ROLLOUTS
            for value, written in zip(one[name], one["written"], strict=True)
            if written
        ]
    )


def advantages(config: GRPOConfig) -> Tensor:
    rewards = torch.tensor([one["reward"] for one in ROLLOUTS])
    group = torch.arange(len(ROLLOUTS)) // PEER["group_size"]
    return group_advantages(rewards, group, normalize_std=config.advantage == "std")


def batch_of(config: GRPOConfig) -> TokenBatch:
    length_I = torch.tensor([float(sum(one["written"])) for one in ROLLOUTS])
    return TokenBatch(
        logp_N=tokens("policy").requires_grad_(),
        old_N=tokens("old"),
        rollout_N=torch.repeat_interleave(torch.arange(len(ROLLOUTS)), length_I.long()),
        advantage_I=advantages(config),
        length_I=length_I,
        weight_I=token_weights(length_I, len(ROLLOUTS), float(length_I.sum()), config),
        ref_N=tokens("reference"),
        sampler_N=None if config.tis_cap is None else tokens("sampler"),
    )


def ours(case: dict[str, Any]) -> tuple[Loss, TokenBatch]:
    """Our loss; of KL beside recomputed probabilities with TRL's ratio, which is not the sampler's."""
    config = config_of(case["settings"])
    batch = batch_of(config)
    masked = off_policy_mask(batch, config)
    if config.tis_cap is None or not config.kl_coef:
        return grpo_loss(batch, config, masked), batch
    found = grpo_loss(batch, config.model_copy(update={"kl_coef": 0.0}), masked)
    only_kl = replace(batch, sampler_N=None, advantage_I=torch.zeros_like(batch.advantage_I))
    kl = grpo_loss(only_kl, config.model_copy(update={"tis_cap": None}), masked)
    return replace(found, loss=found.loss + kl.loss), batch


@pytest.mark.parametrize("name", CASES)
def test_advantages_are_those_of_trl(name: str) -> None:
    case = CASES[name]
    expected = torch.tensor(case["advantages"])
    torch.testing.assert_close(
        advantages(config_of(case["settings"])), expected, rtol=1e-5, atol=1e-7
    )


@pytest.mark.parametrize("name", CASES)
def test_loss_and_gradient_are_those_of_trl(name: str) -> None:
    case = CASES[name]
    found, batch = ours(case)
    torch.testing.assert_close(found.loss, torch.tensor(case["loss"]), rtol=1e-5, atol=1e-6)
    (gradient_N,) = torch.autograd.grad(found.loss, batch.logp_N)
    expected: list[float] = []
    elsewhere: list[float] = []
    for one, row in zip(ROLLOUTS, case["gradients"], strict=True):
        for value, written in zip(row, one["written"], strict=True):
            (expected if written else elsewhere).append(value)
    torch.testing.assert_close(gradient_N, torch.tensor(expected), rtol=1e-5, atol=1e-7)
    assert set(elsewhere) == {0.0}  # the environment's tokens


def test_the_given_rollouts_reach_what_is_compared() -> None:
    """Clipped on either side, masked and not, groups with and without a difference."""
    masked, batch = ours(CASES["off-policy mask"])
    advantage_N = batch.advantage_I[batch.rollout_N]
    assert (masked.clipped_N & (advantage_N > 0) & (masked.ratio_N > 1.28)).any()
    assert (masked.clipped_N & (advantage_N < 0) & (masked.ratio_N < 0.8)).any()
    negative = int((batch.advantage_I < 0).sum())
    assert 0 < int(masked.masked_I.sum()) < negative
    assert (batch.advantage_I == 0).sum() == PEER["group_size"]
    mask_by_sampler, _ = ours(CASES["tis, mask, kl"])
    assert not torch.equal(mask_by_sampler.masked_I, masked.masked_I)
    ratio_N = (tokens("old") - tokens("sampler")).exp()
    cap = CASES["tis"]["settings"]["tis_cap"]
    assert (ratio_N > cap).any()
    assert (ratio_N < cap).any()
    assert len({case["loss"] for case in CASES.values()}) == len(CASES)
