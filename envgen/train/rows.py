"""Turn recorded rollouts into rows of tokens that a model can be trained on.

A turn's record says which ids the engine saw (``prompt_ids``) and which it wrote (``completion_ids``).
Within a user turn each prompt extends the one before, ids and all, so the whole conversation is one row and
every token is run once. Where the past was rendered again (a new user message drops reasoning; a context
reset drops turns), a new row begins. All rows of a rollout share its reward, advantage and length |o_i|.

Nothing is tokenized again here: a trajectory without exact ids is refused.
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
"""See ``envgen.model.moe``: the model chooses this token's experts itself."""
HIDDEN = -1
"""See ``envgen.model.indexer``: no key, where a set has fewer."""

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Row:
    """Tokens of one rollout that are run together: L tokens, of which the model wrote N.

    Shapes: X mixture layers, A experts per token, Y layers, K kept keys, Z recorded ids.
    """

    rollout: int
    """Index of the rollout among those that were assembled."""
    ids: NDArray[np.int32]
    """[L]"""
    places: NDArray[np.int64]
    """Where in ``ids`` the model's own tokens are: [N], ascending, never 0."""
    old: NDArray[np.float32]
    """The sampler's log-probabilities of them: [N]"""
    mask_offsets: NDArray[np.int64] | None = None
    """CSR of the ids that truncation kept for each: [N + 1]; a row without ids was not truncated."""
    mask_ids: NDArray[np.int64] | None = None
    """[Z]"""
    routing: NDArray[np.uint16] | None = None
    """[L, X, A]; ``NOT_ROUTED`` for the last token, which the engine never ran."""
    topk: NDArray[np.int32] | None = None
    """Key sets [L - 1, Y, K] that the engine attended to."""

    @property
    def num_model_tokens(self) -> int:
        """N."""
        return len(self.places)


def rollout_rows(trajectory: Trajectory, tokens: Mapping[int, Arrays], rollout: int) -> list[Row]:
    """The rows of one rollout, in order.

    Args:
        trajectory: what happened.
        tokens: by turn, the arrays of its reply (``envgen.policies.base.Tokens.arrays``).
        rollout: number that the rows carry.

    Raises:
        ConfigError: if a reply was captured as text only, lacks log-probabilities, or has raw ones.
    """
    turns: list[Arrays] = []
    for turn in range(len(trajectory.turns)):
        arrays = tokens.get(turn)
        _require_exact(trajectory, turn, arrays)
        assert arrays is not None
        turns.append(arrays)
    return turn_rows(turns, rollout)


def turn_rows(turns: Sequence[Arrays], rollout: int) -> list[Row]:
    """The rows of some replies of one rollout, in order."""
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
    """Whether a turn's prompt starts with all that the turn before saw and wrote."""
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
    """The turns' sampling masks as one; None where no turn was truncated."""
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
    """What the engine chose for each token when it drew what follows: [L - 1, ...]; None if a turn lacks it.

    A later turn computes the end of a reply again (the cache keeps whole pages), and by rounding may choose
    otherwise. So a turn's record counts from where the one before ends: from the last token of its reply.
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
    """Sets [..., K] with room for ``width`` keys."""
    if sets.shape[-1] == width:
        return sets
    out = np.full((*sets.shape[:-1], width), HIDDEN, sets.dtype)
    out[..., : sets.shape[-1]] = sets
    return out
