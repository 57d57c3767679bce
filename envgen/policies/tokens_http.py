"""Token-in, token-out policies over vLLM and SGLang: what training needs, exactly as it was sampled.

The first turn is rendered by the model's chat template; each later turn *extends* the ids that the engine
saw and produced by the ids of the new messages, and never renders the past again. The ids between two
turns come from rendering a two-message dummy with and without the new messages.

Wire formats:

* vLLM: ``POST /tokenize`` (messages -> ids), ``POST /detokenize``, ``POST /inference/v1/generate`` with
  ``token_ids``; or ``POST /v1/completions`` with ids as the prompt and ``return_token_ids``. Routed
  experts are a base64 ``.npy`` [P + T - 1, layers, k]; the sampling mask is a list of ids per token.
* SGLang: ``POST /tokenize`` (text -> ids), ``POST /generate`` with ``input_ids``. Log-probabilities are
  ``[logprob, id, text]`` triples in ``meta_info.output_token_logprobs``; routed experts are base64 int32;
  ``output_token_sampling_mask`` and ``output_token_sampling_logprobs`` come where they are offered.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import Any, Literal, Protocol

import numpy as np
from pydantic import Field

from envgen.core import seeding
from envgen.core.errors import ConfigError, PolicyError
from envgen.core.limits import Label, Line
from envgen.core.types import Message, PublicTask, Sampling, Usage
from envgen.policies.base import PolicyReply, Tokens, Tool, assistant_turns, tool_name
from envgen.policies.budget import Budget
from envgen.policies.chat_templates import ChatTemplate
from envgen.policies.conversations import Conversations
from envgen.policies.http import Http, TransientError, parse_json
from envgen.policies.openai import api_key, require_price, wire_messages
from envgen.policies.preflight import ask_server, hasty
from envgen.policies.text_tools import parse_text
from envgen.policies.token_wire import SampledTurn, sglang_completion, vllm_completion
from envgen.policies.wire import OpenAIConfig


class TokenConfig(OpenAIConfig):
    """A vLLM or SGLang server, used by token ids."""

    engine: Literal["vllm", "sglang"]
    endpoint: Literal["generate", "completions"] = "generate"
    """vLLM only: ``completions`` works with servers older than 0.20, but gives no routed experts."""
    chat_template: Label | None = None
    """Path of the model's chat_template.jinja, with tokenizer_config.json beside it for special tokens, or of
    a tokenizer_config.json that holds both; SGLang needs it, vLLM renders by itself."""
    logprobs_mode: Literal["raw", "processed"] | None = None
    """What the server's log-probabilities belong to (vLLM: ``--logprobs-mode``); None: the default."""
    routed_experts: bool = False
    sampling_mask: bool = False
    experts_per_token: int | None = Field(default=None, ge=1)
    """Needed to give SGLang's flat routing its shape."""
    max_new_tokens: int = Field(default=4096, ge=1)
    """Used where the sampling settings name no limit."""
    policy_version: Line = ""


class Renderer(Protocol):
    """A chat template and a tokenizer."""

    def render(
        self, messages: Sequence[Message], tools: Sequence[Tool], *, generate: bool
    ) -> list[int]:
        """Ids of the conversation, with the assistant's opening where ``generate``."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ``ids``, special tokens included."""
        ...


class VllmRenderer:
    """Lets a vLLM server render and tokenize."""

    def __init__(self, http: Http, model: str) -> None:
        self._http = http
        self._model = model

    def render(
        self, messages: Sequence[Message], tools: Sequence[Tool], *, generate: bool
    ) -> list[int]:
        """``POST /tokenize`` with messages."""
        body: dict[str, Any] = {
            "model": self._model,
            "messages": wire_messages(messages, None),
            "add_generation_prompt": generate,
        }
        if tools:
            body["tools"] = list(tools)
        return _token_ids(self._http.post("/tokenize", body, parse_json))

    def decode(self, ids: Sequence[int]) -> str:
        """``POST /detokenize``."""
        body = {"model": self._model, "tokens": list(ids)}
        return str(self._http.post("/detokenize", body, parse_json)["prompt"])


