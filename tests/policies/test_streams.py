"""Streams in the forms of seven servers, written after what was seen of them (cited): split anywhere, fields
null, missing or repeated, each gives the same reply."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from copy import deepcopy
from typing import Any, NamedTuple

import pytest

from envgen.core.errors import ConfigError
from envgen.core.types import Message
from envgen.policies import parse_policy
from envgen.policies.http import TransientError
from envgen.policies.openai import parse_reply, parse_whole, read_message
from envgen.policies.registry import PolicyConfig
from envgen.policies.wire import OpenAIConfig

Json = dict[str, Any]
CITY = '{"city": "Zürich"}'
PIECES = ("", '{"', "city", '": "Z', "ürich", '"}')


class Form(NamedTuple):
    """What a server sends, and the reply that it stands for."""

    events: list[Json]
    calls: tuple[tuple[str, Json], ...] = (("get_weather", {"city": "Zürich"}),)
    content: str = ""
    reasoning: str | None = None
    space: str = " "
    """After ``data:``."""
    end: str = "[DONE]"


def delta(finish: str | None = None, index: Any = 0, **fields: Any) -> Json:
    return {"choices": [{"index": index, "delta": fields, "finish_reason": finish}]}


def part(
    arguments: Any, call_id: str | None = None, name: str | None = None, index: int = 0, **more: Any
) -> Json:
    function = {"name": name, "arguments": arguments}
    return {"index": index, "id": call_id, "type": "function", "function": function, **more}


USAGE = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4}}
FORMS = {
    # huggingface/text-generation-inference#2794 quotes it: the name first, then pieces of the arguments
    "openai": Form([
        delta(role="assistant", content=None, tool_calls=[part("", "call_1", "get_weather")], refusal=None),
        *(delta(tool_calls=[{"index": 0, "function": {"arguments": text}}]) for text in PIECES[1:]),
        delta("tool_calls"), USAGE,
    ]),
    "openai, two calls": Form([
        delta(tool_calls=[part(CITY, "call_1", "get_weather")]),
        delta(tool_calls=[part("", "call_2", "get_time", 1)]),
        delta(tool_calls=[part(CITY, index=1)]), delta("tool_calls"), USAGE,
    ], calls=(("get_weather", {"city": "Zürich"}), ("get_time", {"city": "Zürich"}))),
    "openai, refused": Form([
        delta(role="assistant", content="", refusal=None), delta(refusal="I can't "), delta(refusal="help."),
        delta("stop"), USAGE,
    ], calls=(), content="I can't help."),
    # the form before tool_calls; llama-cpp-python sends both, each a copy of the other
    "function_call": Form([
        delta(function_call={"name": "get_weather", "arguments": ""}),
        *(delta(function_call={"name": None, "arguments": text}) for text in PIECES),
        delta("function_call"),
    ]),
    "llama-cpp-python": Form([
        *(delta(function_call={"name": name, "arguments": text}, tool_calls=[part(text, "c1", name)])
          for name, text in (("get_weather", ""), ("", '{"city":'), ("", ' "Zürich"}'))),
        delta("tool_calls"),
    ]),
    # vllm-project/vllm#19662, #35705: the last text comes with the reason
    "vllm": Form([
        delta(role="assistant", content=""), delta(reasoning_content="so"), delta(content="Gr"),
        delta("length", content="üezi", stop_reason=None), USAGE,
    ], calls=(), content="Grüezi", reasoning="so"),
    # vllm-project/vllm#44098: id and name once more with the rest of the arguments, beside the reason
    "vllm, glm": Form([
        delta(tool_calls=[part("", "c1", "get_weather")]), delta(tool_calls=[part('{"city": ')]),
        delta("tool_calls", tool_calls=[part('"Zürich"}', "c1", "get_weather")]),
    ]),
    # InternLM/lmdeploy#3412 on vLLM: the second call at index 0, ids empty in between
    "vllm, index 0": Form([
        delta(tool_calls=[part("", "a", "get_weather")]), delta(tool_calls=[part(CITY, "")]),
        delta(tool_calls=[part("", "b", "get_weather")]), delta("tool_calls", tool_calls=[part("{}", "")]),
    ], calls=(("get_weather", {"city": "Zürich"}), ("get_weather", {}))),
    # waybarrios/vllm-mlx#672: the event with the reason is swallowed, [DONE] comes all the same
    "vllm-mlx": Form([delta(role="assistant"), delta(tool_calls=[part(CITY, "c1", "get_weather")])]),
    # sgl-project/sglang#6310, #8417: all fields in each delta, most of them null; the reason twice
    "sglang": Form([
        *(delta(role=None, content=None, reasoning_content=text, tool_calls=None)
          for text in ("so", " be it")),
        delta("stop", role=None, content="Hi", reasoning_content=None, tool_calls=None),
        delta("stop", role=None, content=None, reasoning_content=None, tool_calls=None),
        {"choices": [], "usage": None},
    ], calls=(), content="Hi", reasoning="so be it"),
    # sgl-project/sglang#4700: names empty, not null
    "sglang, calls": Form([
        delta(content=None, tool_calls=[part("", "0", "get_weather")]),
        *(delta(content=None, tool_calls=[part(text, "0", "")]) for text in PIECES),
        delta("tool_calls", content="", tool_calls=None),
    ]),
    # ggml-org/llama.cpp#12379 and #13800: at first the id in the function, and the name in each delta
    "llama.cpp, first": Form([
        delta(role="assistant", content=None),
        *(delta(tool_calls=[{"index": 0, "function": {"id": "x", "name": "get_weather", "arguments": text}}])
          for text in ('{"city":', ' "Zürich"}')),
        {**delta("tool_calls"), "timings": {"prompt_ms": 7.5}},
    ]),
    # ollama/ollama#7963, dirac-run/dirac#227: whole calls, all at index 0, and `reasoning`
    "ollama": Form([
        delta(role="assistant", content="", reasoning="We"), delta(content="", reasoning=" need"),
        delta(role="assistant", content="", tool_calls=[part(CITY, "call_a", "get_weather")]),
        delta(role="assistant", content="", tool_calls=[part("{}", "call_b", "get_weather")]),
        delta("stop", role="assistant", content=""),
    ], calls=(("get_weather", {"city": "Zürich"}), ("get_weather", {})), reasoning="We need"),
    # BerriAI/litellm#37792, #2010: arguments as an object, parallel calls at index 0, a last delta of nulls
    "litellm": Form([
        delta(role="assistant", content=None, function_call=None,
              tool_calls=[part({"city": "Zürich"}, "a", "get_weather")]),
        delta(tool_calls=[part({}, "b", "get_time")]),
        delta("stop", role=None, content=None, function_call=None, tool_calls=None, audio=None),
    ], calls=(("get_weather", {"city": "Zürich"}), ("get_time", {}))),
    # huggingface/text-generation-inference#1648: no space, and the token's number as the choice's index
    "tgi": Form([
        delta(index=1, role="assistant", content="Gr"), delta(index=2, role="assistant", content="üezi"),
        delta("length", index=3, role="assistant", content="!"),
    ], calls=(), content="Grüezi!", space=""),
    # the same server, later: one call, not in a list
    "tgi, a call": Form([
        *(delta(role="assistant", tool_calls=part(text, "", name), index=number)
          for number, (name, text) in enumerate([("get_weather", "")] + [(None, text) for text in PIECES])),
        delta("eos_token", role="assistant", tool_calls=None),
    ], space=""),
}  # fmt: skip


def written(form: Form) -> bytes:
    events = [json.dumps(event, ensure_ascii=False) for event in form.events]
    lines = [f"data:{form.space}{text}\n\n" for text in [*events, form.end] if text]
    return "".join(lines).encode()


def said(form: Form, *chunks: bytes) -> tuple[Any, ...]:
    choice, _ = parse_reply(chunks or (written(form),))
    message = read_message(choice, [Message(role="user", content="?")], ["get_weather", "get_time"])
    calls = tuple((call.name, call.arguments) for call in message.tool_calls)
    assert len({call.id for call in message.tool_calls}) == len(calls)
    return calls, message.content, message.reasoning


def variants(event: Json) -> Iterator[Json]:
    """The event, each of its nulls left out, and each field that is not there as null."""
    fields = (
        "role",
        "content",
        "reasoning_content",
        "reasoning",
        "refusal",
        "tool_calls",
        "function_call",
    )
    for number in range(len(event["choices"])):
        delta = event["choices"][number]["delta"]
        for name in fields:
            other = deepcopy(event)
            if name not in delta:
                other["choices"][number]["delta"][name] = None
            elif delta[name] is None:
                del other["choices"][number]["delta"][name]
            yield other
        for name in ("index", "finish_reason", "logprobs"):
            other = deepcopy(event)
            if other["choices"][number].get(name) in (None, 0):
                other["choices"][number][name] = None
                yield other
    for call in [
        call
        for choice in event["choices"]
        for call in choice["delta"].get("tool_calls") or ()
        if isinstance(call, dict)
    ]:
        for holder in (call, call.get("function") or {}):
            for name in [key for key, value in holder.items() if value in (None, "")]:
                empty: tuple[Any, ...] = (None, "") if name != "arguments" else (None, "", {})
                for value in empty:
                    before, holder[name] = holder[name], value
                    yield deepcopy(event)
                    holder[name] = before


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
class TestForms:
    def test_it_is_read(self, form: Form) -> None:
        assert said(form) == (form.calls, form.content, form.reasoning)

    def test_in_any_split_of_its_bytes(self, form: Form) -> None:
        whole = written(form)
        right = said(form)
        for place in range(1, len(whole)):
            assert said(form, whole[:place], whole[place:]) == right
        assert said(form, *(whole[i : i + 1] for i in range(len(whole)))) == right
        assert said(form, whole.replace(b"\n", b"\r\n")) == right
        assert said(form, whole.replace(b"data:", b": ping\n\nevent: message\ndata:")) == right

    def test_with_fields_null_or_missing(self, form: Form) -> None:
        right = said(form)
        for number, event in enumerate(form.events):
            for other in variants(deepcopy(event)):
                events = [*form.events[:number], other, *form.events[number + 1 :]]
                assert said(form._replace(events=events)) == right, other

    def test_cut_short_it_is_no_reply(self, form: Form) -> None:
        ends = [
            i
            for i, one in enumerate(form.events)
            for choice in one["choices"]
            if choice["finish_reason"]
        ]
        short = form.events[: min(ends, default=len(form.events))]
        with pytest.raises(TransientError, match="ended before"):
            said(form._replace(events=short, end=""))


def test_a_call_that_was_cut_is_no_reply_in_spite_of_done() -> None:
    events = [delta(tool_calls=[part('{"city": "Zü', "c1", "get_weather")])]
    with pytest.raises(TransientError, match="ended before"):
        said(Form(events))


def test_a_whole_reply_may_hold_one_call_that_is_in_no_list() -> None:
    call = {"id": "0", "function": {"name": "get_weather", "arguments": {"city": "Zürich"}}}
    reply = {"choices": [{"message": {"content": None, "tool_calls": call}}]}
    choice, _ = parse_whole([json.dumps(reply).encode()])
    message = read_message(choice, [], ["get_weather"])
    assert [(one.name, one.arguments) for one in message.tool_calls] == [
        ("get_weather", {"city": "Zürich"})
    ]


def test_more_replies_than_one_are_not_asked_for() -> None:
    assert OpenAIConfig(model="m", extra_body={"n": 1}).extra_body == {"n": 1}
    with pytest.raises(ConfigError, match="one reply"):
        parse_policy(PolicyConfig(spec="openai:m", options={"extra_body": {"n": 2}}))


def floods() -> Iterator[tuple[str, list[bytes]]]:
    """Streams of some megabytes in very many pieces; each took minutes once."""

    def events(*some: Json) -> list[bytes]:
        return [f"data: {json.dumps(event)}\n\n".encode() for event in some]

    end = [*events(delta("stop")), b"data: [DONE]\n\n"]
    yield "text", events(delta(content="\N{GRINNING FACE}" * 8)) * 150_000 + end
    yield "line", [b"data: ", *[b" " * 50] * 80_000, b"{}\n\n", *end]
    yield "blank", [b" " * 50] * 80_000 + end
    yield "calls", events(*(delta(tool_calls=[part("{}", index=i)]) for i in range(60_000))) + end
    first = events(delta(tool_calls=[part('{"', None, "f")]))
    yield "named", first + events(delta(tool_calls=[part("}" * 50, None, "f")])) * 60_000 + end


@pytest.mark.parametrize(("name", "chunks"), [pytest.param(*one, id=one[0]) for one in floods()])
def test_a_stream_of_very_many_pieces_is_read_in_time(name: str, chunks: list[bytes]) -> None:
    started = time.process_time()
    parse_reply(chunks)
    assert time.process_time() - started < 12
