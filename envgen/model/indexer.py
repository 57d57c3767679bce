"""The lightning indexer: a light score of every earlier token, and the k best (paper, eq. 1).

    I[t, s] = sum_j w[t, j] * ReLU(q[t, j] . k[s])

with J indexer heads that share one key per token. The head weights w are signed.

Shapes: B batch, T query tokens, S key slots, D model width, Q query latent, J indexer heads,
F index_head_dim, R rotary width, P = R / 2, K kept keys, M rows of a key pool.

A *slot* is a token's place in its sequence. A query at slot t sees the keys s <= t that are valid.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from envgen.model.config import DSAConfig
from envgen.model.precision import exactly, widened
from envgen.model.quantize import fake_fp8, hadamard
from envgen.model.rope import Angles, rotate_halves, rotate_pairs

HIDDEN = -1
"""Stands in a top-k set for "no key here"."""
NOT_REPLAYED = -2
"""Stands in the first place of a replayed top-k row that the model shall choose itself."""
SCORE_BLOCK = 1 << 19
"""Scores held at once while keys are chosen on a CPU: 2 MB, which stays in its caches."""
SCORE_BLOCK_GPU = 1 << 25
"""The same on an accelerator, which wants many queries at a time."""
GROUP = 8
"""Slots that are looked at as one while a CPU looks for the best of many."""


class IndexQueries(NamedTuple):
    """The inputs that score keys: queries and the heads' weights (scales included)."""

    q_BTJF: Tensor
    w_BTJ: Tensor


class Indexer(nn.Module):
    """Makes indexer queries, keys and weights; parameter names are Hugging Face's."""

    def __init__(self, config: DSAConfig) -> None:
        super().__init__()
        heads, width = config.index_n_heads, config.index_head_dim
        self.config = config
        self.wq_b = nn.Linear(config.q_lora_rank, heads * width, bias=False)
        self.wk = nn.Linear(config.hidden_size, width, bias=False)
        self.k_norm = nn.LayerNorm(width, eps=1e-6)
        self.weights_proj = nn.Linear(config.hidden_size, heads, bias=False)

    def keys(self, x_BTD: Tensor, angles: Angles) -> Tensor:
        """Index keys [B, T, F]: normed, rotated on their first R dims, turned and rounded by flag."""
        wide = widened(self.wk(x_BTD))
        norm = self.k_norm
        weight, bias = norm.weight.to(wide.dtype), norm.bias.to(wide.dtype)
        k_BTF = nn.functional.layer_norm(wide, norm.normalized_shape, weight, bias, norm.eps)
        return self.finish(self._rotated(k_BTF.to(x_BTD.dtype), angles))

    def queries(self, x_BTD: Tensor, q_latent_BTQ: Tensor, angles: Angles) -> IndexQueries:
        """Queries and weights. Weights hold J^-0.5 and F^-0.5; ReLU lets a positive factor pass."""
        c = self.config
        shape = (*x_BTD.shape[:-1], c.index_n_heads, c.index_head_dim)
        per_head = Angles(angles.cos.unsqueeze(-2), angles.sin.unsqueeze(-2))
        q_BTJF = self._rotated(self.wq_b(q_latent_BTQ).view(shape), per_head)
        w_BTJ = widened(self.weights_proj(x_BTD.to(self.weights_proj.weight.dtype)))
        return IndexQueries(
            self.finish(q_BTJF), w_BTJ * (c.index_n_heads * c.index_head_dim) ** -0.5
        )

    def _rotated(self, x: Tensor, angles: Angles) -> Tensor:
        width = self.config.qk_rope_head_dim
        rotate = rotate_pairs if self.config.indexer_rope_interleave else rotate_halves
        return torch.cat((rotate(x[..., :width], angles), x[..., width:]), -1)

    def finish(self, x: Tensor) -> Tensor:
        """The last step of queries and keys [..., F]: turned by Hadamard and rounded to e4m3, by flag."""
        x = hadamard(x) if self.config.index_hadamard else x
        return fake_fp8(x) if self.config.index_fp8 else x


