"""Model servers that speak OpenAI's protocol: how one is reached, and what it answers.

Each part of an answer is checked here before anything reads it. Fields that a server adds are ignored,
and a server may leave out what it doesn't know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from envgen.core.limits import Count, Json, Label, Line, Text, Word, fault
from envgen.policies.budget import Price
from envgen.policies.http import HttpConfig, TransientError


class OpenAIConfig(HttpConfig):
    """A model behind an OpenAI-compatible URL."""

    base_url: Line = "https://api.openai.com/v1"
    model: Line
    api_key_env: Word | None = "OPENAI_API_KEY"
    """Name of the environment variable that holds the key; the key itself is never stored."""
    stream: bool = True
    tool_mode: Literal["auto", "native", "text"] = "auto"
    """auto: native calls, and calls written in text are read too. text: tools go into the prompt."""
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    send_seed: bool = True
    send_reasoning: bool = True
    """Give retained reasoning back as ``reasoning_content``."""
    price: Price | None = None
    extra_body: dict[Label, Json] = Field(default_factory=dict)

    @field_validator("extra_body")
    @classmethod
    def _one_reply(cls, value: dict[str, Any]) -> dict[str, Any]:
        if value.get("n") not in (None, 1):
            raise ValueError(
                "n: a request asks for one reply; the n of a run (-c n=8) plays a task more often"
            )
        return value


Tokens = Annotated[int, Field(ge=0, lt=1 << 31)]
"""Tokens of one reply: what a database's column holds, and more than any window."""


class Wire(BaseModel):
    """The base of all parts of a reply."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class WireUsage(Wire):
    """The tokens of a reply, and its price where the server names one."""

    prompt_tokens: Tokens | None = None
    completion_tokens: Tokens | None = None
    cost: Annotated[float, Field(ge=0, le=1e6)] | None = None
    """US dollars: less than a run's sum may be."""


class WireFunction(Wire):
    """The function of a tool call."""

    name: Text | None = None
    arguments: Json = None


class WireCall(Wire):
    """A tool call, or a part of one."""

    index: Count | None = None
    id: Text | None = None
    function: WireFunction | None = None


class WireLoneCall(WireCall):
    """A tool call that stands where a list of them should."""

    function: WireFunction


class WireMessage(Wire):
    """A message, or a part of one."""

    content: Text | list[Json] | None = None
    refusal: Text | None = None
    reasoning_content: Text | list[Json] | None = None
    reasoning: Text | list[Json] | None = None
    tool_calls: Annotated[list[WireCall], Field(max_length=1 << 16)] | WireLoneCall | None = None
    function_call: WireFunction | None = None


class WireChoice(Wire):
    """One of a reply's choices."""

    message: WireMessage | None = None
    delta: WireMessage | None = None
    finish_reason: Label | None = None


class WireReply(Wire):
    """A reply, or an event of a streamed one."""

    choices: Annotated[list[WireChoice], Field(max_length=128)] | None = None
    usage: WireUsage | None = None


def checked(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a reply unchanged once each of its parts has the protocol's type.

    Raises:
        TransientError: naming the first part that has not.
    """
    try:
        WireReply.model_validate(value)
    except ValidationError as error:
        raise TransientError(f"the reply is not a completion: {fault(error)}") from None
    return value
