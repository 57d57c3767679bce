"""One token for many sequences at once, by weights prepared for it.

A small model's decoding step is bound by the number of operations, not by arithmetic. So norm weights are
multiplied into the products behind them, products that read the same thing are one product, W_UK and W_UV
(see ``attention``) are multiplied into their neighbours, and all experts are one wide MLP. Each is told where
it is done: ``decode_attention``, ``decode_mlp``. The results are those of ``DSAForCausalLM.forward`` but for
rounding; only float32 leaves room for that.

The prepared weights are copies: ``Decoder.refresh`` makes them anew when the model's have changed. Larger
models are bound by reading weights, of which this makes more; ``fusing_pays`` tells where it pays.

Shapes: B sequences, n pages, S slots (whole pages), M pool rows, D width, R rotary width, P = R / 2,
K kept keys, A experts per token, X mixture layers, V vocabulary.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from envgen.model.config import DSAConfig
from envgen.model.decode_attention import DecodeStep, FusedAttention, Scratch
from envgen.model.decode_mlp import FusedMLP, FusedMoE, fused_mlp
from envgen.model.modeling import DSAForCausalLM
from envgen.model.paged import PagedCache
from envgen.model.rope import RopeTable

MOST_WEIGHTS = 1 << 21
"""Prepared weights of a layer up to which fewer operations beat fewer weights (measured on a CPU)."""


def fusing_pays(config: DSAConfig) -> bool:
    """Whether a layer is small enough to be decoded by prepared weights."""
    c, heads = config, config.num_attention_heads
    index_width = c.index_n_heads * c.index_head_dim
    reads_x = c.q_lora_rank + c.latent_width + c.qk_rope_head_dim + c.index_head_dim
    reads_query = heads * (c.kv_lora_rank + 2 * c.qk_rope_head_dim) + index_width
    attention = c.hidden_size * (reads_x + heads * c.kv_lora_rank) + c.q_lora_rank * reads_query
    inner = c.moe_intermediate_size * (c.n_routed_experts + c.n_shared_experts)
    if not c.has_experts:
        inner = c.intermediate_size
    return attention + 3 * c.hidden_size * inner <= MOST_WEIGHTS


class Decoded(NamedTuple):
    """The output of a step."""

    logits_BV: Tensor
    routing_BXA: Tensor | None
    """int64; None without mixture layers."""
    topk: tuple[Tensor, ...] | None
    """Per layer int32 [B, K], ``HIDDEN`` where there were fewer; None when nothing was left out."""


class Decoder:
    """Runs a model's decoding steps over a cache.

    Args:
        model: in float32.
        cache: its pages.

    Attributes:
        layers: both halves of each layer.
    """

    def __init__(self, model: DSAForCausalLM, cache: PagedCache) -> None:
        self._model = model
        self._cache = cache
        self._rope = RopeTable(model.config.rope, model.config.qk_rope_head_dim)
        self._scratch = Scratch(model.device)
        self.refresh()

    @torch.no_grad()
    def refresh(self) -> None:
        """Prepare the weights anew."""
        model = self._model
        self.layers: list[tuple[FusedAttention, FusedMLP | FusedMoE]] = [
            (FusedAttention(layer, model.config), fused_mlp(layer)) for layer in model.layers()
        ]
        self._head_DV = (model.lm_head.weight * model.model.norm.weight).t().contiguous()

    def run(self, ids_B: Tensor, slots_B: Tensor, pages_Bn: Tensor, longest: int) -> Decoded:
        """Run one token of each sequence and write it to the cache.

        Args:
            ids_B: int64.
            slots_B: int64; their places.
            pages_Bn: int64; the pages of ``longest`` slots, 0 past a sequence's end.
            longest: slots of the longest sequence, the new token included.
        """
        step = self._step(slots_B, pages_Bn, longest)
        trunk = self._model.model
        x_BD = trunk.embed_tokens(ids_B)
        routing, topk = [], []
        for i, (attention, mlp) in enumerate(self.layers):
            x_BD, kept_BK = attention.add(x_BD, step, self._cache.rows[i], self._cache.index[i])
            if kept_BK is not None:
                topk.append(kept_BK)
            x_BD, experts_BA = mlp.add(x_BD)
            if experts_BA is not None:
                routing.append(experts_BA)
        normed = functional.rms_norm(x_BD, x_BD.shape[-1:], None, trunk.norm.eps)
        return Decoded(
            normed @ self._head_DV,
            torch.stack(routing, 1) if routing else None,
            tuple(topk) if topk else None,
        )

    def _step(self, slots_B: Tensor, pages_Bn: Tensor, longest: int) -> DecodeStep:
        size = self._cache.page_tokens
        cos_BP, sin_BP = self._rope.at(slots_B, longest - 1, torch.float32)
        page_B = pages_Bn.gather(1, (slots_B // size).unsqueeze(1)).squeeze(1)
        hidden_BS = None
        if longest <= self._model.config.index_topk:
            slots_S = torch.arange(pages_Bn.shape[1] * size, device=slots_B.device)
            hidden_BS = torch.zeros(len(slots_B), len(slots_S), device=slots_B.device)
            hidden_BS.masked_fill_(slots_S > slots_B.unsqueeze(1), float("-inf"))
        return DecodeStep(
            slots_B,
            pages_Bn,
            size,
            page_B * size + slots_B % size,
            torch.cat((cos_BP, cos_BP), -1),
            torch.cat((-sin_BP, sin_BP), -1),
            hidden_BS,
            self._scratch,
        )
