"""The bodies of requests, checked strictly.

A parameter that would change the reply and is not supported is refused, never ignored. Ignored are only
those that change nothing (``user``, ``metadata``, ...).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from envgen.core.limits import Label, Real, Text, Whole
from envgen.model.sampling import MIN_TEMPERATURE

MAX_STOPS = 16
MAX_STOP_CHARS = 256
MAX_CHOICES = 128

T = TypeVar("T")
Many = Annotated[list[T], Field(fail_fast=True)]
"""A list whose first fault ends the check: a body has room for millions, each of which costs."""
Ids = Annotated[Many[Annotated[int, Field(ge=0)]], Field(min_length=1)]


class Body(BaseModel):
    """Base of all request bodies: no coercion, nothing unknown."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    model: Label

    user: Any = None
    metadata: Any = None
    store: Any = None
    service_tier: Any = None
    safety_identifier: Any = None
    prompt_cache_key: Any = None
    request_id: Any = None


class StreamOptions(BaseModel):
    """OpenAI's ``stream_options``."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    include_usage: bool = False
    include_obfuscation: Literal[False] | None = None


class Draw(BaseModel):
    """How to draw: what chat, text and token completions share."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    temperature: Annotated[Real, Field(ge=0, le=2)] | None = None
    top_p: Annotated[Real, Field(gt=0, le=1)] | None = None
    top_k: Annotated[Whole, Field(ge=-1)] | None = None
    """-1 and 0: all."""
    max_tokens: Annotated[Whole, Field(ge=1)] | None = None
    seed: Whole | None = None
    stop: Label | list[Label] | None = None
    skip_special_tokens: bool = True

    @field_validator("temperature")
    @classmethod
    def _not_next_to_nothing(cls, given: float | None) -> float | None:
        if given and given < MIN_TEMPERATURE:
            raise ValueError(f"0 for greedy, or at least {MIN_TEMPERATURE}")
        return given

    @field_validator("stop")
    @classmethod
    def _sane_stops(cls, given: str | list[str] | None) -> str | list[str] | None:
        listed = [given] if isinstance(given, str) else given or []
        if len(listed) > MAX_STOPS:
            raise ValueError(f"at most {MAX_STOPS} stop sequences")
        if any(not 0 < len(stop) <= MAX_STOP_CHARS for stop in listed):
            raise ValueError(f"a stop sequence has 1 to {MAX_STOP_CHARS} characters")
        return given

    @property
    def stops(self) -> tuple[str, ...]:
        """The stop sequences, if any."""
        if self.stop is None:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)


class Captured(BaseModel):
    """The records of sampled tokens that come back beyond OpenAI's fields (vLLM's names)."""

    return_token_ids: bool | None = None
    return_routed_experts: bool = False
    return_sampling_mask: bool = False


class ChoiceFields(Draw):
    """The fields that chat and text completions share beyond ``Draw``."""

    n: Annotated[Whole, Field(ge=1, le=MAX_CHOICES)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    frequency_penalty: Real | None = None
    presence_penalty: Real | None = None
    logit_bias: dict[Label, Real] | None = None

    @field_validator("frequency_penalty", "presence_penalty", "logit_bias")
    @classmethod
    def _unsupported(cls, given: Any) -> Any:
        if given:
            raise ValueError("not supported by this server; leave it out")
        return given

    @model_validator(mode="after")
    def _options_need_a_stream(self) -> ChoiceFields:
        if self.stream_options is not None and not self.stream:
            raise ValueError("'stream_options' is for stream=true only")
        return self

    @property
    def num_choices(self) -> int:
        """How many samples are wanted."""
        return self.n or 1

    @property
    def with_usage(self) -> bool:
        """Whether the stream shall end with the usage."""
        return self.stream_options is not None and self.stream_options.include_usage


class ChatBody(Body, Captured, ChoiceFields):
    """``POST /v1/chat/completions``."""

    messages: Annotated[Many[dict[Label, Any]], Field(min_length=1)]
    tools: Many[dict[Label, Any]] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    response_format: dict[Label, Any] | None = None
    max_completion_tokens: Annotated[Whole, Field(ge=1)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[Whole, Field(ge=0, le=20)] | None = None

    @field_validator("tool_choice")
    @classmethod
    def _free_choice(cls, given: Any) -> Any:
        if given not in (None, "none", "auto"):
            raise ValueError("this server knows 'none' and 'auto'")
        return given

    @field_validator("parallel_tool_calls")
    @classmethod
    def _parallel(cls, given: bool | None) -> bool | None:
        if given is False:
            raise ValueError("the model decides how many calls it makes; leave it out")
        return given

    @model_validator(mode="after")
    def _consistent(self) -> ChatBody:
        if self.top_logprobs and not self.logprobs:
            raise ValueError("'top_logprobs' needs logprobs=true")
        return self

    @property
    def limit(self) -> int | None:
        """The newer name of the limit wins."""
        return self.max_completion_tokens or self.max_tokens


class CompletionBody(Body, Captured, ChoiceFields):
    """``POST /v1/completions``; the prompt is a text or token ids, or a list of either."""

    prompt: Text | Many[Text] | Many[Whole] | Many[Many[Whole]]
    logprobs: Annotated[Whole, Field(ge=0, le=20)] | None = None
    echo: Literal[False] | None = None
    suffix: None = None
    best_of: Literal[1] | None = None


class GenerateParams(Draw):
    """``sampling_params`` of ``POST /inference/v1/generate``."""

    logprobs: Annotated[Whole, Field(ge=0, le=20)] | None = None


class GenerateBody(Body, Captured):
    """``POST /inference/v1/generate``: ids in, ids out."""

    token_ids: Ids
    sampling_params: GenerateParams = GenerateParams()


class TokenizeBody(Body):
    """``POST /tokenize``: a conversation or a text."""

    messages: Many[dict[Label, Any]] | None = None
    tools: Many[dict[Label, Any]] | None = None
    add_generation_prompt: bool = True
    prompt: Text | None = None
    add_special_tokens: bool = True
    """Taken for vLLM's sake; this tokenizer adds none to a text."""

    @model_validator(mode="after")
    def _one_of_them(self) -> TokenizeBody:
        if (self.messages is None) == (self.prompt is None):
            raise ValueError("give 'messages' or 'prompt'")
        return self


class DetokenizeBody(Body):
    """``POST /detokenize``."""

    tokens: Many[Annotated[Whole, Field(ge=0)]]
