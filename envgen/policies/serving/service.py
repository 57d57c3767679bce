"""The state that all endpoints share: the model, the requests that wait, and counters."""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from envgen.core import seeding
from envgen.core.types import Message
from envgen.model.engine import Stats
from envgen.model.requests import Request
from envgen.model.sampling import SamplingParams
from envgen.policies.base import Tool
from envgen.policies.encoding import Encoding, EncodingConfig, EncodingError, make_encoding
from envgen.policies.local_model import LocalModel, ServeConfig
from envgen.policies.serving.errors import ApiError, too_long
from envgen.policies.serving.fields import Draw
from envgen.policies.serving.generation import Generation, PieceReader, Sample

RATE_WINDOW_S = 10.0
RETRY_AFTER_S = 2
_MAX_SEED = 1 << 64


class Counters:
    """Counts since the start, and the rate of the last seconds."""

    def __init__(self) -> None:
        self.requests = 0
        self.refused = 0
        self.cancelled = 0
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self._recent: deque[tuple[float, int]] = deque()

    def add_tokens(self, count: int) -> None:
        """Note tokens that were written just now."""
        self.completion_tokens += count
        now = time.monotonic()
        if self._recent and now - self._recent[-1][0] < 0.1:
            now, earlier = self._recent.pop()
            count += earlier
        self._recent.append((now, count))
        self._trim()

    def tokens_per_s(self) -> float:
        """Over the last ten seconds."""
        self._trim()
        return sum(count for _, count in self._recent) / RATE_WINDOW_S

    def _trim(self) -> None:
        oldest = time.monotonic() - RATE_WINDOW_S
        while self._recent and self._recent[0][0] < oldest:
            self._recent.popleft()


