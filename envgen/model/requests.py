"""Requests to the engine, and its replies.

Shapes: P prompt tokens, T completion tokens, X mixture layers, A experts per token, L layers, K kept keys,
C tokens before those that are recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from envgen.core.errors import PolicyError
from envgen.model.sampling import SamplingParams

FinishReason = Literal["stop", "length"]


class PromptTooLongError(PolicyError):
    """Raised for a request whose prompt leaves no room for a reply."""


class RequestCancelledError(PolicyError):
    """Raised to whoever waits for a request that was cancelled."""


class EngineClosedError(PolicyError):
    """Raised to whoever waits when the engine is closed, or submits to one that does not run."""


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt, and how to continue it."""

    prompt_ids: Sequence[int]
    params: SamplingParams = field(default_factory=SamplingParams)


@dataclass(frozen=True, eq=False)
class Completion:
    """One reply, with all that training replays."""

    prompt_ids: NDArray[np.int32]
    """[P]"""
    ids: NDArray[np.int32]
    """[T]; ends with the stop id when there was one."""
    logprobs: NDArray[np.float32]
    """[T], under the distribution that was sampled: after temperature and truncation."""
    full_logprobs: NDArray[np.float32]
    """[T], log-softmax over the whole vocabulary at the sampling temperature (1 where that is 0)."""
    mask_offsets: NDArray[np.int32] | None
    """[T + 1]; row t of the kept vocabulary entries is ``mask_ids[mask_offsets[t]:mask_offsets[t + 1]]``.
    None when truncation left nothing out at any token; the support is then the whole vocabulary."""
    mask_ids: NDArray[np.int32] | None
    routing: NDArray[np.uint16] | None
    """Chosen experts [P + T - 1 - C, X, A]: the last token was never run. None: not asked for, or X is 0."""
    topk: NDArray[np.int32] | None
    """Slots the sparse attention chose, [P + T - 1 - C, L, K] with K = min(index_topk, P + T - 1), in no
    order; -1 fills the places left. None if not asked for."""
    finish_reason: FinishReason
    """``stop``: a stop id came. ``length``: max_new_tokens or the context is used up."""
    policy_version: str
    cached_tokens: int
    """Prompt tokens that were not computed for this request."""
    captured_from: int = 0
    """C, the first token that ``routing`` and ``topk`` are of."""
