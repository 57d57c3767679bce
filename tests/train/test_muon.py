"""Muon against PyTorch's, and what it leaves to AdamW."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from envgen.model.config import preset
from envgen.model.modeling import DSAForCausalLM
from envgen.train.config import OptimizerConfig
from envgen.train.muon import Muon, orthogonal
from envgen.train.optimize import Optimizer


@pytest.mark.parametrize("shape", [(48, 16), (16, 48), (32, 32)])
def test_steps_equal_pytorch_s_own_up_to_its_bfloat16(shape: tuple[int, int]) -> None:
    theirs = getattr(torch.optim, "Muon", None)
    if theirs is None:
        pytest.skip("this PyTorch has no Muon to compare with; 2.9 has")
    start = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    ours_w, theirs_w = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    ours_o = Muon([ours_w], 0.02, weight_decay=0.01)
    theirs_o = theirs([theirs_w], 0.02, weight_decay=0.01)
    generator = torch.Generator().manual_seed(1)
    for _ in range(5):
        gradient = torch.randn(shape, generator=generator)
        ours_w.grad, theirs_w.grad = gradient.clone(), gradient.clone()
        ours_o.step()
        theirs_o.step()
    moved = (theirs_w - start).norm()
    assert (ours_w - theirs_w).norm() < 0.03 * moved


@pytest.mark.parametrize("shape", [(3, 40, 8), (8, 40), (1, 5)])
def test_directions_end_equally_long(shape: tuple[int, ...]) -> None:
    found = orthogonal(torch.randn(shape, generator=torch.Generator().manual_seed(2)))
    values = torch.linalg.svdvals(found)
    assert values.min() > 0.6
    assert values.max() < 1.25


def test_embeddings_routers_and_vectors_are_adam_s() -> None:
    model = DSAForCausalLM(preset("tiny", vocab_size=32, num_hidden_layers=2))
    model.reset_parameters(0)
    optimizer = Optimizer(model, OptimizerConfig(kind="muon", lr=1e-9, muon_lr=0.1, warmup_steps=0))
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    logits = model(torch.randint(0, 32, (2, 8), generator=torch.Generator().manual_seed(3))).logits
    logits.square().mean().backward()
    optimizer.step(0)
    moved = {
        name
        for name, weight in model.named_parameters()
        if (weight - before[name]).abs().max() > 1e-4
    }
    assert "model.layers.0.self_attn.o_proj.weight" in moved
    assert any("experts" in name for name in moved)
    assert not {n for n in moved if "embed" in n or "lm_head" in n or "norm" in n or ".gate." in n}


def test_a_muon_run_goes_on_where_it_stopped() -> None:
    def fresh() -> tuple[DSAForCausalLM, Optimizer]:
        model = DSAForCausalLM(preset("tiny", vocab_size=32, num_hidden_layers=1))
        model.reset_parameters(0)
        return model, Optimizer(model, OptimizerConfig(kind="muon", warmup_steps=0))

    def learn(model: DSAForCausalLM, optimizer: Optimizer, step: int) -> None:
        generator = torch.Generator().manual_seed(step)
        ids = torch.randint(0, 32, (2, 8), generator=generator)
        optimizer.zero_grad()
        model(ids).logits.logsumexp(-1).mean().backward()
        optimizer.step(step)

    whole, whole_o = fresh()
    for step in range(4):
        learn(whole, whole_o, step)
    first, first_o = fresh()
    for step in range(2):
        learn(first, first_o, step)
    second, second_o = fresh()
    second.load_state_dict(first.state_dict())
    second_o.load(first_o.state())
    for step in range(2, 4):
        learn(second, second_o, step)
    for one, other in zip(whole.parameters(), second.parameters(), strict=True):
        assert torch.equal(one, other)
