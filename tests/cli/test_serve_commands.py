"""``envgen serve policy`` as users meet it: a process, a port, OpenAI's own client, ``envgen rollout``."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest
from cli_runs import Cli, envgen, environment
from served import Served, served, until
from tiny_dataset import write_tiny_dataset
from tiny_models import hotel_lessons, write_random_model, write_taught_model

from envgen.policies.encoding import EncodingConfig
from envgen.policies.openai import wire_messages

CLIENTS = 16
"""Requests at a time."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset ``ds``, a model ``noise``, and one that knows a task of the dataset, ``solver``."""
    place = tmp_path_factory.mktemp("served")
    dataset = write_tiny_dataset(place / "ds").path
    write_random_model(place / "noise")
    encoding = EncodingConfig(kind="compact", system=False)
    write_taught_model(place / "solver", hotel_lessons(dataset), encoding)
    return place


@pytest.fixture(scope="module")
def noise(folders: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(folders / "noise", tmp_path_factory.mktemp("card")) as server:
        yield server


@pytest.fixture(scope="module")
def solver(folders: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(folders / "solver", tmp_path_factory.mktemp("card")) as server:
        yield server


def client_of(server: Served) -> openai.OpenAI:
    return openai.OpenAI(base_url=server.url, api_key="none", max_retries=0)


def endless(number: int = 0) -> dict[str, Any]:
    """A request whose reply comes to no end: greedy noise goes round in circles."""
    messages = [{"role": "user", "content": f"hotel {number}"}]
    return {"model": "noise", "messages": messages, "temperature": 0, "max_tokens": 4_000}


def test_it_says_where_it_is(noise: Served) -> None:
    assert noise.card["url"] == noise.url == f"http://127.0.0.1:{noise.card['port']}/v1"
    assert noise.card["pid"] == noise.process.pid
    with client_of(noise) as client:
        (model,) = client.models.list().data
    assert model.id == noise.card["model"] == "noise"
    assert model.model_dump()["max_model_len"] == noise.card["max_model_len"] == 4_096


@pytest.mark.parametrize("stream", [False, True])
def test_tools_are_called_and_their_results_told(
    folders: Path, solver: Served, stream: bool
) -> None:
    first, second = hotel_lessons(folders / "ds")
    settings: Any = {"model": "solver", "tools": first.tools, "temperature": 0}
    messages: list[dict[str, Any]] = wire_messages(first.messages, None)
    with client_of(solver) as client:
        reply = reply_to(client, stream, messages=messages, **settings)
        (call,) = reply["tool_calls"]
        assert call["function"] == {"name": "list_hotels", "arguments": '{"city":"Hangzhou"}'}
        result = second.messages[-1]
        tool_message = {"role": "tool", "tool_call_id": call["id"], "content": result.content}
        reply = reply_to(client, stream, messages=[*messages, reply, tool_message], **settings)
    (call,) = reply["tool_calls"]
    assert call["function"]["name"] == "submit_result"
    arguments = json.loads(call["function"]["arguments"])
    assert json.loads(arguments["answer_text"]) == {"hotel": "Lotus Inn"}


def reply_to(client: openai.OpenAI, stream: bool, **settings: Any) -> dict[str, Any]:
    """The assistant message, put together of its pieces if it is streamed."""
    if not stream:
        message = client.chat.completions.create(**settings).choices[0].message.model_dump()
        return {"role": "assistant", **{k: message[k] for k in ("content", "tool_calls")}}
    content, calls = "", dict[int, Any]()
    for chunk in client.chat.completions.create(**settings, stream=True):
        delta = chunk.choices[0].delta
        content += delta.content or ""
        for piece in delta.tool_calls or ():
            call = calls.setdefault(piece.index, {"type": "function", "function": {}})
            call |= {"id": piece.id} if piece.id else {}
            for key, text in piece.function.model_dump(exclude_none=True).items():
                call["function"][key] = call["function"].get(key, "") + text
    return {"role": "assistant", "content": content, "tool_calls": list(calls.values())}


def test_requests_at_once_share_the_engine_s_steps(noise: Served) -> None:
    before = noise.metrics()
    with client_of(noise) as client, ThreadPoolExecutor(CLIENTS) as pool:

        def ask(number: int) -> int:
            reply = client.chat.completions.create(**{**endless(number), "max_tokens": 128})
            assert reply.usage is not None
            return int(reply.usage.completion_tokens)

        written = list(pool.map(ask, range(CLIENTS)))
    after = noise.metrics()
    tokens = after["decoded_tokens_total"] - before["decoded_tokens_total"]
    steps = after["decode_steps_total"] - before["decode_steps_total"]
    assert written == [128] * CLIENTS
    assert tokens == sum(written)
    assert tokens / steps > CLIENTS / 2, f"{tokens} tokens in {steps} steps"


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_gives_up_frees_its_place_in_a_moment(noise: Served, stream: bool) -> None:
    until(lambda: noise.metrics()["requests_running"] == 0)
    before = noise.metrics()

    async def ask(client: openai.AsyncOpenAI, number: int) -> None:
        reply: Any = await client.chat.completions.create(**endless(number), stream=stream)
        async for _ in reply:
            pass

    async def leave() -> None:
        async with openai.AsyncOpenAI(base_url=noise.url, api_key="none", max_retries=0) as client:
            tasks = [asyncio.create_task(ask(client, number)) for number in range(6)]
            while (await asyncio.to_thread(noise.metrics))["requests_running"] < 6:
                await asyncio.sleep(0.01)
            for task in tasks:
                task.cancel()
            done = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(one, asyncio.CancelledError) for one in done)

    asyncio.run(asyncio.wait_for(leave(), 60))
    assert until(lambda: noise.metrics()["requests_running"] == 0) < 2
    after = noise.metrics()
    pages = after["free_pages"] + after["known_pages"]
    assert pages == before["free_pages"] + before["known_pages"]
    assert after["requests_cancelled_total"] == before["requests_cancelled_total"] + 6
    with client_of(noise) as client:
        assert client.chat.completions.create(**{**endless(), "max_tokens": 3}).choices


def test_ctrl_c_ends_it_and_its_streams_in_order(folders: Path, tmp_path: Path) -> None:
    with served(folders / "noise", tmp_path) as server, client_of(server) as client:
        stream = client.chat.completions.create(**endless(), stream=True)
        next(iter(stream))
        code, err = server.end(signal.SIGINT)
        with pytest.raises(openai.APIError, match="shutting down"):
            list(stream)
    assert code == 0, err
    assert err.splitlines()[-1] == "stopped"
    assert "Traceback" not in err
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", server.card["port"]), timeout=5)


def test_what_cant_be_served_is_told(cli: Cli, folders: Path, noise: Served) -> None:
    model = folders / "noise"
    for words, error, hint in (
        (("nowhere",), "is not a folder", "envgen model init"),
        ((folders / "ds",), "has no config.json", "envgen model init"),
        ((model, "--port", noise.card["port"]), "can't listen on", "choose another --port"),
        ((model, "--host", "256.0.0.1"), "can't listen on 256.0.0.1:0", "--host"),
        ((model, "--device", "toaster"), "can't load", "device=cpu"),
        ((model, "--api-key-env", "NO_SUCH_KEY"), "'NO_SUCH_KEY' is not set", ""),
        ((model, "--cache-tokens", 3), "less than a page", "cache_tokens"),
    ):
        result = cli("serve", "policy", "--port", 0, *words)
        assert (result.code, result.out) == (2, ""), result
        assert error in result.err
        assert hint in result.err
        assert "Traceback" not in result.err


@pytest.mark.parametrize("missing", ["starlette", "torch"])
def test_a_missing_package_is_told(folders: Path, missing: str) -> None:
    code = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "from envgen.cli.app import run\n"
        f"sys.exit(run(['serve', 'policy', {str(folders / 'noise')!r}, '--port', '0']))"
    )
    completed = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (completed.returncode, completed.stdout) == (2, "")
    assert "hint: pip install 'envgen-gym[serve]'" in completed.stderr
    assert "Traceback" not in completed.stderr


