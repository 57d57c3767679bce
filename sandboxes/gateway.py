"""The way out of a sandbox with ``network="internet"``: a proxy on this side of an empty network namespace.

The sandbox's zygote opens a listener on ``ADDRESS`` inside and hands it out before any program runs; this
process accepts from it. So what a program does not ask the proxy for it does not get, and nothing has
to be installed: package managers, git and curl find the proxy by its variables. Names are looked up here.
Connections go to addresses of the internet only: not to this machine's own, nor to those of private
networks, link-local ones (a cloud's metadata) and the like, unless ``reach`` names the host.
Where this machine itself has to ask a proxy (``https_proxy``, ``http_proxy``, ``no_proxy``), so does this
one; a name that only that proxy knows is then its to judge.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import socket
import threading
from collections.abc import Collection, Iterable, Mapping
from ipaddress import IPv4Address, ip_address, ip_network
from typing import NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit
from urllib.request import getproxies, proxy_bypass

logger = logging.getLogger(__name__)

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

ADDRESS = ("127.0.0.1", 3128)
"""Of the proxy, as a sandbox sees it."""
MOST = 128
"""Connections at a time; any other is refused."""
_HEAD_BYTES = _CHUNK = 1 << 16
_HEAD_S = 60.0
_CONNECT_S = 20.0
_WAITING = 8 * MOST
"""Connections that may wait to be accepted."""
_CLOSED = tuple(
    ip_network(block)
    for block in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",  # carriers' private range, and a cloud's metadata
        "127.0.0.0/8",
        "168.63.129.16/32",  # a cloud's host, seen from its machines
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.168.0.0/16",
        "224.0.0.0/3",
    )
)
_OPEN = ip_network("2000::/3")
"""What of IPv6 is the internet."""
_SCHEMES = ("http", "https")
_OF_ONE_HOP = ("connection", "keep-alive", "proxy-connection", "proxy-authorization")


class Host(NamedTuple):
    """A host, and its port if only that one is meant."""

    name: str
    port: int | None = None


class ProxyRequest(NamedTuple):
    """A client's request to the proxy."""

    name: str
    port: int
    head: bytes
    """What the server is to get first; empty: a tunnel is wanted."""

    @property
    def scheme(self) -> str:
        """By whose proxy it goes."""
        return "http" if self.head else "https"


class RefusedError(Exception):
    """A request that gets an answer and no connection."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


def host(text: str) -> Host:
    """Read ``name``, ``name:port`` or ``[address]:port``. Raises ValueError."""
    parts = urlsplit(f"//{text}")
    if not parts.hostname or parts.netloc != text or "@" in text:
        raise ValueError(f"{text!r} is neither a host nor host:port")
    return Host(parts.hostname, parts.port)


def hosts(texts: Iterable[str]) -> frozenset[Host]:
    """Read several. Raises ValueError."""
    return frozenset(map(host, texts))


def is_internet(address: str) -> bool:
    """Whether an address is of the internet, and not this machine's."""
    found = ip_address(address)
    if not isinstance(found, IPv4Address):
        embedded = found.ipv4_mapped or found.sixtofour or (found.teredo and found.teredo[1])
        if embedded:
            return is_internet(str(embedded))
        if found not in _OPEN:
            return False
    return not any(found in block for block in _CLOSED) and not _is_own(str(found))


