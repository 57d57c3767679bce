"""Supervised fine-tuning: the cold start. Cross-entropy on the tokens that the model is to write.

A conversation becomes the rows that a rollout of it would become: prompt, the teacher's completion, what the
environment said, the next completion. A new user message makes a thinking model forget its reasoning, so it
begins a new row; each reply is learnt in the context in which it will be written.

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
"""Most that lengths in a batch differ by, as a factor."""


@dataclass(frozen=True, eq=False)
class SFTRow:
    """Tokens with those that the model shall write: L tokens, N learnt ones."""

    ids: NDArray[np.int32]
    places: NDArray[np.int64]
    task: str = ""
    """Rows of one task come in one batch, where what they share is run once."""
    weights: NDArray[np.float32] | None = None
    """What each learnt token counts; None: 1."""


def sft_rows(
    encoding: Encoding, messages: Sequence[Message], tools: Sequence[Tool], task: str = ""
) -> list[SFTRow]:
    """The rows in which the assistant messages of a conversation are learnt.

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
    """Where the tokens are that are predicted."""
    parent_N: Tensor
    """Where the token before each is."""
    learnt_N: Tensor
    """float32: in how many rows the model writes the token, by what it counts there; 0 for context."""
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
    """What a model makes of a batch."""

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
    """Run a batch; a token that several rows share counts for each of those that learn it.

    Args:
        model: which.
        batch: of rows.
        config: weights.
        index_loss: also what trains the indexer; eq. 3 (``dense``) takes rows that share no prefix.
        dense: leave no key out.
    """
    chosen = torch.arange(len(batch.learnt_N), device=batch.learnt_N.device)
    if not config.context_weight:
        chosen = batch.learnt_N.nonzero().squeeze(1)
    pack_n, parent_n = batch.pack_N[chosen], batch.parent_N[chosen]
    output = model(
        batch.ids_BT,
        # Padding is at the end, where nothing looks.
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
    """One pass over all rows in batches of like lengths, in random order: indices of rows.

    Lengths are like within a third, so rows are padded little, yet a batch is no sample of one kind of
    task only: where length tells the kind, batches of one length each teach one kind after the other.
    Rows of one task stay together, and share what they can.
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
