"""Rows as tensors, and what a model says of their tokens.

Rows are padded at the end: under causal attention nothing that counts sees padding.

Shapes: B rows, T tokens of the longest, N model tokens of all rows, X mixture layers, A experts per token,
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
from envgen.train.rows import NOT_ROUTED, Row, pad
from envgen.train.scoring import Scores, Support, score

_Mover = Callable[[NDArray[Any]], Tensor]


@dataclass(frozen=True)
class RowBatch:
    """Some rows on the device."""

    ids_BT: Tensor
    valid_BT: Tensor
    """bool"""
    row_N: Tensor
    place_N: Tensor
    """Row and place of every model token, row by row."""
    old_N: Tensor
    rollout_N: Tensor
    support: Support | None
    routing_BTXA: Tensor | None
    topk: tuple[Tensor, ...] | None
    """Per layer int32 [B, T, K]."""

    @property
    def tokens_N(self) -> Tensor:
        """The model tokens: int64 [N]."""
        return self.ids_BT[self.row_N, self.place_N]


def row_batch(rows: Sequence[Row], device: torch.device | str = "cpu") -> RowBatch:
    """Put rows on the device."""

    def on(array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(device)

    counts = [row.num_model_tokens for row in rows]
    lengths = np.array([len(row.ids) for row in rows])
    ids = pad([row.ids.astype(np.int64) for row in rows], 0)
    return RowBatch(
        ids_BT=on(ids),
        valid_BT=on(np.arange(ids.shape[1]) < lengths[:, None]),
        row_N=on(np.repeat(np.arange(len(rows)), counts)),
        place_N=on(np.concatenate([row.places for row in rows])),
        old_N=on(np.concatenate([row.old for row in rows])),
        rollout_N=on(np.repeat(np.array([row.rollout for row in rows]), counts)),
        support=_support(rows, on),
        routing_BTXA=_routing(rows, on),
        topk=_topk(rows, ids.shape[1], on),
    )


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


def _routing(rows: Sequence[Row], on: _Mover) -> Tensor | None:
    """None unless every row has its routing."""
    known = [row.routing for row in rows if row.routing is not None]
    if len(known) < len(rows):
        return None
    return on(pad([routing.astype(np.int64) for routing in known], NOT_ROUTED))


def _topk(rows: Sequence[Row], tokens: int, on: _Mover) -> tuple[Tensor, ...] | None:
    """Per layer; what no engine ran (the last token, padding) is chosen live."""
    known = [row.topk for row in rows if row.topk is not None]
    if len(known) < len(rows):
        return None
    layers, width = known[0].shape[1], max(one.shape[2] for one in known)
    whole = np.full((len(rows), tokens, layers, width), HIDDEN, np.int32)
    whole[..., 0] = NOT_REPLAYED
    for i, one in enumerate(known):
        whole[i, : len(one), :, : one.shape[2]] = one
        whole[i, : len(one), :, one.shape[2] :] = HIDDEN
    return tuple(on(whole[:, :, layer]) for layer in range(layers))


@dataclass(frozen=True)
class Said:
    """What the model says of a batch."""

    scores: Scores
    index_loss: Tensor | None
    routing_BTXA: Tensor | None


def say(
    model: DSAForCausalLM,
    batch: RowBatch,
    temperature: float,
    *,
    keep_mask: bool = True,
    keep_routing: bool = True,
    keep_topk: bool = True,
    index_loss: IndexLoss | None = None,
) -> Said:
    """Score the model tokens of a batch, with the sampler's choices repeated as told."""
    replay = Replay(batch.routing_BTXA if keep_routing else None, batch.topk if keep_topk else None)
    output = model(
        batch.ids_BT,
        batch.valid_BT if index_loss is not None else None,
        replay=replay,
        index_loss=index_loss,
        keep=(batch.row_N, batch.place_N - 1),
    )
    scores = score(output.logits, batch.tokens_N, temperature, batch.support if keep_mask else None)
    return Said(scores, output.index_loss, output.routing_BTXA)
