"""Guards of the server's connections: allowed host names, and time limits for slow clients."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from ipaddress import ip_address
from urllib.parse import urlsplit

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from envgen.policies.serving.errors import ApiError


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
