"""Who may come in, and for how long: names under which the server is asked for, and slow connections."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from ipaddress import ip_address
from urllib.parse import urlsplit

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from envgen.policies.serving.errors import ApiError


def require_host(given: str, allowed: Collection[str]) -> None:
    """Refuse a request that came by a name which is not the server's.

    A web page whose own name is made to point at this machine (DNS rebinding) is of one origin with the
    server in its browser's eyes, and could use it. Its requests carry that name. An address can't be
    rebound, so each is taken.

    Args:
        given: the ``Host`` header.
        allowed: names in lower case, beside ``localhost``.

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
        f"Host {given[:100]!r} is no name of this server. If it should be, start it with "
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
    """Closes a connection whose request does not arrive in time; uvicorn waits for each byte for ever.

    The headers, and then the body, must be whole ``timeout_keep_alive`` seconds after the connection or
    what came before them.
    """

    _awaited: object = None
    """What the client has to send: h11's state, or None while it waits for us."""
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn
        """Start to wait for the first request."""
        super().connection_made(transport)
        self._watch()

    def handle_events(self) -> None:
        """As uvicorn does it; then see what is waited for."""
        super().handle_events()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is waited for any more."""
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
