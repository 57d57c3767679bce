"""What can be passed in instead of copied: advantages, mask, loss, packing, optimiser, model."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from students import School
from torch import Tensor, nn

from envgen.core.errors import ConfigError
from envgen.model.config import preset
from envgen.model.modeling import DSAForCausalLM
from envgen.train.config import (
    GRPOConfig,
    OptimizerConfig,
    SamplingConfig,
    TrainGRPOConfig,
    UpdateConfig,
)
from envgen.train.figures import Figures
from envgen.train.grpo import Loss, TokenBatch, grpo_loss, off_policy_mask
from envgen.train.grpo_run import train_grpo
from envgen.train.optimize import Norms, Optimizer
from envgen.train.packing import Ids, Packs, Shared, pack
from envgen.train.parallel import ranks
from envgen.train.rewards import RewardConfig
from envgen.train.rows import Row
from envgen.train.update import Parts, RolloutBatch, Updater

PROMPT = 12


class Outcome:
    """One update by four rollouts that share a prompt."""

    def __init__(self, parts: Parts) -> None:
        torch.manual_seed(0)
        model = parts.model(preset("tiny", vocab_size=60, num_hidden_layers=2))
        model.requires_grad_(True)
        before = [weight.detach().clone() for weight in model.parameters()]
        optimizer = parts.optimizer(
            model, OptimizerConfig(lr=1e-3, weight_decay=0.0, warmup_steps=0, indexer="frozen")
        )
        updater = Updater(model, optimizer, GRPOConfig(), UpdateConfig(), 1.0, parts=parts)
        self.figures: Figures = updater.update(_batch(model), Random(0))
        pairs = zip(before, model.parameters(), strict=True)
        self.moved = sum(float((a - b.detach()).abs().sum()) for a, b in pairs)


def _batch(model: DSAForCausalLM) -> RolloutBatch:
    shared, rows = torch.randint(0, 60, (PROMPT,)), []
    for i in range(4):
        ids = torch.cat((shared, torch.randint(0, 60, (8,))))
        with torch.no_grad():
            logp = model(ids.unsqueeze(0)).logits.float().log_softmax(-1)[0]
        old = logp[torch.arange(PROMPT - 1, PROMPT + 7), ids[PROMPT:]].numpy()
        rows.append(Row(i, ids.numpy().astype(np.int32), np.arange(PROMPT, PROMPT + 8), old))
    return RolloutBatch(
        rows, np.zeros(4, np.int64), np.array([1, 0, 1, 0], np.float32), np.full(4, 8)
    )


def no_advantage(reward_I: Tensor, group_I: Tensor, config: GRPOConfig) -> Tensor:
    return torch.zeros_like(reward_I)


def mask_all(batch: TokenBatch, config: GRPOConfig) -> Tensor:
    return torch.ones_like(batch.advantage_I, dtype=torch.bool)


def reinforce(batch: TokenBatch, config: GRPOConfig, masked_I: Tensor) -> Loss:
    """The policy gradient itself, without ratio and clip."""
    found = grpo_loss(batch, config, masked_I)
    weight_N = (batch.weight_I * batch.advantage_I)[batch.rollout_N]
    return Loss(
        -(batch.logp_N * weight_N).sum(), None, found.ratio_N, found.masked_I, found.clipped_N
    )


def apart(rows: Sequence[Ids], max_tokens: int, shared: Shared | None) -> Packs:
    return pack(rows, 0, shared)


class Still:
    """Looks at gradients and moves nothing."""

    trains_indexer = False

    def __init__(self, model: DSAForCausalLM, config: OptimizerConfig) -> None:
        self.weights: list[nn.Parameter] = model.trunk_parameters()

    def zero_grad(self) -> None:
        for weight in self.weights:
            weight.grad = None

    def step(self, step: int) -> Norms:
        squares = [float(w.grad.square().sum()) for w in self.weights if w.grad is not None]
        return Norms(sum(squares) ** 0.5, 0.0)

    def state(self) -> list[dict[str, Any]]:
        return []

    def load(self, state: list[dict[str, Any]]) -> None:
        pass


class Own(DSAForCausalLM):
    """A model of the user's."""


def test_each_part_does_what_it_is_for() -> None:
    paper = Outcome(Parts())
    assert paper.moved > 0
    assert paper.figures.tokens == 4 * 8
    assert paper.figures.tokens_run == PROMPT + 4 * 8
    idle = Outcome(Parts(advantages=no_advantage))
    assert (idle.moved, idle.figures.tokens) == (0, 0)
    masked = Outcome(Parts(mask=mask_all))
    assert masked.moved == 0
    assert masked.figures.masked == masked.figures.negatives == 2
    plain = Outcome(Parts(loss=reinforce))
    assert plain.figures.loss != pytest.approx(paper.figures.loss)
    assert plain.figures.norms[0] == pytest.approx(paper.figures.norms[0], rel=1e-4)  # on-policy
    unpacked = Outcome(Parts(pack=apart))
    assert unpacked.figures.tokens_run == 4 * (PROMPT + 8)
    assert unpacked.figures.norms[0] == pytest.approx(paper.figures.norms[0], rel=1e-4)
    still = Outcome(Parts(optimizer=Still))
    assert still.moved == 0
    assert still.figures.norms[0] == pytest.approx(paper.figures.norms[0], rel=1e-4)


@pytest.mark.xdist_group("school")
def test_a_run_uses_the_parts_it_is_given(taught: School, student: Path, tmp_path: Path) -> None:
    called: list[str] = []

    def mask(batch: TokenBatch, config: GRPOConfig) -> Tensor:
        called.append("mask")
        return off_policy_mask(batch, config)

    def optimizer(model: DSAForCausalLM, config: OptimizerConfig) -> Optimizer:
        called.append(type(model).__name__)
        return Optimizer(model, config)

    config = TrainGRPOConfig(
        data=str(taught.dataset),
        model=str(student),
        split=None,
        steps=1,
        sampling=SamplingConfig(groups=4, group_size=4, max_new_tokens=40),
        rewards=RewardConfig(length=0.0, language=0.0),
    )
    train_grpo(config, tmp_path / "own", parts=Parts(mask=mask, optimizer=optimizer, model=Own))
    assert called[0] == "Own"
    assert set(called[1:]) == {"mask"}
    several = config.model_copy(update={"processes": 2})
    with pytest.raises(ConfigError, match="other processes can't import a part"):
        train_grpo(several, tmp_path / "two", parts=Parts(mask=mask))


def test_what_the_main_script_defines_is_refused_for_several_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(ranks: object) -> None: ...

    work.__module__, work.__qualname__ = "__main__", "work"
    monkeypatch.setattr(sys.modules["__main__"], "work", work, raising=False)
    config = TrainGRPOConfig(data="d", model="m", processes=2)
    with pytest.raises(ConfigError, match="main script defines"), ranks(config, work, tmp_path):
        pass
