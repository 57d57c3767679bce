"""Select the messages that a model sees: thinking retention, and strategies for a full window.

Thinking retention (DeepSeek-V3.2, section 3.2.2): reasoning stays across tool results and is dropped only
when a new user message arrives; tool calls and their results always stay.

Context management (section 4.4), once more than 80 % of the window is used:

* ``summary``: the dropped part is summarised by the policy itself, and the episode goes on from the summary;
* ``discard-75``: the first 75 % of the call-and-result blocks go;
* ``discard-all``: all of them go.

The system prompt and the task always stay, blocks go whole, steps and costs count on. The paper leaves
open what happens when a window fills again; here it is managed again, up to ``max_resets`` times.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from threading import Event
from typing import Literal

from pydantic import Field

from envgen.core.types import ContextEvent, Message, PublicTask, Record, Sampling, Usage
from envgen.policies.base import Policy
from envgen.policies.budget import estimated_tokens

SUMMARY_REQUEST = (
    "The conversation is too long to go on. Summarise what has been found and done so far, with every "
    "fact, name and number that is needed to finish the task, and what is still to be done. "
    "Write the summary only; call no tool."
)


def retain_thinking(messages: Sequence[Message]) -> list[Message]:
    """``messages`` without the reasoning of assistant messages before the last user message."""
    last_user = max((i for i, m in enumerate(messages) if m.role == "user"), default=-1)
    return [
        message.model_copy(update={"reasoning": None})
        if i < last_user and message.role == "assistant" and message.reasoning is not None
        else message
        for i, message in enumerate(messages)
    ]


class ContextConfig(Record):
    """How a full window is dealt with."""

    strategy: Literal["none", "summary", "discard-75", "discard-all"] = "none"
    """What becomes of the earlier rounds: nothing, a summary, or 75 % or all of them are forgotten."""
    window_tokens: int = Field(default=131_072, ge=1)
    """What the model can see."""
    trigger: float = Field(default=0.8, gt=0, le=1)
    """Share of the window in use from which the context is managed."""
    max_resets: int = Field(default=32, ge=0)
    """Most times in one episode."""
    summary_tokens: int = Field(default=2_048, ge=1)
    """Most tokens of a summary."""


class ContextManager:
    """The managed view of one episode's conversation.

    Attributes:
        events: what was dropped, and when.
        usage: what summaries cost.
    """

    def __init__(self, config: ContextConfig, policy: Policy, task: PublicTask, seed: int) -> None:
        self.events: list[ContextEvent] = []
        self.usage = Usage()
        self._config = config
        self._policy = policy
        self._task = task
        self._seed = seed
        self._first = 0
        """Index of the first message after the head that is still seen."""
        self._summary: Message | None = None

    def seen(self, messages: Sequence[Message]) -> list[Message]:
        """Select the messages that the model sees as things stand."""
        head = _head(messages)
        summary = [self._summary] if self._summary is not None else []
        return [*messages[:head], *summary, *messages[max(head, self._first) :]]

    def manage(
        self,
        messages: Sequence[Message],
        used_tokens: int,
        sampling: Sampling,
        *,
        deadline: float | None = None,
        cancel: Event | None = None,
    ) -> list[Message]:
        """Select the messages that the model sees, after the strategy has made room in a full window.

        Args:
            messages: the whole conversation.
            used_tokens: what the model saw last, with what came since.
            sampling: for the summary.
            deadline: for the summary.
            cancel: for the summary.
        """
        config = self._config
        full = used_tokens > config.trigger * config.window_tokens
        if config.strategy == "none" or not full or len(self.events) >= config.max_resets:
            return self.seen(messages)
        blocks = _blocks(messages, max(_head(messages), self._first))
        dropped = len(blocks)
        if config.strategy == "discard-75":
            dropped = math.ceil(0.75 * len(blocks))
        if not dropped:
            return self.seen(messages)
        summary_tokens = 0
        if config.strategy == "summary":
            summary_tokens = self._summarise(messages, sampling, deadline, cancel)
        self._first = blocks[dropped] if dropped < len(blocks) else len(messages)
        view = self.seen(messages)
        self.events.append(
            ContextEvent(
                strategy=config.strategy,
                at_message=len(messages),
                tokens_before=used_tokens,
                tokens_after=estimated_tokens(view),
                dropped_pairs=dropped,
                summary_tokens=summary_tokens,
            )
        )
        return view

    def _summarise(
        self,
        messages: Sequence[Message],
        sampling: Sampling,
        deadline: float | None,
        cancel: Event | None,
    ) -> int:
        """Let the policy summarise what it sees; an empty summary keeps the earlier one."""
        reply = self._policy.respond(
            [*self.seen(messages), Message(role="user", content=SUMMARY_REQUEST)],
            [],
            sampling.model_copy(update={"max_tokens": self._config.summary_tokens}),
            deadline=deadline,
            cancel=cancel,
            seed=self._seed,
            task=self._task,
        )
        self.usage = self.usage + reply.usage
        if reply.message.content.strip():
            text = f"Summary of the work so far:\n{reply.message.content.strip()}"
            self._summary = Message(role="user", content=text)
        return reply.usage.completion_tokens or estimated_tokens([reply.message])


def _head(messages: Sequence[Message]) -> int:
    """How many messages stand before the first reply: system prompt and task."""
    return next((i for i, m in enumerate(messages) if m.role == "assistant"), len(messages))


def _blocks(messages: Sequence[Message], start: int) -> list[int]:
    """Where blocks begin: an assistant message with all that answers it."""
    return [i for i in range(start, len(messages)) if messages[i].role == "assistant"]
