"""Attention of each query over its own few keys, in absorbed (MQA) form, without [B, H, T, S].

All heads share one cached row per token: the latent and the rotary key (paper, eq. 2; FlashMLA's
576 / 512). Queries are worked through in blocks; the backward pass gathers and scores again, so what is
kept for it grows with T, not with T * K * width.

Shapes: N queries (B * T flattened), H heads, W = C + R width of a row, C latent width, K kept keys,
M rows of the pool.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from envgen.model.precision import exactly, widened

GATHER_BLOCK = 1 << 18
"""Gathered numbers held at once on a CPU: 1 MB in float32, so that a block stays in its caches."""
GATHER_BLOCK_GPU = 1 << 25
"""The same on an accelerator, which wants many queries at a time."""


def block_size(kept_NK: Tensor, width: int) -> int:
    """Queries worked on together: ``width`` numbers are held for each of their kept keys."""
    block = GATHER_BLOCK if kept_NK.device.type == "cpu" else GATHER_BLOCK_GPU
    return max(1, block // max(1, kept_NK.shape[1] * width))


class _Block(NamedTuple):
    """What some queries keep."""

    places_nK: Tensor
    """int64; 0 where hidden"""
    hidden_n1K: Tensor | None
    """Where there is no key; None: everywhere there is one."""
    rows_nKW: Tensor


def _gathered(rows_MW: Tensor, kept_nK: Tensor, dtype: torch.dtype) -> _Block:
    hidden_nK = kept_nK < 0
    places_nK = kept_nK.clamp_min(0).long()
    rows_nKW = rows_MW.index_select(0, places_nK.flatten()).to(dtype)
    # An accelerator would have to wait for the answer.
    must_hide = kept_nK.device.type != "cpu" or bool(hidden_nK.any())
    shaped_nKW = rows_nKW.view(*kept_nK.shape, rows_MW.shape[1])
    return _Block(places_nK, hidden_nK.unsqueeze(1) if must_hide else None, shaped_nKW)


def _weights(q_nHW: Tensor, block: _Block) -> Tensor:
    """Softmax over the kept keys, in float32 at least: [n, H, K]. ``q_nHW`` is scaled already."""
    scores_nHK = widened(torch.bmm(q_nHW, block.rows_nKW.transpose(1, 2)))
    if block.hidden_n1K is not None:
        scores_nHK.masked_fill_(block.hidden_n1K, float("-inf"))
    return torch.softmax(scores_nHK, -1)


class _SparseAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q_NHW: Tensor, rows_MW: Tensor, kept_NK: Tensor, scale: float, latent: int
    ) -> Tensor:
        ctx.save_for_backward(q_NHW, rows_MW, kept_NK)
        ctx.scale, ctx.latent = scale, latent
        count, heads, width = q_NHW.shape
        step = block_size(kept_NK, max(width, heads))
        out_NHC = q_NHW.new_empty((count, heads, latent))
        for start in range(0, count, step):
            part = slice(start, start + step)
            block = _gathered(rows_MW, kept_NK[part], q_NHW.dtype)
            p_nHK = _weights(q_NHW[part] * scale, block).to(q_NHW.dtype)
            torch.bmm(p_nHK, block.rows_nKW[..., :latent], out=out_NHC[part])
        return out_NHC

    @staticmethod
    def backward(ctx: Any, grad_NHC: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        q_NHW, rows_MW, kept_NK = ctx.saved_tensors
        scale, latent = ctx.scale, ctx.latent
        count, heads, width = q_NHW.shape
        step = block_size(kept_NK, max(width, heads))
        grad_q_NHW = torch.empty_like(q_NHW)
        wide = torch.promote_types(rows_MW.dtype, torch.float32)
        grad_rows_MW = torch.zeros_like(rows_MW, dtype=wide)
        for start in range(0, count, step):
            part = slice(start, start + step)
            q_nHW, grad_nHC = q_NHW[part] * scale, grad_NHC[part]
            block = _gathered(rows_MW, kept_NK[part], q_NHW.dtype)
            p_nHK = _weights(q_nHW, block)
            grad_s_nHK = torch.bmm(grad_nHC, block.rows_nKW[..., :latent].transpose(1, 2))
            grad_s_nHK = widened(grad_s_nHK)
            grad_s_nHK -= (grad_s_nHK * p_nHK).sum(-1, keepdim=True)
            grad_s_nHK *= p_nHK
            narrow_nHK = grad_s_nHK.to(q_NHW.dtype)
            grad_q_NHW[part] = torch.bmm(narrow_nHK, block.rows_nKW).mul_(scale)
            grad_rows_nKW = torch.bmm(narrow_nHK.transpose(1, 2), q_nHW)
            grad_rows_nKW[..., :latent] += torch.bmm(
                p_nHK.to(q_NHW.dtype).transpose(1, 2), grad_nHC
            )
            grad_rows_MW.index_add_(
                0, block.places_nK.flatten(), grad_rows_nKW.flatten(0, 1).to(wide)
            )
        return grad_q_NHW, grad_rows_MW.to(rows_MW.dtype), None, None, None


def sparse_attention(
    q_NHW: Tensor, rows_MW: Tensor, kept_NK: Tensor, scale: float, latent: int
) -> Tensor:
    """softmax(q . rows[kept] * scale) @ rows[kept][:, :latent] for every query: [N, H, latent].

    Args:
        q_NHW: absorbed queries: those of the latent, then those of the rotary key.
        rows_MW: the pool of cached rows; may belong to many sequences.
        kept_NK: int32 or int64 row numbers, none twice for a query; negative: none there. Each query
            needs at least one.
        scale: of the softmax.
        latent: C, how much of a row is value.
    """
    device = q_NHW.device
    if torch.is_autocast_enabled(device.type):
        q_NHW = q_NHW.to(torch.get_autocast_dtype(device.type))
    with exactly(device):
        result: Tensor = _SparseAttention.apply(q_NHW, rows_MW, kept_NK, scale, latent)  # type: ignore[no-untyped-call]
    return result


@torch.no_grad()
def attention_target(q_NHW: Tensor, rows_MW: Tensor, kept_NK: Tensor, scale: float) -> Tensor:
    """Attention weights summed over heads and normalised, what the indexer learns: [N, K]."""
    count, heads, width = q_NHW.shape
    step = block_size(kept_NK, max(width, heads))
    wide = torch.promote_types(q_NHW.dtype, torch.float32)
    target_NK = torch.empty(kept_NK.shape, dtype=wide, device=q_NHW.device)
    for start in range(0, count, step):
        part = slice(start, start + step)
        block = _gathered(rows_MW, kept_NK[part], q_NHW.dtype)
        target_NK[part] = _weights(q_NHW[part] * scale, block).mean(1)
    return target_NK
