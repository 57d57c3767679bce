"""The ids of conversations under way: what makes the next prompt an extension of the last one."""

from __future__ import annotations

import threading
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from envgen.core.canonical import content_hash
from envgen.core.jsonvalues import clean_text
from envgen.core.types import Message
from envgen.policies.base import Tool, assistant_turns

REMEMBERED_TOKENS = 1 << 25
"""Of all conversations, 4 bytes each; the oldest conversations go first."""


class Past(NamedTuple):
    """The tokens that the engine saw and wrote up to a reply."""

    ids: list[int]
    """Prompt and reply."""
    start: int
    """Index of the first message behind the reply."""


class Conversations:
    """Remembers ids by what the conversation says; thread-safe.

    A conversation is recognised by its episode's seed, the tools, the messages that the policy did not
    write, and its own last reply. Where context management dropped messages nothing is found: the ids would
    be of another past.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[str, array[int]] = OrderedDict()
        self._tokens = 0
        self._lock = threading.Lock()

    def past(self, messages: Sequence[Message], tools: Sequence[Tool], seed: int) -> Past | None:
        """The ids up to the last reply in ``messages``, if they are known."""
        last = max((i for i, m in enumerate(messages) if m.role == "assistant"), default=-1)
        if last < 0:
            return None
        key = _key(messages[:last], messages[last], tools, seed)
        with self._lock:
            ids = self._kept.get(key)
        return None if ids is None else Past(ids.tolist(), last + 1)

    def remember(
        self,
        messages: Sequence[Message],
        reply: Message,
        tools: Sequence[Tool],
        seed: int,
        ids: list[int],
    ) -> None:
        """Keep the ids of the conversation ``[*messages, reply]``."""
        key = _key(messages, reply, tools, seed)
        with self._lock:
            self._tokens += len(ids) - len(self._kept.pop(key, ()))
            self._kept[key] = array("i", ids)
            while self._tokens > REMEMBERED_TOKENS:
                _, oldest = self._kept.popitem(last=False)
                self._tokens -= len(oldest)


def _key(messages: Sequence[Message], reply: Message, tools: Sequence[Tool], seed: int) -> str:
    given = [m.model_dump(mode="json") for m in messages if m.role != "assistant"]
    # Environments clean what they store, and shorten malformed calls: their ids are enough.
    content = clean_text(reply.content, max(1, len(reply.content)))
    answer = [content, [call.id for call in reply.tool_calls]]
    return content_hash([seed, assistant_turns(messages), list(tools), given, answer])
