"""What of a conversation is sent again: the thinking retention rule of DeepSeek-V3.2 (section 3.2.2).

Reasoning stays across tool results and is dropped only when a new user message arrives; tool calls and
their results always stay.
"""

from __future__ import annotations

from collections.abc import Sequence

from envgen.core.types import Message


def retain_thinking(messages: Sequence[Message]) -> list[Message]:
    """``messages`` without the reasoning of assistant messages before the last user message."""
    last_user = max((i for i, m in enumerate(messages) if m.role == "user"), default=-1)
    return [
        message.model_copy(update={"reasoning": None})
        if i < last_user and message.role == "assistant" and message.reasoning is not None
        else message
        for i, message in enumerate(messages)
    ]
