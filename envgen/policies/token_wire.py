"""Read what vLLM and SGLang answer: ids, log-probabilities, sampling masks, routed experts."""

from __future__ import annotations

import base64
import binascii
import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envgen.core.errors import PolicyError
from envgen.policies.base import SamplingMask
from envgen.policies.http import TransientError


@dataclass(frozen=True, eq=False)
class SampledTurn:
    """One sampled turn of T tokens."""

    ids: list[int]
    logprobs: NDArray[np.float32] | None
    stopped: bool
    """The last id is the end token, not a cut."""
    raw: bool
    text: str | None = None
    mask: SamplingMask | None = None
    routing: NDArray[np.uint16] | None = None
    version: str = ""


def vllm_completion(value: Mapping[str, Any], num_prompt: int, *, raw: bool) -> SampledTurn:
    """A reply of ``/inference/v1/generate`` or, with ids as the prompt, of ``/v1/completions``."""
    choices = value.get("choices")
    if not (isinstance(choices, list) and choices and isinstance(choices[0], dict)):
        raise TransientError("the reply has no choices")
    choice = choices[0]
    ids = _ids(choice.get("token_ids"))
    listed = choice.get("logprobs") or {}
    numbers = listed.get("token_logprobs")
    if numbers is None and isinstance(listed.get("content"), list):
        numbers = [item.get("logprob") for item in listed["content"]]
    return SampledTurn(
        ids=ids,
        logprobs=_logprobs(numbers, len(ids)),
        stopped=choice.get("finish_reason") == "stop" and bool(ids),
        raw=raw,
        mask=_mask(choice.get("sampling_mask"), ids),
        routing=_npy_routing(choice.get("routed_experts"), num_prompt + len(ids) - 1),
    )


def sglang_completion(
    value: Mapping[str, Any], num_prompt: int, experts_per_token: int | None, *, raw: bool
) -> SampledTurn:
    """A reply of ``/generate``; support-normalised log-probabilities are preferred where offered."""
    meta = value.get("meta_info")
    if not isinstance(meta, dict):
        raise TransientError("the reply has no meta_info")
    triples = meta.get("output_token_logprobs") or []
    ids = _ids(value.get("output_ids") or [item[1] for item in triples])
    finish = meta.get("finish_reason") or {}
    if finish.get("type") == "abort":
        raise TransientError(f"the server aborted the request: {finish.get('message', '')}")
    numbers = [item[0] for item in triples] or None
    exact = meta.get("output_token_sampling_logprobs")
    if exact is not None:
        numbers, raw = exact, False
    matched = finish.get("matched")
    return SampledTurn(
        ids=ids,
        logprobs=_logprobs(numbers, len(ids)),
        stopped=finish.get("type") == "stop" and bool(ids) and matched in (None, ids[-1]),
        raw=raw,
        mask=_mask(meta.get("output_token_sampling_mask"), ids),
        routing=_flat_routing(
            meta.get("routed_experts"), num_prompt + len(ids) - 1, experts_per_token
        ),
        version=str(meta.get("weight_version") or ""),
    )


def _ids(value: Any) -> list[int]:
    if not isinstance(value, list) or not all(type(i) is int and i >= 0 for i in value):
        raise PolicyError(
            "the server returned no token ids", "use a newer server, or the openai policy"
        )
    return value


def _logprobs(numbers: Any, num_tokens: int) -> NDArray[np.float32] | None:
    if numbers is None:
        return None
    if not isinstance(numbers, list) or len(numbers) != num_tokens:
        raise TransientError(f"log-probabilities do not match the {num_tokens} tokens")
    try:
        return np.array(numbers, np.float32)
    except (TypeError, ValueError):
        raise TransientError("log-probabilities are not numbers") from None


def _mask(rows: Any, ids: list[int]) -> SamplingMask | None:
    if rows is None:
        return None
    if not isinstance(rows, list) or len(rows) != len(ids):
        raise TransientError(f"the sampling mask does not match the {len(ids)} tokens")
    mask = SamplingMask.from_rows(rows)
    for t, (row, chosen) in enumerate(zip(rows, ids, strict=True)):
        if chosen not in row:
            raise PolicyError(f"the sampling mask of token {t} is missing the sampled id {chosen}")
    return mask


def _npy_routing(text: Any, num_tokens: int) -> NDArray[np.uint16] | None:
    if text is None:
        return None
    try:
        array = np.load(io.BytesIO(base64.b64decode(text, validate=True)), allow_pickle=False)
    except (binascii.Error, ValueError, TypeError, EOFError) as error:
        raise PolicyError(f"routed experts can't be read: {error}") from error
    return _checked(array, num_tokens)


def _flat_routing(text: Any, num_tokens: int, k: int | None) -> NDArray[np.uint16] | None:
    if text is None:
        return None
    if k is None:
        raise PolicyError(
            "SGLang sends routed experts without their shape", "set experts_per_token"
        )
    try:
        flat = np.frombuffer(base64.b64decode(text, validate=True), np.dtype("<i4"))
        return _checked(flat.reshape(num_tokens, -1, k), num_tokens)
    except (binascii.Error, ValueError, TypeError) as error:
        raise PolicyError(f"routed experts can't be read: {error}") from error


def _checked(array: NDArray[Any], num_tokens: int) -> NDArray[np.uint16]:
    if array.ndim != 3 or array.shape[0] != num_tokens:
        raise PolicyError(f"routing of shape {array.shape} does not fit {num_tokens} tokens")
    if array.size and (array.min() < 0 or array.max() > np.iinfo(np.uint16).max):
        raise PolicyError("routing holds expert numbers outside uint16")
    return array.astype(np.uint16)
