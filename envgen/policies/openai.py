"""``openai``: any server that speaks OpenAI's chat completions."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from threading import Event
from typing import Any

from envgen.core import seeding
from envgen.core.environ import secret
from envgen.core.errors import ConfigError
from envgen.core.types import Message, PublicTask, Sampling, ToolCall, Usage, written_call
from envgen.policies.base import PolicyReply, Tool, assistant_turns, tool_name
from envgen.policies.budget import Budget, Price, estimated_tokens
from envgen.policies.context import retain_thinking
from envgen.policies.http import Http, TransientError, parse_events, parse_json
from envgen.policies.preflight import ask_server, hasty
from envgen.policies.text_tools import instructions, parse_text, split_thinking
from envgen.policies.wire import OpenAIConfig, checked


class OpenAIPolicy:
    """Asks a chat completions server; thread-safe."""

    def __init__(self, config: OpenAIConfig, *, budget: Budget | None = None) -> None:
        self.name = f"openai:{config.model}"
        self.version = ""
        self._config = config
        self._budget = budget or Budget()
        require_price(config.price, self._budget)
        self._http = Http(config, api_key(config))

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def preflight(self, sampling: Sampling, *, tools: bool) -> None:
        """Ask the server one small thing; see ``policies.preflight``."""
        asked = OpenAIPolicy(self._config.model_copy(update=hasty(self._config)))
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
        """One chat completion."""
        self._budget.check()
        body = request_body(self._config, messages, tools, sampling, seed)
        choice, usage = self._http.post(
            "chat/completions",
            body,
            parse_reply if self._config.stream else parse_whole,
            deadline=deadline,
            cancel=cancel,
        )
        names = [tool_name(tool) for tool in tools]
        message = read_message(
            choice, messages, names, read_text=self._config.tool_mode != "native"
        )
        counted = count_usage(usage, messages, message, self._config.price)
        self._budget.charge(counted)
        return PolicyReply(message, counted)


def request_body(
    config: OpenAIConfig,
    messages: Sequence[Message],
    tools: Sequence[Tool],
    sampling: Sampling,
    seed: int,
) -> dict[str, Any]:
    """The body of a request for one chat completion."""
    native = config.tool_mode != "text"
    body: dict[str, Any] = {
        "model": config.model,
        "messages": wire_messages(
            messages, None if native else tools, send_reasoning=config.send_reasoning
        ),
        **sampling_fields(sampling, config.max_tokens_field),
    }
    if config.send_seed:
        base = sampling.seed if sampling.seed is not None else seed
        body["seed"] = seeding.derive(base, assistant_turns(messages)) & 0x7FFFFFFF
    if native and tools:
        body["tools"] = list(tools)
    if config.stream:
        body["stream"] = True
        body["stream_options"] = {"include_usage": True}
    return {**body, **config.extra_body}


def api_key(config: OpenAIConfig) -> str | None:
    """The key; a variable that the user has named must be set, the usual one need not be."""
    named = config.api_key_env is not None and "api_key_env" in config.model_fields_set
    return secret(config.api_key_env, required=named)


def require_price(price: Price | None, budget: Budget) -> None:
    """Refuse a cost limit that can't be kept, since nobody says what tokens cost."""
    if budget.max_cost_usd is not None and price is None:
        raise ConfigError(
            "a maximum cost needs the model's price",
            'say it in USD per million tokens: --option price=\'{"prompt": 0.5, "completion": 1.5}\'',
        )


def sampling_fields(sampling: Sampling, max_tokens_field: str = "max_tokens") -> dict[str, Any]:
    """Sampling settings as request fields; defaults that servers share are left out."""
    fields: dict[str, Any] = {"temperature": sampling.temperature}
    if sampling.top_p < 1:
        fields["top_p"] = sampling.top_p
    if sampling.top_k > 0:
        fields["top_k"] = sampling.top_k
    if sampling.max_tokens is not None:
        fields[max_tokens_field] = sampling.max_tokens
    return fields


