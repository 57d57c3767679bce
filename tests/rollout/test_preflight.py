"""A model server that can't be used is told of before anything is stored; its errors are no rewards."""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from model_server import END, Hang, ModelServer, Raw, chat, deltas, encode
from styled_replies import READY, SUBMIT, is_preflight, says
from tiny_dataset import write_tiny_dataset

from envgen.core.errors import ConfigError, PolicyError
from envgen.core.types import Sampling
from envgen.policies import PolicyConfig, parse_policy
from envgen.policies.preflight import preflight
from envgen.policies.repeats import Repeats
from envgen.rollout.pass_at_k import run_report
from envgen.rollout.run import RolloutConfig, RolloutSummary, rollout
from envgen.store.runs import RunStore

UNKNOWN = Raw(404, '{"error": {"message": "The model `m` does not exist."}}')
NO_TOOLS = Raw(400, '{"error": {"message": "\\"auto\\" tool choice requires --enable-auto"}}')
TOO_LONG = Raw(400, "max_tokens is too large: the maximum context length is 4096 tokens")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_dataset(tmp_path_factory.mktemp("data") / "ds").path


def play(
    dataset: Path, out: Path, spec: str, options: dict[str, Any] | None = None, **more: Any
) -> RolloutSummary:
    given = {"backoff_s": 0.01, "max_retries": 0, **(options or {})}
    settings: dict[str, Any] = {"backend": "inline", "task_ids": ("tiny-cheapest",), **more}
    return rollout(
        RolloutConfig(
            dataset=str(dataset),
            policy=PolicyConfig(spec=spec, options=given),
            out=str(out),
            **settings,
        )
    )


def unused_url() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}/v1"


def test_a_server_that_is_down_is_told_at_once(dataset: Path, tmp_path: Path) -> None:
    url = unused_url()
    start = time.monotonic()
    with pytest.raises(ConfigError, match=f"nothing answers at {url}: .*refused") as caught:
        play(dataset, tmp_path / "r", f"openai:m@{url}", {"max_retries": 6})
    assert "start the server" in caught.value.hint
    assert time.monotonic() - start < 10  # and not the half minute of a run's retries
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(
    ("entry", "models", "options", "message", "hint"),
    [
        (UNKNOWN, ["big", "mm"], {}, "no model 'm'; did you mean 'mm'?", "it has big, mm"),
        (UNKNOWN, ["x"], {}, "no model 'm'", "it has x"),
        (UNKNOWN, None, {}, "or no model 'm': ", "ends in /v1, and the model's name"),
        (Raw(401, "no key"), None, {"api_key_env": None}, "no key was named", "api_key_env=NAME"),
        (Raw(401, "no key"), None, {}, "'OPENAI_API_KEY' is not set", "export OPENAI_API_KEY="),
        (
            Raw(403, "no"),
            None,
            {"api_key_env": "K"},
            "is that of environment variable 'K'",
            "check",
        ),
        (NO_TOOLS, ["m"], {}, "takes no tool calls", "tool_mode=text"),
        (TOO_LONG, ["m"], {}, "max_tokens 256 does not fit", "lower --max-tokens"),
        (Raw(200, "<html>hello</html>"), None, {}, "not an event stream: '<html>", "no-preflight"),
        (Raw(500, "boom"), ["m"], {}, "HTTP 500: boom", "no-preflight"),
        (Hang(), ["m"], {"timeout_s": 0.2}, "said nothing for 0.2 s", "no-preflight"),
    ],
)
def test_what_is_wrong_is_told_and_no_run_is_left(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    entry: Any, models: list[str] | None, options: dict[str, Any], message: str, hint: str,
) -> None:  # fmt: skip
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("K", "s3cret")
    with ModelServer([entry], models=models) as server:
        with pytest.raises(ConfigError) as caught:
            play(dataset, tmp_path / "r", f"openai:m@{server.url}", options)
        assert message in str(caught.value)
        assert hint in caught.value.hint
        assert "s3cret" not in f"{caught.value} {caught.value.hint}"
        assert not (tmp_path / "r").exists()
        server.script[:] = [lambda b: READY if is_preflight(b) else says("", SUBMIT)]
        better = {**options, "api_key_env": None, "max_retries": 1, "timeout_s": 9.0}
        assert play(dataset, tmp_path / "r", f"openai:m@{server.url}", better).passed == 1


