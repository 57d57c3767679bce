"""HTTP for model servers: deadlines, cancellation, retries with back-off, one pool for 8 threads.

Replies are read in short waits, so that a server that hangs costs a deadline and not the run. What may
pass with time (a dropped stream, 408/425/429/5xx, a body that is no JSON) is tried again; what won't
(401, 404, 422, ...) is a PolicyError at once.
"""

from __future__ import annotations

import email.utils
import itertools
import json
import logging
import random
import re
import select
import ssl
import threading
import time
import urllib.parse
import urllib.request
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import httpcore
from pydantic import Field

from envgen.core.errors import ConfigError, PolicyError
from envgen.core.limits import Line
from envgen.core.types import Record
from envgen.policies.base import (
    CancelledPolicyError,
    ContextOverflowError,
    DeadlineExceededError,
)

logger = logging.getLogger(__name__)
T = TypeVar("T")

THREADS_PER_POOL = 8
_SLICE_S = 0.1
_RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_MAX_BODY_BYTES = 64 << 20
_MAX_PARTS = 1 << 21
"""Lists and objects of a reply; each may be 3 bytes of it and 150 bytes of memory."""
_KEY_START = 12
"""Length of the prefix by which an API key is recognised."""


class HttpConfig(Record):
    """How a model server is reached."""

    base_url: Line
    timeout_s: float = Field(default=300.0, gt=0)
    """Longest silence of the server before a request counts as dropped."""
    reply_s: float = Field(default=3600.0, gt=0)
    """Longest that one reply may take in all; a server that sends a little now and then ends it so."""
    connect_timeout_s: float = Field(default=10.0, gt=0)
    max_retries: int = Field(default=6, ge=0)
    backoff_s: float = Field(default=0.5, gt=0)
    """First wait; it doubles with each retry, with jitter, unless the server says Retry-After."""
    max_backoff_s: float = Field(default=60.0, gt=0)
    headers: dict[Line, Line] = Field(default_factory=dict)


class TransientError(Exception):
    """A failure that may pass with time; ``retry_after_s`` is what the server asked for."""

    def __init__(self, text: str, retry_after_s: float | None = None) -> None:
        super().__init__(text)
        self.retry_after_s = retry_after_s


class Waiter:
    """When to give up: the caller's deadline and cancel event, and the server's silence."""

    def __init__(
        self, deadline: float | None, cancel: threading.Event | None, silence_s: float
    ) -> None:
        self.deadline = deadline
        self.cancel = cancel
        self.silence_s = silence_s
        self.until = float("inf")
        """When the reply that is being read has taken too long in all."""

    def check(self) -> None:
        """Raise if the caller gave up or the deadline has passed."""
        if self.cancel is not None and self.cancel.is_set():
            raise CancelledPolicyError("the request was cancelled")
        if self.deadline is not None and time.monotonic() >= self.deadline:
            raise DeadlineExceededError("the model server gave no reply before the deadline")
        if time.monotonic() >= self.until:
            raise PolicyError(
                "the model server began a reply and did not end it in time",
                "look what it sends, or raise reply_s",
            )

    def sleep(self, seconds: float) -> None:
        """Wait, but not past the deadline or a cancel."""
        end = time.monotonic() + seconds
        if self.deadline is not None and end >= self.deadline:
            raise DeadlineExceededError("the model server asks to wait past the deadline")
        while (left := end - time.monotonic()) > 0:
            self.check()
            time.sleep(min(left, _SLICE_S))

    def readable(self, sock: Any) -> None:
        """Wait until ``sock`` has bytes to read."""
        end = time.monotonic() + self.silence_s
        poll = (
            select.poll()
        )  # select() takes no descriptor above 1,023, and many open episodes have more
        poll.register(sock, select.POLLIN)
        while not (isinstance(sock, ssl.SSLSocket) and sock.pending()):
            self.check()
            if poll.poll(_SLICE_S * 1_000):
                return
            if time.monotonic() >= end:
                raise httpcore.ReadTimeout(f"nothing was received for {self.silence_s:g} s")


