"""What a keyless server on this machine must stand: other hosts' names, slow clients, far too much text."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from envgen.policies.server import PolicyServer, ServeConfig

MODELS, CHAT = "/v1/models", "/v1/chat/completions"


@pytest.fixture(scope="module")
def hasty(random_model: Path) -> Iterator[PolicyServer]:
    """A server that waits for one second only."""
    config = ServeConfig(
        model=str(random_model), port=0, threads=1, idle_s=1, allow_hosts=("Friend.example",)
    )
    with PolicyServer(config).running() as server:
        yield server


def asked(server: PolicyServer, host: str, **headers: str) -> tuple[int, dict[str, Any]]:
    """The answer to a request that came by the name ``host``."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    try:
        connection.request("GET", MODELS, headers={"Host": host, **headers})
        reply = connection.getresponse()
        return reply.status, json.load(reply)
    finally:
        connection.close()


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example", "[x"]
)  # fmt: skip
def test_without_a_key_foreign_names_are_refused(hasty: PolicyServer, host: str) -> None:
    status, reply = asked(hasty, host)
    assert (status, reply["error"]["code"]) == (403, "unknown_host")
    assert "--allow-host" in reply["error"]["message"]


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:8000", "127.0.0.1:1", "[::1]:8000", "friend.example:80"]
)
def test_own_names_and_addresses_are_taken(hasty: PolicyServer, host: str) -> None:
    assert asked(hasty, host)[0] == 200


def test_scripts_of_foreign_pages_are_refused(hasty: PolicyServer) -> None:
    own = f"127.0.0.1:{hasty.port}"
    assert asked(hasty, own, Origin=f"http://{own}")[0] == 200
    for origin in ("http://evil.example", "null", "file://"):
        assert asked(hasty, own, Origin=origin)[0] == 403


def test_with_a_key_any_name_will_do(random_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINY_KEY", "sesame")
    config = ServeConfig(model=str(random_model), port=0, threads=1, api_key_env="TINY_KEY")
    with PolicyServer(config).running() as server:
        assert asked(server, "model.example", Authorization="Bearer sesame")[0] == 200
        assert asked(server, "model.example")[0] == 401


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /health HTTP/1.1\r\n",
        b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: 999\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /health HTTP/1.1\r\n",
    ],
    ids=["nothing", "headers", "body", "second request"],
)
def test_a_client_that_drips_is_cut_off(hasty: PolicyServer, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", hasty.port), timeout=30) as slow:
        slow.settimeout(0.1)
        slow.sendall(sent)
        for _ in range(600):  # a minute of one byte each tenth of a second
            try:
                if not slow.recv(65_536):
                    return
            except TimeoutError:
                if sent:
                    slow.sendall(b"x")
            except ConnectionError:
                return
    pytest.fail("the server still waits")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "TEXT"}]}),
        ("/v1/completions", {"prompt": "TEXT"}),
        ("/v1/completions", {"prompt": ["x", "TEXT"]}),
        ("/tokenize", {"prompt": "TEXT"}),
        ("/tokenize", {"messages": [{"role": "user", "content": "TEXT"}]}),
    ],
)
def test_text_beyond_any_window_is_never_tokenized(
    noise: PolicyServer, path: str, body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = noise.service.encoding.tokenizer
    longest = max(len(tokenizer.token_bytes(i)) for i in range(tokenizer.vocab_size))
    text = "hotel " * (longest * noise.service.local.window)
    content = json.dumps({"model": "noise", **body}).replace("TEXT", text)
    seen: list[int] = []
    for name in ("_full", "_plain"):
        monkeypatch.setattr(tokenizer, name, _Watched(getattr(tokenizer, name), seen))
    connection = http.client.HTTPConnection("127.0.0.1", noise.port, timeout=60)
    try:
        connection.request("POST", path, content, {"Content-Type": "application/json"})
        reply = connection.getresponse()
        error = json.load(reply)["error"]
    finally:
        connection.close()
    assert (reply.status, error["code"]) == (400, "context_length_exceeded")
    assert sum(seen) < 1_000


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ('"messages": [' + "{}, " * 1_000_000 + "{}]", "invalid_value"),
        ('"messages": [' + "1, " * 1_000_000 + "1]", "invalid_value"),
        (", ".join(f'"k{i}": 1' for i in range(300_000)), "unknown_parameter"),
    ],
    ids=["messages without a role", "messages that are none", "parameters that are none"],
)
def test_others_are_answered_while_a_long_body_is_read(
    noise: PolicyServer, body: str, code: str
) -> None:
    answered: list[dict[str, Any]] = []

    def send() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", noise.port, timeout=60)
        content = f'{{"model": "noise", {body}}}'
        connection.request("POST", CHAT, content, {"Content-Type": "application/json"})
        answered.append(json.load(connection.getresponse()))
        connection.close()

    sender = Thread(target=send)
    sender.start()
    others = 0
    while sender.is_alive():
        assert asked(noise, "127.0.0.1")[0] == 200
        others += 1
    assert (
        others >= 5
    )  # one waits for all of it, and perhaps one more, where the server reads in its loop
    assert answered[0]["error"]["code"] == code


class _Watched:
    """The real tokenizer, which notes how much it was given."""

    def __init__(self, tokenizer: Any, seen: list[int]) -> None:
        self._tokenizer, self._seen = tokenizer, seen

    def encode(self, text: str, **options: Any) -> Any:
        self._seen.append(len(text))
        return self._tokenizer.encode(text, **options)