def visible(
    slots_BT: Tensor,
    num_slots: int,
    key_valid_BS: Tensor | None = None,
    until_BS: Tensor | None = None,
) -> Tensor:
    """Which keys each query may see: bool [B, T, S]; not the future, not padding, nothing of other branches.

    Every query sees itself, so that padding has something to look at; nothing valid sees padding.

    Args:
        slots_BT: int64, places of the queries.
        num_slots: S.
        key_valid_BS: False where a slot is padding.
        until_BS: where continuations of common beginnings lie behind each other, the slot at which what
            continues each slot ends: only queries before it see the slot.
    """
    slots_S, queries_BT1 = torch.arange(num_slots, device=slots_BT.device), slots_BT.unsqueeze(-1)
    seen_BTS = slots_S <= queries_BT1
    if until_BS is not None:
        seen_BTS = seen_BTS & (queries_BT1 < until_BS.unsqueeze(1))
    if key_valid_BS is None:
        return seen_BTS
    return seen_BTS & (key_valid_BS.unsqueeze(1) | (slots_S == queries_BT1))


def index_scores(queries: IndexQueries, k_BSF: Tensor) -> Tensor:
    """Eq. 1 for all pairs, without a mask: float32 [B, T, S]. The readable form; differentiable."""
    with exactly(k_BSF.device):
        dots_BTJS = torch.einsum("btjf,bsf->btjs", widened(queries.q_BTJF), widened(k_BSF))
        return torch.einsum("btjs,btj->bts", dots_BTJS.relu(), queries.w_BTJ)


