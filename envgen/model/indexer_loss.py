"""The loss of the lightning indexer: KL from the attention it must predict (paper, eq. 3 and 4).

    L = mean over queries t of KL( p[t, :] || softmax(I[t, :]) )

p is the main attention summed over heads and normalised to 1, and is given, not learnt. In the dense
warm-up (eq. 3) both range over all visible keys, in sparse training (eq. 4) over the chosen set. The
paper sums over t; here the loss of one layer is the *mean* over valid query tokens, and a model's is the
sum over layers, so that learning rates do not depend on batch size.

The gradient of a KL to a softmax is simple (softmax(I) - p), so it is taken block by block in the
forward pass: nothing of size T * K * width, or T * T, is ever kept.

Shapes: N queries, M key rows, J indexer heads, F index_head_dim, H heads, W row width, K kept keys,
B batch, T tokens of a sequence.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from envgen.model.indexer import SCORE_BLOCK, IndexQueries
from envgen.model.precision import exactly, widened
from envgen.model.sparse import attention_target, block_size


class _Gradients(NamedTuple):
    q: Tensor
    w: Tensor
    keys: Tensor


class _ScalarLoss(torch.autograd.Function):
    """A number whose gradients are known already."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, w: Tensor, keys: Tensor, loss: Tensor, found: _Gradients
    ) -> Tensor:
        ctx.save_for_backward(*found)
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        q, w, keys = ctx.saved_tensors
        return grad * q, grad * w, grad * keys, None, None


def _known(queries: IndexQueries, keys: Tensor, loss: Tensor, found: _Gradients) -> Tensor:
    result: Tensor = _ScalarLoss.apply(*queries, keys, loss, found)  # type: ignore[no-untyped-call]
    return result


