"""Supervised fine-tuning: the cold start. Cross-entropy on the tokens that the model is to write.

A conversation becomes the rows that a rollout of it would become: prompt, the teacher's completion, what the
environment said, the next completion. A new user message makes a thinking model forget its reasoning, so it
begins a new row; each reply is learnt in the context in which it will be written.

Shapes: B rows, T tokens, N learnt tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from envgen.core.errors import ConfigError
from envgen.core.types import Message, Record
from envgen.policies.base import Tool
from envgen.policies.encoding import Encoding


class SFTConfig(Record):
    """What is learnt."""

    context_weight: float = Field(default=0.0, ge=0, le=1)
    """What a token counts that the model does not write (prompts, tool results); 0: nothing."""


@dataclass(frozen=True, eq=False)
class TaughtRow:
    """Tokens with those that the model shall write: L tokens, N learnt ones."""

    ids: NDArray[np.int32]
    places: NDArray[np.int64]


def taught_rows(
    encoding: Encoding, messages: Sequence[Message], tools: Sequence[Tool]
) -> list[TaughtRow]:
    """The rows in which the assistant messages of a conversation are learnt.

    Raises:
        ConfigError: if there is no assistant message.
        EncodingError: if the conversation can't be written in this encoding.
    """
    replies = [i for i, message in enumerate(messages) if message.role == "assistant"]
    if not replies:
        raise ConfigError("a conversation without an assistant message teaches nothing")
    rows: list[TaughtRow] = []
    ids: list[int] = []
    places: list[int] = []
    for before, reply in zip([None, *replies], replies, strict=False):
        if before is not None and encoding.extends(messages[:reply], before + 1):
            ids += encoding.extension(messages[:reply], tools, before + 1)
        else:
            if ids:
                rows.append(_row(ids, places))
            ids, places = encoding.prompt(messages[:reply], tools), []
        written = encoding.completion(messages[reply])
        places += range(len(ids), len(ids) + len(written))
        ids += written
    rows.append(_row(ids, places))
    return rows


def _row(ids: list[int], places: list[int]) -> TaughtRow:
    return TaughtRow(np.array(ids, np.int32), np.array(places, np.int64))


def sft_loss(
    logits_BTV: Tensor, ids_BT: Tensor, learnt_BT: Tensor, valid_BT: Tensor, config: SFTConfig
) -> Tensor:
    """Mean cross-entropy over learnt tokens, plus ``context_weight`` times that over the others.

    Args:
        logits_BTV: of the model; those at t predict token t + 1.
        ids_BT: int64.
        learnt_BT: bool, tokens that the model writes.
        valid_BT: bool, False for padding.
        config: weights.
    """
    targets = ids_BT[:, 1:]
    losses = torch.nn.functional.cross_entropy(
        logits_BTV[:, :-1].float().flatten(0, 1), targets.flatten(), reduction="none"
    ).view(targets.shape)
    learnt = learnt_BT[:, 1:]
    loss = _mean(losses, learnt)
    if config.context_weight:
        loss = loss + config.context_weight * _mean(losses, valid_BT[:, 1:] & ~learnt)
    return loss


def _mean(losses: Tensor, chosen: Tensor) -> Tensor:
    return (losses * chosen).sum() / chosen.sum().clamp_min(1)


@dataclass(frozen=True)
class TaughtBatch:
    """Rows on the device, padded at the end."""

    ids_BT: Tensor
    learnt_BT: Tensor
    valid_BT: Tensor


def taught_batch(rows: Sequence[TaughtRow], device: torch.device | str = "cpu") -> TaughtBatch:
    """Put rows on the device."""
    longest = max(len(row.ids) for row in rows)
    ids = np.zeros((len(rows), longest), np.int64)
    learnt, valid = np.zeros(ids.shape, bool), np.zeros(ids.shape, bool)
    for i, row in enumerate(rows):
        ids[i, : len(row.ids)] = row.ids
        valid[i, : len(row.ids)] = True
        learnt[i, row.places] = True
    ids_BT, learnt_BT, valid_BT = (
        torch.from_numpy(array).to(device) for array in (ids, learnt, valid)
    )
    return TaughtBatch(ids_BT, learnt_BT, valid_BT)


def batches_by_length(
    rows: Sequence[TaughtRow], tokens_per_batch: int, rng: Random
) -> Iterator[list[int]]:
    """One pass over all rows in batches of like lengths, in random order: indices of rows.

    Rows of like length are padded little, which is what packing is for; attention needs no borders.
    """
    order = sorted(range(len(rows)), key=lambda i: (len(rows[i].ids), rng.random()))
    batches: list[list[int]] = [[]]
    for i in order:
        # Sorted by length, so this row is the longest of its batch.
        if batches[-1] and (len(batches[-1]) + 1) * len(rows[i].ids) > tokens_per_batch:
            batches.append([])
        batches[-1].append(i)
    rng.shuffle(batches)
    yield from batches
