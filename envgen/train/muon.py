"""Muon (Jordan et al. 2024): momentum SGD whose update matrices are orthogonalised.

    M <- momentum M + G;   U = G + momentum M (Nesterov)
    W <- (1 - lr decay) W - lr sqrt(max(1, rows / columns)) NewtonSchulz5(U)

Every singular direction of a matrix moves equally far. It is for weights with two axes or more, of which the
last two are the matrix; AdamW updates embeddings and vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from envgen.train.sharding import like, whole

_A, _B, _C = 3.4445, -4.7750, 2.0315
"""Coefficients of the quintic iteration that drives singular values to about 1 (0.7 to 1.2)."""
_STEPS = 5


class Muon(torch.optim.Optimizer):
    """Muon with Nesterov momentum; the momentum is float32."""

    def __init__(
        self,
        weights: Iterable[nn.Parameter],
        lr: float,
        *,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(weights, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update every weight that has a gradient."""
        if closure is not None:
            raise ValueError("Muon takes no closure")
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    _move(weight, weight.grad, self.state[weight], group)


def _move(weight: Tensor, gradient: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
    if "momentum" not in state:
        state["momentum"] = torch.zeros_like(weight, dtype=torch.float32)
    gradient, momentum = gradient.float(), state["momentum"]
    momentum.lerp_(gradient, 1 - group["momentum"])
    # Orthogonalisation needs the whole matrix: the singular values of a shard are others.
    update = like(orthogonal(whole(gradient.lerp(momentum, group["momentum"]))), weight)
    rows, columns = weight.shape[-2:]
    weight.mul_(1 - group["lr"] * group["weight_decay"])
    weight.add_(update.to(weight.dtype), alpha=-group["lr"] * max(1.0, rows / columns) ** 0.5)


def orthogonal(matrix: Tensor) -> Tensor:
    """Approximate the nearest matrix with orthonormal rows or columns: [..., rows, columns], fp32.

    Five Newton-Schulz steps leave singular values between 0.7 and 1.2.
    """
    tall = matrix.shape[-2] > matrix.shape[-1]
    x = matrix.mT if tall else matrix
    x = x / x.flatten(-2).norm(dim=-1)[..., None, None].clamp_min(1e-7)
    for _ in range(_STEPS):
        gram = x @ x.mT
        x = _A * x + (_B * gram + _C * gram @ gram) @ x
    found: Tensor = x.mT if tall else x
    return found
