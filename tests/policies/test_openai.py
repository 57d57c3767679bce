from __future__ import annotations

import json
import os
import resource
import socket
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from model_server import Drop, Hang, ModelServer, Raw, chat, deltas
from toy_world import SUBMIT, town_task

from envgen.core.errors import ConfigError, PolicyError
from envgen.core.types import Message, Sampling, ToolCall
from envgen.policies import Budget, Price, parse_policy
from envgen.policies.base import (
    BudgetExceededError,
    CancelledPolicyError,
    ContextOverflowError,
    DeadlineExceededError,
    PolicyReply,
)
from envgen.policies.openai import OpenAIPolicy
from envgen.policies.registry import PolicyConfig
from envgen.policies.wire import OpenAIConfig

ASK = (Message(role="user", content="hi"),)


def policy(server: ModelServer, budget: Budget | None = None, **options: Any) -> OpenAIPolicy:
    fields: dict[str, Any] = {"stream": False, "backoff_s": 0.01, "max_retries": 3, **options}
    return OpenAIPolicy(OpenAIConfig(base_url=server.url, model="m", **fields), budget=budget)


def ask(client: OpenAIPolicy, messages: Sequence[Message] = ASK, **options: Any) -> PolicyReply:
    return client.respond(messages, [SUBMIT], Sampling(), seed=1, task=town_task(), **options)


def call(name: str, arguments: str, call_id: str = "a") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def test_native_calls_reasoning_and_usage() -> None:
    reply = chat(
        "ok",
        reasoning_content="hm",
        tool_calls=[
            call("f", '{"x": 1}'),
            call("g", "not json", "b"),
            call("h", "", "a"),
            call("i", "null", "d"),
        ],
    )
    with ModelServer([reply]) as server:
        got = ask(policy(server, price=Price(prompt=1.0, completion=10.0)))
        sent = server.generations[0]
    assert got.message.content == "ok"
    assert got.message.reasoning == "hm"
    assert [c.arguments for c in got.message.tool_calls] == [{"x": 1}, None, {}, {}]
    assert got.message.tool_calls[1].arguments_text == "not json"
    assert len({c.id for c in got.message.tool_calls}) == 4
    assert (got.usage.prompt_tokens, got.usage.completion_tokens) == (100, 10)
    assert got.usage.cost_usd == pytest.approx(200e-6)
    assert not got.usage.estimated
    assert sent["tools"] == [SUBMIT]
    assert sent["seed"] == ask_seed()


def test_a_process_with_many_open_files_asks_all_the_same() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4_096, hard), hard))
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(1_100)]
    try:
        with ModelServer([chat("ok")]) as server:
            assert ask(policy(server)).message.content == "ok"
    finally:
        for file in files:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def ask_seed() -> int:
    from envgen.core import seeding

    return seeding.derive(1, 0) & 0x7FFFFFFF