class TemplateRenderer:
    """Renders with a local Jinja template and lets an SGLang server tokenize the text."""

    def __init__(self, http: Http, model: str, template: ChatTemplate) -> None:
        self._http = http
        self._model = model
        self._template = template

    def render(
        self, messages: Sequence[Message], tools: Sequence[Tool], *, generate: bool
    ) -> list[int]:
        """Template, then ``POST /tokenize``."""
        text = self._template.render(messages, tools, generate=generate)
        body = {"model": self._model, "prompt": text, "add_special_tokens": False}
        return _token_ids(self._http.post("/tokenize", body, parse_json))

    def decode(self, ids: Sequence[int]) -> str:
        """``POST /detokenize``."""
        body = {"model": self._model, "tokens": list(ids), "skip_special_tokens": False}
        return str(self._http.post("/detokenize", body, parse_json)["text"])


class TokenPolicy:
    """Samples token ids from vLLM or SGLang and keeps them; thread-safe.

    It remembers the ids of conversations under way; one it does not know is rendered from its messages.
    """

    def __init__(
        self, config: TokenConfig, *, budget: Budget | None = None, renderer: Renderer | None = None
    ) -> None:
        self.name = f"{config.engine}:{config.model}"
        self.version = config.policy_version
        self._config = config
        self._budget = budget or Budget()
        require_price(config.price, self._budget)
        self._http = Http(config, api_key(config))
        self._renderer = renderer or _renderer(config, self._http)
        self._conversations = Conversations()

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def preflight(self, sampling: Sampling, *, tools: bool) -> None:
        """Ask the server one small thing; see ``policies.preflight``."""
        asked = TokenPolicy(self._config.model_copy(update=hasty(self._config)))
        with closing(asked):
            ask_server(asked, self._config, self._budget, sampling, tools=tools)

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
        """Sample one turn by token ids."""
        self._budget.check()
        turn = assistant_turns(messages)
        prompt = self._prompt_ids(messages, tools, seed)
        base = sampling.seed if sampling.seed is not None else seed
        path, body = self._request(prompt, sampling, seeding.derive(base, turn) & 0x7FFFFFFF)
        done = self._http.post(
            path,
            body,
            lambda chunks: self._completion(parse_json(chunks), len(prompt), sampling),
            deadline=deadline,
            cancel=cancel,
        )
        text = self._text(done)
        names = [tool_name(tool) for tool in tools]
        message = parse_text(text, names, turn=turn)
        usage = Usage(
            prompt_tokens=len(prompt),
            completion_tokens=len(done.ids),
            cost_usd=self._config.price.cost(len(prompt), len(done.ids))
            if self._config.price
            else 0.0,
        )
        self._budget.charge(usage)
        self._conversations.remember(messages, message, tools, seed, [*prompt, *done.ids])
        return PolicyReply(message, usage, self._tokens(prompt, done))

    def _request(
        self, prompt: list[int], sampling: Sampling, seed: int
    ) -> tuple[str, dict[str, Any]]:
        config = self._config
        limit = sampling.max_tokens or config.max_new_tokens
        params: dict[str, Any] = {"temperature": sampling.temperature, "top_p": sampling.top_p}
        if sampling.top_k > 0:
            params["top_k"] = sampling.top_k
        if config.engine == "sglang":
            params |= {"max_new_tokens": limit, "sampling_seed": seed, "skip_special_tokens": False}
            body = {"input_ids": prompt, "sampling_params": params, "return_logprob": True}
            body |= _flags(config)
            return "/generate", body | config.extra_body
        params |= {"max_tokens": limit, "seed": seed}
        if config.endpoint == "completions":
            body = {"model": config.model, "prompt": prompt, "logprobs": 1, **params}
            body |= {"return_token_ids": True, "skip_special_tokens": False}
            return "completions", body | config.extra_body
        params |= {"logprobs": 1, "skip_special_tokens": False}
        body = {"model": config.model, "token_ids": prompt, "sampling_params": params}
        return "/inference/v1/generate", body | _flags(config) | config.extra_body

    def _completion(
        self, value: dict[str, Any], num_prompt: int, sampling: Sampling
    ) -> SampledTurn:
        config = self._config
        truncated = sampling.top_p < 1 or sampling.top_k > 0
        try:
            if config.engine == "vllm":
                plain = sampling.temperature == 1 and not truncated
                raw = config.logprobs_mode != "processed" and not plain
                return vllm_completion(value, num_prompt, raw=raw)
            raw = config.logprobs_mode == "raw" or (config.logprobs_mode is None and truncated)
            return sglang_completion(value, num_prompt, config.experts_per_token, raw=raw)
        except (AttributeError, IndexError, KeyError, TypeError) as error:
            raise TransientError(f"the reply is of another form: {error}") from error

    def _text(self, done: SampledTurn) -> str:
        ids = done.ids[:-1] if done.stopped else done.ids
        if done.text is not None:
            return done.text
        return self._renderer.decode(ids) if ids else ""

    def _tokens(self, prompt: list[int], done: SampledTurn) -> Tokens:
        return Tokens(
            prompt_ids=np.array(prompt, np.int32),
            completion_ids=np.array(done.ids, np.int32),
            logprobs=done.logprobs,
            mask=done.mask,
            routing=done.routing,
            policy_version=done.version or self.version,
            raw_logprobs=done.raw,
            stopped=done.stopped,
        )

    def _prompt_ids(
        self, messages: Sequence[Message], tools: Sequence[Tool], seed: int
    ) -> list[int]:
        past = self._conversations.past(messages, tools, seed)
        if past is None:
            return self._renderer.render(messages, tools, generate=True)
        reply, new = messages[past.start - 1], messages[past.start :]
        return [*past.ids, *self._between(reply, new, tools, past.ids[-1])]

    def _between(
        self, reply: Message, new: Sequence[Message], tools: Sequence[Tool], last_id: int
    ) -> list[int]:
        """The ids from the end of ``reply`` to the opening of the next one."""
        asked = Message(role="user", content="x")
        answer = reply.model_copy(update={"content": "y", "reasoning": None})
        plain = answer.model_copy(update={"reasoning": "w", "tool_calls": ()})
        other = plain.model_copy(update={"content": "z"})
        before = self._renderer.render([asked, answer], tools, generate=False)
        after = self._renderer.render([asked, answer, *new], tools, generate=True)
        if after[: len(before)] != before:
            raise PolicyError(
                "the chat template changes earlier turns when messages follow, so ids can't be extended",
                "use the openai policy (capture: text) for this model",
            )
        first = self._renderer.render([asked, plain], tools, generate=False)
        second = self._renderer.render([asked, other], tools, generate=False)
        closing = _common_tail(first, second)
        if closing and closing[0] == last_id:
            closing = closing[1:]
        return [*closing, *after[len(before) :]]