@torch.no_grad()
def select(
    queries: IndexQueries,
    k_BSF: Tensor,
    slots_BT: Tensor,
    num_kept: int,
    key_valid_BS: Tensor | None = None,
    until_BS: Tensor | None = None,
) -> Tensor:
    """The ``num_kept`` best visible keys of every query: int32 [B, T, K], K = min(num_kept, S).

    A row that sees fewer holds ``HIDDEN`` in the places left. Order within a row means nothing. Of equal
    scores the earlier slot wins.
    Works through blocks of queries, so that memory does not grow with T * S.
    """
    batch, num_queries = slots_BT.shape
    num_slots = k_BSF.shape[1]
    shape = (batch, num_queries, min(num_kept, num_slots))
    found_BTK = torch.full(shape, HIDDEN, dtype=torch.int32, device=slots_BT.device)
    if not slots_BT.numel():
        return found_BTK
    most = SCORE_BLOCK if slots_BT.device.type == "cpu" else SCORE_BLOCK_GPU
    step = max(1, most // max(1, batch * num_slots))
    for start, sight in zip(
        range(0, num_queries, step), _sights(slots_BT, num_slots, step), strict=True
    ):
        block = slice(start, start + step)
        some = IndexQueries(queries.q_BTJF[:, block], queries.w_BTJ[:, block])
        with exactly(k_BSF.device):
            scores_Bts = _block_scores(some, k_BSF[:, : sight.stop])
        _hide(scores_Bts, slots_BT[:, block], sight, key_valid_BS, until_BS)
        best_Btk = _best(scores_Bts, min(num_kept, sight.stop))
        found_BTK[:, block, : best_Btk.shape[2]] = best_Btk
    return found_BTK


def _sights(slots_BT: Tensor, num_slots: int, step: int) -> list[range]:
    """For each block of queries: all of them may see what lies before the range, none what lies behind."""
    num_queries = slots_BT.shape[1]
    if num_queries == 1:
        return [range(num_slots)]  # asking would make an accelerator wait
    lowest, highest = slots_BT.amin(0).tolist(), slots_BT.amax(0).tolist()
    blocks = [slice(start, start + step) for start in range(0, num_queries, step)]
    return [range(min(lowest[block]), max(highest[block]) + 1) for block in blocks]


def _hide(
    scores_Bts: Tensor,
    slots_Bt: Tensor,
    sight: range,
    key_valid_BS: Tensor | None,
    until_BS: Tensor | None,
) -> None:
    """Put -inf where a query cannot see, in place."""
    masks = [None if mask is None else mask[:, : sight.stop] for mask in (key_valid_BS, until_BS)]
    # Without masks, all see what lies before.
    start = sight.start if all(mask is None for mask in masks) else 0
    seen_Bts = visible(slots_Bt - start, sight.stop - start, *masks)
    scores_Bts[..., start:].masked_fill_(~seen_Bts, float("-inf"))


def _best(scores_BtS: Tensor, kept: int) -> Tensor:
    """Slots of the ``kept`` largest scores, ``HIDDEN`` for -inf; of equal ones the earlier: [B, t, K].

    Scores are often equal: where no head is lit, they are 0. So ties are broken by rule, and a sequence
    keeps the same keys whether it is read in one pass or token by token.
    """
    if kept == scores_BtS.shape[-1]:
        slots_S = torch.arange(kept, device=scores_BtS.device)
        return torch.where(scores_BtS == float("-inf"), HIDDEN, slots_S)
    # One more than is kept: its score is the largest that is left out, so one search also tells in which
    # rows scores tie across the limit. Only those few are ranked again, by a full pass that keeps the
    # earlier slots.
    values, slots = _largest(scores_BtS, kept + 1)
    limit = values.min(-1, keepdim=True)
    # The lowest of kept + 1 goes: the last takes its place.
    slots = slots.scatter(-1, limit.indices, slots[..., -1:])[..., :kept]
    values = values.scatter(-1, limit.indices, values[..., -1:])[..., :kept]
    slots = slots.masked_fill(values == float("-inf"), HIDDEN)
    limit_Bt1 = limit.values
    tied_Bt = ((values == limit_Bt1) & (limit_Bt1 > float("-inf"))).any(-1)
    if bool(tied_Bt.any()):
        slots[tied_Bt] = _best_of_tied(scores_BtS[tied_Bt], limit_Bt1[tied_Bt], kept)
    return slots


def _largest(scores_BtS: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The ``count`` largest scores and their slots, [B, t, count] each, in any order.

    A CPU's topk takes long for rows much longer than ``count``. The largest lie in the ``count`` groups
    with the largest maxima, so only those are searched. A group is every n-th slot, for maxima come fast so.
    """
    num_groups = scores_BtS.shape[-1] // GROUP
    if scores_BtS.device.type != "cpu" or num_groups < 2 * count:
        values, slots = scores_BtS.topk(count, -1, sorted=False)
        return values, slots
    whole_BtS = scores_BtS[..., : num_groups * GROUP]
    grouped_BtGn = whole_BtS.view(*whole_BtS.shape[:2], GROUP, num_groups)
    groups_Btc = grouped_BtGn.amax(-2).topk(count, -1, sorted=False).indices
    found = grouped_BtGn.gather(-1, groups_Btc.unsqueeze(-2).expand(-1, -1, GROUP, -1)).flatten(-2)
    starts_G1 = torch.arange(0, num_groups * GROUP, num_groups).unsqueeze(1)
    places = (groups_Btc.unsqueeze(-2) + starts_G1).flatten(-2)
    rest = torch.arange(num_groups * GROUP, scores_BtS.shape[-1])
    found = torch.cat((found, scores_BtS[..., num_groups * GROUP :]), -1)
    places = torch.cat((places, rest.expand(*places.shape[:2], -1)), -1)
    values, order = found.topk(count, -1, sorted=False)
    return values, places.gather(-1, order)


def _best_of_tied(scores_nS: Tensor, limit_n1: Tensor, kept: int) -> Tensor:
    """All slots above the limit, and the first of those at it: [n, K]."""
    above_nS, at_nS = scores_nS > limit_n1, scores_nS == limit_n1
    room_n1 = kept - above_nS.sum(-1, keepdim=True)
    chosen_nS = above_nS | (at_nS & (at_nS.cumsum(-1) <= room_n1))
    return chosen_nS.nonzero()[:, 1].view(-1, kept)


def _block_scores(queries: IndexQueries, k_BSF: Tensor) -> Tensor:
    """Eq. 1 head by head into one buffer: [B, t, S], without [B, t, J, S] for many queries."""
    q_BTJF, w_BTJ = widened(queries.q_BTJF), queries.w_BTJ
    keys_BFS = widened(k_BSF).transpose(1, 2)
    if q_BTJF.shape[1] == 1:  # the heads make one product
        return torch.bmm(w_BTJ, torch.bmm(q_BTJF[:, 0], keys_BFS).relu_())
    total_BtS = dots_BtS = None
    for head in range(q_BTJF.shape[2]):
        if dots_BtS is None:
            dots_BtS = torch.bmm(q_BTJF[:, :, head], keys_BFS)
        else:
            torch.bmm(q_BTJF[:, :, head], keys_BFS, out=dots_BtS)
        dots_BtS.relu_()
        weight_Bt1 = w_BTJ[:, :, head, None]
        if total_BtS is None:
            total_BtS = dots_BtS * weight_Bt1
        else:
            total_BtS.addcmul_(dots_BtS, weight_Bt1)
    assert total_BtS is not None
    return total_BtS
