"""Mixture of experts with a sigmoid gate and bias-corrected, group-limited choice (DeepSeek-V3, 2.1.2).

    s = sigmoid(W_g x);  choice = s + b;  the topk_group groups with the best sum of two are kept;
    of those the num_experts_per_tok best;  weight = s[chosen] / sum(s[chosen]) * routed_scaling_factor

The bias b only chooses: it balances load without a loss and gets no gradient. Replayed choices bypass
groups and bias; their weights are taken from the live gate, so the router learns.

Shapes: N tokens, D model width, E experts, A experts per token, I expert width, G groups.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from envgen.model.config import DSAConfig
from envgen.model.precision import exactly, widened

NOT_ROUTED = 0xFFFF
"""In a replayed routing: let the gate choose for this token."""
DENSE_EXPERTS_COST = 1 << 22
"""Multiplications of "every expert on every token" up to which that beats sorting tokens."""


class MLP(nn.Module):
    """SwiGLU: down(silu(gate(x)) * up(x))."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(width, inner, bias=False)
        self.up_proj = nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map x [..., D] to the same shape."""
        out: Tensor = self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class Routes(NamedTuple):
    """Where tokens go."""

    experts_NA: Tensor
    """int64"""
    weights_NA: Tensor
    """float32 at least, scaled"""


class Gate(nn.Module):
    """Chooses experts; the correction bias is a buffer in float32, whatever the model is cast to."""

    e_score_correction_bias: Tensor
    load: Tensor

    def __init__(self, config: DSAConfig) -> None:
        super().__init__()
        self.config = config
        experts = config.n_routed_experts
        self.weight = nn.Parameter(torch.empty(experts, config.hidden_size))
        self.register_buffer("e_score_correction_bias", torch.zeros(experts, dtype=torch.float32))
        self.register_buffer("load", torch.zeros(experts, dtype=torch.float32), persistent=False)

    def forward(self, x_ND: Tensor, given_NA: Tensor | None = None) -> Routes:
        """Choose, or replay ``given_NA`` (rows of ``NOT_ROUTED`` are chosen live)."""
        x_ND = widened(x_ND)
        with exactly(x_ND.device):
            scores_NE = functional.linear(x_ND, self.weight.to(x_ND.dtype)).sigmoid()
        return self.choose(scores_NE, given_NA)

    def choose(self, scores_NE: Tensor, given_NA: Tensor | None = None) -> Routes:
        """The same from the gate's scores, which are in float32 at least."""
        if given_NA is None:
            experts_NA = self._choose(scores_NE)
        else:
            given_NA = given_NA.to(torch.int64)
            live = given_NA[:, :1] == NOT_ROUTED
            experts_NA = given_NA
            if bool(live.any()):
                experts_NA = torch.where(live, self._choose(scores_NE), given_NA)
        weights_NA = scores_NE.gather(1, experts_NA)
        if self.config.norm_topk_prob:
            weights_NA = weights_NA / (weights_NA.sum(-1, keepdim=True) + 1e-20)
        return Routes(experts_NA, weights_NA * self.config.routed_scaling_factor)

    @torch.no_grad()
    def _choose(self, scores_NE: Tensor) -> Tensor:
        c = self.config
        choice_NE = scores_NE + self.e_score_correction_bias
        if c.topk_group < c.n_group:
            groups_NGe = choice_NE.view(len(choice_NE), c.n_group, c.n_routed_experts // c.n_group)
            group_NG = groups_NGe.topk(2, -1).values.sum(-1)
            best = group_NG.topk(c.topk_group, -1, sorted=False).indices
            dropped_NG = torch.ones_like(group_NG, dtype=torch.bool).scatter_(1, best, False)
            choice_NE = groups_NGe.masked_fill(dropped_NG.unsqueeze(-1), float("-inf")).flatten(1)
        return choice_NE.topk(c.num_experts_per_tok, -1, sorted=False).indices

    @torch.no_grad()
    def count(self, experts_NA: Tensor) -> None:
        """Note where tokens went, for the next ``update_bias``."""
        self.load += torch.bincount(experts_NA.flatten(), minlength=len(self.load))

    @torch.no_grad()
    def update_bias(self, rate: float) -> None:
        """Step b += rate * sign(mean load - load) over what was counted since the last one."""
        if bool(self.load.any()):
            self.e_score_correction_bias += rate * (self.load.mean() - self.load).sign()
        self.load.zero_()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move and cast as any module, but leave the buffers in float32, unrounded."""
        exact = dict(self._buffers)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, was in exact.items():
            now = self._buffers[name]
            assert was is not None
            assert now is not None
            if now.dtype is not torch.float32:
                self._buffers[name] = now.float() if was.is_meta else was.to(now.device)
        return self


class Experts(nn.Module):
    """All routed experts of a layer in two tensors; gate rows come before up rows."""

    def __init__(self, config: DSAConfig) -> None:
        super().__init__()
        experts, width, inner = (
            config.n_routed_experts,
            config.hidden_size,
            config.moe_intermediate_size,
        )
        self.gate_up_proj = nn.Parameter(torch.empty(experts, 2 * inner, width))
        self.down_proj = nn.Parameter(torch.empty(experts, width, inner))

    def forward(self, x_ND: Tensor, routes: Routes) -> Tensor:
        """Weighted sum of each token's experts: [N, D]."""
        cost = len(x_ND) * self.gate_up_proj[0].numel() * len(self.gate_up_proj)
        small = cost <= DENSE_EXPERTS_COST
        return self._all(x_ND, routes) if small else self._sorted(x_ND, routes)

    def _all(self, x_ND: Tensor, routes: Routes) -> Tensor:
        """Every expert on every token in three products: least overhead for few tokens."""
        count = self.gate_up_proj.shape[0]
        x_END = x_ND.unsqueeze(0).expand(count, -1, -1)
        gate, up = torch.bmm(x_END, self.gate_up_proj.transpose(1, 2)).chunk(2, -1)
        y_END = torch.bmm(functional.silu(gate) * up, self.down_proj.transpose(1, 2))
        share_NE = routes.weights_NA.new_zeros(len(x_ND), count)
        share_NE = share_NE.scatter(1, routes.experts_NA, routes.weights_NA).to(x_ND.dtype)
        return torch.einsum("end,ne->nd", y_END, share_NE)

    def _sorted(self, x_ND: Tensor, routes: Routes) -> Tensor:
        """Each expert on its own tokens: tokens are sorted by expert, and put back."""
        per_token = routes.experts_NA.shape[1]
        order = routes.experts_NA.flatten().argsort(stable=True)
        counts = torch.bincount(routes.experts_NA.flatten(), minlength=len(self.gate_up_proj))
        parts = torch.split(x_ND[order // per_token], counts.tolist())
        done = [x_ND.new_empty((0, x_ND.shape[1]))]
        for expert, part in enumerate(parts):
            if len(part):
                gate, up = functional.linear(part, self.gate_up_proj[expert]).chunk(2, -1)
                done.append(functional.linear(functional.silu(gate) * up, self.down_proj[expert]))
        back = torch.empty_like(order)
        back[order] = torch.arange(len(order), device=order.device)
        y_NAD = torch.cat(done)[back].view(len(x_ND), per_token, x_ND.shape[1])
        return torch.einsum("nad,na->nd", y_NAD, routes.weights_NA.to(y_NAD.dtype))


class MoE(nn.Module):
    """Routed experts and, for every token, the shared ones."""

    def __init__(self, config: DSAConfig) -> None:
        super().__init__()
        self.gate = Gate(config)
        self.experts = Experts(config)
        self.shared_experts = (
            MLP(config.hidden_size, config.moe_intermediate_size * config.n_shared_experts)
            if config.n_shared_experts
            else None
        )

    def forward(self, x_BTD: Tensor, given_BTA: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Output [B, T, D] and the chosen experts [B, T, A]."""
        x_ND = x_BTD.flatten(0, 1)
        routes = self.gate(x_ND, None if given_BTA is None else given_BTA.flatten(0, 1))
        y_BTD = self.experts(x_ND, routes).view(x_BTD.shape)
        if self.shared_experts is not None:
            y_BTD = y_BTD + self.shared_experts(x_BTD)
        return y_BTD, routes.experts_NA.view(*x_BTD.shape[:2], routes.experts_NA.shape[1])