def test_a_url_without_its_end_is_told(dataset: Path, tmp_path: Path) -> None:
    answers = lambda body: UNKNOWN  # noqa: E731  nothing but /v1/models is there
    with ModelServer([answers], models=["m"]) as server:
        short = server.url.removesuffix("/v1")
        with pytest.raises(ConfigError, match=f"API is at {server.url}, not at {short}"):
            play(dataset, tmp_path / "r", f"openai:m@{short}")


def test_a_key_that_was_named_must_be_set(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with ModelServer([READY]) as server:
        with pytest.raises(ConfigError, match="'MISSING_KEY' is not set"):
            play(dataset, tmp_path / "r", f"openai:m@{server.url}", {"api_key_env": "MISSING_KEY"})
    with pytest.raises(ConfigError, match=r"requires an API key; .*'OPENAI_API_KEY' is not set"):
        play(dataset, tmp_path / "r", "openai:gpt")
    assert not (tmp_path / "r").exists()


def test_a_cost_limit_without_a_price_leaves_no_run(dataset: Path, tmp_path: Path) -> None:
    with ModelServer([lambda b: READY if is_preflight(b) else says("", SUBMIT)]) as server:
        spec = f"openai:m@{server.url}"
        with pytest.raises(ConfigError, match="needs the model's price"):
            play(dataset, tmp_path / "r", spec, max_cost_usd=5)
        price = {"price": {"prompt": 10.0, "completion": 0.0}}
        summary = play(dataset, tmp_path / "r", spec, price, max_cost_usd=5)
    assert summary.passed == 1
    assert summary.cost_usd == pytest.approx(2 * 100 * 10 / 1e6)  # the preflight is paid, too


def test_token_servers_are_asked_by_tokens(dataset: Path, tmp_path: Path) -> None:
    with ModelServer([Raw(404, "what?")], models=["m"]) as server:
        with pytest.raises(ConfigError, match="not this way to ask for it") as caught:
            play(dataset, tmp_path / "r", f"vllm:m@{server.url}")
    assert "openai:" in caught.value.hint
    ids = [*encode('<tool_call>{"name": "ready", "arguments": {}}</tool_call>'), END]
    logprobs = {"content": [{"token": "", "logprob": -0.5}] * len(ids)}
    good = {"choices": [{"token_ids": ids, "logprobs": logprobs, "finish_reason": "stop"}]}
    with ModelServer([good]) as server:
        policy = parse_policy(PolicyConfig(spec=f"vllm:m@{server.url}"))
        preflight(policy, Sampling())
        assert len(server.generations) == 1


def test_a_model_without_tool_calls_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with ModelServer([chat("ready")]) as server, caplog.at_level(logging.WARNING):
        policy = parse_policy(PolicyConfig(spec=f"openai:m@{server.url}"))
        preflight(policy, Sampling(max_tokens=7), tools=False)
        assert not caplog.messages
        preflight(policy, Sampling(max_tokens=7))
        assert ["tools" in body for body in server.generations] == [False, True]
        assert [body["max_tokens"] for body in server.generations] == [7, 7]
    assert "tool_mode=text" in caplog.text


def test_a_recording_passes_the_question_on_and_keeps_nothing_of_it(tmp_path: Path) -> None:
    with ModelServer([READY]) as server:
        spec = f"record:{tmp_path / 'said.jsonl'}:openai:m@{server.url}"
        preflight(parse_policy(spec), Sampling())
        assert len(server.generations) == 1
    assert not (tmp_path / "said.jsonl").exists()


def test_a_whole_run_needs_no_server(dataset: Path, tmp_path: Path) -> None:
    with ModelServer([lambda b: READY if is_preflight(b) else says("", SUBMIT)]) as server:
        spec = f"openai:m@{server.url}"
        play(dataset, tmp_path / "r", spec)
    again = play(dataset, tmp_path / "r", spec)
    assert (again.ended, again.new) == ("complete", 0)


@pytest.mark.parametrize("spec", ["random", "gold", "noisy-gold:0.1"])
def test_options_of_policies_without_any_are_refused(
    dataset: Path, tmp_path: Path, spec: str
) -> None:
    with pytest.raises(ConfigError, match="has no option 'backoff_s'"):
        play(dataset, tmp_path / "r", spec)
    assert not (tmp_path / "r").exists()


def test_unknown_options_have_near_names() -> None:
    for options, near in (
        ({"tool_mod": "text"}, "tool_mode"),
        ({"price": {"promt": 1}}, "prompt"),
    ):
        with pytest.raises(ConfigError, match="unknown policy option") as caught:
            parse_policy(PolicyConfig(spec="openai:m@http://h/v1", options=options))
        assert f"did you mean {near!r}" in caught.value.hint


# --- a server that breaks while the run goes on -------------------------------------------------


class Flaky:
    """Passes an episode, breaks the next one, and so on."""

    def __init__(self) -> None:
        self.asked = 0
        self.lock = threading.Lock()

    def __call__(self, body: dict[str, Any]) -> Any:
        if is_preflight(body):
            return READY
        with self.lock:
            self.asked += 1
            broken = self.asked % 2 == 0
        return BROKEN[(self.asked // 2) % len(BROKEN)] if broken else says("", SUBMIT)


HALF = {"index": 0, "delta": {"content": "half"}, "finish_reason": "error"}
BROKEN: list[Any] = [
    Raw(500, "out of memory"),
    [{"choices": [{**HALF, "error": {"message": "provider gone"}}]}],
    [{"choices": [HALF]}],
    {"error": {"message": "provider gone"}, "choices": [{"message": {"content": ""}}]},
    {"choices": [{"message": {"content": ""}, "finish_reason": "error"}]},
    Raw(404, "gone"),
]


def test_errors_of_a_server_are_neither_rewards_nor_samples(dataset: Path, tmp_path: Path) -> None:
    """Also those that come with status 200 and look like a reply."""
    with ModelServer([Flaky()]) as server:
        summary = play(dataset, tmp_path / "r", f"openai:m@{server.url}", n=24, concurrency=1)
    assert (summary.passed, summary.errors) == (12, 12)
    with RunStore.read(tmp_path / "r") as store:
        found = list(store.trajectories())
        assert store.counts()["tiny-cheapest"] == (12, 12, 12)
    for one in found:
        assert (one.score is None) == (one.error is not None)
    (task,) = run_report(tmp_path / "r", (1,)).tasks
    assert (task.n, task.c, task.errors, task.values[1]) == (12, 12, 12, 1.0)


def test_the_same_error_again_and_again_stops_the_run(dataset: Path, tmp_path: Path) -> None:
    count = iter(range(10_000))

    def answer(body: dict[str, Any]) -> Any:
        number = next(count)
        if number < 3:
            return READY if is_preflight(body) else says("", SUBMIT)
        return Raw(404, json.dumps({"error": "model unloaded", "request_id": f"req-{number}"}))

    with ModelServer([answer]) as server:
        spec = f"openai:m@{server.url}"
        with pytest.raises(
            PolicyError, match=r"4 identical errors in a row: .*model unloaded"
        ) as e:
            play(dataset, tmp_path / "r", spec, n=50, max_errors=4, concurrency=1)
        assert "--retry-errors" in e.value.hint
        with RunStore.read(tmp_path / "r") as store:
            assert store.counts()["tiny-cheapest"] == (2, 2, 4)
        server.script[:] = [lambda b: READY if is_preflight(b) else says("", SUBMIT)]
        rest = play(dataset, tmp_path / "r", spec, n=50, max_errors=4, retry_errors=True)
    assert (rest.passed, rest.errors) == (50, 0)


def test_requests_under_way_don_t_hold_up_the_stop(dataset: Path, tmp_path: Path) -> None:
    asked = iter(range(10_000))

    def answer(body: dict[str, Any]) -> Any:
        return Hang() if next(asked) % 2 else Raw(400, "broken")

    with ModelServer([answer]) as server:
        start = time.monotonic()
        with pytest.raises(PolicyError, match="identical errors"):
            play(
                dataset, tmp_path / "r", f"openai:m@{server.url}", n=50, max_errors=3,
                preflight=False, concurrency=6,
            )  # fmt: skip
        assert time.monotonic() - start < 20


def test_errors_that_differ_don_t_stop_a_run() -> None:
    repeats = Repeats(3)
    same = [repeats.too_many(f"HTTP 500: request {i} of a0b{i}: boom") for i in range(3)]
    assert same == [False, False, True]
    assert not repeats.too_many("another")
    assert not repeats.too_many("another")
    repeats.clear()
    assert not repeats.too_many("another")
    never = Repeats(0)
    assert not any(never.too_many("boom") for _ in range(50))


def test_plain_json_is_a_reply_where_a_stream_was_asked_for(dataset: Path, tmp_path: Path) -> None:
    with ModelServer([lambda b: READY if is_preflight(b) else says("", SUBMIT)]) as server:
        summary = play(dataset, tmp_path / "r", f"openai:m@{server.url}")
        assert all(body["stream"] for body in server.generations)
    assert (summary.passed, summary.errors) == (1, 0)
    with ModelServer([deltas({"content": "x"})]) as server:
        preflight(parse_policy(f"openai:m@{server.url}"), Sampling(), tools=False)
