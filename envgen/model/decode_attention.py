"""Attention of one new token per sequence, in absorbed mode, by few products.

* What reads the normed input is one product: query latent, cached row, index key, head weights.
* What reads the query latent is one product: W_UK is multiplied into the queries' projection, so that they
  score cached rows directly. W_UV is multiplied into the output projection.
* A rotation is x * cos + swapped(x) * sin, with swapped(x) projected beside x.
* Rows are read page by page while no more than index_topk slots are there; then nothing is left out.

Shapes: B sequences, n pages, S slots (whole pages), M pool rows, D width, Q query latent, C key-value
latent, N nope width, R rotary width, V value width, W = C + R, H heads, F index_head_dim, J indexer heads,
K kept keys, O made side by side.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from envgen.model.attention import LatentAttention
from envgen.model.config import DSAConfig
from envgen.model.indexer import HIDDEN, IndexQueries, select
from envgen.model.layer import DecoderLayer


class Scratch:
    """Memory for gathered rows, used again and again: getting it anew costs more than filling it."""

    def __init__(self, device: torch.device) -> None:
        self._buffer = torch.empty(0, device=device)

    def gather(self, pool_Mx: Tensor, rows_n: Tensor) -> Tensor:
        """Rows of a pool, valid until the next call: [n, x]."""
        width = pool_Mx.shape[1]
        needed = len(rows_n) * width
        if needed > len(self._buffer):
            self._buffer = pool_Mx.new_empty(2 * needed)
        found_nx = self._buffer[:needed].view(-1, width)
        return torch.index_select(pool_Mx, 0, rows_n, out=found_nx)


class DecodeStep(NamedTuple):
    """The inputs that all layers of a step share."""

    slots_B: Tensor
    """Place of each new token, int64."""
    pages_Bn: Tensor
    """Pages of each sequence, 0 past its end, int64."""
    page_tokens: int
    write_B: Tensor
    """Pool row of each new token."""
    cos_BR: Tensor
    sin_BR: Tensor
    """Negative in the first half."""
    hidden_BS: Tensor | None
    """0 for what a query sees, -inf for the rest; None: keys are to be chosen."""
    scratch: Scratch


class _Projected(NamedTuple):
    """What is made of the normed input and the query latent."""

    latent_BQ: Tensor
    row_BW: Tensor
    index_key_BF: Tensor
    head_weights_BJ: Tensor
    queries_BHW: Tensor


class FusedAttention:
    """One layer's attention with its norm and residual, by prepared weights."""

    def __init__(self, layer: DecoderLayer, config: DSAConfig) -> None:
        attention = layer.self_attn
        self._config = c = config
        self._indexer = attention.indexer
        self._eps = layer.input_layernorm.eps
        self._latent_eps = attention.q_a_layernorm.eps
        self._row_norm = attention.kv_a_layernorm
        self._in_DO, self._in_bias_O = _inputs(layer, c)
        self._query_QO, self._index_QO = _queries(attention, c)
        self._out_OD, self._out_bias_D = _output(attention, c), attention.o_proj.bias
        self._index_order_F = _index_order(c, self._in_DO.device)

    def add(
        self, x_BD: Tensor, step: DecodeStep, rows_MW: Tensor, index_MF: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """The residual stream with attention added, and the chosen slots where some were left out.

        Args:
            x_BD: residual stream.
            step: where the tokens are.
            rows_MW: this layer's cached rows; the new ones are written.
            index_MF: this layer's index keys; the same.
        """
        projected = self._project(x_BD, step)
        rows_MW.index_copy_(0, step.write_B, projected.row_BW)
        index_MF.index_copy_(0, step.write_B, projected.index_key_BF)
        kept_BK = None
        if step.hidden_BS is None:
            kept_BK = self.choose(projected.latent_BQ, projected.head_weights_BJ, step, index_MF)
        seen_BHC = self.over(projected.queries_BHW, rows_MW, step, kept_BK)
        x_BD = torch.addmm(x_BD, seen_BHC.flatten(1), self._out_OD)
        return x_BD if self._out_bias_D is None else x_BD + self._out_bias_D, kept_BK

    def choose(
        self, latent_BQ: Tensor, head_weights_BJ: Tensor, step: DecodeStep, index_MF: Tensor
    ) -> Tensor:
        """The index_topk best slots of each sequence, as ``select`` gives them: int32 [B, K]."""
        c = self._config
        q_BJF = (latent_BQ @ self._index_QO).view(len(latent_BQ), c.index_n_heads, -1)
        turned_BJF = self._turned(q_BJF, step.cos_BR.unsqueeze(1), step.sin_BR.unsqueeze(1))
        weights_BJ = head_weights_BJ * (c.index_n_heads * c.index_head_dim) ** -0.5
        queries = IndexQueries(
            self._indexer.finish(turned_BJF).unsqueeze(1), weights_BJ.unsqueeze(1)
        )
        keys_BSF = _paged(index_MF, step)
        return select(queries, keys_BSF, step.slots_B.unsqueeze(1), c.index_topk).squeeze(1)

    def over(
        self, queries_BHW: Tensor, rows_MW: Tensor, step: DecodeStep, kept_BK: Tensor | None
    ) -> Tensor:
        """Attention over the chosen slots, or all: a mixture of latents for each head [B, H, C]."""
        c = self._config
        if kept_BK is None:
            assert step.hidden_BS is not None
            found_BSW, hidden_BS = _paged(rows_MW, step), step.hidden_BS
        else:
            found_BSW, hidden_BS = _chosen(rows_MW, step, kept_BK)
        scores_BHS = torch.baddbmm(
            hidden_BS.unsqueeze(1), queries_BHW, found_BSW.transpose(1, 2), alpha=c.softmax_scale
        )
        return torch.bmm(scores_BHS.softmax(-1), found_BSW[..., : c.kv_lora_rank])

    def _project(self, x_BD: Tensor, step: DecodeStep) -> _Projected:
        c = self._config
        normed_BD = functional.rms_norm(x_BD, x_BD.shape[-1:], None, self._eps)
        made_BO = normed_BD @ self._in_DO
        if self._in_bias_O is not None:
            made_BO += self._in_bias_O
        widths = [c.q_lora_rank, c.kv_lora_rank, c.qk_rope_head_dim, c.qk_rope_head_dim]
        q_BQ, kv_BC, key_BR, swapped_BR, index_BF, heads_BJ = torch.split(
            made_BO, [*widths, c.index_head_dim, c.index_n_heads], 1
        )
        latent_BQ = functional.rms_norm(q_BQ, q_BQ.shape[-1:], None, self._latent_eps)
        kv_BC = functional.rms_norm(
            kv_BC, kv_BC.shape[-1:], self._row_norm.weight, self._row_norm.eps
        )
        key_BR = torch.addcmul(key_BR * step.cos_BR, swapped_BR, step.sin_BR)
        norm = self._indexer.k_norm
        index_BF = functional.layer_norm(
            index_BF, norm.normalized_shape, norm.weight, norm.bias, norm.eps
        )
        return _Projected(
            latent_BQ,
            torch.cat((kv_BC, key_BR), 1),
            self._indexer.finish(self._turned(index_BF, step.cos_BR, step.sin_BR)),
            heads_BJ,
            self._asked(latent_BQ, step),
        )

    def _asked(self, latent_BQ: Tensor, step: DecodeStep) -> Tensor:
        """Queries that score cached rows directly: [B, H, W]."""
        c = self._config
        heads, rotary = c.num_attention_heads, c.num_attention_heads * c.qk_rope_head_dim
        widths = [heads * c.kv_lora_rank, rotary, rotary]
        parts = torch.split(latent_BQ @ self._query_QO, widths, 1)
        asked_BHC, rope_BHR, swapped_BHR = (x.view(len(x), heads, -1) for x in parts)
        cos_B1R, sin_B1R = step.cos_BR.unsqueeze(1), step.sin_BR.unsqueeze(1)
        return torch.cat((asked_BHC, torch.addcmul(rope_BHR * cos_B1R, swapped_BHR, sin_B1R)), -1)

    def _turned(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Rotate the first R of the last axis as the indexer does."""
        rope = self._config.qk_rope_head_dim
        ordered = x if self._index_order_F is None else x.index_select(-1, self._index_order_F)
        first = ordered[..., :rope]
        turned = torch.addcmul(first * cos, first.roll(rope // 2, -1), sin)
        return torch.cat((turned, ordered[..., rope:]), -1)


def _inputs(layer: DecoderLayer, c: DSAConfig) -> tuple[Tensor, Tensor | None]:
    """[D, Q + C + R + R + F + J] behind the layer's norm, and its bias."""
    attention, indexer = layer.self_attn, layer.self_attn.indexer
    down, key = attention.q_a_proj, attention.kv_a_proj_with_mqa
    none = (indexer.wk.weight, indexer.weights_proj.weight)
    weight_OD = _with_swapped(down.weight, key.weight, *none, c=c)
    weight_DO = (weight_OD * layer.input_layernorm.weight).t().contiguous()
    if down.bias is None:
        return weight_DO, None
    zeros = (x.new_zeros(len(x)) for x in none)
    return weight_DO, _with_swapped(down.bias, key.bias, *zeros, c=c)


def _with_swapped(query: Tensor, row: Tensor, *rest: Tensor, c: DSAConfig) -> Tensor:
    """Outputs side by side, with the swapped halves of the rotary key beside it."""
    latent, rope = torch.split(row, [c.kv_lora_rank, c.qk_rope_head_dim])
    return torch.cat((query, latent, *_halves(rope), *rest))


def _halves(pairs_Rx: Tensor) -> tuple[Tensor, Tensor]:
    """First members of pairs before second ones, as ``rotate_pairs`` leaves them; and the halves swapped."""
    first, second = pairs_Rx[0::2], pairs_Rx[1::2]
    return torch.cat((first, second)), torch.cat((second, first))


def _queries(attention: LatentAttention, c: DSAConfig) -> tuple[Tensor, Tensor]:
    """[Q, HC + HR + HR] with W_UK inside, and the indexer's [Q, JF]; both behind the latent's norm."""
    heads_HdQ = attention.q_b_proj.weight.view(c.num_attention_heads, c.qk_head_dim, -1)
    nope_HNQ, rope_HRQ = torch.split(heads_HdQ, [c.qk_nope_head_dim, c.qk_rope_head_dim], 1)
    up_HNC, _ = attention.up()
    asked_HCQ = torch.bmm(up_HNC.double().transpose(1, 2), nope_HNQ.double()).float()
    kept_RHQ, swapped_RHQ = _halves(rope_HRQ.transpose(0, 1))
    parts = (asked_HCQ, kept_RHQ.transpose(0, 1), swapped_RHQ.transpose(0, 1))
    weight_OQ = torch.cat([part.flatten(0, 1) for part in parts])
    norm_Q = attention.q_a_layernorm.weight
    index_QO = (attention.indexer.wq_b.weight * norm_Q).t().contiguous()
    return (weight_OQ * norm_Q).t().contiguous(), index_QO


def _output(attention: LatentAttention, c: DSAConfig) -> Tensor:
    """[HC, D] with W_UV inside."""
    _, up_HVC = attention.up()
    out_DHV = attention.o_proj.weight.view(-1, c.num_attention_heads, c.v_head_dim)
    made_HCD = torch.einsum("hvc,dhv->hcd", up_HVC.double(), out_DHV.double())
    return made_HCD.flatten(0, 1).float().contiguous()


def _index_order(c: DSAConfig, device: torch.device) -> Tensor | None:
    """Order of the indexer's dimensions that makes halves of its rotated pairs; None: they are."""
    if not c.indexer_rope_interleave:
        return None
    order, rope = torch.arange(c.index_head_dim, device=device), c.qk_rope_head_dim
    return torch.cat((order[:rope:2], order[1:rope:2], order[rope:]))


def _paged(pool_Mx: Tensor, step: DecodeStep) -> Tensor:
    """The sequences' rows of a pool in order, copied page by page: [B, S, x]."""
    pages = pool_Mx.view(-1, step.page_tokens * pool_Mx.shape[1])
    found = step.scratch.gather(pages, step.pages_Bn.flatten())
    return found.view(len(step.pages_Bn), -1, pool_Mx.shape[1])


def _chosen(rows_MW: Tensor, step: DecodeStep, kept_BK: Tensor) -> tuple[Tensor, Tensor]:
    """The chosen rows [B, K, W], and 0 or -inf for each [B, K]."""
    slots_BK, size = kept_BK.clamp_min(0).long(), step.page_tokens
    place_BK = step.pages_Bn.gather(1, slots_BK // size) * size + slots_BK % size
    found_BKW = step.scratch.gather(rows_MW, place_BK.flatten()).view(*kept_BK.shape, -1)
    hidden_BK = torch.zeros(kept_BK.shape, device=kept_BK.device)
    return found_BKW, hidden_BK.masked_fill_(kept_BK == HIDDEN, float("-inf"))
