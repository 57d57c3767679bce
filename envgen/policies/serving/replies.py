"""Replies of the server, in OpenAI's and vLLM's words."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from envgen.core.types import Message
from envgen.policies.serving.messages import wire_call

if TYPE_CHECKING:
    from envgen.model.tokenizer import Tokenizer

DONE = b"data: [DONE]\n\n"
CHAT, CHAT_CHUNK, TEXT = "chat.completion", "chat.completion.chunk", "text_completion"


def event(value: Mapping[str, Any]) -> bytes:
    """One server-sent event."""
    return b"data: " + json.dumps(value, ensure_ascii=False).encode("utf-8", "replace") + b"\n\n"


def usage(num_prompt: int, num_completion: int, num_cached: int) -> dict[str, Any]:
    """OpenAI's count of tokens."""
    return {
        "prompt_tokens": num_prompt,
        "completion_tokens": num_completion,
        "total_tokens": num_prompt + num_completion,
        "prompt_tokens_details": {"cached_tokens": num_cached},
    }


def chat_message(message: Message) -> dict[str, Any]:
    """An assistant message; ``reasoning_content`` and ``tool_calls`` only where there are some."""
    wire: dict[str, Any] = {"role": "assistant", "content": message.content}
    if message.reasoning is not None:
        wire["reasoning_content"] = message.reasoning
    if message.tool_calls:
        wire["content"] = message.content or None
        wire["tool_calls"] = [wire_call(call) for call in message.tool_calls]
    return wire


def chat_logprobs(
    tokenizer: Tokenizer, ids: Sequence[int], logprobs: Sequence[float]
) -> dict[str, Any]:
    """One entry per sampled token, control tokens included."""
    content: list[dict[str, Any]] = []
    for token, logprob in zip(ids, logprobs, strict=True):
        raw = tokenizer.token_bytes(token)
        content.append(
            {
                "token": raw.decode("utf-8", "replace"),
                "logprob": float(logprob),
                "bytes": list(raw),
                "top_logprobs": [],
            }
        )
    return {"content": content, "refusal": None}


def text_logprobs(
    tokenizer: Tokenizer, ids: Sequence[int], logprobs: Sequence[float], offset: int = 0
) -> dict[str, Any]:
    """The older form: lists side by side; ``offset`` is the first token's place in the text."""
    tokens = [tokenizer.token_bytes(token).decode("utf-8", "replace") for token in ids]
    offsets = np.cumsum([offset, *map(len, tokens)])[:-1]
    return {
        "tokens": tokens,
        "token_logprobs": [float(logprob) for logprob in logprobs],
        "top_logprobs": None,
        "text_offset": [int(at) for at in offsets],
    }


def id_logprobs(ids: Sequence[int], logprobs: Sequence[float]) -> dict[str, Any]:
    """VLLM's form where no text is made."""
    content: list[dict[str, Any]] = [
        {"token": f"token_id:{token}", "logprob": float(logprob), "bytes": None, "top_logprobs": []}
        for token, logprob in zip(ids, logprobs, strict=True)
    ]
    return {"content": content}


def npy(array: NDArray[Any]) -> str:
    """An array as base64 of an ``.npy`` file."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return base64.b64encode(buffer.getvalue()).decode("ascii")


def mask_rows(
    offsets: NDArray[np.int32] | None, ids: NDArray[np.int32] | None
) -> list[list[int]] | None:
    """The kept vocabulary entries of each token; None where nothing was left out."""
    if offsets is None or ids is None:
        return None
    return [ids[a:b].tolist() for a, b in pairwise(offsets)]