class Service:
    """One model for many clients; used by the event loop's thread only.

    Args:
        local: the model, its engine started.
        config: limits and names.
        name: what clients call the model.
    """

    def __init__(self, local: LocalModel, config: ServeConfig, name: str) -> None:
        self.local = local
        self.config = config
        self.name = name
        self.created = int(time.time())
        self.counters = Counters()
        self.stopping = False
        self._live: set[Generation] = set()
        self._random = random.SystemRandom()

    def version(self, samples: Sequence[Sample] = ()) -> str:
        """Of the weights that wrote the first of ``samples``; the present ones where none has begun."""
        return next((one.version for one in samples if one.version), self.local.version)

    @property
    def encoding(self) -> Encoding:
        """The model's own."""
        return self.local.encoding

    def require_model(self, name: str) -> None:
        """Refuse a request for another model.

        Raises:
            ApiError: 404.
        """
        if name != self.name:
            raise ApiError(
                f"The model {name!r} does not exist; this server has {self.name!r}.",
                status=404,
                code="model_not_found",
                param="model",
            )

    def encoding_for(self, response_format: dict[str, Any] | None) -> Encoding:
        """The encoding that tells the model of the wanted format.

        Raises:
            ApiError: if the format is unknown, or this model's encoding has no place for one.
        """
        kind = (response_format or {"type": "text"}).get("type")
        if kind == "text":
            return self.encoding
        config = self.encoding.config
        if kind not in ("json_object", "json_schema") or config.kind != "dsml":
            known = "'text', 'json_object' and 'json_schema'" if config.kind == "dsml" else "'text'"
            raise ApiError(
                f"response_format {kind!r} is not supported; this model knows {known}.",
                code="unsupported_value",
                param="response_format",
            )
        schema: Any = {"type": "object"}
        if kind == "json_schema":
            schema = ((response_format or {}).get("json_schema") or {}).get("schema")
        if not isinstance(schema, dict):
            raise ApiError(
                "response_format.json_schema needs an object 'schema'.",
                code="invalid_value",
                param="response_format",
            )
        changed = EncodingConfig(**{**config.model_dump(), "response_format": schema})
        return make_encoding(changed, self.encoding.tokenizer)

    def limited(self, encoding: Encoding, windows: int = 1) -> Encoding:
        """The encoding for one prompt; raises ``TextTooLongError`` before it costs time to count tokens."""
        tokenizer = encoding.tokenizer.limited(windows * self.local.window)
        return make_encoding(encoding.config, tokenizer)

    def prompt(
        self, encoding: Encoding, messages: Sequence[Message], tools: Sequence[Tool]
    ) -> list[int]:
        """The ids of a conversation.

        Raises:
            ApiError: if it has no form in this encoding.
        """
        try:
            return self.limited(encoding).prompt(messages, tools)
        except EncodingError as error:
            raise ApiError(
                f"Invalid messages: {error}.", code="invalid_value", param="messages"
            ) from error

    def params(
        self, draw: Draw, limit: int | None, *, routing: bool, index: int, seed: int
    ) -> SamplingParams:
        """How sample ``index`` of a request is drawn."""
        config = self.config
        own = seed if index == 0 else seeding.derive(seed, index)
        return SamplingParams(
            temperature=1.0 if draw.temperature is None else draw.temperature,
            top_p=1.0 if draw.top_p is None else draw.top_p,
            top_k=draw.top_k or -1,
            max_new_tokens=limit or config.max_new_tokens,
            seed=own % _MAX_SEED,
            stop_ids=self.encoding.stop_ids,
            max_kept=config.max_kept,
            capture_routing=routing,
        )

    def generate(
        self,
        prompts: Sequence[list[int]],
        draw: Draw,
        limit: int | None,
        reader: Callable[[], PieceReader],
        *,
        each: int = 1,
        routing: bool = False,
        stream: bool = False,
    ) -> Generation:
        """Start ``each`` samples of each prompt; equal prompts are computed once.

        Raises:
            ApiError: if a prompt does not fit, or too many replies are under way.
        """
        count = len(prompts) * each
        self._require_room(prompts, count)
        seed = self._random.getrandbits(63) if draw.seed is None else draw.seed
        requests, samples = [], []
        for at, prompt in enumerate(prompts):
            for i in range(each):
                params = self.params(draw, limit, routing=routing, index=i, seed=seed)
                requests.append(Request(prompt, params))
                samples.append(Sample(at * each + i, prompt, reader()))
        each_token = stream or bool(draw.stops)
        generation = Generation(self.local.engine, requests, samples, each_token=each_token)
        self._live.add(generation)
        self.counters.requests += 1
        self.counters.prompt_tokens += sum(map(len, prompts))
        return generation

    def release(self, generation: Generation) -> None:
        """The client has its answer, or is gone."""
        if any(sample.finish is None for sample in generation.samples):
            self.counters.cancelled += 1
        generation.cancel()
        self._live.discard(generation)

    def stop(self) -> None:
        """Take nothing new, and give up what is under way."""
        self.stopping = True
        for generation in list(self._live):
            generation.cancel()

    def stats(self) -> Stats:
        """Counts of the engine."""
        return self.local.engine.stats()

    def _require_room(self, prompts: Sequence[list[int]], count: int) -> None:
        if self.stopping:
            raise ApiError("The server is shutting down.", status=503, code="shutting_down")
        size = self.local.engine.model.config.vocab_size
        for prompt in prompts:
            if len(prompt) >= self.local.window:
                raise too_long(self.local.window, len(prompt))
            if not prompt or max(prompt) >= size:
                raise ApiError(
                    f"Invalid prompt: it needs ids below {size}, and one at least.",
                    code="invalid_value",
                    param="prompt",
                )
        under_way = sum(generation.under_way for generation in self._live)
        if under_way and under_way + count > self.config.max_batch + self.config.max_waiting:
            self.counters.refused += 1
            raise ApiError(
                f"{under_way} replies are under way or waiting; try again in {RETRY_AFTER_S} seconds.",
                status=429,
                code="server_overloaded",
                headers={"Retry-After": str(RETRY_AFTER_S)},
            )