def test_a_new_model_is_served_and_asks_for_its_key(
    cli: Cli, folders: Path, tmp_path: Path
) -> None:
    command = ("model", "init", "--preset", "tiny", "--tokenizer", folders / "ds", "--out", "m")
    assert cli(*command, "--encoding", "dsml", "--vocab-size", 600).code == 0
    more = {"MY_KEY": "sesame"}
    with served(
        tmp_path / "m", tmp_path, "--api-key-env", "MY_KEY", verbose=True, **more
    ) as server:
        ask: Any = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 9}
        with client_of(server) as client, pytest.raises(openai.AuthenticationError):
            client.chat.completions.create(**ask)
        with client_of(server).with_options(api_key="sesame") as client:
            reply = client.chat.completions.create(**ask, logprobs=True)
        code, err = server.end(signal.SIGTERM)
    assert (code, err.splitlines()[-1]) == (0, "stopped")
    output = " ".join(err.split())  # long lines are folded
    assert "POST /v1/chat/completions: 401" in output
    assert "POST /v1/chat/completions: 200" in output
    assert "sesame" not in err
    logprobs = reply.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    assert len(logprobs.content) <= 9
    assert all(entry.logprob < 0 for entry in logprobs.content)


@pytest.mark.parametrize(
    ("way", "option"),
    [
        ("dsa", "max_kept=256"),
        ("openai", "api_key_env=null"),
        ("vllm", "logprobs_mode=processed"),
    ],
)
def test_a_model_s_rollouts_pass_by_every_way(
    folders: Path, solver: Served, tmp_path: Path, way: str, option: str
) -> None:
    policy = f"dsa:{folders / 'solver'}" if way == "dsa" else f"{way}:solver@{solver.url}"
    figures = tmp_path / "figures.json"
    result = envgen(
        "rollout", folders / "ds", "--policy", policy, "--task", "tiny-cheapest", "--n", 2,
        "--temperature", 0, "--max-tokens", 96, "--backend", "inline", "--out", tmp_path / "run",
        "--json", figures, "--option", option,
    )  # fmt: skip
    assert result.code == 0, result.err
    summary = json.loads(figures.read_text())
    assert (summary["passed"], summary["errors"], summary["samples"]) == (2, 0, 2)