def wire_messages(
    messages: Sequence[Message], text_tools: Sequence[Tool] | None, *, send_reasoning: bool = True
) -> list[dict[str, Any]]:
    """The conversation in OpenAI's form; with ``text_tools``, tools and calls are written as text."""
    wire = [
        _wire_message(message, text_tools is not None, send_reasoning)
        for message in retain_thinking(messages)
    ]
    if text_tools:
        prompt = instructions(text_tools)
        if wire and wire[0]["role"] == "system":
            wire[0]["content"] += f"\n\n{prompt}"
        else:
            wire.insert(0, {"role": "system", "content": prompt})
    return wire


def _wire_message(message: Message, as_text: bool, send_reasoning: bool) -> dict[str, Any]:
    wire: dict[str, Any] = {"role": message.role, "content": message.content}
    if as_text and message.role == "tool":
        # Not a user turn to the retention rule: that looked at the messages before they came here.
        return {
            "role": "user",
            "content": f"<tool_response>\n{message.content}\n</tool_response>",
        }
    if as_text and message.tool_calls:
        blocks = [
            "<tool_call>\n"
            + json.dumps({"name": call.name, "arguments": call.arguments or {}}, ensure_ascii=False)
            + "\n</tool_call>"
            for call in message.tool_calls
        ]
        wire["content"] = "\n".join([*([message.content] if message.content else []), *blocks])
    elif message.tool_calls:
        wire["tool_calls"] = [_wire_call(call) for call in message.tool_calls]
    if message.role == "tool":
        wire["tool_call_id"] = message.tool_call_id or ""
    if send_reasoning and message.reasoning is not None:
        wire["reasoning_content"] = message.reasoning
    return wire


def _wire_call(call: ToolCall) -> dict[str, Any]:
    text = call.arguments_text
    if call.arguments is not None:
        text = json.dumps(call.arguments, ensure_ascii=False)
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": text or "{}"},
    }


