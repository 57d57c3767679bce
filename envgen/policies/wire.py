"""What model servers answer in OpenAI's protocol: each part is checked here before anything reads it.

Fields that a server adds are ignored, and a server may leave out what it doesn't know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from envgen.core.limits import Count, Json, Label, Money, Text, fault
from envgen.policies.http import TransientError


class Wire(BaseModel):
    """The base of all parts of a reply."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class WireUsage(Wire):
    """The tokens of a reply, and its price where the server names one."""

    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    cost: Money | None = None


class WireFunction(Wire):
    """The function of a tool call."""

    name: Text | None = None
    arguments: Json = None


class WireCall(Wire):
    """A tool call, or a part of one."""

    index: Count | None = None
    id: Text | None = None
    function: WireFunction | None = None


class WireMessage(Wire):
    """A message, or a part of one."""

    content: Text | list[Json] | None = None
    reasoning_content: Text | list[Json] | None = None
    reasoning: Text | list[Json] | None = None
    tool_calls: list[WireCall] | None = None
    function_call: WireFunction | None = None


class WireChoice(Wire):
    """One of a reply's choices."""

    index: Count = 0
    message: WireMessage | None = None
    delta: WireMessage | None = None
    finish_reason: Label | None = None


class WireReply(Wire):
    """A reply, or an event of a streamed one."""

    choices: list[WireChoice] | None = None
    usage: WireUsage | None = None


def checked(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a reply unchanged once each of its parts has the protocol's type.

    Raises:
        TransientError: naming the first part that has not.
    """
    try:
        WireReply.model_validate(value)
    except ValidationError as error:
        raise TransientError(f"the reply is no completion: {fault(error)}") from None
    return value
