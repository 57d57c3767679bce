"""What stops a run: losses and gradients that are not finite, or that explode."""

from __future__ import annotations

import pytest
import torch

from envgen.model.config import preset
from envgen.model.modeling import DSAForCausalLM
from envgen.train.config import OptimizerConfig
from envgen.train.optimize import EXPLODED, DivergedError, Optimizer, require_finite


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 2 * EXPLODED, -2 * EXPLODED])
def test_a_loss_that_exploded_is_told(value: float) -> None:
    with pytest.raises(DivergedError, match=r"the loss is .* in step 7"):
        require_finite(torch.tensor(value), 7)


def test_an_ordinary_loss_passes() -> None:
    assert require_finite(torch.tensor(-3.5), 7) == -3.5


@pytest.mark.parametrize("size", [float("nan"), float("inf"), 10 * EXPLODED])
@pytest.mark.parametrize("part", ["trunk", "indexer"])
def test_nothing_moves_by_a_gradient_that_exploded(size: float, part: str) -> None:
    model = DSAForCausalLM(preset("tiny", num_hidden_layers=2, vocab_size=32)).requires_grad_(True)
    optimizer = Optimizer(model, OptimizerConfig(warmup_steps=0))
    for weight in optimizer.weights:
        weight.grad = torch.full_like(weight, 1e-4)
    parts = {"trunk": model.trunk_parameters(), "indexer": model.indexer_parameters()}
    bad = next(iter(parts[part])).grad
    assert bad is not None
    bad.view(-1)[0] = size
    before = [weight.detach().clone() for weight in optimizer.weights]
    with pytest.raises(DivergedError, match=rf"the norm of the {part}'s gradient is .* in step 3"):
        optimizer.step(3)
    for old, new in zip(before, optimizer.weights, strict=True):
        assert torch.equal(old, new)
    assert bad is not None
    bad.view(-1)[0] = 1e-4
    optimizer.step(3)
    assert not torch.equal(before[0], optimizer.weights[0])
