"""A thread of its own for each WebSocket, once uvicorn has accepted it.

To hand a step from the event loop to a pool and back costs more than most steps (170 of 340 microseconds of
processor): two threads wake one another, and wait for the interpreter's lock. So a thread reads, answers and
writes by itself. Steps of slow families go to the pool all the same, while the thread answers pings.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError, Future, wait
from functools import partial
from typing import Any, NamedTuple

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol

OWN_THREAD = "envgen.own_thread"
"""Name of the extension of the ASGI scope by which an endpoint asks for a thread."""

_PING_S = 20.0
"""Seconds of silence before a client gets a ping; it has as long to answer, or to take what we write."""
_LOOK_S = 0.25
"""Between two looks for pings, during a slow step."""
_CHUNK = 1 << 16
_WAITING = 64
"""Messages that a client may send ahead, beside a slow step."""
_LINGER_S = 0.1
"""Seconds from the last message to the close: websockets' threaded client may lose a message otherwise."""
_NORMAL, _UNHEARD, _GOING_AWAY = 1000, 1011, 1012


class Answered(NamedTuple):
    """What a client is told."""

    text: str | None
    """None if nothing is sent."""
    goes_on: bool
    """Whether the conversation does."""


Answer = Callable[[str], Answered]
Hop = Callable[[Callable[[], Answered]], Awaitable[Answered]]


class OwnThread(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket, whose ASGI scope has the extension ``OWN_THREAD``.

    It is called with ``answer`` (text of a message -> reply), ``hop`` (runs it in a pool) and ``is_slow``
    (whether the next step belongs there), and returns when the conversation has ended.
    """

    _line: socket.socket | None = None

    def handle_connect(self, event: Request) -> None:
        """Offer the extension."""
        super().handle_connect(event)
        if not self.close_sent:
            extensions: dict[str, Any] = self.scope["extensions"]
            extensions[OWN_THREAD] = self._converse

    def shutdown(self) -> None:
        """Tell the client that the server goes away."""
        if self._line is None:
            super().shutdown()
        else:
            self._hang_up()

    async def _converse(self, answer: Answer, hop: Hop, is_slow: Callable[[], bool]) -> None:
        early: list[dict[str, Any]] = []
        while not self.queue.empty():
            early.append(dict(self.queue.get_nowait()))
        self.stop_keepalive()
        self.transport.pause_reading()
        ended = self.loop.create_future()
        line = socket.socket(fileno=os.dup(self.transport.get_extra_info("socket").fileno()))
        talk = _SocketThread(self.conn, line, answer, partial(self._in_pool, hop), is_slow)
        talk.inbox.extend(one.get("text") or "" for one in early if "code" not in one)

        def run() -> None:
            try:
                talk.run()
            finally:
                with contextlib.suppress(RuntimeError):  # the server has ended
                    self.loop.call_soon_threadsafe(_settle, ended)

        self._line = line
        threading.Thread(target=run, name="envgen-socket", daemon=True).start()
        try:
            await ended
        finally:
            self._hang_up()  # where the server stopped waiting

    def _in_pool(self, hop: Hop, work: Callable[[], Answered]) -> Future[Answered]:
        async def done() -> Answered:
            return await hop(work)

        return asyncio.run_coroutine_threadsafe(done(), self.loop)

    def _hang_up(self) -> None:
        if self._line is not None:
            with contextlib.suppress(OSError):  # the thread has ended
                self._line.shutdown(socket.SHUT_RD)


def _settle(ended: asyncio.Future[None]) -> None:
    if not ended.done():
        ended.set_result(None)


class _SocketThread:
    """Runs in the thread; nothing else touches ``conn`` meanwhile."""

    def __init__(
        self,
        conn: ServerProtocol,
        line: socket.socket,
        answer: Answer,
        in_pool: Callable[[Callable[[], Answered]], Future[Answered]],
        is_slow: Callable[[], bool],
    ) -> None:
        self._conn, self._line = conn, line
        self._answer, self._in_pool, self._is_slow = answer, in_pool, is_slow
        self.inbox: deque[str] = deque()
        self._parts: list[bytes] = []
        self._is_text = self._is_open = True
        self._pinged = False

    def run(self) -> None:
        """Answer until either side ends it; the line is closed then."""
        # The client is gone or takes nothing; the server stopped beside a slow step.
        with self._line, contextlib.suppress(OSError, CancelledError):
            self._line.settimeout(_PING_S)
            while self._is_open:
                if self.inbox:
                    self._say(self._replied(self.inbox.popleft()))
                else:
                    self._listen()

    def _say(self, reply: Answered) -> None:
        if self._is_open and reply.text is not None:
            self._conn.send_text(reply.text.encode())
            self._flush()
        if not reply.goes_on:
            time.sleep(_LINGER_S)
            self._end(_NORMAL)
            self._flush()

    def _end(self, code: int) -> None:
        if self._is_open:
            self._is_open = False
            self._conn.send_close(code)

    def _flush(self) -> None:
        self._line.sendall(b"".join(self._conn.data_to_send()))

    def _replied(self, text: str) -> Answered:
        if not self._is_slow():
            return self._answer(text)
        under_way = self._in_pool(partial(self._answer, text))
        while not wait([under_way], _LOOK_S).done:
            self._look()
        return under_way.result()

    def _look(self) -> None:
        """Answer pings, if there are any."""
        self._line.settimeout(0)
        try:
            if self._is_open and len(self.inbox) < _WAITING:
                self._take(self._line.recv(_CHUNK))
        except BlockingIOError:
            pass
        finally:
            self._line.settimeout(_PING_S)

    def _listen(self) -> None:
        try:
            self._take(self._line.recv(_CHUNK))
        except TimeoutError:
            if self._pinged:
                self._end(_UNHEARD)
            else:
                self._conn.send_ping(b"envgen")
                self._pinged = True
            self._flush()

    def _take(self, data: bytes) -> None:
        self._pinged = False
        if not data:  # the client is gone, or the server stops
            self._end(_GOING_AWAY)
        else:
            self._conn.receive_data(data)
            for event in self._conn.events_received():
                if isinstance(event, Frame):
                    self._hear(event)
            if self._conn.state is not State.OPEN:  # it has queued its own answer
                self._is_open = False
        self._flush()

    def _hear(self, frame: Frame) -> None:
        if frame.opcode in (Opcode.TEXT, Opcode.BINARY):
            self._is_text, self._parts = frame.opcode is Opcode.TEXT, []
        elif frame.opcode is not Opcode.CONT:
            return
        if frame.data:  # there may be any number of empty ones
            self._parts.append(bytes(frame.data))
        if frame.fin:
            # Bytes, and text that is not UTF-8, are no JSON, and so is the empty text.
            whole = b"".join(self._parts) if self._is_text else b""
            self.inbox.append(whole.decode(errors="replace"))
