"""A real server on a real port, asked by OpenAI's own client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import openai
import pytest
from tiny_models import ANSWER, CALL, QUESTION, RESULT, WEATHER_TOOL

from envgen.model.requests import Request
from envgen.model.sampling import SamplingParams
from envgen.policies.server import PolicyServer

ASK: list[Any] = [{"role": "user", "content": QUESTION.content}]
HELLO: list[Any] = [{"role": "user", "content": "Find the cheapest hotel in Suzhou."}]
TOOLS: list[Any] = [WEATHER_TOOL]


@pytest.fixture
def client(noise: PolicyServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=noise.url, api_key="none", max_retries=0) as opened:
        yield opened


@pytest.fixture
def weather_client(weather: PolicyServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=weather.url, api_key="none", max_retries=0) as opened:
        yield opened


def test_models_are_listed(client: openai.OpenAI) -> None:
    (model,) = client.models.list().data
    assert model.id == "noise"
    assert client.models.retrieve("noise").id == "noise"
    assert model.model_dump()["max_model_len"] == 4_096


def test_a_tool_is_called_and_its_result_answered(weather_client: openai.OpenAI) -> None:
    ask = weather_client.chat.completions.create
    first = ask(model="weather", messages=ASK, tools=TOOLS, temperature=0)
    choice = first.choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == CALL.content
    assert choice.message.model_dump()["reasoning_content"] == "Let me see."
    assert choice.message.tool_calls is not None
    (call,) = choice.message.tool_calls
    assert call.type == "function"
    assert (call.function.name, call.function.arguments) == ("get_weather", '{"city":"Paris"}')
    assert first.usage is not None
    assert first.usage.total_tokens == first.usage.prompt_tokens + first.usage.completion_tokens

    result: Any = {"role": "tool", "tool_call_id": call.id, "content": RESULT.content}
    message: Any = choice.message.model_dump(exclude_none=True)
    second = ask(model="weather", messages=[*ASK, message, result], tools=TOOLS, temperature=0)
    assert second.choices[0].message.content == ANSWER.content
    assert second.choices[0].finish_reason == "stop"


def test_a_stream_says_the_same(weather_client: openai.OpenAI) -> None:
    stream = weather_client.chat.completions.create(
        model="weather",
        messages=ASK,
        tools=TOOLS,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    assert deltas[0].role == "assistant"
    assert "".join(delta.content or "" for delta in deltas) == CALL.content
    thoughts = [delta.model_dump().get("reasoning_content") or "" for delta in deltas]
    assert "".join(thoughts) == "Let me see."
    calls = [call for delta in deltas for call in delta.tool_calls or ()]
    assert calls[0].id == "call_0_0"
    assert calls[0].function is not None
    assert calls[0].function.name == "get_weather"
    arguments = [call.function.arguments or "" for call in calls if call.function]
    assert "".join(arguments) == '{"city":"Paris"}'
    reasons = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices]
    assert reasons[-1] == "tool_calls"
    assert not any(reasons[:-1])
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens > 10


def test_a_stream_never_splits_a_character(weather_client: openai.OpenAI) -> None:
    call: Any = {
        "role": "assistant",
        "content": CALL.content,
        "reasoning_content": "Let me see.",
        "tool_calls": [
            {
                "id": "call_0_0",
                "type": "function",
                "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'},
            }
        ],
    }
    result: Any = {"role": "tool", "tool_call_id": "call_0_0", "content": RESULT.content}
    stream = weather_client.chat.completions.create(
        model="weather", messages=[*ASK, call, result], tools=TOOLS, temperature=0, stream=True
    )
    pieces = [chunk.choices[0].delta.content or "" for chunk in stream]
    assert "".join(pieces) == ANSWER.content
    assert len([piece for piece in pieces if piece]) > 5
    assert not any("\N{REPLACEMENT CHARACTER}" in piece for piece in pieces)


def test_streams_of_noise_say_what_whole_replies_say(babble: PolicyServer) -> None:
    settings: Any = {"model": "babble", "messages": HELLO, "seed": 7, "max_tokens": 60, "n": 8}
    with openai.OpenAI(base_url=babble.url, api_key="none", max_retries=0) as client:
        whole = client.chat.completions.create(**settings)
        chunks = list(client.chat.completions.create(**settings, stream=True))
    streamed: list[Any] = [
        {"content": "", "reasoning_content": "", "calls": [], "reason": None} for _ in range(8)
    ]
    for chunk in chunks:
        choice = chunk.choices[0]
        found, delta = streamed[choice.index], choice.delta.model_dump()
        for name in ("content", "reasoning_content"):
            found[name] += delta.get(name) or ""
        found["calls"] += [call["id"] for call in delta["tool_calls"] or () if call["id"]]
        found["reason"] = choice.finish_reason
    for choice, found in zip(whole.choices, streamed, strict=True):
        message = choice.message.model_dump()
        assert found["content"] == (message["content"] or "")
        assert found["reasoning_content"] == (message.get("reasoning_content") or "")
        assert found["calls"] == [call["id"] for call in message["tool_calls"] or ()]
        assert found["reason"] == choice.finish_reason
    assert len({str(choice.message) for choice in whole.choices}) == 8


def test_logprobs_are_the_engine_s(client: openai.OpenAI, noise: PolicyServer) -> None:
    reply = client.chat.completions.create(
        model="noise",
        messages=HELLO,
        seed=5,
        temperature=0.8,
        top_p=0.9,
        max_tokens=24,
        logprobs=True,
        extra_body={"return_token_ids": True, "top_k": 50},
    )
    found = reply.model_dump()
    encoding = noise.service.encoding
    params = SamplingParams(0.8, 0.9, 50, 24, seed=5, stop_ids=encoding.stop_ids)
    prompt = encoding.prompt([QUESTION.model_copy(update={"content": HELLO[0]["content"]})], [])
    assert found["prompt_token_ids"] == prompt
    (wanted,) = noise.service.local.engine.generate([Request(prompt, params)])
    choice = found["choices"][0]
    assert choice["token_ids"] == wanted.ids.tolist()
    logprobs = [entry["logprob"] for entry in choice["logprobs"]["content"]]
    np.testing.assert_allclose(logprobs, wanted.logprobs, atol=1e-4)
    text = b"".join(bytes(entry["bytes"]) for entry in choice["logprobs"]["content"])
    assert text.decode("utf-8", "replace") == encoding.tokenizer.decode(wanted.ids)


def test_streamed_logprobs_and_ids_are_complete(client: openai.OpenAI) -> None:
    settings: Any = {
        "model": "noise",
        "messages": HELLO,
        "seed": 9,
        "max_tokens": 30,
        "logprobs": True,
        "extra_body": {"return_token_ids": True},
    }
    whole = client.chat.completions.create(**settings).model_dump()["choices"][0]
    ids: list[int] = []
    logprobs: list[float] = []
    for chunk in client.chat.completions.create(**settings, stream=True):
        choice = chunk.model_dump()["choices"][0]
        ids += choice.get("token_ids") or []
        logprobs += [entry["logprob"] for entry in (choice["logprobs"] or {}).get("content") or ()]
    assert ids == whole["token_ids"]
    wanted = [entry["logprob"] for entry in whole["logprobs"]["content"]]
    np.testing.assert_allclose(logprobs, wanted, atol=1e-4)


def test_four_samples_cost_one_prefill(client: openai.OpenAI, noise: PolicyServer) -> None:
    messages: list[Any] = [{"role": "user", "content": "Lotus Inn or West Lake? " * 12}]
    engine = noise.service.local.engine
    before = engine.stats().prefilled_tokens
    four = client.chat.completions.create(
        model="noise", messages=messages, n=4, seed=3, max_tokens=12
    )
    assert four.usage is not None
    size = four.usage.prompt_tokens
    assert size > 60
    assert engine.stats().prefilled_tokens - before == size - 1
    one = client.chat.completions.create(model="noise", messages=messages, seed=3, max_tokens=12)
    assert one.choices[0].message == four.choices[0].message
    assert len({str(choice.message) for choice in four.choices}) == 4
    assert [choice.index for choice in four.choices] == [0, 1, 2, 3]


def test_sixteen_at_once_get_what_they_get_alone(client: openai.OpenAI) -> None:
    def ask(seed: int) -> Any:
        return client.chat.completions.create(
            model="noise", messages=HELLO, seed=seed, max_tokens=20
        ).choices

    alone = [ask(seed) for seed in range(16)]
    with ThreadPoolExecutor(16) as pool:
        together = list(pool.map(ask, range(16)))
    assert together == alone


def test_a_stop_sequence_ends_the_reply_before_it(weather_client: openai.OpenAI) -> None:
    settings: Any = {"model": "weather", "messages": ASK, "tools": TOOLS, "temperature": 0}
    settings["stop"] = ["zebra", "l lo"]
    whole = weather_client.chat.completions.create(**settings)
    assert whole.choices[0].message.content == "I wil"
    assert whole.choices[0].finish_reason == "stop"
    assert not whole.choices[0].message.tool_calls
    chunks = list(weather_client.chat.completions.create(**settings, stream=True))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == "I wil"
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_a_reply_that_a_stop_sequence_ends_was_not_cut(client: openai.OpenAI) -> None:
    """It holds for a sequence in held-back text, too."""
    ask: Callable[..., Any] = client.chat.completions.create
    for seed in range(12):
        settings = {"model": "noise", "messages": HELLO, "seed": seed, "max_tokens": 20}
        text = ask(**settings).choices[0].message.content
        settings["stop"] = text[3:6]
        choice = ask(**settings).choices[0]
        assert (choice.message.content, choice.finish_reason) == (
            text[: text.index(text[3:6])],
            "stop",
        )


def test_a_cut_reply_says_so(weather_client: openai.OpenAI) -> None:
    ask: Callable[..., Any] = weather_client.chat.completions.create
    for limit in ("max_tokens", "max_completion_tokens"):
        reply = ask(model="weather", messages=ASK, tools=TOOLS, temperature=0, **{limit: 14})
        assert reply.choices[0].finish_reason == "length"
        assert reply.usage.completion_tokens == 14


def test_no_tools_are_told_with_tool_choice_none(client: openai.OpenAI) -> None:
    ask: Callable[..., Any] = client.chat.completions.create
    settings: Any = {"model": "noise", "messages": HELLO, "max_tokens": 1}
    plain = ask(**settings).usage.prompt_tokens
    with_tools = ask(**settings, tools=TOOLS, tool_choice="auto").usage.prompt_tokens
    hidden = ask(**settings, tools=TOOLS, tool_choice="none").usage.prompt_tokens
    assert plain == hidden < with_tools


def test_text_completions_take_texts_and_ids(client: openai.OpenAI, noise: PolicyServer) -> None:
    ids = noise.service.encoding.tokenizer.encode("Lotus Inn")
    ask: Callable[..., Any] = client.completions.create
    both = [
        ask(model="noise", prompt=prompt, seed=2, max_tokens=16, logprobs=1)
        for prompt in ("Lotus Inn", ids)
    ]
    assert both[0].choices == both[1].choices
    listed = both[0].choices[0].logprobs
    assert len(listed.tokens) == len(listed.token_logprobs) == len(listed.text_offset) == 16
    several = ask(model="noise", prompt=[ids, ids[:2]], seed=2, max_tokens=4, n=2)
    assert [choice.index for choice in several.choices] == [0, 1, 2, 3]
    stream = ask(model="noise", prompt=ids, seed=2, max_tokens=16, stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == both[0].choices[0].text


def test_developer_messages_and_text_parts_are_read(client: openai.OpenAI) -> None:
    ask: Callable[..., Any] = client.chat.completions.create
    parts = [{"type": "text", "text": "Find the "}, {"type": "text", "text": "hotel."}]
    settings: Any = {"model": "noise", "seed": 1, "max_tokens": 8}
    first = ask(
        messages=[
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": parts},
        ],
        **settings,
    )
    second = ask(
        messages=[
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Find the hotel."},
        ],
        **settings,
    )
    assert first.choices == second.choices
