"""Read GitHub's API: pages, rate limits, conditional requests; a run that ends early goes on later.

What passes with time (5xx, a dropped line, a rate limit whose end is near) is waited for; what does not
(a refused token, a missing repository, a limit that lasts longer than ``max_wait_s``) is an error that
names what to do. The token goes to the API's own host only.
"""

from __future__ import annotations

import json
import logging
import re
import ssl
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpcore
from pydantic import Field

from envgen.core.errors import ConfigError, PipelineError
from envgen.core.limits import Line
from envgen.core.types import Record
from envgen.pipelines.code.github_answers import Answer, AnswerCache

logger = logging.getLogger(__name__)

_PASSING = frozenset({408, 500, 502, 503, 504})
_MAX_BODY_BYTES = 64 << 20
_NEXT = re.compile(r'<([^>]+)>\s*;[^,]*\brel="?next"?')


class GitHubError(PipelineError):
    """Raised when the API can't give what was asked."""


class TokenError(GitHubError):
    """Raised when the API refuses the token."""


class ExhaustedError(GitHubError):
    """Raised when the rate limit lasts longer than the caller waits; what is stored stays."""


class GitHubConfig(Record):
    """How the API is reached."""

    api: Line = "https://api.github.com"
    """For GitHub Enterprise ``https://HOST/api/v3``."""
    timeout_s: float = Field(default=60.0, gt=0)
    """Longest silence before a request counts as dropped."""
    max_retries: int = Field(default=5, ge=0)
    """After failures that may pass."""
    backoff_s: float = Field(default=1.0, ge=0)
    """First wait after a failure that may pass; it doubles each time."""
    secondary_wait_s: float = Field(default=60.0, ge=0)
    """Wait after a secondary rate limit that names no time."""
    max_wait_s: float = Field(default=3_700.0, ge=0)
    """Longest wait for a rate limit to end; primary limits last an hour."""


@dataclass(frozen=True)
class Page:
    """One answer."""

    url: str
    body: Any
    """Parsed JSON."""
    following: str | None
    """Address of the next page, from the Link header."""
    cached: bool
    """True when the server said that nothing changed (304): such a request is free."""


