"""The contract of a policy: messages and tools in, one assistant message out.

A policy keeps nothing between calls that changes its replies: each follows from the conversation, the
tools, the sampling settings, the seed and the public task. So one policy object serves many threads,
and a rollout that was cut off gives the same result when it is run again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from envgen.core.errors import PolicyError
from envgen.core.types import Message, PublicTask, Sampling, Usage

Tool = Mapping[str, Any]
"""One entry of OpenAI's ``tools`` parameter."""


class BudgetExceededError(PolicyError):
    """Raised when a run's ``--max-cost`` is spent; what is stored stays."""


class CancelledPolicyError(PolicyError):
    """Raised when the caller's ``cancel`` event was set while a reply was under way."""


class ContextOverflowError(PolicyError):
    """Raised when a model server says that the conversation no longer fits its window."""


class DeadlineExceededError(PolicyError):
    """Raised when no reply came before the caller's deadline."""


@dataclass(frozen=True, eq=False)
class SamplingMask:
    """Per completion token, which vocabulary entries truncation kept: CSR of T rows.

    Row t is ``ids[offsets[t]:offsets[t + 1]]``; ``offsets`` has T + 1 entries; both are int32.
    """

    offsets: NDArray[np.int32]
    ids: NDArray[np.int32]

    @classmethod
    def from_rows(cls, rows: Sequence[Sequence[int]]) -> SamplingMask:
        """From one list of kept ids per token."""
        offsets = np.zeros(len(rows) + 1, np.int32)
        np.cumsum([len(row) for row in rows], out=offsets[1:])
        ids = np.fromiter((i for row in rows for i in row), np.int32, int(offsets[-1]))
        return cls(offsets, ids)


@dataclass(frozen=True, eq=False)
class Tokens:
    """The tokens of one reply as the engine saw them, with what training replays.

    P prompt tokens, T completion tokens. ``logprobs`` belong to the distribution that was sampled
    (after temperature and truncation) unless ``raw_logprobs`` is set.
    """

    prompt_ids: NDArray[np.int32]
    completion_ids: NDArray[np.int32]
    logprobs: NDArray[np.float32] | None = None
    full_logprobs: NDArray[np.float32] | None = None
    """Log-probabilities over the whole vocabulary, before truncation: float32 [T]."""
    mask: SamplingMask | None = None
    routing: NDArray[np.uint16] | None = None
    """Chosen experts, uint16 [P + T - 1 - C, layers, k]: the last token was never run forward."""
    topk: NDArray[np.int32] | None = None
    """Positions the sparse attention chose, int32 [P + T - 1 - C, layers, k]."""
    captured_from: int = 0
    """C: ``routing`` and ``topk`` are of the tokens from this one on; the turns before have the others."""
    policy_version: str = ""
    raw_logprobs: bool = False
    stopped: bool = True
    """False when the length limit cut the reply, so that it lacks its end token."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of this turn that are stored: an npz's members."""
        found: dict[str, NDArray[Any] | None] = {
            "prompt_ids": self.prompt_ids,
            "completion_ids": self.completion_ids,
            "logprobs": self.logprobs,
            "full_logprobs": self.full_logprobs,
            "mask_offsets": self.mask.offsets if self.mask else None,
            "mask_ids": self.mask.ids if self.mask else None,
            "routing": self.routing,
            "topk": self.topk,
            "captured_from": np.array(self.captured_from) if self.captured_from else None,
            "raw_logprobs": np.array(self.raw_logprobs),
            "policy_version": np.array(self.policy_version),
        }
        return {name: array for name, array in found.items() if array is not None}


@dataclass(frozen=True)
class PolicyReply:
    """One assistant message, what it cost and, where the engine gives them, its tokens."""

    message: Message
    usage: Usage = field(default_factory=Usage)
    tokens: Tokens | None = None


@runtime_checkable
class Policy(Protocol):
    """Answers conversations. Implementations are thread-safe."""

    name: str

    @property
    def version(self) -> str:
        """Version of the policy; it changes where replies do."""
        ...

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
        """Answer ``messages`` with one whole assistant message.

        Args:
            messages: the conversation so far.
            tools: the callable tools in OpenAI's form, the submit tool included.
            sampling: how to draw.
            deadline: ``time.monotonic()`` by which the reply must be there.
            cancel: set by the caller to give up early.
            seed: the episode's seed; the same for all its turns.
            task: what is public about the task.

        Raises:
            PolicyError: when there is no reply and trying again won't help.
        """
        ...


def assistant_turns(messages: Sequence[Message]) -> int:
    """How many replies the conversation already holds."""
    return sum(message.role == "assistant" for message in messages)


def tool_name(tool: Tool) -> str:
    """The name of a tool in OpenAI's form."""
    return str(tool.get("function", tool)["name"])


def submit_tool(tools: Sequence[Tool], task: PublicTask) -> Tool | None:
    """The tool that ends the episode: the one that is no tool of the task's environment."""
    own = {spec.name for spec in task.tools}
    extra = [tool for tool in tools if tool_name(tool) not in own]
    return extra[0] if extra else None


def takes_answer(tool: Tool) -> bool:
    """Whether a submit tool takes an answer; a code task's takes none, it submits the working tree."""
    return bool(tool.get("function", tool).get("parameters", {}).get("properties"))


def submit_argument(tool: Tool) -> str:
    """The name of the submit tool's argument that takes the answer as JSON text."""
    properties = tool.get("function", tool).get("parameters", {}).get("properties", {})
    return next(iter(properties), "answer_text")