def parse_whole(chunks: Iterable[bytes]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(choice, usage) of a reply that was not streamed."""
    value = checked(parse_json(chunks))
    return first_choice(value), dict(value.get("usage") or {})


def first_choice(value: Mapping[str, Any]) -> dict[str, Any]:
    """The first choice of a completion; a reply without one is nonsense."""
    choices = value.get("choices")
    if not (isinstance(choices, list) and choices and isinstance(choices[0], dict)):
        raise TransientError("the reply has no choices")
    _no_failure(choices[0])
    if not isinstance(choices[0].get("message"), dict):
        raise TransientError("the choice has no message")
    return dict(choices[0])


def _no_failure(choice: Mapping[str, Any]) -> None:
    """Refuse a choice that a broken server closed: what it holds is no reply of the model."""
    if choice.get("error") or choice.get("finish_reason") == "error":
        message = str(choice.get("error") or "finish_reason 'error'")[:300]
        raise TransientError(f"the server reports: {message}")


def parse_reply(chunks: Iterable[bytes]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(choice, usage) of a reply that was to be streamed; some servers answer in one piece all the same."""
    waiting = iter(chunks)
    head = next((text for chunk in waiting if (text := chunk.lstrip())), b"")
    parse = parse_whole if head[:1] == b"{" else parse_stream
    return parse(itertools.chain((head,), waiting))


def parse_stream(chunks: Iterable[bytes]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(choice, usage) put together from a stream; a stream that ends early is a TransientError.

    Nobody asks for more than one choice, so their index is not looked at: TGI numbered tokens by it.
    """
    parts: dict[str, list[str]] = {"content": [], "reasoning_content": [], "refusal": []}
    calls, old = _Calls(), _Calls()
    usage: dict[str, Any] = {}
    finish: str | None = None
    for found in parse_events(chunks):
        if (
            found is None
        ):  # a parser may swallow the event with the reason, never a whole call's end
            finish = finish or ("tool_calls" if calls.are_whole() else None)
            break
        event = checked(found)
        usage = dict(event.get("usage") or usage)
        for choice in event.get("choices") or ():
            _no_failure(choice)
            delta = choice.get("delta") or choice.get("message") or {}
            finish = choice.get("finish_reason") or finish
            parts["content"].append(_text(delta.get("content")))
            parts["refusal"].append(_text(delta.get("refusal")))
            thought = delta.get("reasoning_content") or delta.get("reasoning")
            parts["reasoning_content"].append(_text(thought))
            calls.merge(_listed(delta.get("tool_calls")))
            if delta.get("function_call"):
                old.merge([{"index": 0, "function": delta["function_call"]}])
    if finish is None:
        raise TransientError("the stream ended before the reply did")
    message: dict[str, Any] = {name: "".join(texts) for name, texts in parts.items()}
    if written := calls.all or old.all:
        message["tool_calls"] = [
            {"id": call.id, "function": {"name": call.name, "arguments": call.arguments}}
            for call in sorted(written, key=lambda call: call.index)
        ]
    return {"message": message, "finish_reason": finish}, usage


_MAX_CALLS = 1_024
"""The most calls kept of a reply; environments refuse a message with far fewer."""
_MAX_LOOKED = 1 << 26
"""Characters that are read in all to see whether a call is whole, which each of its pieces may ask."""
_MAX_NAME = 4_096


class _CallParts:
    """A tool call as its deltas come."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.id = ""
        self.name = ""
        self._pieces: list[str] = []
        self._last = ""
        self._looked = 0

    @property
    def arguments(self) -> str:
        """The text of the arguments so far."""
        return "".join(self._pieces)

    def is_another(self, call_id: str, name: str) -> bool:
        """Whether a delta that says this belongs to a further call, whatever its index.

        SGLang and proxies give all parallel calls index 0; each then begins with its id and its name. An id
        alone proves nothing: some servers make a new one for every delta.
        """
        if not name:
            return False
        if self.id and call_id:
            return call_id != self.id
        if self._looked > _MAX_LOOKED or not self._last.endswith("}"):
            return False
        text = self.arguments
        self._looked += len(text)
        return is_object(text)

    def add(self, call_id: str, name: str, arguments: Any) -> None:
        """Take in one delta. A name may come in pieces, once, with every delta, or grow with each."""
        self.id = self.id or call_id
        self.name = name if name.startswith(self.name) else (self.name + name)[:_MAX_NAME]
        if not isinstance(arguments, str):  # in one piece; null and {} announce text that follows
            arguments = json.dumps(arguments) if arguments else ""
        self._pieces.append(arguments)
        self._last = arguments.rstrip() or self._last


def is_object(text: str) -> bool:
    """Whether ``text`` is a whole JSON object."""
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


class _Calls:
    """The tool calls of a stream: each delta is put to the call that it goes on with, or begins one."""

    def __init__(self) -> None:
        self.all: list[_CallParts] = []
        self._latest: dict[int, _CallParts] = {}
        self._named: dict[str, int] = {}
        """An id -> the index of the first call that has it."""

    def are_whole(self) -> bool:
        """Whether there are calls, and each has come to its end."""
        return bool(self.all) and all(call.name and is_object(call.arguments) for call in self.all)

    def merge(self, deltas: Iterable[Mapping[str, Any]]) -> None:
        """Merge the deltas of one event."""
        for position, delta in enumerate(deltas):
            function = delta.get("function") or {}
            call_id, name = str(delta.get("id") or ""), str(function.get("name") or "")
            place = delta.get("index")
            if not isinstance(place, int):
                new = len(self.all) if call_id else position
                place = self._named.get(call_id, new) if call_id else new
            call = self._latest.get(place)
            if call is None or call.is_another(call_id, name):
                if len(self.all) == _MAX_CALLS:
                    return
                call = self._latest[place] = _CallParts(place)
                self.all.append(call)
            call.add(call_id, name, function.get("arguments"))
            if call.id:
                self._named.setdefault(call.id, place)


def _listed(calls: Any) -> list[Any]:
    """Tool calls as a list; TGI sent a single one as it is."""
    return [calls] if isinstance(calls, Mapping) else list(calls or ())


def _merge_calls(calls: list[_CallParts], deltas: Iterable[Mapping[str, Any]]) -> None:
    """Put the deltas of one event to the calls that they go on with, or begin."""
    for position, delta in enumerate(deltas):
        function = delta.get("function") or {}
        call_id, name = str(delta.get("id") or ""), str(function.get("name") or "")
        place = delta.get("index")
        if not isinstance(place, int):
            known = next((call.index for call in calls if call_id and call.id == call_id), None)
            place = known if known is not None else len(calls) if call_id else position
        call = next((call for call in reversed(calls) if call.index == place), None)
        if call is None or call.is_another(call_id, name):
            call = _CallParts(place)
            calls.append(call)
        call.add(call_id, name, function.get("arguments"))


def read_message(
    choice: Mapping[str, Any],
    messages: Sequence[Message],
    names: Sequence[str],
    *,
    read_text: bool = True,
) -> Message:
    """A choice of a completion as a Message; calls written in text are read if there are no others."""
    wire = choice["message"]
    turn = assistant_turns(messages)
    content = _text(wire.get("content")) or _text(wire.get("refusal"))
    thought = _text(wire.get("reasoning_content") or wire.get("reasoning"))
    reasoning = thought if thought.strip() else None
    written = _listed(wire.get("tool_calls"))[:_MAX_CALLS]
    if not written and isinstance(wire.get("function_call"), Mapping):
        written.append({"function": wire["function_call"]})
    if not written and read_text:
        return parse_text(content, names, turn=turn, reasoning=reasoning)
    if reasoning is None and read_text:
        reasoning, content = split_thinking(content)
    taken = {call.id for message in messages for call in message.tool_calls}
    calls: list[ToolCall] = []
    for i, item in enumerate(written):
        call = _read_call(item, f"call_{turn}_{i}", taken)
        taken.add(call.id)
        calls.append(call)
    return Message(role="assistant", content=content, reasoning=reasoning, tool_calls=tuple(calls))


def _read_call(item: Any, fallback_id: str, taken: set[str]) -> ToolCall:
    function = (item.get("function") if isinstance(item, Mapping) else None) or {}
    name = str(function.get("name") or "")
    call_id = str(item.get("id") or fallback_id) if isinstance(item, Mapping) else fallback_id
    if call_id in taken:
        call_id = fallback_id
    given = function.get("arguments")
    if isinstance(given, dict):
        return written_call(call_id, name, given)
    text = given if isinstance(given, str) else ""
    try:
        arguments = json.loads(text) if text.strip() else None
        arguments = (
            {} if arguments is None else arguments
        )  # null: how some servers say that there are none
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        return ToolCall(id=call_id, name=name, arguments_text=text)
    return written_call(call_id, name, arguments, text)


def _text(content: Any) -> str:
    """Content as text; a list of parts is joined."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = [part.get("text", "") for part in content if isinstance(part, Mapping)]
        return "".join(part for part in parts if isinstance(part, str))
    return ""


def count_usage(
    usage: Mapping[str, Any], messages: Sequence[Message], reply: Message, price: Price | None
) -> Usage:
    """Return the usage that the server reported, else an estimate that says so; cost by price."""
    prompt, completion = usage.get("prompt_tokens"), usage.get("completion_tokens")
    estimated = not (isinstance(prompt, int) and isinstance(completion, int))
    if estimated:
        prompt = estimated_tokens(messages)
        completion = max(1, estimated_tokens([reply]))
    assert isinstance(prompt, int)
    assert isinstance(completion, int)
    reported = usage.get("cost")
    cost = price.cost(prompt, completion) if price else 0.0
    if price is None and isinstance(reported, int | float):
        cost = float(reported)
    return Usage(
        prompt_tokens=prompt, completion_tokens=completion, cost_usd=cost, estimated=estimated
    )