def _renderer(config: TokenConfig, http: Http) -> Renderer:
    if config.chat_template is None:
        if config.engine == "sglang":
            raise ConfigError(
                "SGLang has no endpoint that renders a chat template",
                "give chat_template: the path of the model's chat_template.jinja",
            )
        return VllmRenderer(http, config.model)
    return TemplateRenderer(http, config.model, ChatTemplate.read(Path(config.chat_template)))


def _token_ids(reply: dict[str, Any]) -> list[int]:
    """The ids that ``/tokenize`` gives."""
    ids = reply.get("tokens")
    if not isinstance(ids, list) or not all(isinstance(i, int) for i in ids):
        raise PolicyError(
            "the server's /tokenize answers without token ids", "see docs/rollouts.md"
        )
    return ids


def _flags(config: TokenConfig) -> dict[str, Any]:
    flags: dict[str, Any] = {}
    if config.routed_experts:
        flags["return_routed_experts"] = True
    if config.sampling_mask and config.engine == "sglang":
        flags["return_sampling_mask"] = True  # vLLM has it as a server flag only
    return flags


def _common_tail(first: list[int], second: list[int]) -> list[int]:
    n = 0
    while n < min(len(first), len(second)) and first[-1 - n] == second[-1 - n]:
        n += 1
    return first[len(first) - n :]
