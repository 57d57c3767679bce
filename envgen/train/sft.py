"""Supervised fine-tuning for the cold start: cross-entropy on the tokens that the model will write.

A conversation becomes the same rows as a rollout of it: prompt, the teacher's completion, the environment's
result, the next completion. A new user message makes a thinking model forget its reasoning, so it begins a
new row; each reply is learnt in the context in which it will be written.

Shapes: B packs of rows, T tokens, N tokens, n those whose loss is taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from envgen.core.errors import ConfigError
from envgen.core.types import Message
from envgen.model.attention import IndexLoss
from envgen.model.modeling import DSAForCausalLM
from envgen.policies.base import Tool
from envgen.policies.encoding import Encoding
from envgen.train.config import SFTConfig
from envgen.train.packing import pack

_LIKE = 4 / 3
"""Largest ratio of two lengths in a batch."""


@dataclass(frozen=True, eq=False)
class SFTRow:
    """A row of L tokens, N of which the model learns to write."""

    ids: NDArray[np.int32]
    places: NDArray[np.int64]
    task: str = ""
    """Task of the row; rows of one task share a batch, where their common prefix is run once."""
    weights: NDArray[np.float32] | None = None
    """Loss weight of each learnt token: [N]; None: 1."""


def sft_rows(
    encoding: Encoding, messages: Sequence[Message], tools: Sequence[Tool], task: str = ""
) -> list[SFTRow]:
    """Turn a conversation into rows that teach its assistant messages.

    Args:
        encoding: of the model.
        messages: the conversation.
        tools: that it had.
        task: whose it is; the rows carry it.

    Raises:
        ConfigError: if there is no assistant message.
        EncodingError: if the conversation can't be written in this encoding.
    """
    replies = [i for i, message in enumerate(messages) if message.role == "assistant"]
    if not replies:
        raise ConfigError("a conversation without an assistant message teaches nothing")
    rows: list[SFTRow] = []
    ids: list[int] = []
    places: list[int] = []
    for before, reply in zip([None, *replies], replies, strict=False):
        if before is not None and encoding.extends(messages[:reply], before + 1):
            ids += encoding.extension(messages[:reply], tools, before + 1)
        else:
            if ids:
                rows.append(_row(ids, places, task))
            ids, places = encoding.prompt(messages[:reply], tools), []
        written = encoding.completion(messages[reply])
        places += range(len(ids), len(ids) + len(written))
        ids += written
    rows.append(_row(ids, places, task))
    return rows


def _row(ids: list[int], places: list[int], task: str) -> SFTRow:
    return SFTRow(np.array(ids, np.int32), np.array(places, np.int64), task)


@dataclass(frozen=True)
class SFTBatch:
    """Rows on the device, those that begin alike packed (``packing``). N tokens that follow another one."""

    ids_BT: Tensor
    valid_BT: Tensor
    position_BT: Tensor
    until_BT: Tensor | None
    pack_N: Tensor
    place_N: Tensor
    """Place of each predicted token."""
    parent_N: Tensor
    """Place of the token before it."""
    learnt_N: Tensor
    """float32: loss weight of each token, summed over the rows that learn it; 0 for context."""
    num_row_tokens: int
    """Tokens of the rows, each counted whole."""


def sft_batch(
    rows: Sequence[SFTRow], device: torch.device | str = "cpu", *, pack_tokens: int = 512
) -> SFTBatch:
    """Put rows on the device.

    Args:
        rows: which.
        device: where to.
        pack_tokens: most tokens of a pack of rows that begin alike; see ``packing.pack``.
    """
    packs = pack([row.ids for row in rows], pack_tokens)
    learnt = np.zeros(packs.ids_BT.shape, np.float32)
    for row, pack_index, places in zip(rows, packs.pack_R, packs.places, strict=True):
        learnt[pack_index, places[row.places]] += 1 if row.weights is None else row.weights
    parents = packs.parents_BT()
    pack_N, place_N = np.nonzero(parents >= 0)

    def on(array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(device)

    return SFTBatch(
        ids_BT=on(packs.ids_BT),
        valid_BT=on(packs.valid_BT),
        position_BT=on(packs.positions_BT),
        until_BT=on(packs.until_BT) if packs.shares else None,
        pack_N=on(pack_N),
        place_N=on(place_N),
        parent_N=on(parents[pack_N, place_N]),
        learnt_N=on(learnt[pack_N, place_N]),
        num_row_tokens=sum(len(row.ids) for row in rows),
    )


@dataclass(frozen=True)
class SFTLoss:
    """The losses of a batch."""

    loss: Tensor
    """Mean cross-entropy of learnt tokens, and ``context_weight`` times that of the others."""
    learnt_loss: Tensor
    """The first part."""
    index_loss: Tensor | None


def sft_loss(
    model: DSAForCausalLM,
    batch: SFTBatch,
    config: SFTConfig,
    index_loss: IndexLoss | None = None,
    *,
    dense: bool = False,
) -> SFTLoss:
    """Compute the losses of a batch; a shared token counts once for each row that learns it.

    Args:
        model: which.
        batch: of rows.
        config: weights.
        index_loss: also compute the indexer's loss; eq. 3 (``dense``) needs rows that share no prefix.
        dense: attend to all keys.
    """
    chosen = torch.arange(len(batch.learnt_N), device=batch.learnt_N.device)
    if not config.context_weight:
        chosen = batch.learnt_N.nonzero().squeeze(1)
    pack_n, parent_n = batch.pack_N[chosen], batch.parent_N[chosen]
    output = model(
        batch.ids_BT,
        # Padding is at the end, so causal attention needs no mask for it; the indexer's loss does.
        batch.valid_BT if index_loss is not None else None,
        position_ids=batch.position_BT,
        until=batch.until_BT,
        dense=dense,
        index_loss=index_loss,
        keep=(pack_n, parent_n),
    )
    targets_n = batch.ids_BT[pack_n, batch.place_N[chosen]]
    losses_n = torch.nn.functional.cross_entropy(output.logits.float(), targets_n, reduction="none")
    learnt_n = batch.learnt_N[chosen]
    learnt_loss = _mean(losses_n, learnt_n)
    loss = learnt_loss
    if config.context_weight:
        loss = loss + config.context_weight * _mean(losses_n, (learnt_n == 0).float())
    return SFTLoss(loss, learnt_loss, output.index_loss)


def _mean(losses_n: Tensor, weights_n: Tensor) -> Tensor:
    return (losses_n * weights_n).sum() / weights_n.sum().clamp_min(1)


def batches_by_length(
    rows: Sequence[SFTRow], tokens_per_batch: int, rng: Random
) -> Iterator[list[int]]:
    """Batch all rows once by similar length, in random order: indices of rows.

    Lengths in a batch differ by a third at most: enough to save padding, yet wide enough to mix kinds of
    tasks, because length often tells the kind and batches of one kind each are learnt one after the other.
    Rows of one task stay together and share their prefix.
    """
    tasks: dict[str, list[int]] = {}
    for i, row in enumerate(rows):
        tasks.setdefault(row.task or f"row {i}", []).append(i)
    longest = {name: max(len(rows[i].ids) for i in some) for name, some in tasks.items()}
    like = {name: int(math.log(length, _LIKE)) for name, length in longest.items()}
    batches: list[list[int]] = [[]]
    width = 0
    for name in sorted(tasks, key=lambda name: (like[name], rng.random())):
        some, width = tasks[name], max(width, longest[name])
        if batches[-1] and (len(batches[-1]) + len(some)) * width > tokens_per_batch:
            batches.append([])
            width = longest[name]
        batches[-1] += some
    rng.shuffle(batches)
    yield from batches