def _is_own(address: str) -> bool:
    """Whether packets to it would come from it. None is sent."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, 9))
        except OSError:  # no way there
            return False
        return bool(ip_address(probe.getsockname()[0]) == ip_address(address))


class Gateway:
    """Serves a listener of another network namespace, in a thread, until it is closed.

    Args:
        listener: is its own from now on.
        reach: hosts that may be at any address.
    """

    def __init__(self, listener: socket.socket, reach: Collection[Host] = ()) -> None:
        self._listener = listener
        self._reach = frozenset(reach)
        self._proxies = getproxies()
        self._open: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="envgen-gateway", daemon=True)
        self._thread.start()

    def variables(self, known: Mapping[str, str]) -> dict[str, str]:
        """Return variables that name the proxy; ``known`` ones may hold options for Java already.

        ``127.0.0.1`` is the sandbox's own, unless it is to be reached.
        """
        name, port = ADDRESS
        url = f"http://{name}:{port}"
        own = sorted({"localhost", "127.0.0.1", "::1"} - {one.name for one in self._reach})
        java = [known.get("JAVA_TOOL_OPTIONS", "")]
        java += [f"-D{kind}.proxyHost={name} -D{kind}.proxyPort={port}" for kind in _SCHEMES]
        java += [f"-Dhttp.nonProxyHosts={'|'.join(own).replace('::1', '[::1]')}"]
        java += [
            "-Daether.connector.http.useSystemProperties=true"
        ]  # Maven from 3.9 on asks for it
        return {
            **{f"{kind}_proxy": url for kind in _SCHEMES},
            **{f"{kind}_PROXY".upper(): url for kind in _SCHEMES},
            **dict.fromkeys(("no_proxy", "NO_PROXY"), ",".join(own)),
            "JAVA_TOOL_OPTIONS": " ".join(java).strip(),
        }

    def close(self) -> None:
        """End every connection. May be called again."""
        with contextlib.suppress(RuntimeError):  # it has ended
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_CONNECT_S)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        # The kernel drops a handshake's end when the queue is full: that client would wait for its repeat.
        server = await asyncio.start_server(
            self._begin, sock=self._listener, limit=_HEAD_BYTES, backlog=_WAITING
        )
        await self._stop.wait()
        server.close()
        # What was just accepted begins only now, and Python 3.11's wait_for may lose a cancellation:
        # cancel until nothing is left.
        while left := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in self._open:
                task.cancel()
            await asyncio.wait(left, timeout=0.1)

    def _begin(self, near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        """Serve one connection in a task of its own, which may be cancelled before it starts."""
        # Decided here: many connections may be accepted before the first of their tasks runs.
        is_full = len(self._open) >= MOST
        task = asyncio.create_task(self._answer(near, back, is_full))
        self._open.add(task)
        task.add_done_callback(self._open.discard)
        task.add_done_callback(lambda _: back.close())

    async def _answer(
        self, near: asyncio.StreamReader, back: asyncio.StreamWriter, is_full: bool
    ) -> None:
        """Serve one connection, or refuse it."""
        try:
            if is_full:
                raise RefusedError(503, f"more than {MOST} connections")
            await self._forward(near, back)
        except RefusedError as error:
            logger.info("refused: %s", error)
            why = f"{error}\n".encode(errors="replace")
            head = f"HTTP/1.1 {error.status} {error}\r\nContent-Length: {len(why)}\r\n"
            back.write(head.encode(errors="replace") + b"Connection: close\r\n\r\n" + why)

    async def _forward(self, near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        try:
            head = await asyncio.wait_for(near.readuntil(b"\r\n\r\n"), _HEAD_S)
            wanted = request(head)
        except (OSError, EOFError, ValueError, TimeoutError, asyncio.LimitOverrunError) as error:
            raise RefusedError(400, "this is not a request to a proxy") from error
        (far, out), head = await self._connect(wanted)
        try:
            if head:
                out.write(head)
            else:
                back.write(b"HTTP/1.1 200 OK\r\n\r\n")
            async with asyncio.TaskGroup() as both:
                both.create_task(_copy(near, out))
                both.create_task(_copy(far, back))
        except* OSError:  # one side is gone
            pass
        finally:
            out.close()

    async def _connect(self, wanted: ProxyRequest) -> tuple[Streams, bytes]:
        """A connection, and what goes over it first."""
        name, port, head = wanted
        named = bool(self._reach & {Host(name), Host(name, port)})
        proxy = None if named or proxy_bypass(name) else self._proxies.get(wanted.scheme)
        try:
            found = await self._loop.getaddrinfo(name, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            if not proxy:
                raise RefusedError(502, f"{name}: {error}") from error
            return await _by_proxy(urlsplit(proxy), wanted)
        addresses = [str(one[4][0]) for one in found if named or is_internet(str(one[4][0]))]
        if not addresses:
            why = f"{name} is this machine or of a private network; ENVGEN_REACH={name}:{port} opens it"
            raise RefusedError(403, why)
        if proxy:
            return await _by_proxy(urlsplit(proxy), wanted)
        for address in addresses:
            with contextlib.suppress(OSError, TimeoutError):
                return await _opened(address, port), head
        raise RefusedError(502, f"{name}:{port} does not answer")


async def _opened(address: str, port: int) -> Streams:
    return await asyncio.wait_for(asyncio.open_connection(address, port), _CONNECT_S)


async def _by_proxy(proxy: SplitResult, wanted: ProxyRequest) -> tuple[Streams, bytes]:
    """A connection by this machine's own proxy: a tunnel, or the page's whole address in the request."""
    if proxy.scheme != "http" or not proxy.hostname:
        raise RefusedError(502, f"this machine's proxy {proxy.hostname} is not an http:// one")
    user = f"{unquote(proxy.username or '')}:{unquote(proxy.password or '')}"
    secret = base64.b64encode(user.encode())
    credentials = b"Proxy-Authorization: Basic " + secret + b"\r\n" if proxy.username else b""
    place = f"[{wanted.name}]" if ":" in wanted.name else wanted.name
    authority = f"{place}:{wanted.port}".encode("latin-1", "replace")
    try:
        far, out = await _opened(proxy.hostname, proxy.port or 80)
        if wanted.head:
            line, _, rest = wanted.head.partition(b"\r\n")
            method, path, version = line.split(b" ")
            line = b"%s http://%s%s %s\r\n" % (method, authority, path, version)
            return (far, out), line + credentials + rest
        out.write(
            b"CONNECT %s HTTP/1.1\r\nHost: %s\r\n%s\r\n" % (authority, authority, credentials)
        )
        answer = await asyncio.wait_for(far.readuntil(b"\r\n\r\n"), _HEAD_S)
    except (OSError, EOFError, TimeoutError, asyncio.LimitOverrunError) as error:
        raise RefusedError(502, f"this machine's proxy: {error}") from error
    status = answer.split(b" ", 2)[1:2]
    if status != [b"200"]:
        out.close()
        status_line = answer.partition(b"\r\n")[0].decode("latin-1")
        raise RefusedError(502, f"this machine's proxy: {status_line}")
    return (far, out), b""


def request(head: bytes) -> ProxyRequest:
    """Read a request to a proxy. Raises ValueError."""
    line, *fields = head.decode("latin-1").split("\r\n")[:-2]
    method, target, _ = line.split(" ")
    if method == "CONNECT":
        wanted = host(target)
        if not wanted.port:
            raise ValueError("the port is missing")
        return ProxyRequest(wanted.name, wanted.port, b"")
    parts = urlsplit(target)
    if parts.scheme != "http" or not parts.hostname:
        raise ValueError("this is not the address of a page")
    # the server is to close: what comes next on this connection may be for another
    kept = [field for field in fields if field.partition(":")[0].strip().lower() not in _OF_ONE_HOP]
    path = urlunsplit(("", "", parts.path or "/", parts.query, ""))
    first = "\r\n".join([f"{method} {path} HTTP/1.1", *kept, "Connection: close", "", ""])
    return ProxyRequest(parts.hostname, parts.port or 80, first.encode("latin-1"))


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while part := await source.read(_CHUNK):
        sink.write(part)
        await sink.drain()
    if sink.can_write_eof():
        sink.write_eof()
