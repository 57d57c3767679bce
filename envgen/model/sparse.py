"""Attention of each query over its own few keys, in absorbed (MQA) form, without [B, H, T, S].

All heads share one cached row per token: the latent and the rotary key (paper, eq. 2; FlashMLA's
576 / 512). Queries are worked through in blocks; the backward pass gathers and scores again, so what is
kept for it grows with T, not with T * K * width.

Shapes: N queries (B * T flattened), H heads, W = C + R width of a row, C latent width, K kept keys,
M rows of the pool.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

GATHER_BLOCK = 1 << 22
"""Gathered numbers held at once: 16 MB in float32."""


def _block_size(num_kept: int, width: int, heads: int) -> int:
    return max(1, GATHER_BLOCK // (num_kept * max(width, heads)))


def _gathered(rows_MW: Tensor, kept_NK: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Indices without ``HIDDEN`` [n, K], which were hidden [n, K], and the rows [n, K, W]."""
    hidden_NK = kept_NK < 0
    safe_NK = kept_NK.clamp_min(0)
    found = rows_MW.index_select(0, safe_NK.flatten())
    return safe_NK, hidden_NK, found.view(*kept_NK.shape, rows_MW.shape[1])


def _weights(q_NHW: Tensor, rows_NKW: Tensor, hidden_NK: Tensor, scale: float) -> Tensor:
    """Softmax over the kept keys in float32: [n, H, K]."""
    scores_NHK = torch.bmm(q_NHW, rows_NKW.transpose(1, 2)).float().mul_(scale)
    scores_NHK.masked_fill_(hidden_NK.unsqueeze(1), float("-inf"))
    return torch.softmax(scores_NHK, -1)


class _SparseAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q_NHW: Tensor, rows_MW: Tensor, kept_NK: Tensor, scale: float, latent: int
    ) -> Tensor:
        ctx.save_for_backward(q_NHW, rows_MW, kept_NK)
        ctx.scale, ctx.latent = scale, latent
        count, heads, width = q_NHW.shape
        step = _block_size(kept_NK.shape[1], width, heads)
        out_NHC = q_NHW.new_empty((count, heads, latent))
        for start in range(0, count, step):
            block = slice(start, start + step)
            _, hidden_NK, found_NKW = _gathered(rows_MW, kept_NK[block])
            weights_NHK = _weights(q_NHW[block], found_NKW, hidden_NK, scale)
            out_NHC[block] = torch.bmm(weights_NHK.to(q_NHW.dtype), found_NKW[..., :latent])
        return out_NHC

    @staticmethod
    def backward(ctx: Any, grad_NHC: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        q_NHW, rows_MW, kept_NK = ctx.saved_tensors
        scale, latent = ctx.scale, ctx.latent
        count, heads, width = q_NHW.shape
        step = _block_size(kept_NK.shape[1], width, heads)
        grad_q_NHW = torch.empty_like(q_NHW)
        grad_rows_MW = torch.zeros_like(rows_MW, dtype=torch.float32)
        for start in range(0, count, step):
            block = slice(start, start + step)
            q_nHW, grad_nHC = q_NHW[block], grad_NHC[block]
            safe_nK, hidden_nK, found_nKW = _gathered(rows_MW, kept_NK[block])
            p_nHK = _weights(q_nHW, found_nKW, hidden_nK, scale)
            grad_p_nHK = torch.bmm(grad_nHC, found_nKW[..., :latent].transpose(1, 2)).float()
            inner_nH1 = (grad_p_nHK * p_nHK).sum(-1, keepdim=True)
            grad_s_nHK = ((grad_p_nHK - inner_nH1) * p_nHK * scale).to(q_NHW.dtype)
            grad_q_NHW[block] = torch.bmm(grad_s_nHK, found_nKW)
            grad_found_nKW = torch.bmm(grad_s_nHK.transpose(1, 2), q_nHW)
            grad_found_nKW[..., :latent] += torch.bmm(
                p_nHK.to(q_NHW.dtype).transpose(1, 2), grad_nHC
            )
            grad_rows_MW.index_add_(
                0, safe_nK.flatten(), grad_found_nKW.flatten(0, 1).to(torch.float32)
            )
        return grad_q_NHW, grad_rows_MW.to(rows_MW.dtype), None, None, None


def sparse_attention(
    q_NHW: Tensor, rows_MW: Tensor, kept_NK: Tensor, scale: float, latent: int
) -> Tensor:
    """softmax(q . rows[kept] * scale) @ rows[kept][:, :latent] for every query: [N, H, latent].

    Args:
        q_NHW: absorbed queries: those of the latent, then those of the rotary key.
        rows_MW: the pool of cached rows; may belong to many sequences.
        kept_NK: int64 row numbers; negative ones are not there. Each query needs at least one.
        scale: of the softmax.
        latent: C, how much of a row is value.
    """
    result: Tensor = _SparseAttention.apply(q_NHW, rows_MW, kept_NK, scale, latent)  # type: ignore[no-untyped-call]
    return result


@torch.no_grad()
def attention_target(q_NHW: Tensor, rows_MW: Tensor, kept_NK: Tensor, scale: float) -> Tensor:
    """Attention weights summed over heads and normalised: what the indexer learns; float32 [N, K]."""
    count, heads, width = q_NHW.shape
    step = _block_size(kept_NK.shape[1], width, heads)
    target_NK = torch.empty(kept_NK.shape, dtype=torch.float32, device=q_NHW.device)
    for start in range(0, count, step):
        block = slice(start, start + step)
        _, hidden_NK, found_NKW = _gathered(rows_MW, kept_NK[block])
        target_NK[block] = _weights(q_NHW[block], found_NKW, hidden_NK, scale).mean(1)
    return target_NK
