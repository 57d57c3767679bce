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

_LEAST_LOGPROB = 1e30
"""No log-probability is further from 0: servers write -9999 and the like for none."""


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
    if not isinstance(value, list) or not all(map(_is_id, value)):
        raise PolicyError(
            "the server returned no token ids", "use a newer server, or the openai policy"
        )
    return value


def _logprobs(numbers: Any, num_tokens: int) -> NDArray[np.float32] | None:
    if numbers is None:
        return None
    if not isinstance(numbers, list) or len(numbers) != num_tokens:
        raise TransientError(f"log-probabilities do not match the {num_tokens} tokens")
    # One that is missing would become "not a number", and train as such.
    if not all(type(x) in (int, float) and abs(x) <= _LEAST_LOGPROB for x in numbers):
        raise TransientError("log-probabilities are not numbers")
    return np.array(numbers, np.float32)


def _mask(rows: Any, ids: list[int]) -> SamplingMask | None:
    if rows is None:
        return None
    if not isinstance(rows, list) or len(rows) != len(ids):
        raise TransientError(f"the sampling mask does not match the {len(ids)} tokens")
    if not all(isinstance(row, list) and all(map(_is_id, row)) for row in rows):
        raise PolicyError("the sampling mask holds something else than token ids")
    mask = SamplingMask.from_rows(rows)
    for t, (row, chosen) in enumerate(zip(rows, ids, strict=True)):
        if chosen not in row:
            raise PolicyError(f"the sampling mask of token {t} is missing the sampled id {chosen}")
    return mask


def _is_id(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 31


def _npy_routing(text: Any, num_tokens: int) -> NDArray[np.uint16] | None:
    if text is None:
        return None
    try:
        array = _npy(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, TypeError, EOFError) as error:
        raise PolicyError(f"routed experts can't be read: {error}") from error
    return _checked(array, num_tokens)


def _npy(content: bytes) -> NDArray[Any]:
    """Read the integers of an ``.npy`` file; ``np.load`` would allocate what its header claims first."""
    file = io.BytesIO(content)
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError("their version of the npy format is not 1.0")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
    if dtype.kind not in "iu":
        raise ValueError(f"they are of type {dtype}")
    flat = np.frombuffer(content, dtype, offset=file.tell())
    return flat.reshape(shape, order="F" if fortran else "C")


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
