"""Clients that leave, servers that stop, too many requests: nothing hangs, nothing stays taken."""

from __future__ import annotations

import gc
import http.client
import json
import socket
import threading
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import openai
import pytest
import torch

from envgen.model.tickets import Ticket
from envgen.policies.local_model import LocalModel, open_model
from envgen.policies.server import PolicyServer, ServeConfig
from envgen.policies.serving.generation import Generation

LONG: dict[str, Any] = {
    "model": "noise",
    "messages": [{"role": "user", "content": "hotel"}],
    "max_tokens": 4_000,
    "logprobs": True,
}
"""With log-probabilities each token makes a chunk, even where noise makes no sense."""


def until(true: Callable[[], bool], seconds: float = 10.0) -> None:
    """Wait for something that must come."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)


@pytest.fixture
def deaf(noise: PolicyServer, monkeypatch: pytest.MonkeyPatch) -> PolicyServer:
    """A server whose model does not know its end token, so that replies are long."""
    monkeypatch.setattr(noise.service.encoding, "stop_ids", ())
    return noise


def connect(server: PolicyServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=20)


def raw(body: dict[str, Any], path: str = "/v1/chat/completions") -> bytes:
    """A request as it goes over the wire."""
    content = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


def idle(server: PolicyServer) -> bool:
    stats = server.service.stats()
    return stats.running == 0 and stats.waiting == 0


def test_leaving_a_stream_frees_its_place_and_pages(deaf: PolicyServer) -> None:
    stats = deaf.service.stats
    until(lambda: idle(deaf))
    pages = stats().free_pages + stats().known_pages
    before = deaf.service.counters.cancelled
    with openai.OpenAI(base_url=deaf.url, api_key="none", max_retries=0) as client:
        stream = client.chat.completions.create(**LONG, stream=True)
        for _ in range(5):
            next(iter(stream))
        assert stats().running == 1
        stream.close()
    until(lambda: idle(deaf))
    assert deaf.service.counters.cancelled == before + 1
    assert stats().free_pages + stats().known_pages == pages


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_vanishes_frees_its_place(deaf: PolicyServer, stream: bool) -> None:
    sock = connect(deaf)
    sock.sendall(raw({**LONG, "stream": stream, "n": 3}))
    until(lambda: deaf.service.stats().running == 3)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    sock.close()  # a reset, no farewell
    until(lambda: idle(deaf))


def test_nothing_is_written_to_those_that_left(
    deaf: PolicyServer, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(12):
        sock = connect(deaf)
        sock.sendall(raw({**LONG, "stream": True, "n": 16}))
        until(lambda: deaf.service.stats().running == 16)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        sock.close()
        until(lambda: idle(deaf))
    assert not [record for record in caplog.records if record.name == "asyncio"]


def test_a_client_that_leaves_the_queue_frees_it(random_model: Path) -> None:
    config = ServeConfig(model=str(random_model), port=0, threads=1, max_batch=1)
    server = PolicyServer(config)
    server.service.encoding.stop_ids = ()
    stats = server.service.stats
    with server.running(), connect(server) as first:
        first.sendall(raw(LONG))
        until(lambda: stats().running == 1)
        with connect(server) as second:
            second.sendall(raw({**LONG, "n": 2}))
            until(lambda: stats().waiting == 2)
        until(lambda: stats().waiting == 0)
        assert stats().running == 1
        first.close()
        until(lambda: idle(server))


def test_a_client_that_leaves_while_its_prompt_is_read(deaf: PolicyServer) -> None:
    until(lambda: idle(deaf))
    prompt = list(range(1, 200)) * 20
    body: Any = {"model": "noise", "prompt": prompt, "max_tokens": 50}
    for _ in range(5):
        with connect(deaf) as sock:
            sock.sendall(raw(body, "/v1/completions"))
            until(lambda: not idle(deaf))
    until(lambda: idle(deaf))
    with openai.OpenAI(base_url=deaf.url, api_key="none", max_retries=0) as client:
        reply = client.completions.create(**{**body, "max_tokens": 1})
    assert reply.usage is not None
    assert reply.usage.completion_tokens == 1


def test_a_client_that_leaves_while_it_asks_is_no_error(
    noise: PolicyServer, caplog: pytest.LogCaptureFixture
) -> None:
    taken = noise.service.counters.requests
    with connect(noise) as sock:
        sock.sendall(raw(LONG)[:-10])
        time.sleep(0.2)
    with connect(noise) as sock:
        sock.sendall(raw({**LONG, "max_tokens": 1}))
        assert sock.recv(100).startswith(b"HTTP/1.1 200 OK")
    assert noise.service.counters.requests == taken + 1
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_a_client_that_does_not_read_keeps_nobody_waiting(deaf: PolicyServer) -> None:
    """Its replies are written to the end and wait for it; neither their places nor the queue are taken."""
    config = deaf.service.config
    deaf.service.config = config.model_copy(update={"max_batch": 2, "max_waiting": 0})
    # With the usual buffers the kernel would read for it.
    deaf._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
    try:
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            sock.connect(("127.0.0.1", deaf.port))
            body = {**LONG, "max_tokens": 400, "stream": True, "n": 2}
            sock.sendall(raw(body))
            until(lambda: deaf.service.stats().running == 2)
            until(lambda: idle(deaf), 60)
            assert deaf.service._live
            with openai.OpenAI(base_url=deaf.url, api_key="none", max_retries=0) as client:
                reply = client.chat.completions.create(**{**LONG, "max_tokens": 2})
            assert reply.choices[0].finish_reason == "length"
        until(lambda: not deaf.service._live)
    finally:
        deaf.service.config = config


def test_nothing_of_a_request_is_kept(deaf: PolicyServer) -> None:
    """Neither of those that were answered nor of those that were given up, the last batch aside."""

    def left() -> int:
        gc.collect()
        return sum(type(one) in (Generation, Ticket) for one in gc.get_objects())

    before = left()
    with openai.OpenAI(base_url=deaf.url, api_key="none", max_retries=0) as client:
        for stream in (True, False):
            for _ in range(10):
                settings: Any = {**LONG, "max_tokens": 2, "n": 2, "stream": stream}
                list(client.chat.completions.create(**settings))
        for _ in range(10):
            cut = client.chat.completions.create(**LONG, stream=True)
            next(iter(cut))
            cut.close()
    until(lambda: idle(deaf))
    until(lambda: left() <= before + 3)


def test_requests_may_follow_each_other_in_any_form(noise: PolicyServer) -> None:
    """Pipelined, in chunks, in UTF-16: what HTTP and JSON allow."""
    body = json.dumps({**LONG, "max_tokens": 1}).encode("utf-16")
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    chunk = f"{len(body):x}\r\n".encode() + body + b"\r\n0\r\n\r\n"
    plain = raw({**LONG, "max_tokens": 1})
    with connect(noise) as sock:
        sock.sendall(plain + plain + head + b"Transfer-Encoding: chunked\r\n\r\n" + chunk)
        found = b""
        while found.count(b"chat.completion") < 3:
            part = sock.recv(65_536)
            assert part, found
            found += part
    assert found.count(b"HTTP/1.1 200 OK") == 3


def test_answers_don_t_wait_for_acknowledgements(noise: PolicyServer) -> None:
    """A connection that stays open is not held up by Nagle's algorithm, 40 ms each time."""
    body = json.dumps({"model": "noise", "tokens": [1]})
    waits = []
    with closing(http.client.HTTPConnection("127.0.0.1", noise.port, timeout=20)) as connection:
        for _ in range(20):
            started = time.monotonic()
            connection.request("POST", "/detokenize", body, {"Content-Type": "application/json"})
            assert connection.getresponse().read()
            waits.append(time.monotonic() - started)
    assert min(waits) < 0.03


