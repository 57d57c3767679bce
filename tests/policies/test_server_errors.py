"""What is wrong with a request, in OpenAI's error JSON."""

from __future__ import annotations

import json
import random
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

import openai
import pytest
from tiny_models import WEATHER_TOOL, write_random_model

from envgen.core.errors import ConfigError
from envgen.policies.encoding import EncodingConfig
from envgen.policies.server import PolicyServer, ServeConfig

CHAT = "/v1/chat/completions"
HELLO = [{"role": "user", "content": "hello"}]
GOOD: list[tuple[str, dict[str, Any]]] = [
    (
        CHAT,
        {
            "model": "noise",
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": [{"type": "text", "text": "Is it warm?"}]},
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {
                            "id": "call_0",
                            "type": "function",
                            "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'},
                        }
                    ],
                },
                {"role": "tool", "tool_call_id": "call_0", "content": "21"},
            ],
            "tools": [WEATHER_TOOL],
            "max_tokens": 4,
            "temperature": 0.5,
            "top_p": 0.9,
            "top_k": 20,
            "seed": 3,
            "stop": ["zz"],
            "n": 2,
            "logprobs": True,
            "return_token_ids": True,
        },
    ),
    ("/v1/completions", {"model": "noise", "prompt": [1, 2, 3], "max_tokens": 3, "logprobs": 1}),
    (
        "/inference/v1/generate",
        {"model": "noise", "token_ids": [5, 6], "sampling_params": {"max_tokens": 3, "seed": 1}},
    ),
    ("/tokenize", {"model": "noise", "messages": HELLO, "tools": [WEATHER_TOOL]}),
    ("/detokenize", {"model": "noise", "tokens": [1, 2, 300]}),
]
WILD: list[Any] = [
    None, True, 0, -1, 1, 7, 10**30, 0.5, 1e300, "", "x", "\ud800", "\x00", "<|end|>", "auto", "user",
    "tool", [], [[]], [0], ["x"], {}, {"a": 1}, {"type": "function"}, [{"role": "user"}], "x" * 5_000,
]  # fmt: skip


