"""``dsa:FOLDER``: a model of ours in this process, exactly as training needs it.

All threads of a run share one engine, which answers them as one batch. Tokens in = tokens out: within a user
turn the next prompt is the last prompt, the model's own ids, and what came since; nothing that the model
wrote is ever tokenized again. A new user message (for a thinking model) or a managed context renders anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from envgen.core import seeding
from envgen.core.types import Message, PublicTask, Sampling, Usage
from envgen.policies.base import (
    CancelledPolicyError,
    ContextOverflowError,
    DeadlineExceededError,
    PolicyReply,
    SamplingMask,
    Tokens,
    Tool,
    assistant_turns,
)
from envgen.policies.conversations import Conversations
from envgen.policies.local_model import LocalModel, LocalModelConfig, open_model

if TYPE_CHECKING:
    from envgen.model.requests import Completion
    from envgen.model.tickets import Ticket

_SLICE_S = 0.5
"""How long a waiting thread may overlook that it was cancelled."""


class DSAPolicyConfig(LocalModelConfig):
    """A model folder as a policy, and what is recorded of its replies."""

    record: bool = True
    """Keep the tokens of replies and what else training replays; without it replies are text alone."""
    capture_routing: bool = True
    """Keep which experts every token went to."""
    capture_topk: bool = False
    """Keep which keys sparse attention chose: large."""


class DSAPolicy:
    """Samples from an engine of its own; thread-safe.

    Args:
        config: the model and its settings.
        local: an engine that already runs, such as a trainer's; the caller closes it. None: opened from
            the folder.

    Attributes:
        on_reply: called after each reply, by the thread that asked for it; None: nobody is told.
    """

    on_reply: Callable[[], None] | None = None

    def __init__(self, config: DSAPolicyConfig, *, local: LocalModel | None = None) -> None:
        self.name = f"dsa:{Path(config.model).name or config.model}"
        self._config = config
        self._owned = local is None
        self.local = local or open_model(config)
        self._conversations = Conversations()

    @property
    def version(self) -> str:
        """Version of the weights."""
        return self.local.version

    def close(self) -> None:
        """Stop the engine, unless it is the caller's."""
        if self._owned:
            self.local.close()

    def respond(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        sampling: Sampling,
        *,
        deadline: float | None = None,
        cancel: Event | None = None,
        seed: int,
        task: PublicTask,
    ) -> PolicyReply:
        """Sample one turn; a malformed reply becomes a message whose calls can't be carried out."""
        encoding = self.local.encoding
        turn = assistant_turns(messages)
        # Rollouts of a group share the episode's seed, so theirs is what tells conversations apart.
        base = sampling.seed if sampling.seed is not None else seed
        prompt, known = self._prompt(messages, tools, base)
        draws = seeding.derive(base, turn)
        done = self._sample(prompt, known, sampling, draws, deadline, cancel)
        ids = done.ids.tolist()
        message = encoding.parse(ids, tools, turn, lenient=True)
        self._conversations.remember(messages, message, tools, base, [*prompt, *ids])
        usage = Usage(prompt_tokens=len(prompt), completion_tokens=len(ids))
        if self.on_reply is not None:
            self.on_reply()
        return PolicyReply(message, usage, reply_tokens(done) if self._config.record else None)

    def _prompt(
        self, messages: Sequence[Message], tools: Sequence[Tool], seed: int
    ) -> tuple[list[int], int]:
        """The prompt, and how many of its first tokens the records of the turns before are of."""
        encoding = self.local.encoding
        past = self._conversations.past(messages, tools, seed)
        if past is None or not encoding.extends(messages, past.start):
            return encoding.prompt(messages, tools), 0
        closed = past.ids[-1] in encoding.stop_ids
        new = encoding.extension(messages, tools, past.start, closed=closed)
        return [*past.ids, *new], len(past.ids) - 1

    def _sample(
        self,
        prompt: list[int],
        known: int,
        sampling: Sampling,
        seed: int,
        deadline: float | None,
        cancel: Event | None,
    ) -> Completion:
        from envgen.model.requests import Request
        from envgen.model.sampling import SamplingParams

        window = self.local.window
        if len(prompt) >= window:
            raise ContextOverflowError(
                f"the conversation has {len(prompt)} tokens, the model's window {window}",
                "use a context strategy, or a model with a larger window",
            )
        params = SamplingParams(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            max_new_tokens=sampling.max_tokens or self._config.max_new_tokens,
            seed=seed,
            stop_ids=self.local.encoding.stop_ids,
            max_kept=self._config.max_kept,
            capture_routing=self._config.record and self._config.capture_routing,
            capture_topk=self._config.capture_topk,
            capture_from=known,
        )
        ticket = self.local.engine.submit(Request(prompt, params))
        try:
            return _wait(ticket, deadline, cancel)
        except BaseException:
            ticket.cancel()
            raise


def _wait(ticket: Ticket, deadline: float | None, cancel: Event | None) -> Completion:
    """The reply, unless the caller gives up first."""
    while True:
        if cancel is not None and cancel.is_set():
            raise CancelledPolicyError("the request was cancelled")
        left_s = _SLICE_S if deadline is None else deadline - time.monotonic()
        if left_s <= 0 and not ticket.done:
            raise DeadlineExceededError("the model gave no reply before the deadline")
        try:
            return ticket.result(min(max(left_s, 0.0), _SLICE_S))
        except TimeoutError:
            continue


def reply_tokens(done: Completion) -> Tokens:
    """Collect the choices of a completion that training replays."""
    mask = None
    if done.mask_offsets is not None and done.mask_ids is not None:
        mask = SamplingMask(done.mask_offsets, done.mask_ids)
    return Tokens(
        prompt_ids=done.prompt_ids,
        completion_ids=done.ids,
        logprobs=done.logprobs,
        full_logprobs=done.full_logprobs,
        mask=mask,
        routing=done.routing,
        topk=done.topk,
        captured_from=done.captured_from,
        policy_version=done.policy_version,
        stopped=done.finish_reason == "stop",
    )
