"""Clients that go away: whatever was under way for them ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from starlette.types import Receive, Scope, Send

T = TypeVar("T")


class ClientGoneError(Exception):
    """Raised when the client closed the connection before its answer was there."""


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """The result of ``work``, which is cancelled when the client goes away.

    Args:
        receive: of a request whose body has been read.
        work: what the client waits for.

    Raises:
        ClientGoneError: if it went away.
    """
    worker = asyncio.ensure_future(work)
    watcher = asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait({worker, watcher}, return_when=asyncio.FIRST_COMPLETED)
        if not worker.done():
            raise ClientGoneError("the client closed the connection")
        return worker.result()
    finally:
        for task in (worker, watcher):
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class EventStream:
    """A server-sent event stream that ends when the client does.

    Args:
        events: whole events, as bytes.
        on_end: called once the stream is over, however it ended.
    """

    def __init__(self, events: AsyncIterator[bytes], on_end: Callable[[], None]) -> None:
        self._events = events
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer as an ASGI application."""
        headers = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"cache-control", b"no-cache"),
            (b"x-accel-buffering", b"no"),
        ]
        try:
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await unless_gone(receive, self._pump(send))
        except ClientGoneError:
            pass
        finally:
            self._on_end()

    async def _pump(self, send: Send) -> None:
        async for chunk in self._events:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await asyncio.sleep(0)  # let other streams go on, and a lost connection be noticed
        await send({"type": "http.response.body", "body": b"", "more_body": False})
