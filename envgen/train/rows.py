"""Turn recorded rollouts into rows of tokens for training.

A turn's record holds the ids that the engine saw (``prompt_ids``) and wrote (``completion_ids``). Within a
user turn each prompt extends the previous prompt and reply id for id, so the whole conversation is one row
and every token is run once. A new row begins where the past was rendered again: a new user message drops
reasoning, a context reset drops turns. All rows of a rollout share its reward, advantage and length |o_i|.

Nothing is tokenized again here; a trajectory without exact ids is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envgen.core.errors import ConfigError
from envgen.core.types import Trajectory

NOT_ROUTED = 0xFFFF
"""Marks a token whose route is not replayed: the model routes it itself (``envgen.model.moe``)."""
HIDDEN = -1
"""Fills key sets that have fewer keys than the array is wide (``envgen.model.indexer``)."""

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Row:
    """One sequence of L tokens of a rollout, N of them written by the model.

    Shapes: X mixture layers, A experts per token, Y layers, K kept keys, Z ids of all sampling masks.
    """

    rollout: int
    """Index of the rollout in its batch."""
    ids: NDArray[np.int32]
    """[L]"""
    places: NDArray[np.int64]
    """Indices of the model's tokens in ``ids``: [N], ascending, never 0."""
    old: NDArray[np.float32]
    """The sampler's log-probabilities of the model's tokens: [N]."""
    mask_offsets: NDArray[np.int64] | None = None
    """Sampling masks as CSR: offsets [N + 1] into ``mask_ids``; an empty mask: truncation dropped nothing."""
    mask_ids: NDArray[np.int64] | None = None
    """[Z]"""
    routing: NDArray[np.uint16] | None = None
    """Experts of each token: [L, X, A]; ``NOT_ROUTED`` for the last one, which the engine never ran."""
    topk: NDArray[np.int32] | None = None
    """Keys that the engine attended to from each token but the last: [L - 1, Y, K], indices into ``ids``."""

    @property
    def num_model_tokens(self) -> int:
        """N."""
        return len(self.places)


def rollout_rows(trajectory: Trajectory, tokens: Mapping[int, Arrays], rollout: int) -> list[Row]:
    """Turn a rollout into rows, in order.

    Args:
        trajectory: the rollout's record.
        tokens: turn -> the arrays of its reply (``envgen.policies.base.Tokens.arrays``).
        rollout: index of the rollout in its batch, stored in the rows.

    Raises:
        ConfigError: if a reply was captured as text only, or has no or raw (unprocessed) log-probabilities.
    """
    turns: list[Arrays] = []
    for turn in range(len(trajectory.turns)):
        arrays = tokens.get(turn)
        _require_exact(trajectory, turn, arrays)
        assert arrays is not None
        turns.append(arrays)
    return turn_rows(turns, rollout)


def turn_rows(turns: Sequence[Arrays], rollout: int) -> list[Row]:
    """Turn the replies of one rollout into rows, in order."""
    rows: list[list[Arrays]] = []
    for arrays in turns:
        if rows and _extends(rows[-1][-1], arrays):
            rows[-1].append(arrays)
        else:
            rows.append([arrays])
    return [_row(turns, rollout) for turns in rows]


def _require_exact(trajectory: Trajectory, turn: int, arrays: Arrays | None) -> None:
    where = f"task {trajectory.task_id!r}, sample {trajectory.sample}, turn {turn}"
    if arrays is None or trajectory.turns[turn].capture != "exact":
        raise ConfigError(
            f"{where} was captured as text, not as tokens",
            "`train grpo` plays with an engine that records ids; of stored rollouts learn with `train sft`",
        )
    if "logprobs" not in arrays:
        raise ConfigError(f"{where} has no log-probabilities", "ask the engine for them")
    if bool(arrays.get("raw_logprobs", np.array(False))):
        raise ConfigError(
            f"{where} has raw log-probabilities: not those of the distribution that was sampled",
            "start the server with processed log-probabilities, or sample at temperature 1, untruncated",
        )


def _extends(before: Arrays, after: Arrays) -> bool:
    """Return whether a turn's prompt starts with the previous turn's prompt and reply."""
    seen, wrote, prompt = before["prompt_ids"], before["completion_ids"], after["prompt_ids"]
    cut = len(seen)
    return (
        len(prompt) >= cut + len(wrote)
        and np.array_equal(prompt[:cut], seen)
        and np.array_equal(prompt[cut : cut + len(wrote)], wrote)
    )


def _row(turns: Sequence[Arrays], rollout: int) -> Row:
    last = turns[-1]
    ids = np.concatenate((last["prompt_ids"], last["completion_ids"])).astype(np.int32)
    places = np.concatenate(
        [len(t["prompt_ids"]) + np.arange(len(t["completion_ids"])) for t in turns]
    )
    offsets, kept = _masks(turns)
    routing = _stitched(turns, "routing")
    if routing is not None:
        unknown = np.full((1, *routing.shape[1:]), NOT_ROUTED, np.uint16)
        routing = np.concatenate((routing, unknown))
    return Row(
        rollout=rollout,
        ids=ids,
        places=places.astype(np.int64),
        old=np.concatenate([t["logprobs"] for t in turns]).astype(np.float32),
        mask_offsets=offsets,
        mask_ids=kept,
        routing=routing,
        topk=_stitched(turns, "topk"),
    )


def _masks(turns: Sequence[Arrays]) -> tuple[NDArray[np.int64] | None, NDArray[np.int64] | None]:
    """Concatenate the turns' sampling masks as CSR; (None, None) if no turn was truncated."""
    if not any("mask_offsets" in turn for turn in turns):
        return None, None
    lengths, ids = [np.zeros(1, np.int64)], []
    for turn in turns:
        if "mask_offsets" in turn:
            lengths.append(np.diff(turn["mask_offsets"]).astype(np.int64))
            ids.append(turn["mask_ids"].astype(np.int64))
        else:
            lengths.append(np.zeros(len(turn["completion_ids"]), np.int64))
    return np.cumsum(np.concatenate(lengths)), np.concatenate(ids)


def _stitched(turns: Sequence[Arrays], name: str) -> NDArray[Any] | None:
    """Join the turns' records ``name`` (routes or key sets) into one: [L - 1, ...]; None if a turn lacks it.

    The cache keeps whole pages only, so a later turn computes the end of the previous reply again and may
    choose differently by rounding. The first record of a token is kept, because it is the one that produced
    the next token: a later turn's record counts from the last token of the previous reply on.
    """
    parts: list[NDArray[Any]] = []
    covered = 0
    for turn in turns:
        found, tokens = turn.get(name), len(turn["prompt_ids"]) + len(turn["completion_ids"])
        if found is None:
            return None
        start = int(turn.get("captured_from", 0))
        if start > covered or len(found) != tokens - 1 - start:
            raise ConfigError(
                f"a record of {tokens} tokens has {name} for {len(found)}, not {tokens - 1 - start}, "
                f"from token {start} on, where {covered} are known",
                "it was not written by this version's engines",
            )
        parts.append(found[covered - start :])
        covered = tokens - 1
    width = max(part.shape[-1] for part in parts)
    return np.concatenate([widened(part, width) for part in parts])


def widened(sets: NDArray[Any], width: int) -> NDArray[Any]:
    """Pad key sets [..., K] with ``HIDDEN`` to ``width`` keys."""
    if sets.shape[-1] == width:
        return sets
    out = np.full((*sets.shape[:-1], width), HIDDEN, sets.dtype)
    out[..., : sets.shape[-1]] = sets
    return out
