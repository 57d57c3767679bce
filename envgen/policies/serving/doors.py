"""A server's front: its port, allowed host names, time limits for slow clients, and a quiet end."""

from __future__ import annotations

import asyncio
import hmac
import socket
import threading
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import contextmanager
from ipaddress import ip_address
from urllib.parse import urlsplit

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from envgen.core.errors import ConfigError
from envgen.policies.serving.errors import ApiError

LOOPBACK = ("127.0.0.1", "localhost", "::1")
_BACKLOG = 1_024


def listen(host: str, port: int) -> socket.socket:
    """A listening socket.

    Raises:
        ConfigError: if the port can't be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With its protocol named: only then does asyncio set TCP_NODELAY, without which every answer on a
    # connection that stays open waits 40 ms for the client's delayed acknowledgement.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(_BACKLOG)  # clients may come at once; they are served when the server runs
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"can't listen on {host}:{port}: {error.strerror or error}",
            "choose another --port (0: any free one) or --host",
        ) from error
    return listener


class QuietServer(uvicorn.Server):
    """Just returns when it is told to stop."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Ctrl-C and SIGTERM end ``run``; uvicorn would raise them again once it has ended."""
        with super().capture_signals():
            try:
                yield
            finally:
                self._captured_signals.clear()


def require_host(given: str, allowed: Collection[str]) -> None:
    """Refuse a request whose ``Host`` header does not name this server.

    A web page whose name was made to resolve to this machine (DNS rebinding) has the same origin as the
    server in the browser's eyes, and could use it. Its requests carry that name. IP addresses can't be
    rebound, so all of them are accepted.

    Args:
        given: the ``Host`` header.
        allowed: further names besides ``localhost``, in lower case.

    Raises:
        ApiError: 403.
    """
    try:
        name = (urlsplit(f"//{given}").hostname or "").rstrip(".")
    except ValueError:
        name = ""
    if name == "localhost" or name in allowed or _is_address(name):
        return
    raise ApiError(
        f"Host {given[:100]!r} is not a name of this server. If it should be, start it with "
        "--allow-host NAME or with a key.",
        status=403,
        code="unknown_host",
    )


def require_own_page(origin: str | None, host: str) -> None:
    """Refuse what a web page's script sends, unless the page came from this server.

    Args:
        origin: the ``Origin`` header, which browsers send; that of a sandboxed frame says "null".
        host: the ``Host`` header.

    Raises:
        ApiError: 403.
    """
    if origin is not None and origin.partition("://")[2] != host:
        raise ApiError("Pages of other origins may not ask here.", status=403, code="origin")


def require_key(given: str, keys: Sequence[str]) -> str:
    """The one of the server's keys that a request's ``Authorization`` header holds.

    Raises:
        ApiError: 401, if it holds none.
    """
    found = [one for one in keys if hmac.compare_digest(given.encode(), f"Bearer {one}".encode())]
    if not found:
        raise ApiError(
            "Incorrect or missing API key; send it as 'Authorization: Bearer KEY'.",
            status=401,
            code="invalid_api_key",
            headers={"WWW-Authenticate": "Bearer"},
        )
    return found[0]


@contextmanager
def in_thread(
    run: Callable[[], None], stop: Callable[[], None], patience_s: float
) -> Generator[None]:
    """Run a server in a thread of its own for as long as the block lasts."""
    thread = threading.Thread(target=run, name="envgen-server", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop()
        thread.join(patience_s)


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


class TimedProtocol(H11Protocol):
    """Closes a connection whose request does not arrive in time; uvicorn would wait for ever.

    The headers must be complete ``timeout_keep_alive`` seconds after the connection opened or the last
    request ended, and the body as long after the headers.
    """

    _awaited: object = None
    """What the client has to send: h11's state, or None while it waits for us."""
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn
        """Start waiting for the first request."""
        super().connection_made(transport)
        self._watch()

    def handle_events(self) -> None:
        """Let uvicorn handle the events, then set the timer for what is expected next."""
        super().handle_events()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._stop()
        super().connection_lost(exc)

    def _watch(self) -> None:
        state = self.conn.their_state
        awaited = state if state in (h11.IDLE, h11.SEND_BODY) else None
        if awaited is self._awaited:
            return  # more bytes of the same do not buy more time
        self._stop()
        self._awaited = awaited
        if awaited is not None and not self.transport.is_closing():
            self._timer = self.loop.call_later(self.timeout_keep_alive, self.transport.close)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
