"""``POST /v1/completions`` and ``POST /inference/v1/generate``: texts or ids in, texts or ids out."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence
from typing import Any, cast
from uuid import uuid4

from envgen.policies.serving import replies
from envgen.policies.serving.captured import captured, require_whole
from envgen.policies.serving.errors import ApiError, too_long
from envgen.policies.serving.fields import CompletionBody, GenerateBody
from envgen.policies.serving.generation import (
    Generation,
    IdReader,
    Sample,
    SampledToken,
    TextReader,
)
from envgen.policies.serving.service import Service

MAX_PROMPTS = 128


class Text:
    """One text completion, of one prompt or several.

    Args:
        service: the model.
        body: what is asked for.

    Raises:
        ApiError: if it can't be done.
    """

    def __init__(self, service: Service, body: CompletionBody) -> None:
        service.require_model(body.model)
        require_whole(body, body)
        _require_own_logprobs(body.logprobs)
        self.body = body
        self._service = service
        self._id = f"cmpl-{uuid4().hex}"
        self._created = int(time.time())
        self._prompts = _prompts(service, body.prompt)
        self._tokenizer = service.encoding.tokenizer
        self._written = [0] * (len(self._prompts) * body.num_choices)

    def start(self) -> Generation:
        """Let the engine begin."""
        body = self.body
        stop_ids = self._service.encoding.stop_ids

        def reader() -> TextReader:
            special = body.skip_special_tokens
            return TextReader(self._tokenizer, stop_ids, body.stops, skip_special=special)

        return self._service.generate(
            self._prompts,
            body,
            body.max_tokens,
            reader,
            each=body.num_choices,
            routing=body.return_routed_experts,
            stream=bool(body.stream),
        )

    async def whole(self, generation: Generation) -> dict[str, Any]:
        """The answer once all samples are complete."""
        texts = [""] * len(generation.samples)
        async for step in generation.steps():
            self._service.counters.add_tokens(step.num_tokens)
            texts[step.sample.index] += "".join(delta.content for delta in step.deltas)
        choices = [
            self._choice(sample, text)
            for sample, text in zip(generation.samples, texts, strict=True)
        ]
        return self._envelope(generation.samples, choices, self._usage(generation))

    async def chunks(self, generation: Generation) -> AsyncGenerator[dict[str, Any]]:
        """The answer's chunks as they come."""
        async for step in generation.steps():
            self._service.counters.add_tokens(step.num_tokens)
            choice = self._step_choice(step)
            if choice is not None:
                yield self._envelope([step.sample], [choice])
        if self.body.with_usage:
            yield self._envelope(generation.samples, [], self._usage(generation))

    def _choice(self, sample: Sample, text: str) -> dict[str, Any]:
        logprobs = None
        if self.body.logprobs is not None:
            logprobs = replies.text_logprobs(self._tokenizer, sample.ids, sample.logprobs)
        found = {
            "index": sample.index,
            "text": text,
            "logprobs": logprobs,
            "finish_reason": sample.finish,
            **captured(sample, self.body),
        }
        if self.body.return_token_ids:
            found["prompt_token_ids"] = sample.prompt
        return found

    def _step_choice(self, step: SampledToken) -> dict[str, Any] | None:
        """What one token adds; nothing while a character is not whole and no token is asked for."""
        sample, token, body = step.sample, step.token, self.body
        text = "".join(delta.content for delta in step.deltas)
        tokens_wanted = token is not None and (body.logprobs is not None or body.return_token_ids)
        if not text and not tokens_wanted and sample.finish is None:
            return None
        choice: dict[str, Any] = {
            "index": sample.index,
            "text": text,
            "logprobs": None,
            "finish_reason": sample.finish,
        }
        if token is not None and body.logprobs is not None:
            at = self._written[sample.index]
            found = replies.text_logprobs(self._tokenizer, [token.id], [token.logprob], at)
            self._written[sample.index] = at + len(found["tokens"][0])
            choice["logprobs"] = found
        if sample.finish is not None:
            choice |= captured(sample, body)
        if body.return_token_ids:
            choice["token_ids"] = [] if token is None else [token.id]
            if len(sample.ids) == 1 and token is not None:
                choice["prompt_token_ids"] = sample.prompt
        return choice

    def _envelope(
        self,
        samples: Sequence[Sample],
        choices: list[dict[str, Any]],
        usage: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        found: dict[str, Any] = {
            "id": self._id,
            "object": replies.TEXT,
            "created": self._created,
            "model": self._service.name,
            "system_fingerprint": self._service.version(samples),
            "choices": choices,
        }
        if usage is not None or self.body.with_usage:
            found["usage"] = usage
        return found

    def _usage(self, generation: Generation) -> dict[str, Any]:
        samples = generation.samples
        cached = sum(
            sample.completion.cached_tokens if sample.completion is not None else 0
            for sample in samples[:: self.body.num_choices]
        )
        written = sum(len(sample.ids) for sample in samples)
        return replies.usage(sum(map(len, self._prompts)), written, cached)


class Ids:
    """One generation by ids alone, vLLM's ``/inference/v1/generate``.

    Args:
        service: the model.
        body: what is asked for.

    Raises:
        ApiError: if it can't be done.
    """

    def __init__(self, service: Service, body: GenerateBody) -> None:
        service.require_model(body.model)
        if body.sampling_params.stops:
            raise ApiError(
                "'stop' needs text; use /v1/completions.",
                code="unsupported_value",
                param="sampling_params.stop",
            )
        _require_own_logprobs(body.sampling_params.logprobs)
        self.body = body
        self._service = service

    def start(self) -> Generation:
        """Let the engine begin."""
        draw = self.body.sampling_params
        return self._service.generate(
            [self.body.token_ids],
            draw,
            draw.max_tokens,
            IdReader,
            routing=self.body.return_routed_experts,
        )

    async def whole(self, generation: Generation) -> dict[str, Any]:
        """The answer once it is complete."""
        async for step in generation.steps():
            self._service.counters.add_tokens(step.num_tokens)
        (sample,) = generation.samples
        logprobs = None
        if self.body.sampling_params.logprobs is not None:
            logprobs = replies.id_logprobs(sample.ids, sample.logprobs)
        choice = {
            "index": 0,
            "logprobs": logprobs,
            "finish_reason": sample.finish,
            **captured(sample, self.body),
            "token_ids": sample.ids,
        }
        return {
            "request_id": f"generate-{uuid4().hex}",
            "system_fingerprint": self._service.version([sample]),
            "choices": [choice],
            "prompt_logprobs": None,
        }


def _prompts(
    service: Service, given: str | list[str] | list[int] | list[list[int]]
) -> list[list[int]]:
    """The prompts' ids; control tokens in a text count."""
    if isinstance(given, str):
        return [_encode(service, given)]
    if given and isinstance(given[0], int):
        return [_ids(given)]
    if not 1 <= len(given) <= MAX_PROMPTS:
        raise ApiError(
            f"Invalid value for 'prompt': 1 to {MAX_PROMPTS} prompts.",
            code="invalid_value",
            param="prompt",
        )
    return [
        _encode(service, one) if isinstance(one, str) else _ids(one)
        for one in cast("list[str] | list[list[int]]", given)
    ]


def _encode(service: Service, text: str) -> list[int]:
    ids = service.encoding.tokenizer.limited(service.local.window).encode(text)
    if len(ids) >= service.local.window:
        raise too_long(service.local.window, len(ids))  # before the other prompts are looked at
    return ids


def _ids(given: list[int]) -> list[int]:
    if any(i < 0 for i in given):
        raise ApiError(
            "Invalid value for 'prompt': ids are 0 or more.", code="invalid_value", param="prompt"
        )
    return given


def _require_own_logprobs(asked: int | None) -> None:
    """0 and 1 both give the sampled token's own, as vLLM's clients ask for it."""
    if asked is not None and asked > 1:
        raise ApiError(
            "logprobs above 1 is not supported; 0 or 1 gives the sampled token's own.",
            code="unsupported_value",
            param="logprobs",
        )
