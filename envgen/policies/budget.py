"""The cost of replies, and a run's limit: prices, and a budget that threads share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import Lock

from pydantic import Field, ValidationError

from envgen.core.errors import ConfigError
from envgen.core.limits import fault
from envgen.core.types import Message, Record, Usage
from envgen.policies.base import BudgetExceededError

REPLY_SHARE = 0.05
"""Completion tokens beside the prompt tokens of an agent's conversation."""
CHARS_PER_TOKEN = 4
"""Used for estimates only, where a server reports no usage."""


class Price(Record):
    """US dollars per million tokens."""

    prompt: float = Field(default=0.0, ge=0)
    completion: float = Field(default=0.0, ge=0)

    def cost(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Return the cost of so many tokens, in US dollars."""
        return (prompt_tokens * self.prompt + completion_tokens * self.completion) / 1e6


class Budget:
    """A spending limit shared by all threads of a run.

    A reply that is under way when the limit is reached is still paid and stored, so a run may overshoot
    by what its open requests cost.
    """

    def __init__(self, max_cost_usd: float | None = None, spent_usd: float = 0.0) -> None:
        self.max_cost_usd = max_cost_usd
        self._spent = spent_usd
        self._lock = Lock()

    @property
    def spent_usd(self) -> float:
        """Return the charges so far."""
        with self._lock:
            return self._spent

    @property
    def empty(self) -> bool:
        """Whether nothing is left to spend."""
        return self.max_cost_usd is not None and self.spent_usd >= self.max_cost_usd

    def charge(self, usage: Usage) -> None:
        """Count what a reply cost."""
        self.spend(usage.cost_usd)

    def spend(self, cost_usd: float) -> None:
        """Count US dollars."""
        with self._lock:
            self._spent += cost_usd

    def check(self) -> None:
        """Refuse a new request once the budget is spent.

        Raises:
            BudgetExceededError: when nothing is left.
        """
        if self.empty:
            raise BudgetExceededError(
                f"the budget of {self.max_cost_usd:g} USD is spent ({self.spent_usd:.4f} USD)",
                "raise --max-cost and run again: stored rollouts are kept",
            )


def estimated_tokens(messages: Sequence[Message]) -> int:
    """A rough count of the tokens of ``messages``, from their length alone."""
    return sum(map(_length, messages)) // CHARS_PER_TOKEN


def _length(message: Message) -> int:
    calls = sum(len(c.name) + len(c.arguments_text or str(c.arguments)) for c in message.tool_calls)
    return len(message.content) + len(message.reasoning or "") + calls + 8


def estimated_usage(prompt_tokens: int, options: Mapping[str, object]) -> Usage:
    """About what conversations cost whose requests add up to so many tokens, at the option ``price``.

    Raises:
        ConfigError: if the option is no price.
    """
    completion = round(prompt_tokens * REPLY_SHARE)
    try:
        price = Price.model_validate(options.get("price") or {})
    except ValidationError as error:
        raise ConfigError(f"policy option 'price': {fault(error)}") from None
    cost = price.cost(prompt_tokens, completion)
    return Usage(
        prompt_tokens=prompt_tokens, completion_tokens=completion, cost_usd=cost, estimated=True
    )