_current = threading.local()


class _WatchedStream(httpcore.NetworkStream):
    """A connection whose reads obey the calling thread's Waiter."""

    def __init__(self, inner: httpcore.NetworkStream) -> None:
        self._inner = inner

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        waiter: Waiter | None = getattr(_current, "waiter", None)
        if waiter is not None:
            waiter.readable(self._inner.get_extra_info("socket"))
        return self._inner.read(max_bytes, timeout)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, timeout)

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        return _WatchedStream(self._inner.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


class _WatchedBackend(httpcore.SyncBackend):
    def connect_tcp(self, *args: Any, **kwargs: Any) -> httpcore.NetworkStream:
        return _WatchedStream(super().connect_tcp(*args, **kwargs))


class Http:
    """JSON over HTTP to one server; thread-safe, one connection pool for every 8 threads."""

    def __init__(self, config: HttpConfig, api_key: str | None = None) -> None:
        parts = urllib.parse.urlsplit(config.base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(
                f"{config.base_url!r} is not an http(s) URL", "write it as http://host:port/v1"
            )
        self._config = config
        self._base = config.base_url.rstrip("/")
        self._headers: dict[bytes | str, bytes | str] = {
            "Content-Type": "application/json",
            "User-Agent": "envgen",
        }
        self._headers.update(config.headers.items())
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._local = threading.local()
        self._numbers = itertools.count()
        self._pools: dict[int, httpcore.ConnectionPool] = {}
        self._lock = threading.Lock()
        self._jitter = random.Random()
        weakref.finalize(self, _close_pools, self._pools)

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            _close_pools(self._pools)

    def post(
        self,
        path: str,
        body: Mapping[str, Any],
        parse: Callable[[Iterable[bytes]], T],
        *,
        deadline: float | None = None,
        cancel: threading.Event | None = None,
    ) -> T:
        """POST ``body`` and parse the reply's chunks, trying again where that may help.

        Args:
            path: joined to the base URL; one that starts with ``/`` replaces the base URL's path.
            body: sent as JSON.
            parse: raises ``TransientError`` for a reply that is cut off or nonsense.
            deadline: ``time.monotonic()`` by which to give up.
            cancel: set to give up at once.

        Raises:
            PolicyError: for good, with the server's words.
        """
        waiter = Waiter(deadline, cancel, self._config.timeout_s)
        content = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
        for attempt in itertools.count():
            waiter.check()
            try:
                with self._key_hidden():
                    return self._once("POST", path, content, parse, waiter)
            except TransientError as error:
                if attempt >= self._config.max_retries:
                    raise PolicyError(
                        f"{self._base}: {error} ({attempt + 1} attempts)",
                        "check the server, or raise max_retries",
                    ) from error
                wait = self._config.backoff_s * 2**attempt * self._jitter.uniform(0.75, 1.25)
                if error.retry_after_s is not None:
                    wait = error.retry_after_s
                wait = min(wait, self._config.max_backoff_s)
                logger.info("%s: %s; again in %.1f s", self._base, error, wait)
                waiter.sleep(wait)
        raise AssertionError("unreachable")

    def get(self, path: str, *, within_s: float) -> dict[str, Any] | None:
        """GET a JSON object, once; None where there is none to be had in that time."""
        waiter = Waiter(time.monotonic() + within_s, None, within_s)
        try:
            return self._once("GET", path, b"", parse_json, waiter)
        except (TransientError, PolicyError):
            return None

    def _once(
        self,
        method: str,
        path: str,
        content: bytes,
        parse: Callable[[Iterable[bytes]], T],
        waiter: Waiter,
    ) -> T:
        _current.waiter = waiter
        waiter.until = time.monotonic() + self._config.reply_s
        limits = {"connect": self._config.connect_timeout_s, "write": 60.0, "pool": 60.0}
        if waiter.deadline is not None:
            left = max(0.001, waiter.deadline - time.monotonic())
            limits = {name: min(limit, left) for name, limit in limits.items()}
        try:
            with self._pool().stream(
                method,
                self._url(path),
                headers=self._headers,
                content=content,
                extensions={"timeout": limits},
            ) as response:
                if response.status != 200:
                    self._refuse(response, path)
                return parse(_capped(response.iter_stream()))
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException) as error:
            waiter.check()
            raise TransientError(f"{type(error).__name__}: {error}") from error
        finally:
            _current.waiter = None
            waiter.until = float("inf")

    def _url(self, path: str) -> str:
        if path.startswith("/"):
            return urllib.parse.urljoin(self._base, path)
        return f"{self._base}/{path}"

    def _refuse(self, response: httpcore.Response, path: str) -> None:
        body = b"".join(itertools.islice(response.iter_stream(), 16))[:2_000]
        text = body.decode("utf-8", "replace").strip()
        headers = {name.lower(): value for name, value in response.headers}
        message = f"HTTP {response.status}: {text[:300]}"
        if response.status in (400, 413, 422, 500):
            refuse_overflow(text)
        if response.status in _RETRIED:
            raise TransientError(message, _retry_after(headers))
        hint = _HINTS.get(response.status, "see the reply")
        if response.status in (301, 302, 303, 307, 308):
            hint = f"use {headers.get(b'location', b'the other URL').decode('ascii', 'replace')}"
        raise PolicyError(f"{self._url(path)}: {message}", hint, response.status)

    @contextmanager
    def _key_hidden(self) -> Iterator[None]:
        """Errors quote what a server sent, with whatever status; they are shown and stored."""
        try:
            yield
        except (TransientError, PolicyError) as error:
            error.args = tuple(
                self._without_key(one) if isinstance(one, str) else one for one in error.args
            )
            raise

    def _without_key(self, text: str) -> str:
        """Redact the API key in a server's text, also where the text was cut within the key."""
        key = str(self._headers.get("Authorization", "")).removeprefix("Bearer ")
        rest = r"[\w.~+/=-]*" if len(key) > _KEY_START else ""
        return re.sub(re.escape(key[:_KEY_START]) + rest, "[key]", text) if key else text

    def _pool(self) -> httpcore.ConnectionPool:
        """This thread's pool."""
        if not hasattr(self._local, "shard"):
            self._local.shard = next(self._numbers) // THREADS_PER_POOL
        with self._lock:
            pool = self._pools.get(self._local.shard)
            if pool is None:
                pool = self._pools[self._local.shard] = _new_pool(self._base)
            return pool


_WINDOW = re.compile(r"context.{0,3}(length|window|size|limit)", re.IGNORECASE)
_OVERFLOW = re.compile(
    r"maximum.{0,40}tokens|maximum (model|prompt|input|allowed|sequence) length|max length"
    r"|(input|prompt|message)s?\b.{0,30} too long|longer than the (model|maximum)"
    r"|too many (input )?tokens|reduce the length of the|range of input length"
    r"|max_\w*tokens\W* must be at least 1, got -"  # what the window has left, on vLLM
    r"|inputs\W+(tokens \+|must have less)"  # text-generation-inference
    r"|exceed(s|ed|ing)?\b.{0,40}(tokens|token limit|max_model_len|max_num_tokens)",
    re.IGNORECASE | re.DOTALL,
)
"""How servers say that a conversation does not fit the model's window."""
_SETTING = re.compile(
    r"max_\w*tokens\W.{0,20}too (large|high|big)|supports at most|maximum allowed number of output tokens"
    r"|tokens per (minute|day)|\b(TPM|TPD)\b",
    re.IGNORECASE,
)
"""How they say that a setting or an account's quota does not."""
_HINTS = {
    401: "set the API key's environment variable (api_key_env)",
    403: "the key may not use this model",
    404: "check the model's name and that the URL ends in /v1",
    413: "the conversation is longer than the server takes",
}


def refuse_overflow(text: str) -> None:
    """Raise where a server's words say that the conversation is longer than the model's window.

    Raises:
        ContextOverflowError: if they do; the episode then ends at its token limit.
    """
    full = _OVERFLOW.search(text) and not _SETTING.search(text)
    if full or _WINDOW.search(text):
        raise ContextOverflowError(f"the model server says: {text[:300]}")


def _close_pools(pools: dict[int, httpcore.ConnectionPool]) -> None:
    for pool in pools.values():
        pool.close()
    pools.clear()


def _new_pool(base_url: str) -> httpcore.ConnectionPool:
    parts = urllib.parse.urlsplit(base_url)
    settings: dict[str, Any] = {
        "max_connections": None,
        "max_keepalive_connections": THREADS_PER_POOL,
        "network_backend": _WatchedBackend(),
    }
    if parts.scheme == "https":
        settings["ssl_context"] = ssl.create_default_context()
    proxy = urllib.request.getproxies().get(parts.scheme)
    if proxy and not urllib.request.proxy_bypass(parts.netloc):
        return httpcore.HTTPProxy(proxy_url=proxy, **settings)
    return httpcore.ConnectionPool(**settings)


def _capped(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The reply's chunks, up to a size that no sane reply reaches."""
    total = 0
    for chunk in chunks:
        total += len(chunk)
        if total > _MAX_BODY_BYTES:
            raise PolicyError(f"the reply is longer than {_MAX_BODY_BYTES >> 20} MiB")
        yield chunk


def _retry_after(headers: Mapping[bytes, bytes]) -> float | None:
    """Seconds that the server asks to wait: ``retry-after-ms``, or Retry-After as seconds or a date."""
    text = headers.get(b"retry-after", b"").decode("ascii", "replace").strip()
    millis = headers.get(b"retry-after-ms", b"").decode("ascii", "replace").strip()
    try:
        return max(0.0, float(millis) / 1000 if millis else float(text))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    except (TypeError, ValueError, OverflowError):  # a year or an offset that no clock has
        return None


def parse_json(chunks: Iterable[bytes]) -> dict[str, Any]:
    """A whole JSON object.

    Raises:
        TransientError: for anything else, such as a proxy's HTML page.
        ContextOverflowError: if it reports that the conversation is too long.
    """
    body = b"".join(chunks)
    if body.count(b"[") + body.count(b"{") > _MAX_PARTS:
        raise TransientError(f"the reply has more than {_MAX_PARTS} parts")
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        start = body[:80].decode("utf-8", "replace")
        raise TransientError(f"the reply is not valid JSON: {start!r}") from None
    if not isinstance(value, dict):
        raise TransientError("the reply is not a JSON object")
    if isinstance(value.get("error"), dict | str) and value["error"]:
        message = str(value["error"])[:2_000]
        refuse_overflow(message)  # a stream has begun with status 200 before the prompt was counted
        raise TransientError(f"the server reports: {message[:300]}")
    return value


def parse_events(chunks: Iterable[bytes]) -> Iterator[dict[str, Any] | None]:
    """The JSON objects of a server-sent event stream; None, at last, for ``[DONE]``.

    Raises:
        TransientError: when an event is no JSON or reports an error.
    """
    pending = bytearray()  # a line that comes in many pieces is searched and copied once
    for chunk in itertools.chain(chunks, (b"\n",)):
        if b"\n" not in chunk:
            pending += chunk
            continue
        *lines, rest = (bytes(pending) + chunk).split(b"\n")
        pending = bytearray(rest)
        for line in lines:
            field, _, value = line.strip().partition(b":")
            if field != b"data":
                if line.lstrip()[:1] in (b"<", b"{"):
                    raise TransientError(
                        f"the reply is not an event stream: {line[:80].decode('utf-8', 'replace')!r}"
                    )
                continue
            if value.strip() == b"[DONE]":
                yield None
                return
            yield parse_json([value])
