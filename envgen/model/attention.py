"""Multi-head latent attention under the lightning indexer (paper, section 2; DeepSeek-V2, section 2.1).

One layer, three ways to the same numbers:

* ``reference``: scores of all pairs in MHA mode, masked to the chosen keys. Slow and readable.
* ``masked``: the same by a fused kernel. Best while sequences are short.
* ``gather``: absorbed MQA mode; each query gathers its K chosen latents. Memory linear in T, and what
  decoding uses.

``auto`` picks by cost. Where every query sees at most index_topk keys, nothing is left out and the
indexer is not asked.

Shapes: B batch, T query tokens, S key slots, D model width, Q query latent, H heads, N nope width,
R rotary width, V value width, C key-value latent, W = C + R row width, K kept keys, M pool rows.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from envgen.model.config import DSAConfig
from envgen.model.indexer import (
    Indexer,
    IndexQueries,
    select,
)
from envgen.model.indexer_loss import dense_index_loss, sparse_index_loss
from envgen.model.norm import RMSNorm
from envgen.model.precision import widened
from envgen.model.rope import Angles, rotate_pairs
from envgen.model.span import Span, all_visible, is_complete, pooled, replayed, seen, shares
from envgen.model.sparse import sparse_attention

Path = Literal["auto", "reference", "masked", "gather"]
IndexLoss = Literal["dense", "sparse"]
MASK_LIMIT = 1 << 25
"""Most query-key pairs for which a mask is made."""


class Ask(NamedTuple):
    """How a forward pass shall attend and what it shall give back."""

    path: Path = "auto"
    dense: bool = False
    """Leave nothing out, as in the dense warm-up."""
    index_loss: IndexLoss | None = None
    capture_topk: bool = False


class Attended(NamedTuple):
    """The output of one layer of attention."""

    out_BTD: Tensor
    kept_BTK: Tensor | None = None
    """Chosen slots, int32, ``HIDDEN`` where there were fewer; if asked for."""
    index_loss: Tensor | None = None


class _Queries(NamedTuple):
    nope_BTHN: Tensor
    rope_BTHR: Tensor
    latent_BTQ: Tensor


class _Tokens(NamedTuple):
    """The projections that a layer computes for the tokens of a pass."""

    x_BTD: Tensor
    angles: Angles
    queries: _Queries
    rows_BTW: Tensor
    """What is cached of them."""
    index_BTF: Tensor | None
    """Index keys; None where no key is to be chosen."""


class LatentAttention(nn.Module):
    """One layer's attention; parameter names are Hugging Face's."""

    def __init__(self, config: DSAConfig, layer: int) -> None:
        super().__init__()
        c, bias = config, config.attention_bias
        self.config, self.layer = config, layer
        self.q_a_proj = nn.Linear(c.hidden_size, c.q_lora_rank, bias=bias)
        self.q_a_layernorm = RMSNorm(c.q_lora_rank)
        self.q_b_proj = nn.Linear(c.q_lora_rank, c.num_attention_heads * c.qk_head_dim, bias=False)
        self.kv_a_proj_with_mqa = nn.Linear(c.hidden_size, c.latent_width, bias=bias)
        self.kv_a_layernorm = RMSNorm(c.kv_lora_rank)
        self.kv_b_proj = nn.Linear(
            c.kv_lora_rank, c.num_attention_heads * (c.qk_nope_head_dim + c.v_head_dim), bias=False
        )
        self.o_proj = nn.Linear(c.num_attention_heads * c.v_head_dim, c.hidden_size, bias=bias)
        self.indexer = Indexer(config)

    def forward(
        self, x_BTD: Tensor, angles: Angles, span: Span, ask: Ask, given_BTK: Tensor | None = None
    ) -> Attended:
        """Attend from normed activations.

        Args:
            x_BTD: output of the layer's input norm.
            angles: of the tokens' positions.
            span: what can be seen.
            ask: how, and what to return.
            given_BTK: slots to attend to instead of choosing, none twice in a row; ``HIDDEN`` for
                none. Slots that a query cannot see are left out; a query left with nothing sees itself.
                A row that starts with ``NOT_REPLAYED`` is chosen by the indexer. ``dense`` overrides.
        """
        queries = self._queries(x_BTD, angles)
        rows_BTW = self._rows(x_BTD, angles)
        more_than_kept = span.num_slots > self.config.index_topk
        leaves_out = not ask.dense and (more_than_kept or given_BTK is not None)
        needs_index = span.cache is not None or (leaves_out and not is_complete(given_BTK))
        index_BTF = None
        if needs_index:
            with torch.no_grad():
                index_BTF = self.indexer.keys(x_BTD, angles)
        if span.cache is not None:
            assert index_BTF is not None
            span.cache.write(self.layer, rows_BTW, index_BTF)
        tokens = _Tokens(x_BTD, angles, queries, rows_BTW, index_BTF)
        if leaves_out:
            out_BTHV, kept_BTK = self._sparse(tokens, span, ask, given_BTK)
        else:
            path = self._path(ask, span, leaves_out=False)
            out_BTHV, kept_BTK = self._over(path, tokens, span, None), None
        loss = None
        if ask.index_loss is not None:
            loss = self._index_loss(ask.index_loss, tokens, span, kept_BTK)
        if ask.capture_topk and kept_BTK is None:
            kept_BTK = all_visible(span)
        return Attended(
            self.o_proj(out_BTHV.flatten(2)), kept_BTK if ask.capture_topk else None, loss
        )

    def _queries(self, x_BTD: Tensor, angles: Angles) -> _Queries:
        c = self.config
        latent_BTQ = self.q_a_layernorm(self.q_a_proj(x_BTD))
        shape = (*x_BTD.shape[:-1], c.num_attention_heads, c.qk_head_dim)
        heads = self.q_b_proj(latent_BTQ).view(shape)
        nope_BTHN, rope_BTHR = torch.split(heads, [c.qk_nope_head_dim, c.qk_rope_head_dim], -1)
        per_head = Angles(angles.cos.unsqueeze(-2), angles.sin.unsqueeze(-2))
        return _Queries(nope_BTHN, rotate_pairs(rope_BTHR, per_head), latent_BTQ)

    def _rows(self, x_BTD: Tensor, angles: Angles) -> Tensor:
        """Compute the cache entry of each token: normed latent and rotated shared key, [B, T, C + R]."""
        c = self.config
        joined_BTE = self.kv_a_proj_with_mqa(x_BTD)
        latent_BTC, key_BTR = torch.split(joined_BTE, [c.kv_lora_rank, c.qk_rope_head_dim], -1)
        return torch.cat((self.kv_a_layernorm(latent_BTC), rotate_pairs(key_BTR, angles)), -1)

    def _sparse(
        self, tokens: _Tokens, span: Span, ask: Ask, given_BTK: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Attend to chosen keys: outputs of the heads [B, T, H, V] and, where it is of use, which keys."""
        path = self._path(ask, span, leaves_out=True)
        asked = given_BTK is not None or ask.capture_topk or ask.index_loss is not None
        if path == "gather" and span.whole and not asked:
            return self._early_and_late(tokens, span), None
        own_BTK = None
        if not is_complete(given_BTK):
            own_BTK = self._choose(tokens, span, slice(None))
        kept_BTK = own_BTK if given_BTK is None else replayed(given_BTK, own_BTK, span)
        return self._over(path, tokens, span, kept_BTK), kept_BTK

    def _early_and_late(self, tokens: _Tokens, span: Span) -> Tensor:
        """The first index_topk queries see no more than they may keep, so nothing is chosen for them."""
        head, tail = slice(0, self.config.index_topk), slice(self.config.index_topk, None)
        kept_BtK = self._choose(tokens, span, tail)
        rows_BTW, queries = tokens.rows_BTW, tokens.queries
        first = Span(span.slots_BT[:, head], self.config.index_topk)
        early = self._dense(_at(queries, head), rows_BTW[:, head], first, None)
        late = self._gather(_at(queries, tail), rows_BTW, span, kept_BtK)
        return torch.cat((early, late), 1)

    def _path(self, ask: Ask, span: Span, *, leaves_out: bool) -> Path:
        if ask.path != "auto":
            return ask.path
        batch, num_queries = span.slots_BT.shape
        if num_queries == 1 and span.cache is not None:
            return "gather"
        if not leaves_out:
            return "masked"
        pairs = batch * num_queries * span.num_slots
        return "gather" if pairs > MASK_LIMIT or self._gather_is_cheaper(span) else "masked"

    def _gather_is_cheaper(self, span: Span) -> bool:
        """Arithmetic of a query over all slots in MHA mode against K rows in MQA mode (and 2x to gather)."""
        c = self.config
        dense = float(span.num_slots * (c.qk_head_dim + c.v_head_dim))
        if span.whole:
            dense /= 2
        return dense > 2 * c.index_topk * (c.latent_width + c.kv_lora_rank)

    def _choose(self, tokens: _Tokens, span: Span, part: slice) -> Tensor:
        """The chosen slots of some of the queries: int32 [B, t, K]."""
        assert tokens.index_BTF is not None
        angles, latent_BTQ = tokens.angles, tokens.queries.latent_BTQ
        some = Angles(angles.cos[:, part], angles.sin[:, part])
        with torch.no_grad():
            wanted = self.indexer.queries(tokens.x_BTD[:, part], latent_BTQ[:, part], some)
            keys_BSF = tokens.index_BTF
            if span.cache is not None:
                keys_BSF = span.cache.index_keys(self.layer)
            return select(
                wanted,
                keys_BSF,
                span.slots_BT[:, part],
                self.config.index_topk,
                span.key_valid_BS,
                span.until_BS,
            )

    def _over(self, path: Path, tokens: _Tokens, span: Span, kept_BTK: Tensor | None) -> Tensor:
        """Attend to a set of keys, or to all that is visible: [B, T, H, V]."""
        queries, rows_BSW = tokens.queries, tokens.rows_BTW
        if path == "gather":
            kept_BTK = all_visible(span) if kept_BTK is None else kept_BTK
            return self._gather(queries, rows_BSW, span, kept_BTK)
        if span.cache is not None:
            rows_BSW = span.cache.rows(self.layer).to(rows_BSW.dtype)
        if path == "reference":
            return self._reference(queries, rows_BSW, span, kept_BTK)
        return self._dense(queries, rows_BSW, span, kept_BTK)

    def _expanded(self, rows_BSW: Tensor) -> tuple[Tensor, Tensor]:
        """Keys [B, S, H, N + R] and values [B, S, H, V] of MHA mode."""
        c = self.config
        latent_BSC, key_BSR = torch.split(rows_BSW, [c.kv_lora_rank, c.qk_rope_head_dim], -1)
        shape = (*rows_BSW.shape[:2], c.num_attention_heads, c.qk_nope_head_dim + c.v_head_dim)
        heads = self.kv_b_proj(latent_BSC).view(shape)
        nope_BSHN, v_BSHV = torch.split(heads, [c.qk_nope_head_dim, c.v_head_dim], -1)
        shared = key_BSR.unsqueeze(2).expand(-1, -1, c.num_attention_heads, -1)
        return torch.cat((nope_BSHN, shared), -1), v_BSHV

    def _reference(
        self, queries: _Queries, rows_BSW: Tensor, span: Span, kept_BTK: Tensor | None
    ) -> Tensor:
        k_BSHd, v_BSHV = self._expanded(rows_BSW)
        q_BTHd = torch.cat((queries.nope_BTHN, queries.rope_BTHR), -1)
        scores_BHTS = torch.einsum("bthd,bshd->bhts", q_BTHd, k_BSHd) * self.config.softmax_scale
        seen_BTS = seen(span, kept_BTK)
        scores_BHTS = scores_BHTS.masked_fill(~seen_BTS.unsqueeze(1), float("-inf"))
        p_BHTS = torch.softmax(widened(scores_BHTS), -1).to(v_BSHV.dtype)
        return torch.einsum("bhts,bshv->bthv", p_BHTS, v_BSHV)

    def _dense(
        self, queries: _Queries, rows_BSW: Tensor, span: Span, kept_BTK: Tensor | None
    ) -> Tensor:
        k_BSHd, v_BSHV = self._expanded(rows_BSW)
        q_BTHd = torch.cat((queries.nope_BTHN, queries.rope_BTHR), -1)
        # The fused kernels want keys and values of one width.
        width = self.config.qk_head_dim
        value_width = v_BSHV.shape[-1]
        wide = max(width, value_width)
        q, k = (functional.pad(x, (0, wide - width)).transpose(1, 2) for x in (q_BTHd, k_BSHd))
        v = functional.pad(v_BSHV, (0, wide - value_width)).transpose(1, 2)
        causal = span.whole and kept_BTK is None
        mask = None if causal else seen(span, kept_BTK).unsqueeze(1)
        out = functional.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=causal, scale=self.config.softmax_scale
        )
        return out.transpose(1, 2)[..., :value_width]

    def absorbed(self, queries: _Queries) -> Tensor:
        """Queries that score cached rows directly: [B, T, H, C + R]."""
        up_HNC, _ = self.up()
        q_BTHC = torch.einsum("bthn,hnc->bthc", queries.nope_BTHN, up_HNC)
        return torch.cat((q_BTHC, queries.rope_BTHR), -1)

    def up(self) -> tuple[Tensor, Tensor]:
        """kv_b_proj as W_UK [H, N, C] and W_UV [H, V, C]."""
        c = self.config
        heads = self.kv_b_proj.weight.view(c.num_attention_heads, -1, c.kv_lora_rank)
        up_HNC, up_HVC = torch.split(heads, [c.qk_nope_head_dim, c.v_head_dim], 1)
        return up_HNC, up_HVC

    def _gather(self, queries: _Queries, rows_BTW: Tensor, span: Span, kept_BTK: Tensor) -> Tensor:
        c = self.config
        q_BTHW = self.absorbed(queries)
        pool_MW, pool_rows_BTK = pooled(rows_BTW, span, kept_BTK, self.layer)
        out_NHC = sparse_attention(
            q_BTHW.flatten(0, 1),
            pool_MW,
            pool_rows_BTK.flatten(0, 1),
            c.softmax_scale,
            c.kv_lora_rank,
        )
        _, up_HVC = self.up()
        out_BTHC = out_NHC.view(*q_BTHW.shape[:3], c.kv_lora_rank)
        return torch.einsum("bthc,hvc->bthv", out_BTHC, up_HVC)

    def _index_loss(
        self, form: IndexLoss, tokens: _Tokens, span: Span, kept_BTK: Tensor | None
    ) -> Tensor:
        """Eq. 3 or 4 of this layer. All that enters is detached: only the indexer learns from it."""
        if span.cache is not None:
            raise ValueError("the indexer is trained on whole sequences, without a cache")
        with torch.no_grad():
            q_BTHW = self.absorbed(tokens.queries)
        x_BTD, rows_BTW = tokens.x_BTD.detach(), tokens.rows_BTW.detach()
        asked = self.indexer.queries(x_BTD, tokens.queries.latent_BTQ.detach(), tokens.angles)
        keys_BTF = self.indexer.keys(x_BTD, tokens.angles)
        share_BT = shares(span)
        scale = self.config.softmax_scale
        if form == "dense":
            if span.until_BS is not None:
                raise ValueError(
                    "eq. 3 is taken over whole sequences, not over such that share beginnings"
                )
            return dense_index_loss(asked, keys_BTF, q_BTHW, rows_BTW, share_BT, scale)
        kept_BTK = all_visible(span) if kept_BTK is None else kept_BTK
        pool_MW, pool_rows_BTK = pooled(rows_BTW, span, kept_BTK, self.layer)
        return sparse_index_loss(
            IndexQueries(asked.q_BTJF.flatten(0, 1), asked.w_BTJ.flatten(0, 1)),
            keys_BTF.flatten(0, 1),
            q_BTHW.flatten(0, 1),
            pool_MW,
            pool_rows_BTK.flatten(0, 1),
            share_BT.flatten(),
            scale,
        )


def _at(queries: _Queries, part: slice) -> _Queries:
    return _Queries(*(x[:, part] for x in queries))