class GitHub:
    """A client of one API host. One request at a time, as GitHub asks."""

    def __init__(
        self,
        config: GitHubConfig | None = None,
        *,
        token: str | None = None,
        cache: Path | None = None,
    ) -> None:
        """Make a client.

        Args:
            config: where the API is, and how long to wait for what.
            token: without one GitHub answers 60 requests an hour.
            cache: a folder for answers, asked again with ``If-None-Match``; None keeps none.
        """
        self.config = config or GitHubConfig()
        self.token = token
        self.cache = AnswerCache(cache) if cache else None
        self.requests = 0
        """Requests sent, retries included."""
        self._base = urllib.parse.urlsplit(self.config.api)
        if self._base.scheme not in ("http", "https") or not self._base.hostname:
            raise ConfigError(
                f"{self.config.api!r} is not an http(s) URL", "write it like https://HOST/api/v3"
            )
        self._pool = _new_pool(self._base)
        self._blocked_until = 0.0

    def __enter__(self) -> GitHub:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._pool.close()

    def get(self, path: str, **query: str | int) -> Page:
        """One answer.

        Args:
            path: like ``/repos/owner/name``, or the address of a page that followed another.
            query: parameters.

        Raises:
            TokenError: if the token is refused.
            ExhaustedError: if the rate limit lasts longer than ``max_wait_s``.
            GitHubError: for anything else that waiting does not mend.
        """
        url = self._url(path, query)
        kept = self.cache.get(url) if self.cache else None
        answer = self._answer(url, kept.etag if kept else "")
        if answer.status == 304 and kept:
            return Page(url, json.loads(kept.body), kept.next or None, True)
        body = json.loads(answer.text)  # _answer made sure that it is JSON
        following = _NEXT.search(answer.headers.get("link", ""))
        page = Page(url, body, following.group(1) if following else None, False)
        if self.cache:
            self.cache.put(url, answer, page.following)
        return page

    def pages(self, path: str, **query: str | int) -> Iterator[Page]:
        """An answer and those that follow it."""
        page = self.get(path, per_page=100, **query)
        seen = {page.url}
        yield page
        while page.following and page.following not in seen:
            page = self.get(page.following)
            seen.add(page.url)
            yield page

    def _url(self, path: str, query: Mapping[str, str | int]) -> str:
        url = path if "://" in path else self.config.api.rstrip("/") + path
        parts = urllib.parse.urlsplit(url)
        if (parts.scheme, parts.netloc) != (self._base.scheme, self._base.netloc):
            raise GitHubError(
                f"the API points to another host: {url!r}",
                "check the api setting; nothing was sent",
            )
        return (
            f"{url}{'&' if parts.query else '?'}{urllib.parse.urlencode(query)}" if query else url
        )

    def _answer(self, url: str, etag: str) -> Answer:
        """The final answer: 200 with JSON, or 304."""
        failures = redirects = 0
        while True:
            self._wait(self._blocked_until - time.time(), "the rate limit")
            message, wait = "", None
            try:
                answer = self._send(url, etag)
            except (
                httpcore.NetworkError,
                httpcore.ProtocolError,
                httpcore.TimeoutException,
            ) as error:
                message = f"{type(error).__name__}: {error}"
            else:
                if answer.status in (200, 304):
                    message = answer.flaw
                    if not message:
                        return answer
                elif answer.status in (301, 302, 307, 308) and redirects < 5:
                    redirects += 1
                    url = self._url(
                        urllib.parse.urljoin(url, answer.headers.get("location", "")), {}
                    )
                    continue
                elif (wait := self._limit(answer)) is not None:
                    self._wait(wait, "the rate limit", answer)
                elif answer.status not in _PASSING:
                    raise self._refusal(url, answer)
                message = message or f"HTTP {answer.status}: {answer.message}"
            failures += 1
            if failures > self.config.max_retries:
                raise GitHubError(f"{url}: {message} ({failures} attempts)", "try again later")
            if wait is None:
                self._wait(self.config.backoff_s * 2 ** (failures - 1), message)

    def _send(self, url: str, etag: str) -> Answer:
        headers: dict[bytes | str, bytes | str] = {
            "Accept": "application/vnd.github+json",
            "User-Agent": "envgen",
            "X-GitHub-Api-Version": "2022-11-28",
            **({"Authorization": f"Bearer {self.token}"} if self.token else {}),
            **({"If-None-Match": etag} if etag else {}),
        }
        names = ("connect", "read", "write", "pool")
        extensions = {"timeout": dict.fromkeys(names, self.config.timeout_s)}
        self.requests += 1
        with self._pool.stream("GET", url, headers=headers, extensions=extensions) as response:
            chunks, total = [], 0
            for chunk in response.iter_stream():
                chunks.append(chunk)
                total += len(chunk)
                if total > _MAX_BODY_BYTES:
                    raise GitHubError(
                        f"{url}: the answer is longer than {_MAX_BODY_BYTES >> 20} MiB"
                    )
            found = {k.decode("latin-1").lower(): v.decode("latin-1") for k, v in response.headers}
            answer = Answer(response.status, found, b"".join(chunks))
        if answer.number("x-ratelimit-remaining") == 0 and answer.status in (200, 304):
            self._blocked_until = time.time() + answer.until_reset_s
        return answer

    def _limit(self, answer: Answer) -> float | None:
        """Seconds to wait if the answer is a rate limit's; None if it is none."""
        if answer.status not in (403, 429):
            return None
        if (after := answer.number("retry-after")) is not None:
            return max(0.0, after)
        if answer.number("x-ratelimit-remaining") == 0:
            return answer.until_reset_s
        if answer.status == 429 or "rate limit" in answer.message.lower():
            return self.config.secondary_wait_s
        return None

    def _wait(self, seconds: float, why: str, answer: Answer | None = None) -> None:
        if seconds <= 0:
            return
        if seconds > self.config.max_wait_s:
            detail = f": {answer.message}" if answer and answer.message else ""
            more = "" if self.token else "; without a token GitHub answers 60 requests an hour"
            raise ExhaustedError(
                f"{self.config.api}: {why} ends in {seconds:,.0f} s{detail}",
                f"run again then (what is stored stays), or raise max_wait_s{more}",
            )
        logger.info("%s: waiting %.1f s (%s)", self.config.api, seconds, why)
        time.sleep(seconds)

    def _refusal(self, url: str, answer: Answer) -> GitHubError:
        message = f"{url}: HTTP {answer.status}: {answer.message}"
        if answer.status == 401:
            return TokenError(message, "set the token's environment variable to a valid token")
        if answer.status == 403:
            return GitHubError(
                message, "the token may not read this; give it access, or use another"
            )
        if answer.status in (404, 410, 451):
            return GitHubError(
                message, "check owner/name; a private one needs a token that may read it"
            )
        return GitHubError(message, "see the answer")


def _new_pool(base: urllib.parse.SplitResult) -> httpcore.ConnectionPool:
    context = ssl.create_default_context() if base.scheme == "https" else None
    proxy = urllib.request.getproxies().get(base.scheme)
    if proxy and not urllib.request.proxy_bypass(base.netloc):
        return httpcore.HTTPProxy(proxy_url=proxy, ssl_context=context)
    return httpcore.ConnectionPool(ssl_context=context)