def _divergence(target: Tensor, scores: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
    """KL(target || softmax(scores)) weighted and summed, and its gradient in ``scores``.

    Args:
        target: p; 0 where ``scores`` is -inf. [..., K]
        scores: I; -inf where there is no key. [..., K]
        share: weight of each query. [...]
    """
    logs = torch.log_softmax(scores, -1)
    terms = torch.where(target > 0, target * (target.clamp_min(1e-30).log() - logs), 0.0)
    loss = (terms.sum(-1) * share).sum()
    return loss, (logs.exp() - target) * share.unsqueeze(-1)


@torch.no_grad()
def _sparse(
    queries: IndexQueries, keys_MF: Tensor, kept_NK: Tensor, target_NK: Tensor, share_N: Tensor
) -> tuple[Tensor, _Gradients]:
    q_NJF, w_NJ, keys = widened(queries.q_BTJF), queries.w_BTJ, widened(keys_MF)
    grads = _Gradients(torch.empty_like(q_NJF), torch.empty_like(w_NJ), torch.zeros_like(keys))
    loss = torch.zeros((), dtype=keys.dtype, device=keys.device)
    step = block_size(kept_NK, max(q_NJF.shape[1:]))
    for start in range(0, len(q_NJF), step):
        block = slice(start, start + step)
        q_nJF, w_nJ, kept_nK = q_NJF[block], w_NJ[block], kept_NK[block]
        hidden_nK, safe_nK = kept_nK < 0, kept_nK.clamp_min(0).long()
        found_nKF = keys.index_select(0, safe_nK.flatten()).view(*safe_nK.shape, keys.shape[1])
        lit_nJK = torch.bmm(q_nJF, found_nKF.transpose(1, 2)).relu_()
        scores_nK = torch.bmm(w_nJ.unsqueeze(1), lit_nJK).squeeze(1)
        scores_nK.masked_fill_(hidden_nK, float("-inf"))
        part, grad_nK = _divergence(target_NK[block], scores_nK, share_N[block])
        loss += part
        grads.w[block] = torch.bmm(lit_nJK, grad_nK.unsqueeze(-1)).squeeze(-1)
        grad_dots_nJK = grad_nK.unsqueeze(1) * w_nJ.unsqueeze(-1) * (lit_nJK > 0)
        grads.q[block] = torch.bmm(grad_dots_nJK, found_nKF)
        grad_found_nKF = torch.bmm(grad_dots_nJK.transpose(1, 2), q_nJF)
        grads.keys.index_add_(0, safe_nK.flatten(), grad_found_nKF.flatten(0, 1))
    return loss, grads


def sparse_index_loss(
    queries: IndexQueries,
    keys_MF: Tensor,
    q_NHW: Tensor,
    rows_MW: Tensor,
    kept_NK: Tensor,
    share_N: Tensor,
    scale: float,
) -> Tensor:
    """Eq. 4 of one layer: a scalar that only ``queries`` and ``keys_MF`` get a gradient from.

    Args:
        queries: of N tokens: q [N, J, F], w [N, J]; made from detached activations.
        keys_MF: index keys of all tokens, in the order of ``rows_MW``.
        q_NHW: absorbed queries of the main attention.
        rows_MW: its cached rows.
        kept_NK: int32 rows each query attends to; negative: none.
        share_N: weight of each query; 1 / count for a mean, 0 for padding.
        scale: of the main softmax.
    """
    with exactly(keys_MF.device):
        target_NK = attention_target(q_NHW, rows_MW, kept_NK, scale)
        loss, grads = _sparse(queries, keys_MF, kept_NK, target_NK, share_N)
    return _known(queries, keys_MF, loss, grads)


@torch.no_grad()
def _dense(
    queries: IndexQueries,
    keys_BTF: Tensor,
    q_BTHW: Tensor,
    rows_BTW: Tensor,
    share_BT: Tensor,
    scale: float,
) -> tuple[Tensor, _Gradients]:
    q_BTJF, w_BTJ, keys = widened(queries.q_BTJF), queries.w_BTJ, widened(keys_BTF)
    grads = _Gradients(torch.empty_like(q_BTJF), torch.empty_like(w_BTJ), torch.zeros_like(keys))
    loss = torch.zeros((), dtype=keys.dtype, device=keys.device)
    batch, tokens, heads, _ = q_BTHW.shape
    step = max(1, SCORE_BLOCK // max(1, tokens * max(heads, w_BTJ.shape[-1])))
    for b in range(batch):
        for start in range(0, tokens, step):
            rows = slice(start, min(start + step, tokens))
            seen = slice(0, rows.stop)
            future_ts = torch.arange(rows.stop, device=keys.device) > torch.arange(
                start, rows.stop, device=keys.device
            ).unsqueeze(1)
            hidden_ts = future_ts | (share_BT[b, seen] == 0)
            hidden_ts[:, start:] &= ~torch.eye(
                rows.stop - start, dtype=torch.bool, device=keys.device
            )
            main_Hts = widened(q_BTHW[b, rows].transpose(0, 1) @ rows_BTW[b, seen].T) * scale
            target_ts = main_Hts.masked_fill_(hidden_ts, float("-inf")).softmax(-1).mean(0)
            q_tJF, w_tJ = q_BTJF[b, rows], w_BTJ[b, rows]
            lit_tJs = (q_tJF @ keys[b, seen].T).relu_()
            scores_ts = torch.bmm(w_tJ.unsqueeze(1), lit_tJs).squeeze(1)
            scores_ts.masked_fill_(hidden_ts, float("-inf"))
            part, grad_ts = _divergence(target_ts, scores_ts, share_BT[b, rows])
            loss += part
            grads.w[b, rows] = torch.bmm(lit_tJs, grad_ts.unsqueeze(-1)).squeeze(-1)
            grad_dots_tJs = grad_ts.unsqueeze(1) * w_tJ.unsqueeze(-1) * (lit_tJs > 0)
            grads.q[b, rows] = grad_dots_tJs @ keys[b, seen]
            grads.keys[b, seen] += grad_dots_tJs.flatten(0, 1).T @ q_tJF.flatten(0, 1)
    return loss, grads


def dense_index_loss(
    queries: IndexQueries,
    keys_BTF: Tensor,
    q_BTHW: Tensor,
    rows_BTW: Tensor,
    share_BT: Tensor,
    scale: float,
) -> Tensor:
    """Eq. 3 of one layer over whole causal sequences; a token of share 0 is padding and unseen.

    Args:
        queries: q [B, T, J, F], w [B, T, J]; made from detached activations.
        keys_BTF: index keys.
        q_BTHW: absorbed queries of the main attention.
        rows_BTW: its cached rows.
        share_BT: weight of each query; 1 / count for a mean, 0 for padding.
        scale: of the main softmax.
    """
    with exactly(keys_BTF.device):
        loss, grads = _dense(queries, keys_BTF, q_BTHW, rows_BTW, share_BT, scale)
    return _known(queries, keys_BTF, loss, grads)
