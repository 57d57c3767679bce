"""One optimiser for the trunk and one for the indexer: their losses never share a clip norm.

The language-modelling (or policy) loss reaches the trunk only, the indexer's KL the indexer only
(``envgen.model.attention``), so both are stepped from one backward pass.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from envgen.core.errors import EnvgenError
from envgen.model.modeling import DSAForCausalLM
from envgen.train.config import OptimizerConfig
from envgen.train.muon import Muon
from envgen.train.sharding import load_optimizer_state, whole, whole_optimizer_state

EXPLODED = 1e6
"""A run ends as diverged if a loss or a gradient norm is above this: losses are means of nats and rewards,
far below it, and such a gradient, clipped, is a direction of noise."""


class DivergedError(EnvgenError):
    """Raised when a loss or gradient explodes or is not finite; it has changed no weight."""


class Norms(NamedTuple):
    """Gradient norms before clipping."""

    trunk: float
    indexer: float


class Steps(Protocol):
    """The interface of ``Optimizer``: updates a model's weights from their gradients."""

    @property
    def trains_indexer(self) -> bool:
        """Whether it trains the indexer, so that eq. 4 must be computed."""
        ...

    @property
    def weights(self) -> list[nn.Parameter]:
        """All trained weights; gradients of several processes are added up in this order."""
        ...

    def zero_grad(self) -> None:
        """Forget gradients."""
        ...

    def step(self, step: int) -> Norms:
        """Update the weights in step ``step`` (from 0) of the run; return the gradient norms.

        Raises:
            DivergedError: if a norm is not finite or too large; no weight has changed then.
        """
        ...

    def state(self) -> list[dict[str, Any]]:
        """Return what ``load`` needs to resume exactly: tensors, numbers and strings."""
        ...

    def load(self, state: list[dict[str, Any]]) -> None:
        """Go on from ``state``."""
        ...


class Optimizer:
    """Update trunk and indexer; vectors (weights with one axis) have no weight decay."""

    def __init__(self, model: DSAForCausalLM, config: OptimizerConfig) -> None:
        self.config = config
        self._trunk = [p for p in model.trunk_parameters() if p.requires_grad]
        self._indexer = model.indexer_parameters() if config.indexer == "eq4" else []
        for weight in model.indexer_parameters():
            weight.requires_grad_(config.indexer == "eq4")
        betas = (config.beta1, config.beta2)
        matrices = _matrices(model, self._trunk) if config.kind == "muon" else []
        taken = {id(weight) for weight in matrices}
        decayed = [p for p in self._trunk if p.dim() > 1 and id(p) not in taken]
        plain = [p for p in self._trunk if p.dim() <= 1]
        adam = torch.optim.AdamW(
            [
                {"params": decayed, "weight_decay": config.weight_decay},
                {"params": plain, "weight_decay": 0.0},
            ],
            lr=config.lr,
            betas=betas,
        )
        self._parts: list[tuple[torch.optim.Optimizer, float]] = [(adam, config.lr)]
        if self._indexer:
            index_adam = torch.optim.AdamW(
                self._indexer, lr=config.indexer_lr, betas=betas, weight_decay=0.0
            )
            self._parts.append((index_adam, config.indexer_lr))
        if matrices:
            muon = Muon(matrices, config.muon_lr, weight_decay=config.weight_decay)
            self._parts.append((muon, config.muon_lr))

    @property
    def trains_indexer(self) -> bool:
        """Whether the indexer learns, too."""
        return self.config.indexer == "eq4"

    @property
    def weights(self) -> list[nn.Parameter]:
        """All that learns."""
        return [*self._trunk, *self._indexer]

    def zero_grad(self) -> None:
        """Forget gradients."""
        for optimizer, _ in self._parts:
            optimizer.zero_grad(set_to_none=True)

    def step(self, step: int) -> Norms:
        """Clip the gradients of trunk and indexer, each by its own norm, and update the weights.

        Raises:
            DivergedError: if a norm is not finite or above ``EXPLODED``; no weight has changed then.
        """
        norms = Norms(_norm(self._trunk), _norm(self._indexer))
        for name, norm in norms._asdict().items():
            if not norm <= EXPLODED:
                raise DivergedError(
                    f"the norm of the {name}'s gradient is {norm:.3g} in step {step}",
                    "lower the learning rate, or look at the batch that was saved beside the checkpoints",
                )
        for weights, norm in ((self._trunk, norms.trunk), (self._indexer, norms.indexer)):
            _scale(weights, min(1.0, self.config.clip_norm / (norm + 1e-6)))
        rate = self.config.rate(step)
        for optimizer, lr in self._parts:
            for group in optimizer.param_groups:
                group["lr"] = lr * rate
            optimizer.step()
        return norms

    def state(self) -> list[dict[str, Any]]:
        """Return the optimisers' states; with a sharded model all processes must call it."""
        return [whole_optimizer_state(optimizer) for optimizer, _ in self._parts]

    def load(self, state: list[dict[str, Any]]) -> None:
        """Go on from ``state``."""
        for (optimizer, _), saved in zip(self._parts, state, strict=True):
            load_optimizer_state(optimizer, saved)


def _matrices(model: DSAForCausalLM, weights: list[nn.Parameter]) -> list[nn.Parameter]:
    """Select the weights that Muon updates: no vectors, embeddings, output layer or router."""
    outside = ("embed_tokens", "lm_head", "mlp.gate")
    left = {id(w) for name, w in model.named_parameters() if any(part in name for part in outside)}
    return [weight for weight in weights if weight.dim() > 1 and id(weight) not in left]


def _norm(weights: list[nn.Parameter]) -> float:
    found = [whole(w.grad.detach().float().norm()) for w in weights if w.grad is not None]
    return float(torch.stack(found).norm()) if found else 0.0


def _scale(weights: list[nn.Parameter], factor: float) -> None:
    if factor < 1:
        for weight in weights:
            if weight.grad is not None:
                weight.grad.mul_(factor)


def require_finite(loss: Tensor, step: int) -> float:
    """Return the loss as a float.

    Raises:
        DivergedError: if it is not finite, or its absolute value is above ``EXPLODED``.
    """
    value = float(loss.detach())
    if not abs(value) <= EXPLODED:
        raise DivergedError(
            f"the loss is {value:.3g} in step {step}",
            "lower the learning rate, or look at the batch that was saved beside the checkpoints",
        )
    return value
