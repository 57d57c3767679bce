"""``POST /tokenize`` and ``POST /detokenize``: what token policies need to extend conversations by ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from envgen.core.types import Message
from envgen.policies.base import Tool
from envgen.policies.encoding import Encoding
from envgen.policies.encoding.base import EncodingError
from envgen.policies.serving.errors import ApiError
from envgen.policies.serving.fields import DetokenizeBody, TokenizeBody
from envgen.policies.serving.messages import read_messages, read_tools
from envgen.policies.serving.service import Service


def tokenize(service: Service, body: TokenizeBody) -> dict[str, Any]:
    """Ids of a conversation or a text; control tokens in a text count.

    Raises:
        ApiError: if it can't be done.
    """
    service.require_model(body.model)
    # Twice the window: the calls of a last reply are written twice, see ``_closed``.
    encoding = service.limited(service.encoding, windows=2)
    if body.messages is None:
        ids = encoding.tokenizer.encode(body.prompt or "")
    else:
        messages, tools = read_messages(body.messages), read_tools(body.tools)
        if body.add_generation_prompt:
            ids = service.prompt(encoding, messages, tools)
        else:
            ids = _closed(encoding, messages, tools)
    return {"tokens": ids, "count": len(ids), "max_model_len": service.local.window}


def detokenize(service: Service, body: DetokenizeBody) -> dict[str, Any]:
    """The text of ids, control tokens included; ``text`` is SGLang's name for ``prompt``."""
    service.require_model(body.model)
    text = service.encoding.tokenizer.decode(body.tokens)
    return {"prompt": text, "text": text}


def _closed(encoding: Encoding, messages: Sequence[Message], tools: Sequence[Tool]) -> list[int]:
    """A conversation that ends with a reply, up to that reply's end."""
    last = messages[-1]
    if last.role != "assistant":
        raise ApiError(
            "add_generation_prompt=false needs a conversation that ends with an assistant message.",
            code="invalid_value",
            param="messages",
        )
    if not encoding.config.thinking:
        last = last.model_copy(update={"reasoning": None})
    try:
        if not last.tool_calls:
            return [*encoding.prompt(messages[:-1], tools), *encoding.completion(last)]
        # Also calls that no model should write: through their results, which are taken off again.
        results = [Message(role="tool", tool_call_id=call.id) for call in last.tool_calls]
        longer = [*messages[:-1], last, *results]
        behind = encoding.extension(longer, tools, len(messages))
        ids = encoding.prompt(longer, tools)
        return ids[: len(ids) - len(behind)]
    except EncodingError as error:
        raise ApiError(
            f"Invalid messages: {error}.", code="invalid_value", param="messages"
        ) from error
