"""Turns logits into tokens of sequences, and ended sequences into completions.

Shapes: B sequences, V vocabulary, T tokens of a reply.
"""

from __future__ import annotations

from collections.abc import Sequence as Many
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from envgen.model.config import DSAConfig
from envgen.model.requests import Completion, FinishReason
from envgen.model.sampling import BatchSampler, Drawn
from envgen.model.scheduler import Scheduler, Sequence


class Batch:
    """Draws one token for each sequence, and ends those that are complete.

    Args:
        scheduler: of the sequences.
        config: of the model.
        max_context: most tokens of a sequence.
        device: where the logits are.
    """

    def __init__(
        self, scheduler: Scheduler, config: DSAConfig, max_context: int, device: torch.device
    ) -> None:
        self._scheduler = scheduler
        self._config = config
        self._max_context = max_context
        self._device = device
        self._members: list[Sequence] = []
        self._sampler = BatchSampler([], config.vocab_size, device)

    @torch.inference_mode()
    def extend(self, sequences: list[Sequence], logits_BV: Tensor) -> dict[Sequence, Completion]:
        """Add a token to each sequence, whose last id has been run; what has ended is removed and returned.

        Raises:
            PolicyError: if a row of logits has no probabilities.
        """
        if sequences != self._members:
            params = [sequence.request.params for sequence in sequences]
            self._sampler = BatchSampler(params, self._config.vocab_size, self._device)
            self._members = list(sequences)
        uniforms = [sequence.uniforms.at(sequence.num_sampled) for sequence in sequences]
        drawn = self._sampler.draw(logits_BV, uniforms)
        self._append(sequences, drawn)
        ended = {}
        for sequence in sequences:
            reason = self._reason(sequence)
            if reason is not None:
                ended[sequence] = self._completion(sequence, reason)
                self._scheduler.remove(sequence)
        return ended

    def _append(self, sequences: Many[Sequence], drawn: Drawn) -> None:
        size = self._scheduler.store.cache.page_tokens
        ids, logprobs = drawn.ids_B.tolist(), drawn.logprobs_B.tolist()
        full, kept = drawn.full_logprobs_B.tolist(), _split(drawn)
        for row, sequence in enumerate(sequences):
            computed = len(sequence.ids)
            if computed % size:
                sequence.computed = computed
            else:
                self._scheduler.advance(sequence, computed)
            sequence.ids.append(ids[row])
            sequence.logprobs.append(logprobs[row])
            sequence.full_logprobs.append(full[row])
            if sequence.truncates:
                sequence.kept.append(kept[row])
            if sequence.ticket is not None:
                sequence.ticket.push(ids[row], logprobs[row])

    def _reason(self, sequence: Sequence) -> FinishReason | None:
        if sequence.ids[-1] in sequence.stop_ids:
            return "stop"
        full = len(sequence.ids) >= self._max_context
        return "length" if full or sequence.num_sampled >= sequence.max_new else None

    def _completion(self, sequence: Sequence, reason: FinishReason) -> Completion:
        params = sequence.request.params
        start = min(params.capture_from, sequence.num_prompt - 1)
        records = self._scheduler.records(sequence, start)
        ids = np.array(sequence.ids, np.int32)
        offsets, kept_ids = _mask(sequence.kept, self._config.vocab_size)
        routed = params.capture_routing and self._config.has_experts
        return Completion(
            prompt_ids=ids[: sequence.num_prompt],
            ids=ids[sequence.num_prompt :],
            logprobs=np.array(sequence.logprobs, np.float32),
            full_logprobs=np.array(sequence.full_logprobs, np.float32),
            mask_offsets=offsets,
            mask_ids=kept_ids,
            routing=records.routing if routed else None,
            topk=records.topk,
            captured_from=start,
            finish_reason=reason,
            policy_version=self._scheduler.policy_version,
            cached_tokens=sequence.reused,
        )


class _Mask(NamedTuple):
    offsets: NDArray[np.int32] | None
    ids: NDArray[np.int32] | None


def _split(drawn: Drawn) -> list[NDArray[np.int32] | None]:
    """Each row's kept entries; None where that is the whole vocabulary."""
    if drawn.kept is None:
        return [None] * len(drawn.logprobs_B)
    counts, ids, truncated = drawn.kept
    parts = np.split(ids, np.cumsum(counts)[:-1])
    return [part if short else None for part, short in zip(parts, truncated, strict=True)]


def _mask(kept: Many[NDArray[np.int32] | None], vocab_size: int) -> _Mask:
    """The reply's mask; nothing when no row was truncated."""
    if all(row is None for row in kept):
        return _Mask(None, None)
    whole = np.arange(vocab_size, dtype=np.int32)
    rows = [whole if row is None else row for row in kept]
    offsets = np.zeros(len(rows) + 1, np.int32)
    np.cumsum([len(row) for row in rows], out=offsets[1:])
    return _Mask(offsets, np.concatenate(rows))