def test_what_is_no_http_is_refused(noise: PolicyServer) -> None:
    with connect(noise) as sock:
        sock.sendall(b"\x16\x03\x01 hello\r\n\r\n")
        assert sock.recv(100).startswith(b"HTTP/1.1 400 ")


def test_too_many_requests_are_told_to_come_back(deaf: PolicyServer) -> None:
    config = deaf.service.config
    narrow = config.model_copy(update={"max_batch": 1, "max_waiting": 0})
    deaf.service.config = narrow
    try:
        with openai.OpenAI(base_url=deaf.url, api_key="none", max_retries=0) as client:
            stream = client.chat.completions.create(**LONG, stream=True)
            next(iter(stream))
            with pytest.raises(openai.RateLimitError) as caught:
                client.chat.completions.create(**LONG)
            stream.close()
        assert caught.value.response.headers["retry-after"] == "2"
        assert caught.value.code == "server_overloaded"
    finally:
        deaf.service.config = config
    until(lambda: idle(deaf))


def test_stopping_ends_streams_and_returns_quickly(random_model: Path) -> None:
    server = PolicyServer(ServeConfig(model=str(random_model), port=0, threads=1))
    server.service.encoding.stop_ids = ()
    errors: list[Exception] = []
    thread = threading.Thread(target=server.run)
    thread.start()
    with openai.OpenAI(base_url=server.url, api_key="none", max_retries=0) as client:
        stream = client.chat.completions.create(**LONG, stream=True)
        next(iter(stream))
        server.stop()
        started = time.monotonic()
        try:
            for _ in stream:
                pass
        except openai.APIError as error:
            errors.append(error)
        thread.join(10)
    assert not thread.is_alive()
    assert time.monotonic() - started < 5
    assert "shutting down" in str(errors[0])
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", server.port), timeout=5)