def post(server: PolicyServer, path: str, body: Any, **headers: str) -> tuple[int, dict[str, Any]]:
    """Status and JSON of a raw request."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"Content-Type": "application/json", **headers}
    url = server.url.removesuffix("/v1") + path
    request = urllib.request.Request(url, content, headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def tool(**function: Any) -> list[dict[str, Any]]:
    return [{"type": "function", "function": {"name": "f", **function}}]


@pytest.mark.parametrize(
    ("more", "param", "message"),
    [
        ({"messages": []}, "messages", "at least 1"),
        ({"messages": "hello"}, "messages", "list"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role", "robot"),
        ({"messages": [{"role": "user"}]}, "messages[0].content", "content"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id", "needs"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "messages", "user or a tool"),
        ({"messages": [{"role": "user", "content": "\ud800"}]}, "messages", "surrogate"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]},
            "messages[0].content",
            "parts of text only",
        ),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"id": "a"}]}]},
            "messages[0].tool_calls[0]",
            "needs a 'name'",
        ),
        ({"temperature": "hot"}, "temperature", "number"),
        ({"temperature": 3}, "temperature", "less than or equal to 2"),
        ({"temperature": 1e-300}, "temperature", "at least 1e-05"),
        ({"top_p": 0}, "top_p", "greater than 0"),
        ({"top_k": -2}, "top_k", "greater than or equal to -1"),
        ({"n": 0}, "n", "greater than or equal to 1"),
        ({"n": 1.5}, "n", "integer"),
        ({"max_tokens": 0}, "max_tokens", "greater than or equal to 1"),
        ({"max_tokens": True}, "max_tokens", "integer"),
        ({"seed": "x"}, "seed", "integer"),
        ({"stop": [""]}, "stop", "1 to 256"),
        ({"stop": ["x"] * 17}, "stop", "at most 16"),
        ({"stream_options": {"include_usage": True}}, None, "stream=true"),
        ({"frequency_penalty": 0.5}, "frequency_penalty", "not supported"),
        ({"logit_bias": {"5": 1}}, "logit_bias", "not supported"),
        ({"parallel_tool_calls": False}, "parallel_tool_calls", "leave it out"),
        ({"tool_choice": "required"}, "tool_choice", "'none' and 'auto'"),
        ({"top_logprobs": 3}, None, "logprobs=true"),
        ({"logprobs": True, "top_logprobs": 3}, "top_logprobs", "not supported"),
        ({"temprature": 1}, "temprature", "Unknown parameter"),
        ({"response_format": {"type": "json_object"}}, "response_format", "not supported"),
        ({"tools": [{"type": "retrieval"}]}, "tools[0]", "function"),
        ({"tools": tool(name="two words")}, "tools[0].name", "letters"),
        ({"tools": tool() * 2}, "tools[1].name", "another tool"),
        (
            {"tools": tool(parameters={"type": "string"})},
            "tools[0].function.parameters",
            "type 'object'",
        ),
        (
            {"tools": tool(parameters={"type": "object", "properties": {"a": {"type": "text"}}})},
            "tools[0].function.parameters",
            "unknown schema type",
        ),
        ({"stop": "x", "return_sampling_mask": True}, "stop", "can't be combined"),
    ],
)  # fmt: skip
def test_a_bad_request_is_told_what_is_wrong(
    noise: PolicyServer, more: dict[str, Any], param: str | None, message: str
) -> None:
    status, reply = post(noise, CHAT, {"model": "noise", "messages": HELLO, **more})
    assert status == 400, reply
    error = reply["error"]
    assert error["type"] == "invalid_request_error"
    assert error["param"] == param
    assert message in error["message"]


def test_schemas_with_foreign_keywords_are_taken(noise: PolicyServer) -> None:
    parameters = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/A"}, "b": {"type": "string", "pattern": "^x"}},
        "$defs": {"A": {"type": "integer"}},
    }
    body = {"model": "noise", "messages": HELLO, "tools": tool(parameters=parameters)}
    status, reply = post(noise, CHAT, {**body, "max_tokens": 1})
    assert status == 200, reply


def test_parameters_that_change_nothing_are_taken(noise: PolicyServer) -> None:
    harmless = {
        "user": "me", "metadata": {"a": "b"}, "store": False, "presence_penalty": 0,
        "frequency_penalty": 0.0, "logit_bias": {}, "parallel_tool_calls": True, "stream": False,
        "response_format": {"type": "text"}, "tool_choice": "auto", "top_k": 0, "temperature": 1,
    }  # fmt: skip
    status, reply = post(
        noise, CHAT, {"model": "noise", "messages": HELLO, "max_tokens": 1, **harmless}
    )
    assert status == 200, reply


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        (CHAT, b"{", 400, "invalid_json"),
        (CHAT, b"[]", 400, "invalid_json"),
        (CHAT, b'{"model": NaN}', 400, "invalid_json"),
        (CHAT, b'{"model": "x", "model": "noise", "messages": []}', 400, "invalid_json"),
        (CHAT, b'{"model": "noise", "messages": [], "metadata": 1e400}', 400, "invalid_json"),
        (CHAT, b"[" * 100_000, 400, "invalid_json"),
        (CHAT, {"messages": HELLO}, 400, "missing_required_parameter"),
        (CHAT, {"model": "gpt-9", "messages": HELLO}, 404, "model_not_found"),
        ("/v1/completions", {"model": "gpt-9", "prompt": "x"}, 404, "model_not_found"),
        ("/v1/completions", {"model": "noise", "prompt": []}, 400, "invalid_value"),
        ("/v1/completions", {"model": "noise", "prompt": [-1]}, 400, "invalid_value"),
        ("/v1/completions", {"model": "noise", "prompt": [99_999]}, 400, "invalid_value"),
        ("/v1/completions", {"model": "noise", "prompt": [[1], []]}, 400, "invalid_value"),
        ("/v1/completions", {"model": "noise", "prompt": "x", "logprobs": 5}, 400, "unsupported_value"),
        ("/v1/completions", {"model": "noise", "prompt": "x", "echo": True}, 400, "invalid_value"),
        ("/inference/v1/generate", {"model": "noise", "token_ids": []}, 400, "invalid_value"),
        ("/tokenize", {"model": "noise"}, 400, "invalid_value"),
        ("/v1/embeddings", {"model": "noise"}, 404, "unknown_url"),
    ],
)  # fmt: skip
def test_every_error_has_a_code(
    noise: PolicyServer, path: str, body: Any, status: int, code: str
) -> None:
    found, reply = post(noise, path, body)
    assert (found, reply["error"]["code"]) == (status, code), reply
    assert reply["error"]["message"]


def test_a_prompt_longer_than_the_window_is_refused(noise: PolicyServer) -> None:
    with openai.OpenAI(base_url=noise.url, api_key="none", max_retries=0) as client:
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(
                model="noise", messages=[{"role": "user", "content": "hotel " * 5_000}]
            )
    assert caught.value.code == "context_length_exceeded"
    assert "maximum context length is 4096 tokens" in str(caught.value)


def test_only_json_is_taken(noise: PolicyServer) -> None:
    status, reply = post(noise, CHAT, b"{}", **{"Content-Type": "text/plain"})
    assert (status, reply["error"]["code"]) == (415, "unsupported_media_type")


def test_a_huge_body_is_refused(noise: PolicyServer) -> None:
    small = noise.service.config.model_copy(update={"max_body_bytes": 1_000})
    original, noise.service.config = noise.service.config, small
    try:
        status, reply = post(noise, CHAT, b"x" * 5_000)
    finally:
        noise.service.config = original
    assert (status, reply["error"]["code"]) == (413, "request_too_large")


def test_the_key_is_asked_for(random_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINY_KEY", "sesame")
    config = ServeConfig(model=str(random_model), port=0, threads=1, api_key_env="TINY_KEY")
    with PolicyServer(config).running() as server:
        for key in ("wrong", "sesam\u00e9"):
            status, reply = post(server, CHAT, {}, Authorization=f"Bearer {key}")
            assert (status, reply["error"]["code"]) == (401, "invalid_api_key")
        status, reply = post(server, CHAT, {})
        assert (status, reply["error"]["type"]) == (401, "authentication_error")
        with openai.OpenAI(base_url=server.url, api_key="sesame", max_retries=0) as client:
            assert client.models.list().data[0].id == "noise"
        with urllib.request.urlopen(server.url.removesuffix("/v1") + "/health", timeout=10) as good:
            assert good.status == 200


def test_a_key_that_is_not_set_is_an_error(random_model: Path) -> None:
    with pytest.raises(ConfigError, match="'NO_SUCH_KEY' is not set"):
        PolicyServer(ServeConfig(model=str(random_model), port=0, api_key_env="NO_SUCH_KEY"))


def test_deepseek_s_encoding_tells_the_model_of_a_format(tmp_path: Path) -> None:
    write_random_model(tmp_path / "ds", EncodingConfig(kind="dsml", thinking=True))
    config = ServeConfig(model=str(tmp_path / "ds"), port=0, threads=1)
    schema = {"type": "object", "properties": {"zebra": {"type": "integer"}}}
    formats: list[Any] = [
        {"type": "text"},
        {"type": "json_object"},
        {"type": "json_schema", "json_schema": {"name": "z", "schema": schema}},
    ]
    with PolicyServer(config).running() as server:
        tokenizer = server.service.encoding.tokenizer
        body = {"model": "ds", "messages": HELLO, "max_tokens": 2, "return_token_ids": True}
        prompts = []
        for one in formats:
            status, reply = post(
                server, CHAT, {**body, "response_format": one, "tools": [WEATHER_TOOL]}
            )
            assert status == 200, reply
            prompts.append(tokenizer.decode(reply["prompt_token_ids"]))
        status, reply = post(server, CHAT, {**body, "response_format": {"type": "json_schema"}})
        assert (status, reply["error"]["param"]) == (400, "response_format")
    assert "Response Format" not in prompts[0]
    assert "Response Format" in prompts[1]
    assert "zebra" in prompts[2]


def test_no_body_breaks_the_server(noise: PolicyServer) -> None:
    """Good requests with a part replaced, added or taken away: an answer or a refusal, never a 500."""
    rng = random.Random(0)
    seen: Counter[int] = Counter()
    for _ in range(150):
        path, good = rng.choice(GOOD)
        body = spoiled(good, rng)
        status, reply = post(noise, path, body)
        seen[status] += 1
        assert status in (200, 400, 404), (path, body, reply)
        if status != 200:
            assert set(reply["error"]) == {"message", "type", "param", "code"}
            assert reply["error"]["message"]
            assert reply["error"]["code"], (path, body, reply)
    assert seen[200] > 20
    assert seen[400] > 50
    stats = noise.service.stats()
    assert (stats.running, stats.waiting, len(noise.service._live)) == (0, 0, 0)


def spoiled(value: Any, rng: random.Random) -> Any:
    """The value with one part of it changed."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(sorted(value))
        kind = rng.random()
        if kind < 0.1:
            return {k: part for k, part in value.items() if k != key}
        if kind < 0.2:
            return {**value, rng.choice(["zebra", "content", "type", "stream_options"]): wild(rng)}
        return {**value, key: spoiled(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.9:
        i = rng.randrange(len(value))
        kind = rng.random()
        if kind < 0.1:
            return [*value[:i], *value[i + 1 :]]
        if kind < 0.2:
            return [*value[:i], value[i], *value[i:]]
        return [*value[:i], spoiled(value[i], rng), *value[i + 1 :]]
    return wild(rng)


def wild(rng: random.Random) -> Any:
    return rng.choice(WILD)
