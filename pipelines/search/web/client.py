"""One HTTP request at a time, with a deadline, a limit of size and, for pages, public addresses only.

A name is resolved once: the address that was checked is the one that is connected to.
"""

from __future__ import annotations

import ipaddress
import re
import socket
import ssl
import time
import urllib.request
import zlib
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

import httpcore

from envgen.core.errors import EnvgenError
from envgen.policies.http import TransientError

PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses of failures that may pass with time."""
PUBLIC = "read pages of the public web"
_SAFE = "%/:=&?~+!$,;'@()*[]|"
_HOST = re.compile(r"[a-z0-9_.-]{1,253}|[0-9a-f:.]{2,45}")
_GLOBAL6 = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


class PageError(EnvgenError):
    """Raised when a page can't be read, now or later; agents are told why."""


class HttpAnswer(NamedTuple):
    """An answer of a web server."""

    status: int
    headers: dict[str, str]
    """By name in small letters."""
    body: bytes
    cut: bool
    """Whether there was more than the limit."""

    @property
    def retry_after_s(self) -> float | None:
        """Seconds that the server asks to wait, if it says."""
        text = self.headers.get("retry-after", "").strip()
        return float(text) if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text) else None


def parse_url(url: str) -> httpcore.URL:
    """An http(s) URL as it is sent: in ASCII, without a user's name.

    Raises:
        PageError: if it is no such URL.
    """
    try:
        parts = urlsplit(url.strip())
        port, host = parts.port, (parts.hostname or "")[:254]
        name = host if host.isascii() else host.encode("idna").decode()
        query = f"?{quote(parts.query, _SAFE)}" if parts.query else ""
        target = quote(parts.path or "/", _SAFE) + query
        if _HOST.fullmatch(name) and parts.scheme in ("http", "https"):
            return httpcore.URL(scheme=parts.scheme, host=name, port=port, target=target)
    except ValueError as error:  # UnicodeError is one
        raise PageError(f"{url[:200]!r} is not an http(s) address: {error}", PUBLIC) from error
    raise PageError(f"{url[:200]!r} is not an http(s) address", PUBLIC)


def send(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str],
    content: bytes = b"",
    limit: int,
    deadline: float,
    public_only: bool,
) -> HttpAnswer:
    """Send one request, and follow no redirect.

    At most ``limit`` bytes of the body are read, and all must be there by ``deadline``, a time of
    ``time.monotonic()``. With ``public_only``, private networks are refused, and no proxy is used.

    Raises:
        PageError: if the URL is none, or its host is in a private network.
        TransientError: if there is no answer in time, or none that can be unpacked.
    """
    place = parse_url(url)
    host = b"[%b]" % place.host if b":" in place.host else place.host
    sent: dict[bytes | str, bytes | str] = {
        "Host": host if place.port is None else b"%b:%d" % (host, place.port),
        "User-Agent": "envgen",
        "Accept-Encoding": "identity",
    }
    sent.update(headers.items())
    try:
        with (
            _pool(place, deadline, public_only) as pool,
            pool.stream(method, place, headers=sent, content=content) as response,
        ):
            body = _read(response.iter_stream(), limit)
            found = {k.decode("latin-1").lower(): v.decode("latin-1") for k, v in response.headers}
    except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException) as error:
        raise TransientError(f"{type(error).__name__}: {error}") from error
    body = _unpacked(body, found.get("content-encoding", "").strip().lower(), limit)
    return HttpAnswer(response.status, found, body[:limit], len(body) > limit)


def is_public(address: str) -> bool:
    """Whether an IP address is one of the public internet."""
    found = ipaddress.ip_address(address)
    if isinstance(found, ipaddress.IPv4Address):
        return found.is_global and not found.is_multicast
    inner = found.ipv4_mapped
    if found in _NAT64:
        inner = ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)
    if inner is not None:
        return is_public(str(inner))
    tunnelled = found.sixtofour is not None or found.teredo is not None
    return found in _GLOBAL6 and found.is_global and not tunnelled


def _read(chunks: Iterable[bytes], limit: int) -> bytes:
    """The body, up to the chunk that goes past the limit."""
    parts, total = [], 0
    for chunk in chunks:
        parts.append(chunk)
        total += len(chunk)
        if total > limit:
            break
    return b"".join(parts)


def _unpacked(body: bytes, encoding: str, limit: int) -> bytes:
    """The body as it was before it was compressed, which some servers do unasked."""
    if encoding in ("", "identity"):
        return body
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise TransientError(f"the answer is compressed as {encoding[:40]!r}")
    try:
        return zlib.decompressobj(wbits=47).decompress(body, limit + 1)
    except zlib.error as error:
        raise TransientError(f"the answer can't be unpacked: {error}") from error


@lru_cache(maxsize=1)
def _certificates() -> ssl.SSLContext:
    return ssl.create_default_context()


def _pool(place: httpcore.URL, deadline: float, public_only: bool) -> httpcore.ConnectionPool:
    settings: dict[str, Any] = {"network_backend": _Backend(deadline, public_only)}
    scheme, host = place.scheme.decode(), place.host.decode()
    if scheme == "https":
        settings["ssl_context"] = _certificates()
    proxy = None if public_only else urllib.request.getproxies().get(scheme)
    if proxy and not urllib.request.proxy_bypass(host):
        return httpcore.HTTPProxy(proxy_url=proxy, **settings)
    return httpcore.ConnectionPool(**settings)


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise httpcore.ReadTimeout("there was no whole answer in time")
    return left


class _TimedStream(httpcore.NetworkStream):
    """A connection that ends at a deadline, however busy it is."""

    def __init__(self, inner: httpcore.NetworkStream, deadline: float) -> None:
        self._inner, self._deadline = inner, deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._inner.read(max_bytes, _left(self._deadline))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, _left(self._deadline))

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        left = _left(self._deadline)
        inner = self._inner.start_tls(ssl_context, server_hostname, left)
        return _TimedStream(inner, self._deadline)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


class _Backend(httpcore.SyncBackend):
    """Connects to the addresses of a name, each checked before."""

    def __init__(self, deadline: float, public_only: bool) -> None:
        self._deadline, self._public_only = deadline, public_only

    def connect_tcp(
        self, host: str, port: int, timeout: float | None = None, *args: Any, **kwargs: Any
    ) -> httpcore.NetworkStream:
        failure: Exception = httpcore.ConnectError(f"{host!r} has no address")
        for address in self._addresses(host, port):
            try:
                inner = super().connect_tcp(address, port, _left(self._deadline), *args, **kwargs)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
            else:
                return _TimedStream(inner, self._deadline)
        raise failure

    def _addresses(self, host: str, port: int) -> list[str]:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise httpcore.ConnectError(f"{host!r} can't be resolved: {error}") from error
        addresses = list(dict.fromkeys(str(one[4][0]) for one in found))
        if self._public_only and not all(map(is_public, addresses)):
            raise PageError(f"{host!r} is not read: it lies in a private network", PUBLIC)
        return addresses