def test_a_broken_model_is_an_internal_error_and_no_hang(random_model: Path) -> None:
    config = ServeConfig(model=str(random_model), port=0, threads=1)
    local: LocalModel = open_model(config)
    server = PolicyServer(config, local=local)
    with (
        server.running(),
        openai.OpenAI(base_url=server.url, api_key="none", max_retries=0) as client,
    ):
        settings: Any = {**LONG, "max_tokens": 5}
        client.chat.completions.create(**settings)
        with local.engine.paused(), torch.no_grad():
            local.engine.model.lm_head.weight.fill_(float("nan"))
            local.engine.refresh()
        with pytest.raises(openai.InternalServerError, match="without a distribution"):
            client.chat.completions.create(**settings)
        stream = client.chat.completions.create(**settings, stream=True)
        with pytest.raises(openai.APIError, match="without a distribution"):
            list(stream)
        with connect(server) as sock:  # and the connection goes on
            for _ in range(3):
                sock.sendall(raw(settings))
                found = b""
                while b"without a distribution" not in found:
                    part = sock.recv(65_536)
                    assert part, found
                    found += part
                assert found.startswith(b"HTTP/1.1 500 ")
    local.close()


def test_new_weights_are_served_under_a_new_name(random_model: Path) -> None:
    """As a trainer does it, with a reply under way: that one is finished with the old ones."""
    config = ServeConfig(model=str(random_model), port=0, threads=1)
    local = open_model(config)
    old = local.version
    server = PolicyServer(config, local=local)
    with (
        closing(local),
        server.running(),
        openai.OpenAI(base_url=server.url, api_key="none", max_retries=0) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        settings: Any = {**LONG, "max_tokens": 300, "temperature": 0}
        under_way = pool.submit(lambda: client.chat.completions.create(**settings))
        stream = iter(client.chat.completions.create(**settings, stream=True))
        chunks = [next(stream), next(stream)]
        until(lambda: server.service.stats().running == 2)
        with local.engine.paused(), torch.no_grad():
            local.engine.model.lm_head.weight.neg_()
            local.engine.refresh("step-2")
        first, second = under_way.result(30), client.chat.completions.create(**settings)
        chunks += stream
    assert (first.system_fingerprint, second.system_fingerprint) == (old, "step-2")
    assert {chunk.system_fingerprint for chunk in chunks} == {old}
    assert first.choices != second.choices


def test_a_small_cache_limits_prompts_and_serves_many_in_turns(random_model: Path) -> None:
    config = ServeConfig(model=str(random_model), port=0, threads=1, cache_tokens=256)
    server = PolicyServer(config)
    server.service.encoding.stop_ids = ()
    with (
        server.running(),
        openai.OpenAI(base_url=server.url, api_key="none", max_retries=0) as client,
    ):
        assert client.models.list().data[0].model_dump()["max_model_len"] == 256
        with pytest.raises(openai.BadRequestError, match="256 tokens") as caught:
            client.completions.create(model="noise", prompt=[1] * 256)
        assert caught.value.code == "context_length_exceeded"
        settings: Any = {**LONG, "max_tokens": 100, "seed": 3}
        many = client.chat.completions.create(**settings, n=8)
        one = client.chat.completions.create(**settings)
    assert [choice.finish_reason for choice in many.choices] == ["length"] * 8
    assert many.choices[0].message == one.choices[0].message
    assert server.service.stats().preemptions > 0


def test_health_and_metrics(noise: PolicyServer) -> None:
    root = noise.url.removesuffix("/v1")
    with urllib.request.urlopen(f"{root}/health", timeout=10) as reply:
        assert reply.read() == b"ok\n"
    with urllib.request.urlopen(f"{root}/metrics", timeout=10) as reply:
        lines = reply.read().decode().splitlines()
    figures = dict(line.split() for line in lines if not line.startswith("#"))
    assert figures["envgen_requests_running"] == "0"
    assert float(figures["envgen_free_pages"]) > 0
    assert "envgen_tokens_per_second" in figures


def test_a_taken_port_is_refused_with_a_hint(noise: PolicyServer) -> None:
    config = noise.service.config.model_copy(update={"port": noise.port})
    with pytest.raises(ValueError, match="can't listen on") as caught:
        PolicyServer(config, local=noise.service.local)
    assert "--port" in caught.value.hint  # type: ignore[attr-defined]  # a ConfigError


def test_open_addresses_are_warned_of(noise: PolicyServer) -> None:
    local = noise.service.local
    config = noise.service.config.model_copy(update={"port": 0})
    everywhere = config.model_copy(update={"host": "0.0.0.0"})
    with closing(PolicyServer(config, local=local)) as server:
        assert server.warning == ""
    with closing(PolicyServer(everywhere, local=local)) as server:
        assert "--api-key-env" in server.warning
