"""A thread of its own for a WebSocket: messages in any frames, pings beside slow steps, both ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from envgen.integrations.own_thread import OWN_THREAD, Answered, OwnThread
from envgen.policies.serving.doors import in_thread, listen

SLOW_S = 2.5


@contextmanager
def serving(slow: bool = False) -> Iterator[tuple[str, Callable[[], None]]]:
    """An echo behind a port, its URL, and what stops it; ``bye`` ends a conversation."""

    def answer(text: str) -> Answered:
        if slow:
            time.sleep(SLOW_S)
        return Answered(text.upper(), text != "bye")

    async def socket(socket: WebSocket) -> None:
        await socket.accept()
        loop = asyncio.get_running_loop()
        await socket.scope["extensions"][OWN_THREAD](
            answer, partial(loop.run_in_executor, pool), lambda: slow
        )

    app = Starlette(routes=[WebSocketRoute("/", socket)])
    server = uvicorn.Server(
        uvicorn.Config(app, ws=OwnThread, log_config=None, timeout_graceful_shutdown=5)
    )
    place = listen("127.0.0.1", 0)
    stop = partial(setattr, server, "should_exit", True)
    with (
        place,
        ThreadPoolExecutor(2) as pool,
        in_thread(lambda: server.run(sockets=[place]), stop, 10),
    ):
        yield f"ws://127.0.0.1:{place.getsockname()[1]}/", stop


def test_messages_come_in_any_frames_and_bytes_are_an_empty_text() -> None:
    with serving() as (url, _), connect(url) as client:
        client.send(["so", "", "me ", "€", ""])
        client.send("next")
        client.send(b"\xff")
        client.send(b"\xe2\x82", text=True)  # half a character
        assert [client.recv(10) for _ in range(4)] == ["SOME €", "NEXT", "", "\ufffd"]
        client.send("bye")
        assert client.recv(10) == "BYE"
        with pytest.raises(ConnectionClosed, match="1000"):
            client.recv(10)


def test_a_slow_step_answers_pings_and_loses_no_message() -> None:
    with (
        serving(slow=True) as (url, _),
        connect(url, ping_interval=0.2, ping_timeout=1.5) as client,
    ):
        client.send("first")
        client.send("bye")
        assert [client.recv(10) for _ in range(2)] == ["FIRST", "BYE"]


@pytest.mark.parametrize("slow", [False, True])
def test_a_server_that_stops_says_so(slow: bool) -> None:
    with serving(slow) as (url, stop), connect(url) as client:
        client.send("first")
        assert client.recv(10) == "FIRST"
        stop()
        with pytest.raises(ConnectionClosed, match="1012"):
            client.recv(10)
