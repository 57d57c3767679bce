"""Put rows on the device as tensors, and score their tokens with a model.

Rows with a common prefix share a pack (``packing``) as far as their replayed routes and key sets agree, too.
Packs are padded at the end: under causal attention no real token sees padding.

Shapes: B packs, T tokens of the longest, N model tokens of all rows, X mixture layers, A experts per token,
Y layers, K kept keys.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from envgen.model.attention import IndexLoss
from envgen.model.indexer import HIDDEN, NOT_REPLAYED
from envgen.model.modeling import DSAForCausalLM, Replay
from envgen.train.packing import Packing, Packs, common_prefix, pack
from envgen.train.rows import NOT_ROUTED, Row, widened
from envgen.train.scoring import Scores, Support, score

_Mover = Callable[[NDArray[Any]], Tensor]


@dataclass(frozen=True)
class RowBatch:
    """Rows on the device, as packs."""

    ids_BT: Tensor
    valid_BT: Tensor
    """bool"""
    position_BT: Tensor
    until_BT: Tensor | None
    """See ``Packs.until_BT``; None: no rows share a pack."""
    pack_N: Tensor
    parent_N: Tensor
    """Pack of each model token, and place of the token before it in that pack; ordered row by row."""
    tokens_N: Tensor
    """Ids of the model tokens: int64."""
    old_N: Tensor
    rollout_N: Tensor
    support: Support | None
    routing_BTXA: Tensor | None
    topk: tuple[Tensor, ...] | None
    """Key sets, one tensor for each layer: int32 [B, T, K]."""


def row_batch(
    rows: Sequence[Row],
    device: torch.device | str = "cpu",
    *,
    pack_tokens: int = 512,
    packing: Packing = pack,
) -> RowBatch:
    """Put rows on the device.

    Args:
        rows: rows to batch; model tokens keep this order.
        device: target device.
        pack_tokens: most tokens of a pack of rows that share a prefix; see ``packing.pack``.
        packing: function that packs the rows.
    """

    def on(array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(device)

    packs = packing(
        [row.ids for row in rows], pack_tokens, lambda a, b: _agreement(rows[a], rows[b])
    )
    counts = [row.num_model_tokens for row in rows]
    parents = [p[row.places - 1] for p, row in zip(packs.places, rows, strict=True)]
    return RowBatch(
        ids_BT=on(packs.ids_BT),
        valid_BT=on(packs.valid_BT),
        position_BT=on(packs.positions_BT),
        until_BT=on(packs.until_BT) if packs.shares else None,
        pack_N=on(np.repeat(packs.pack_R, counts)),
        parent_N=on(np.concatenate(parents)),
        tokens_N=on(np.concatenate([row.ids[row.places] for row in rows]).astype(np.int64)),
        old_N=on(np.concatenate([row.old for row in rows])),
        rollout_N=on(np.repeat(np.array([row.rollout for row in rows]), counts)),
        support=_support(rows, on),
        routing_BTXA=_routing(rows, packs, on),
        topk=_topk(rows, packs, on),
    )


def _agreement(a: Row, b: Row) -> int:
    """Return the length of the prefix in which two rows agree in ids, routes and key sets."""
    shared = common_prefix(a.ids, b.ids)
    if a.routing is not None and b.routing is not None:
        shared = min(shared, common_prefix(a.routing[:shared], b.routing[:shared]))
    if a.topk is not None and b.topk is not None:
        width = max(a.topk.shape[2], b.topk.shape[2])
        # A set is stored in the order of its index scores, which may differ between equal sets.
        one, other = (np.sort(widened(sets[:shared], width)) for sets in (a.topk, b.topk))
        shared = min(shared, common_prefix(one, other))
    return shared


def _support(rows: Sequence[Row], on: _Mover) -> Support | None:
    if all(row.mask_ids is None for row in rows):
        return None
    lengths = [
        np.zeros(row.num_model_tokens, np.int64)
        if row.mask_offsets is None
        else np.diff(row.mask_offsets)
        for row in rows
    ]
    offsets = np.cumsum(np.concatenate([np.zeros(1, np.int64), *lengths]))
    ids = [row.mask_ids for row in rows if row.mask_ids is not None]
    return Support(on(offsets), on(np.concatenate(ids)))


def _routing(rows: Sequence[Row], packs: Packs, on: _Mover) -> Tensor | None:
    """Place the rows' routes in their packs; None unless every row has routes."""
    known = [row.routing for row in rows if row.routing is not None]
    if len(known) < len(rows):
        return None
    return on(packs.spread([routing.astype(np.int64) for routing in known], NOT_ROUTED))


def _topk(rows: Sequence[Row], packs: Packs, on: _Mover) -> tuple[Tensor, ...] | None:
    """Place the key sets in the packs, by layer; the model chooses for last tokens and padding itself."""
    known = [row.topk for row in rows if row.topk is not None]
    if len(known) < len(rows):
        return None
    layers, width = known[0].shape[1], max(one.shape[2] for one in known)
    whole = np.full((*packs.ids_BT.shape, layers, width), HIDDEN, np.int32)
    whole[..., 0] = NOT_REPLAYED
    for pack_index, places, sets in zip(packs.pack_R, packs.places, known, strict=True):
        # A set holds indices into the row; translate them to places in the pack.
        moved = np.where(sets < 0, sets, places[sets.clip(0)])
        whole[pack_index, places[: len(sets)]] = widened(moved, width)
    return tuple(on(whole[:, :, layer]) for layer in range(layers))


@dataclass(frozen=True)
class BatchScores:
    """Scores of a batch's model tokens, and the other outputs of the forward pass."""

    scores: Scores
    index_loss: Tensor | None
    routing_BTXA: Tensor | None


def score_batch(
    model: DSAForCausalLM,
    batch: RowBatch,
    temperature: float,
    *,
    keep_mask: bool = True,
    keep_routing: bool = True,
    keep_topk: bool = True,
    index_loss: IndexLoss | None = None,
) -> BatchScores:
    """Score the model tokens of a batch.

    Args:
        model: the policy, or pi_ref.
        batch: the rows.
        temperature: of the sampler, > 0.
        keep_mask: renormalise over the sampling masks.
        keep_routing: replay the recorded experts.
        keep_topk: replay the recorded key sets.
        index_loss: also compute the indexer's loss, of this form.
    """
    replay = Replay(batch.routing_BTXA if keep_routing else None, batch.topk if keep_topk else None)
    output = model(
        batch.ids_BT,
        batch.valid_BT if index_loss is not None else None,
        position_ids=batch.position_BT,
        until=batch.until_BT,
        replay=replay,
        index_loss=index_loss,
        keep=(batch.pack_N, batch.parent_N),
    )
    scores = score(output.logits, batch.tokens_N, temperature, batch.support if keep_mask else None)
    return BatchScores(scores, output.index_loss, output.routing_BTXA)
