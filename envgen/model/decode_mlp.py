"""The second half of a layer for one new token per sequence: few wide products.

A dense MLP takes gate and up in one product. A mixture is one wide MLP of all its experts, the shared ones
among them, whose hidden units are scaled by their expert's weight (0: not chosen): with few small experts,
that costs less than sending tokens to them. The router is a part of the first product.

Shapes: B sequences, D width, I hidden units (of all experts side by side), E experts, A experts per token.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from envgen.model.layer import DecoderLayer
from envgen.model.moe import MLP, MoE


class FusedMLP:
    """A dense MLP with its norm and residual."""

    def __init__(self, layer: DecoderLayer, mlp: MLP) -> None:
        norm = layer.post_attention_layernorm
        both_OD = torch.cat((mlp.gate_proj.weight, mlp.up_proj.weight)) * norm.weight
        self._eps = norm.eps
        self._up_DO = both_OD.t().contiguous()
        self._down_ID = mlp.down_proj.weight.t().contiguous()

    def add(self, x_BD: Tensor) -> tuple[Tensor, None]:
        """The residual stream with the MLP's output added."""
        normed_BD = functional.rms_norm(x_BD, x_BD.shape[-1:], None, self._eps)
        gate_BI, up_BI = (normed_BD @ self._up_DO).chunk(2, 1)
        return torch.addmm(x_BD, functional.silu(gate_BI) * up_BI, self._down_ID), None


class FusedMoE:
    """A mixture of experts with its norm and residual."""

    def __init__(self, layer: DecoderLayer, moe: MoE) -> None:
        norm, experts = layer.post_attention_layernorm, moe.experts
        self._eps, self._gate = norm.eps, moe.gate
        gate_up_EOD, down_EDI = experts.gate_up_proj, experts.down_proj
        gates, ups = (half.flatten(0, 1) for half in gate_up_EOD.chunk(2, 1))
        downs = down_EDI.transpose(1, 2).flatten(0, 1)
        self._routed = (len(down_EDI), down_EDI.shape[2])
        self._num_routed = len(downs)
        shared = moe.shared_experts
        if shared is not None:
            gates = torch.cat((gates, shared.gate_proj.weight))
            ups = torch.cat((ups, shared.up_proj.weight))
            downs = torch.cat((downs, shared.down_proj.weight.t()))
        self._widths = [len(down_EDI), len(downs), len(downs)]
        self._up_DO = (torch.cat((moe.gate.weight, gates, ups)) * norm.weight).t().contiguous()
        self._down_ID = downs.contiguous()

    def add(self, x_BD: Tensor) -> tuple[Tensor, Tensor]:
        """The residual stream with the experts' output added, and who was chosen: int64 [B, A]."""
        normed_BD = functional.rms_norm(x_BD, x_BD.shape[-1:], None, self._eps)
        router_BE, gate_BI, up_BI = torch.split(normed_BD @ self._up_DO, self._widths, 1)
        experts_BA, weights_BA = self._gate.choose(router_BE.sigmoid())
        share_BE = torch.zeros_like(router_BE).scatter_(1, experts_BA, weights_BA)
        hidden_BI = functional.silu(gate_BI).mul_(up_BI)
        routed_BI = hidden_BI[:, : self._num_routed]
        routed_BI.view(len(x_BD), *self._routed).mul_(share_BE.unsqueeze(2))
        return torch.addmm(x_BD, hidden_BI, self._down_ID), experts_BA


def fused_mlp(layer: DecoderLayer) -> FusedMLP | FusedMoE:
    """The weights of a layer."""
    mlp = layer.mlp
    if isinstance(mlp, MoE):
        return FusedMoE(layer, mlp)
    assert isinstance(mlp, MLP)
    return FusedMLP(layer, mlp)
