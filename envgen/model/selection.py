"""Measure how well chosen keys cover the mass of attention.

The mass of a set is the attention (averaged over heads) that falls on it; the oracle's set of k keys has
the largest. A choice is judged by its mass over the oracle's.

Shapes: B batch, T tokens, t judged queries, S slots, K kept keys, L layers.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from envgen.core.seeding import derive
from envgen.model.modeling import DSAForCausalLM
from envgen.model.span import Span

SINKS = 4
"""First keys that the sink + recency choice always keeps (Xiao et al. 2023)."""


@torch.no_grad()
def captured_mass(
    model: DSAForCausalLM, input_ids: Tensor, num_kept: int, first_query: int, seed: int = 0
) -> Mapping[str, Tensor]:
    """Mean over queries of (mass of a choice) / (mass of the oracle's), per layer, for five choices.

    Args:
        model: run with dense attention, so that all choices are judged on the same activations.
        input_ids: [B, T], no padding.
        num_kept: k.
        first_query: queries before it are left out; they see few keys, so any choice covers them.
        seed: of the random choice.

    Returns:
        ``indexer``, ``random``, ``recency``, ``sink+recency`` (shares of the oracle's mass) and
        ``oracle`` (its mass itself): float32 [L] each.
    """
    hidden = model(input_ids, dense=True, capture_hidden=True, keep=slice(0, 1)).hidden_states
    assert hidden is not None
    tokens = input_ids.shape[1]
    slots_BT = torch.arange(tokens, device=input_ids.device).expand(len(input_ids), -1)
    angles, span = model.angles(slots_BT), Span(slots_BT, tokens)
    part = slice(first_query, tokens)
    generator = torch.Generator().manual_seed(derive(seed, "random keys"))
    found: dict[str, list[Tensor]] = {}
    for layer, x_BTD in zip(model.layers(), hidden, strict=False):
        normed_BTD = layer.input_layernorm(x_BTD)
        p_BtS, wanted_BtS = layer.self_attn.inspect(normed_BTD, angles, span, part)
        oracle = p_BtS.topk(num_kept, -1).values.sum(-1)
        masses = {"indexer": _mass(p_BtS, wanted_BtS, num_kept)}
        for name, order in _baselines(p_BtS, slots_BT[:, part], generator).items():
            masses[name] = _mass(p_BtS, order, num_kept)
        for name, mass in masses.items():
            found.setdefault(name, []).append((mass / oracle).mean())
        found.setdefault("oracle", []).append(oracle.mean())
    return {name: torch.stack(values).cpu() for name, values in found.items()}


def _mass(p_BtS: Tensor, order_BtS: Tensor, num_kept: int) -> Tensor:
    return p_BtS.gather(-1, order_BtS.topk(num_kept, -1).indices).sum(-1)


def _baselines(p_BtS: Tensor, slots_Bt: Tensor, generator: torch.Generator) -> dict[str, Tensor]:
    """Scores that put the keys in the order in which each baseline would take them."""
    slots_S = torch.arange(p_BtS.shape[-1], dtype=torch.float32, device=p_BtS.device)
    future_BtS = slots_S > slots_Bt.unsqueeze(-1)
    recency_BtS = slots_S.expand_as(p_BtS).masked_fill(future_BtS, float("-inf"))
    sinks_BtS = torch.where(slots_S < SINKS, float("inf"), recency_BtS)
    drawn_BtS = torch.rand(p_BtS.shape, generator=generator).to(p_BtS.device)
    return {
        "random": drawn_BtS.masked_fill(future_BtS, float("-inf")),
        "recency": recency_BtS,
        "sink+recency": sinks_BtS,
    }