def test_streams_are_put_together() -> None:
    parts = (
        {"role": "assistant", "reasoning_content": "th"},
        {"reasoning": "ink"},
        {"content": "a"},
        {"content": "b"},
        {"tool_calls": [{"index": 0, "id": "x", "function": {"name": "f", "arguments": '{"a"'}}]},
        {"tool_calls": [{"index": 1, "id": "y", "function": {"name": "g", "arguments": "{}"}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": ": 2}"}}]},
    )
    with ModelServer([deltas(*parts, finish="tool_calls")]) as server:
        got = ask(policy(server, stream=True))
    assert (got.message.content, got.message.reasoning) == ("ab", "think")
    assert [(c.name, c.arguments) for c in got.message.tool_calls] == [("f", {"a": 2}), ("g", {})]
    assert got.usage.prompt_tokens == 100


def piece(index: int | None, call_id: str | None, **function: Any) -> dict[str, Any]:
    """One delta of a tool call; None: the field is not there."""
    fields = {"index": index, "id": call_id, "function": function}
    return {name: value for name, value in fields.items() if value is not None}


ONE = [("f", {"x": 1})]
TWO = [("f", {"x": 1}), ("f", {"x": 2})]


@pytest.mark.parametrize(
    ("parts", "calls"),
    [
        # vllm-project/vllm#9693: the name comes first
        ([piece(0, "a", name="f"), piece(0, None, arguments='{"x": 1}')], ONE),
        ([piece(0, "a", name="f", arguments=None), piece(0, None, arguments='{"x": 1}')], ONE),
        ([piece(0, "a", name="f", arguments={}), piece(0, None, arguments='{"x": 1}')], ONE),
        ([piece(0, "a", name="f", arguments=""), piece(0, "", name="", arguments='{"x": 1}')], ONE),
        ([piece(0, "a", name="f"), piece(0, None, name=None, arguments='{"x": 1}')], ONE),
        # sgl-project/sglang#38198, BerriAI/litellm#16194: parallel calls all have index 0
        (
            [
                piece(0, "a", name="f", arguments='{"x": 1}'),
                piece(0, "b", name="f", arguments='{"x": 2}'),
            ],
            TWO,
        ),
        (
            [
                piece(0, "a", name="f"),
                piece(0, None, arguments='{"x": 1}'),
                piece(0, "b", name="f"),
                piece(0, None, arguments='{"x": 2}'),
            ],
            TWO,
        ),
        ([piece(0, "a", name="f"), piece(0, "b", name="g")], [("f", {}), ("g", {})]),
        # no ids, no further index: a whole call is followed by another one
        (
            [
                piece(0, None, name="f", arguments='{"x": 1}'),
                piece(0, None, name="f", arguments='{"x": 2}'),
            ],
            TWO,
        ),
        # the name again with each delta, in pieces, and growing
        (
            [piece(0, "a", name="f", arguments='{"x"'), piece(0, "a", name="f", arguments=": 1}")],
            ONE,
        ),
        (
            [
                piece(0, "a", name="f_", arguments=""),
                piece(0, None, name="of", arguments=""),
                piece(0, None, arguments='{"x": 1}'),
            ],
            [("f_of", {"x": 1})],
        ),
        (
            [piece(0, "a", name="f"), piece(0, "a", name="f_of", arguments='{"x": 1}')],
            [("f_of", {"x": 1})],
        ),
        # a new id with each delta of one call
        (
            [
                piece(0, "a", name="f"),
                piece(0, "b", arguments='{"x":'),
                piece(0, "c", arguments=" 1}"),
            ],
            ONE,
        ),
        # no index: the id tells, or the place in the event
        (
            [
                piece(None, "a", name="f"),
                piece(None, "b", name="f"),
                piece(None, "a", arguments='{"x": 1}'),
                piece(None, "b", arguments='{"x": 2}'),
            ],
            TWO,
        ),
        ([piece(None, None, name="f"), piece(None, None, arguments='{"x": 1}')], ONE),
        # in one piece, as an object
        ([piece(0, "a", name="f", arguments={"x": 1})], ONE),
    ],
)
def test_calls_of_a_stream_are_told_apart(
    parts: list[dict[str, Any]], calls: list[tuple[str, dict[str, Any]]]
) -> None:
    events = [{"tool_calls": [part]} for part in parts]
    with ModelServer([deltas(*events, finish="tool_calls")]) as server:
        got = ask(policy(server, stream=True))
    assert [(one.name, one.arguments) for one in got.message.tool_calls] == calls
    assert len({one.id for one in got.message.tool_calls}) == len(calls)


@pytest.mark.parametrize("stream", [False, True])
def test_a_count_that_no_reply_can_have_spoils_that_reply(stream: bool) -> None:
    """2**63 tokens did not fit the run's database, and ended the whole run."""
    wrong = {"prompt_tokens": 2**63, "completion_tokens": 1}
    reply = {**chat("x"), "usage": wrong}
    event = {"choices": [], "usage": wrong}
    first = [*deltas({"content": "x"}), event] if stream else Raw(200, json.dumps(reply))
    with ModelServer([first]) as server, pytest.raises(PolicyError, match="prompt_tokens"):
        ask(policy(server, stream=stream, max_retries=0))


@pytest.mark.parametrize(
    "date",
    [
        "Mon, 01 Jan 0001 00:00:00 +2359",
        "Mon, 01 Jan 2026 00:00:00 +99999999999999999",
        "Fri, 31 Dec 9999 23:59:59 -2359",
        "1e999",
        "nan",
        "-5",
    ],
)
def test_a_date_that_no_clock_has_is_no_reason_to_wait(date: str) -> None:
    first = Raw(429, "slow down", {"Retry-After": date})
    with ModelServer([first, chat("fine")]) as server:
        client = policy(server, max_backoff_s=0.01)
        assert ask(client).message.content == "fine"


def test_missing_usage_is_estimated_and_says_so() -> None:
    reply = {key: value for key, value in chat("four").items() if key != "usage"}
    with ModelServer([reply]) as server:
        got = ask(policy(server))
    assert got.usage.estimated
    assert got.usage.completion_tokens >= 1


@pytest.mark.parametrize(
    "first",
    [
        Raw(429, "slow down", {"Retry-After": "0"}),
        Raw(429, "slow down", {"retry-after-ms": "5"}),
        Raw(503, "busy"),
        Raw(500, "{}"),
        Raw(200, "<html>gateway</html>"),
        Raw(200, "[]"),
        Raw(200, '{"choices": []}'),
        Raw(200, '{"error": {"message": "overloaded"}}'),
        Raw(200, '{"choices": [{"message": null}]}'),
        Raw(200, json.dumps({**chat("x"), "usage": "much"})),
        Raw(200, json.dumps({**chat("x"), "usage": {"prompt_tokens": -5, "completion_tokens": 1}})),
        Raw(200, json.dumps({**chat("x"), "usage": {"cost": -1.0}})),
        Raw(200, json.dumps(chat("x", tool_calls=[{"function": "f"}]))),
        Raw(200, json.dumps(chat("x", tool_calls={"name": "f"}))),
        Raw(200, '{"choices": [{"message": {"content": {"text": "x"}}}]}'),
        Drop(),
    ],
    ids=str,
)
def test_what_may_pass_is_tried_again(first: Any) -> None:
    with ModelServer([first, chat("fine")]) as server:
        assert ask(policy(server)).message.content == "fine"
        assert len(server.generations) == 2


@pytest.mark.parametrize(
    "first",
    [
        Drop([{"choices": [{"index": 0, "delta": {"content": "half"}}]}]),
        [{"choices": [{"index": 0, "delta": {"content": "no finish reason"}}]}],
        [{"error": {"message": "died"}}],
        [{"choices": 5}],
        [{"choices": ["x"]}],
        [{"choices": [{"index": 0, "delta": ["x"]}]}],
        [{"choices": [{"index": 0, "delta": {"tool_calls": [{"index": -1, "id": 7}]}}]}],
        Raw(200, "<html>gateway</html>", {"Content-Type": "text/html"}),
    ],
    ids=["dropped", "unfinished", "error event", "number", "text", "list", "call", "html"],
)
def test_broken_streams_are_tried_again(first: Any) -> None:
    with ModelServer([first, deltas({"content": "fine"})]) as server:
        assert ask(policy(server, stream=True)).message.content == "fine"


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_what_will_not_pass_fails_at_once(status: int) -> None:
    with ModelServer([Raw(status, "the reason")]) as server:
        with pytest.raises(PolicyError, match="the reason"):
            ask(policy(server))
        assert len(server.generations) == 1


FULL = [
    # OpenAI, DeepSeek, OpenRouter, older vLLM; newer vLLM
    "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens",
    "Your input exceeds the context window of this model.",
    "You requested 100 output tokens. However, the model's context length is only 4096 tokens",
    "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
    "max_tokens must be at least 1, got -17.",
    "'max_completion_tokens' must be at least 1, got -904",
    # SGLang
    "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
    "Input length (5000 tokens) exceeds the maximum allowed length (4096 tokens).",
    # Anthropic
    "prompt is too long: 5000 tokens > 4096 maximum",
    "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
    # xAI, text-generation-inference, Moonshot, Bedrock
    "This model's maximum prompt length is 131072 but the request contains 140000 tokens.",
    "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000",
    "Input validation error: `inputs` must have less than 1024 tokens. Given: 2000",
    "Invalid request: Your request exceeded model token limit: 8192",
    "Input is too long for requested model.",
    # llama.cpp, Ollama, TensorRT-LLM
    "the request exceeds the available context size. try increasing the context size",
    "the input length exceeds the context length",
    "Prompt length (5000) exceeds maximum input length (4096). Set truncate_prompt_tokens to truncate.",
    "The sum of prompt length (5000.0) and max_tokens (9) should not exceed max_num_tokens (4096)",
    # Gemini, Mistral, Cohere, Groq, DashScope, Fireworks, Zhipu
    "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
    "Prompt contains 33000 tokens, too large for model with 32768 maximum context length",
    "too many tokens: total number of tokens in the prompt cannot exceed 4081",
    "Please reduce the length of the messages or completion.",
    "Range of input length should be [1, 30720]",
    "The prompt is too long: 9000, model maximum context length: 8192",
    "Prompt exceeds max length",
]


@pytest.mark.parametrize("text", FULL)
def test_a_full_window_has_its_own_error(text: str) -> None:
    for status in (400, 500):  # older llama.cpp answers 500
        with ModelServer([Raw(status, json.dumps({"error": {"message": text}}))]) as server:
            with pytest.raises(ContextOverflowError):
                ask(policy(server))
            assert len(server.generations) == 1
    with ModelServer([[{"error": {"message": text, "code": 400}}]]) as server:
        with pytest.raises(ContextOverflowError):
            ask(policy(server, stream=True))


@pytest.mark.parametrize(
    "text",
    [
        "max_tokens is too large: 99999. This model supports at most 16384 completion tokens",
        "max_tokens: 99999 > 8192, which is the maximum allowed number of output tokens",
        "Request too large for model `m` on tokens per minute (TPM): Limit 6000, Requested 9000",
        "max_tokens must be at least 1, got 0",
        "temperature must be at most 2",
    ],
)
def test_a_setting_or_a_quota_is_no_full_window(text: str) -> None:
    with ModelServer([Raw(400, text)]) as server, pytest.raises(PolicyError) as caught:
        ask(policy(server))
    assert not isinstance(caught.value, ContextOverflowError)


def test_a_key_that_the_server_quotes_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a server says is logged, and stored with the episode, which may be passed on."""
    monkeypatch.setenv("MY_KEY", "sk-0123456789")
    with ModelServer([Raw(401, "Incorrect API key: Bearer sk-0123456789")]) as server:
        with pytest.raises(PolicyError, match="Incorrect API key") as caught:
            ask(policy(server, api_key_env="MY_KEY"))
    assert "0123456789" not in str(caught.value)


def test_a_redirect_says_where_to() -> None:
    with ModelServer([Raw(307, "", {"Location": "https://there/v1"})]) as server:
        with pytest.raises(PolicyError) as caught:
            ask(policy(server))
    assert "https://there/v1" in caught.value.hint


def test_retries_end() -> None:
    with ModelServer([Raw(502, "bad gateway")]) as server:
        with pytest.raises(PolicyError, match="4 attempts"):
            ask(policy(server))
        assert len(server.generations) == 4


def test_a_hanging_server_costs_the_deadline() -> None:
    with ModelServer([Hang()]) as server:
        start = time.monotonic()
        with pytest.raises(DeadlineExceededError):
            ask(policy(server), deadline=start + 0.3)
        assert time.monotonic() - start < 2


def test_silence_counts_as_dropped() -> None:
    with ModelServer([Hang(), chat("fine")]) as server:
        assert ask(policy(server, timeout_s=0.2)).message.content == "fine"


@pytest.mark.parametrize(
    "drop",
    [
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n: still here\n\n",
    ],
    ids=["1xx", "comments"],
)
def test_a_reply_that_drips_for_ever_is_given_up(drop: bytes) -> None:
    def drip() -> None:
        connection, _ = door.accept()
        with connection, suppress(OSError):
            connection.sendall(drop)
            while not gone.wait(0.05):
                connection.sendall(drop if b"100" in drop else b": still here\n\n")

    gone = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as door:
        thread = threading.Thread(target=drip)
        thread.start()
        try:
            url = f"http://127.0.0.1:{door.getsockname()[1]}/v1"
            config = OpenAIConfig(base_url=url, model="m", stream=True, reply_s=0.5)
            start = time.monotonic()
            with pytest.raises(PolicyError, match="did not end it in time"):
                ask(OpenAIPolicy(config))
            assert time.monotonic() - start < 5
        finally:
            gone.set()
            thread.join()


def test_cancel_ends_a_request_and_a_wait() -> None:
    for entry in (Hang(), Raw(429, "", {"Retry-After": "30"})):
        cancel = threading.Event()
        threading.Timer(0.2, cancel.set).start()
        with ModelServer([entry]) as server:
            start = time.monotonic()
            with pytest.raises(CancelledPolicyError):
                ask(policy(server), cancel=cancel)
            assert time.monotonic() - start < 2


def test_wait_past_the_deadline_is_refused() -> None:
    with ModelServer([Raw(429, "", {"Retry-After": "30"})]) as server:
        start = time.monotonic()
        with pytest.raises(DeadlineExceededError):
            ask(policy(server), deadline=start + 5)
        assert time.monotonic() - start < 2


def test_no_server_is_a_policy_error() -> None:
    with ModelServer([chat()]) as server:
        url = server.url
    config = OpenAIConfig(base_url=url, model="m", max_retries=1, backoff_s=0.01)
    with pytest.raises(PolicyError, match="ConnectError"):
        ask(OpenAIPolicy(config))


def test_budget_is_shared_over_threads() -> None:
    budget = Budget(0.001)
    with ModelServer([chat("x")]) as server:
        client = policy(server, budget, price=Price(prompt=1.0, completion=0.0))  # 100e-6 a reply

        def one(_: int) -> bool:
            try:
                ask(client)
            except BudgetExceededError:
                return False
            return True

        with ThreadPoolExecutor(4) as pool:
            answered = sum(pool.map(one, range(40)))
    assert 10 <= answered <= 13  # open requests are still paid
    assert budget.spent_usd == pytest.approx(answered * 1e-4)


def test_a_cost_limit_needs_a_price() -> None:
    with ModelServer([chat()]) as server, pytest.raises(ConfigError, match="price"):
        policy(server, Budget(1.0))


def test_key_comes_from_the_environment_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "s3cret")
    with ModelServer([chat()]) as server:
        ask(policy(server, api_key_env="MY_KEY"))
        assert server.requests[0][2]["Authorization"] == "Bearer s3cret"


def test_text_mode_writes_tools_into_the_prompt() -> None:
    answer = Message(
        role="assistant",
        content="let me see",
        reasoning="why",
        tool_calls=(ToolCall(id="c", name="f", arguments={"x": 1}),),
    )
    conversation = (*ASK, answer, Message(role="tool", content="7", tool_call_id="c"))
    text = 'Now:\n<tool_call>\n{"name": "f", "arguments": {"x": 2}}\n</tool_call>'
    with ModelServer([chat(text)]) as server:
        got = ask(policy(server, tool_mode="text"), conversation)
        sent = server.generations[0]
    assert "tools" not in sent
    assert [m["role"] for m in sent["messages"]] == ["system", "user", "assistant", "user"]
    assert "submit_result" in sent["messages"][0]["content"]
    assert sent["messages"][2]["reasoning_content"] == "why"  # a tool result is no new user message
    assert got.message.content == "Now:"
    assert got.message.tool_calls[0].arguments == {"x": 2}
    assert got.message.tool_calls[0].id == "call_1_0"


def test_reasoning_goes_when_a_new_user_message_comes() -> None:
    answer = Message(role="assistant", content="a", reasoning="why")
    with ModelServer([chat()]) as server:
        ask(policy(server), (*ASK, answer, Message(role="user", content="more")))
        assert "reasoning_content" not in server.generations[0]["messages"][1]


def test_many_threads_share_one_policy() -> None:
    with ModelServer([chat("x")]) as server, ThreadPoolExecutor(12) as pool:
        client = policy(server)
        got = list(pool.map(lambda _: ask(client).message.content, range(60)))
    assert got == ["x"] * 60


@pytest.mark.parametrize(
    ("spec", "options", "message"),
    [
        ("rndom", {}, "did you mean 'random'"),
        ("openai:", {}, "MODEL@URL"),
        ("vllm:m", {}, "MODEL@URL"),
        ("openai:m@ftp://x", {}, "http"),
        ("openai:m@http://x", {"timeout_s": -1}, "timeout_s"),
        ("sglang:m@http://x", {}, "chat_template"),
        ("replay:/nowhere", {}, "nowhere"),
    ],
)
def test_bad_specs_say_what_to_do(spec: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_policy(PolicyConfig(spec=spec, options=options))
    assert message in f"{caught.value} {caught.value.hint}"


def test_model_names_may_hold_an_at_sign() -> None:
    parsed = parse_policy("openai:org/model@v1@http://localhost:1/v1")
    assert parsed.name == "openai:org/model@v1"


KEY = "sk-0123456789-abcdefghijklmnopqrstuvwxyz"


@pytest.mark.parametrize(
    "sent",
    [
        Raw(200, json.dumps({"error": {"message": f"no such key: {KEY}"}})),
        Raw(200, json.dumps({"choices": KEY})),
        Raw(200, f"<html>{'-' * 50}{KEY}</html>"),  # the error's start of the reply ends within it
        Raw(200, json.dumps({"choices": [{"message": {}, "error": KEY}]})),
        Raw(302, "", {"Location": f"http://elsewhere.example/?key={KEY}"}),
        Raw(500, KEY),
    ],
)
def test_no_error_quotes_the_key(sent: Raw, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODD_KEY", KEY)
    with ModelServer([sent]) as server, pytest.raises(PolicyError) as told:
        ask(policy(server, api_key_env="ODD_KEY", max_retries=0))
    assert KEY[:20] not in str(told.value) + told.value.hint
    assert "[key]" in str(told.value) + told.value.hint


def test_a_price_that_no_reply_has_is_refused() -> None:
    reply = {**chat("ok"), "usage": {"prompt_tokens": 1, "completion_tokens": 1, "cost": 1e12}}
    with ModelServer([reply]) as server, pytest.raises(PolicyError, match="cost"):
        ask(policy(server, max_retries=0))


def test_calls_without_end_are_cut() -> None:
    calls = [call("f", "{}", f"c{i}") for i in range(5_000)]
    with ModelServer([chat("", tool_calls=calls)]) as server:
        got = ask(policy(server)).message.tool_calls
    assert 64 < len(got) < 2_000  # an environment takes 64, and refuses more


def test_a_reply_of_millions_of_parts_is_refused() -> None:
    body = '{"choices": [' + "{}," * (5 << 20) + "{}]}"
    with ModelServer([Raw(200, body)]) as server, pytest.raises(PolicyError, match="parts"):
        ask(policy(server, max_retries=0))
