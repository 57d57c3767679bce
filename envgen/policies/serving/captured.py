"""The records of a sample's tokens that a client may ask for, in vLLM's names."""

from __future__ import annotations

from typing import Any

from envgen.policies.serving.errors import ApiError
from envgen.policies.serving.fields import Captured, Draw
from envgen.policies.serving.generation import Sample
from envgen.policies.serving.replies import mask_rows, npy


def captured(sample: Sample, asked: Captured) -> dict[str, Any]:
    """Fields of a choice: ids, routed experts, sampling mask."""
    found: dict[str, Any] = {}
    if asked.return_token_ids:
        found["token_ids"] = sample.ids
    done = sample.completion
    if done is None:
        return found
    if asked.return_routed_experts and done.routing is not None:
        found["routed_experts"] = npy(done.routing)
    if asked.return_sampling_mask:
        found["sampling_mask"] = mask_rows(done.mask_offsets, done.mask_ids)
    return found


def require_whole(asked: Captured, draw: Draw) -> None:
    """Stop sequences cut a reply inside the server, so the engine records nothing of it.

    Raises:
        ApiError: if both are asked for.
    """
    if draw.stops and (asked.return_routed_experts or asked.return_sampling_mask):
        raise ApiError(
            "return_routed_experts and return_sampling_mask can't be combined with 'stop'.",
            code="unsupported_value",
            param="stop",
        )
