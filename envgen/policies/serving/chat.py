"""``POST /v1/chat/completions``: whole, or as a stream."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any
from uuid import uuid4

from envgen.core.types import Message
from envgen.policies.base import Tool, assistant_turns
from envgen.policies.serving import replies
from envgen.policies.serving.captured import captured, require_whole
from envgen.policies.serving.deltas import Delta, ReplyReader
from envgen.policies.serving.errors import ApiError
from envgen.policies.serving.fields import ChatBody
from envgen.policies.serving.generation import Generation, Sample, SampledToken
from envgen.policies.serving.messages import read_messages, read_tools, wire_call
from envgen.policies.serving.service import Service


class Chat:
    """One chat completion.

    Args:
        service: the model.
        body: what is asked for.

    Raises:
        ApiError: if it can't be done.
    """

    def __init__(self, service: Service, body: ChatBody) -> None:
        service.require_model(body.model)
        _require_supported(body)
        require_whole(body, body)
        self.body = body
        self._service = service
        self._id = f"chatcmpl-{uuid4().hex}"
        self._created = int(time.time())
        self._encoding = service.encoding_for(body.response_format)
        messages: list[Message] = read_messages(body.messages)
        self._tools: list[Tool] = [] if body.tool_choice == "none" else read_tools(body.tools)
        self._turn = assistant_turns(messages)
        self._prompt = service.prompt(self._encoding, messages, self._tools)

    def start(self) -> Generation:
        """Let the engine begin."""
        body = self.body

        def reader() -> ReplyReader:
            whole = not body.stream
            return ReplyReader(self._encoding, self._tools, self._turn, body.stops, whole=whole)

        return self._service.generate(
            [self._prompt],
            body,
            body.limit,
            reader,
            each=body.num_choices,
            routing=body.return_routed_experts,
            stream=bool(body.stream),
        )

    async def whole(self, generation: Generation) -> dict[str, Any]:
        """The answer once all samples are complete."""
        async for step in generation.steps():
            self._service.counters.add_tokens(step.num_tokens)
        choices = [self._choice(sample) for sample in generation.samples]
        usage = self._usage(generation)
        return self._envelope(replies.CHAT, generation.samples, choices, usage=usage)

    async def chunks(self, generation: Generation) -> AsyncGenerator[dict[str, Any]]:
        """The answer's chunks as they come."""
        for sample in generation.samples:
            yield self._chunk(sample, {"role": "assistant", "content": ""}, first=True)
        async for step in generation.steps():
            self._service.counters.add_tokens(step.num_tokens)
            for chunk in self._step_chunks(step):
                yield chunk
        if self.body.with_usage:
            usage = self._usage(generation)
            yield self._envelope(replies.CHAT_CHUNK, generation.samples, [], usage=usage)

    def _choice(self, sample: Sample) -> dict[str, Any]:
        body, tokenizer = self.body, self._encoding.tokenizer
        assert isinstance(sample.reader, ReplyReader)
        message = sample.reader.message()
        logprobs = None
        if body.logprobs:
            logprobs = replies.chat_logprobs(tokenizer, sample.ids, sample.logprobs)
        return {
            "index": sample.index,
            "message": replies.chat_message(message),
            "logprobs": logprobs,
            "finish_reason": _reason(sample, bool(message.tool_calls)),
            **captured(sample, body),
        }

    def _step_chunks(self, step: SampledToken) -> list[dict[str, Any]]:
        """The chunks of one token: what it adds; where tokens are asked for, one chunk at least."""
        sample, token, body = step.sample, step.token, self.body
        parts = [part for delta in step.deltas for part in _wire(delta)]
        if not parts and token is not None and (body.logprobs or body.return_token_ids):
            parts = [{}]
        chunks = [self._chunk(sample, part) for part in parts]
        if chunks and token is not None:
            choice = chunks[0]["choices"][0]
            if body.logprobs:
                choice["logprobs"] = replies.chat_logprobs(
                    self._encoding.tokenizer, [token.id], [token.logprob]
                )
            if body.return_token_ids:
                choice["token_ids"] = [token.id]
        if sample.finish is not None:
            assert isinstance(sample.reader, ReplyReader)
            last = self._chunk(sample, {})
            called = bool(sample.reader.message().tool_calls)
            last["choices"][0]["finish_reason"] = _reason(sample, called)
            more = captured(sample, body)
            more.pop("token_ids", None)
            last["choices"][0] |= more
            chunks.append(last)
        return chunks

    def _chunk(
        self, sample: Sample, delta: Mapping[str, Any], *, first: bool = False
    ) -> dict[str, Any]:
        choice = {"index": sample.index, "delta": delta, "logprobs": None, "finish_reason": None}
        chunk = self._envelope(replies.CHAT_CHUNK, [sample], [choice])
        if not first:
            chunk.pop("prompt_token_ids", None)
        return chunk

    def _envelope(
        self,
        kind: str,
        samples: Sequence[Sample],
        choices: list[dict[str, Any]],
        usage: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        found: dict[str, Any] = {
            "id": self._id,
            "object": kind,
            "created": self._created,
            "model": self._service.name,
            "system_fingerprint": self._service.version(samples),
            "choices": choices,
        }
        if kind == replies.CHAT or self.body.with_usage:
            found["usage"] = usage
        if self.body.return_token_ids and choices:
            found["prompt_token_ids"] = self._prompt
        return found

    def _usage(self, generation: Generation) -> dict[str, Any]:
        return count(generation, len(self._prompt))


def count(generation: Generation, num_prompt: int) -> dict[str, Any]:
    """The usage of all samples together; the prompt counts once."""
    samples = generation.samples
    first = samples[0].completion
    cached = first.cached_tokens if first is not None else 0
    return replies.usage(num_prompt, sum(len(sample.ids) for sample in samples), cached)


def _reason(sample: Sample, called: bool) -> str:
    """OpenAI's finish reason."""
    if sample.finish == "stop" and called and not sample.reader.stopped:
        return "tool_calls"
    return sample.finish or "stop"


def _wire(delta: Delta) -> list[dict[str, Any]]:
    """A piece in OpenAI's form; a call is announced first, then its arguments come."""
    if delta.call is None:
        if delta.reasoning:
            return [{"reasoning_content": delta.reasoning}]
        return [{"content": delta.content}]
    call = wire_call(delta.call)
    arguments = call["function"]["arguments"]
    head = {**call, "index": delta.index, "function": {"name": delta.call.name, "arguments": ""}}
    rest = {"index": delta.index, "function": {"arguments": arguments}}
    return [{"tool_calls": [head]}, {"tool_calls": [rest]}]


def _require_supported(body: ChatBody) -> None:
    if body.top_logprobs:
        raise ApiError(
            "top_logprobs above 0 is not supported; logprobs gives the sampled token's own.",
            code="unsupported_value",
            param="top_logprobs",
        )
