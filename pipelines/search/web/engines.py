"""Search engines of the web, each over its HTTP API: SearXNG, Serper, Tavily and Brave.

Keys come from environment variables when a search is sent, so that a cache replays without them; they go to
the engine's own host, and stand in no error. What may pass with time (429, 5xx, a dropped line) is tried
again.
"""

from __future__ import annotations

import html
import itertools
import json
import logging
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, NamedTuple, Protocol
from urllib.parse import urlencode

from pydantic import AliasChoices, AliasPath, BaseModel, Field, StringConstraints, ValidationError

from envgen.core.environ import secret
from envgen.core.errors import ConfigError, SearchEngineError
from envgen.core.limits import Json, Label, Object, Text
from envgen.core.registry import near_names
from envgen.core.types import Record
from envgen.pipelines.search.web.client import PASSING, HttpAnswer, PageError, parse_url, send
from envgen.policies.http import TransientError

logger = logging.getLogger(__name__)

MAX_ANSWER_BYTES = 2 << 20
ANSWER_SECONDS = 30.0
MAX_WAIT_S = 60.0
"""A server that asks for a longer wait has spent its quota."""
_MARKS = re.compile(r"</?(?:strong|b|em|i)>")
WebAddress = Annotated[
    str, StringConstraints(pattern=r"^https?://[^\s\x00-\x1f\x7f]+$", max_length=4_096)
]
"""Where a page is; whether it may be read is another question."""


class KeyRefusedError(SearchEngineError):
    """Raised when an engine refuses its key."""


class QuotaSpentError(SearchEngineError):
    """Raised when an engine answers no more searches for now: an account's quota or rate is spent."""


class WebHit(Record):
    """A page that a search found."""

    title: Label
    url: WebAddress
    snippet: Label = ""
    date: Label = ""
    """As the engine writes it; empty if it does not say."""


class WebEngine(Protocol):
    """A search engine of the web; safe to share between threads."""

    @property
    def name(self) -> str:
        """The engine's name, which its answers are kept under."""
        ...

    def search(self, query: str, page: int = 1) -> list[WebHit]:
        """A page of what the engine finds, best first; nothing past its last page.

        Raises:
            ConfigError: if the key's environment variable is not set.
            SearchEngineError: if there is no answer, or none that can be used.
        """
        ...


def open_engine(spec: str, *, max_retries: int = 4, backoff_s: float = 0.5) -> WebEngine:
    """The engine that a spec names: ``searxng:URL``, ``serper``, ``tavily`` or ``brave``.

    The key is read from SERPER_API_KEY, TAVILY_API_KEY or BRAVE_API_KEY at each search.

    Args:
        spec: ``@URL`` after a name points to another server that speaks the same API.
        max_retries: after failures that may pass.
        backoff_s: first wait after such a failure; it doubles each time, unless the server says Retry-After.

    Raises:
        ConfigError: if there is no such engine, or the URL is none.
    """
    name = re.split("[:@]", spec, maxsplit=1)[0].strip()
    url = spec.partition(name)[2][1:].strip()
    kind = _KINDS.get(name)
    if kind is None:
        raise ConfigError(f"unknown web search engine {name[:40]!r}{near_names(name, _KINDS)}")
    base = (url or kind.url).rstrip("/")
    if not base:
        raise ConfigError(f"{name!r} needs the URL of a server", f"write it as {name}:http://HOST")
    if "@" in base or "?" in base:
        raise ConfigError(f"the URL of {name!r} holds a user's name or a query", "write it without")
    try:
        parse_url(base)
    except PageError as error:
        raise ConfigError(f"{name!r}: {error}", f"write it as {name}@https://HOST") from error
    return HttpEngine(name, base, max_retries, backoff_s)


@dataclass(frozen=True)
class HttpEngine:
    """An engine over HTTP; see ``open_engine``."""

    name: str
    base: str
    max_retries: int
    backoff_s: float

    def search(self, query: str, page: int = 1) -> list[WebHit]:
        """See ``WebEngine``."""
        kind = _KINDS[self.name]
        query = cut_query(query.encode("utf-8", "replace").decode(), kind.chars, kind.words)
        if not query:
            raise SearchEngineError(f"{self.name} got an empty query", "search for some words")
        if not 1 <= page <= kind.pages:
            return []
        key = secret(kind.key_env, required=kind.key_env is not None) or ""
        if not re.fullmatch(r"[!-~]*", key):
            raise KeyRefusedError(
                f"{kind.key_env} holds characters that no key has", "set it again"
            )
        body = self._ask(kind, kind.fields(query, page), key)
        try:
            found = _Found.model_validate_json(body)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            no_json = first["type"] == "json_invalid"
            what = (
                "no JSON"
                if no_json
                else f"an answer of another form: {first['loc']}: {first['msg']}"
            )
            raise SearchEngineError(f"{self.name} gave {what}", self._elsewhere) from None
        if found.rows is None and self.name != "brave":  # which leaves out what it did not find
            raise SearchEngineError(f"{self.name} gave JSON without results", self._elsewhere)
        hits = [hit for row in found.rows or () if (hit := row.hit(kind.marks)) is not None]
        if not hits and found.unresponsive_engines:
            raise SearchEngineError(
                f"{self.name} found nothing: its engines fail, {found.unresponsive_engines!s:.200}",
                "wait, or enable other engines in its settings.yml",
            )
        return list({hit.url: hit for hit in reversed(hits)}.values())[::-1]

    @property
    def _elsewhere(self) -> str:
        return f"check that {self.base} is the API's address"

    def _ask(self, kind: _Kind, fields: dict[str, str | int], key: str) -> bytes:
        """The body of the engine's answer with status 200, at last."""
        url, content = self.base + kind.path, b""
        headers = {
            "Accept": "application/json",
            **({kind.header: kind.scheme + key} if key else {}),
        }
        if kind.method == "GET":
            url = f"{url}?{urlencode(fields)}"
        else:
            headers["Content-Type"] = "application/json"
            content = json.dumps(fields).encode()
        for attempt in itertools.count():
            deadline = time.monotonic() + ANSWER_SECONDS
            wait, status = self.backoff_s * 2**attempt, None
            try:
                answer = send(
                    kind.method, url, headers=headers, content=content,
                    limit=MAX_ANSWER_BYTES, deadline=deadline, public_only=False,
                )  # fmt: skip
            except TransientError as error:
                said = f"does not answer: {error}"
            else:
                if answer.status == 200:
                    return self._whole(answer)
                status = answer.status
                said = f"says HTTP {status}{_words(answer.body, key)}"
                if answer.retry_after_s is not None:
                    wait = answer.retry_after_s
            passing = status is None or status in PASSING
            if not passing or attempt >= self.max_retries or wait > MAX_WAIT_S:
                raise self._refusal(status, f"{self.name} {said} ({attempt + 1} attempts)")
            logger.info("%s %s; again in %.1f s", self.name, said, wait)
            time.sleep(wait)
        raise AssertionError("unreachable")

    def _whole(self, answer: HttpAnswer) -> bytes:
        if answer.cut:
            size = f"more than {MAX_ANSWER_BYTES >> 20} MiB"
            raise SearchEngineError(f"{self.name} gave an answer of {size}", self._elsewhere)
        return answer.body

    def _refusal(self, status: int | None, said: str) -> SearchEngineError:
        variable = _KINDS[self.name].key_env
        if status in (402, 432, 433) or (status == 400 and "credit" in said.lower()):
            return QuotaSpentError(said, "the account's quota is spent: top it up")
        if status == 429:
            return QuotaSpentError(said, "wait, search less often, or get a larger quota")
        if status in (401, 403) and variable:
            return KeyRefusedError(said, f"set {variable} to a valid key")
        if status == 403:
            hint = "enable JSON in its settings.yml: search.formats: [html, json]"
        elif status in (400, 422):
            hint = "it refuses the query: word it in another way"
        elif status is None or status in PASSING:
            hint = f"check that {self.base} is up, or try again later"
        else:
            hint = self._elsewhere
        return SearchEngineError(said, hint)


def cut_query(query: str, chars: int, words: int | None = None) -> str:
    """The first words of a query that an engine's limits leave; a word too long is cut itself."""
    text = " ".join(query.split()[:words])
    if len(text) <= chars:
        return text
    return text[: chars + 1].rpartition(" ")[0] or text[:chars]


def _words(body: bytes, key: str) -> str:
    """What a server says of its refusal, in a line without the key; of a page of HTML nothing."""
    text = " ".join(body.decode("utf-8", "replace").split())
    text = text.replace(key, "[key]") if key else text
    return f": {text[:200]}" if text and not text.startswith("<") else ""


def _line(text: str | None, limit: int, marks: bool) -> str:
    text = html.unescape(_MARKS.sub("", text or "")) if marks else text or ""
    return " ".join(text.replace("\0", " ").split())[:limit]


class _ResultRow(BaseModel):
    """A result, whatever the engine calls its parts; what is not named here is ignored."""

    title: Text | None = None
    url: Text | None = Field(None, validation_alias=AliasChoices("url", "link"))
    snippet: Text | None = Field(
        None, validation_alias=AliasChoices("content", "snippet", "description")
    )
    date: Text | None = Field(
        None, validation_alias=AliasChoices("publishedDate", "published_date", "date", "age")
    )

    def hit(self, marks: bool) -> WebHit | None:
        """The result as a hit; None if its URL is none of the web, such as ``javascript:``."""
        title, snippet = _line(self.title, 400, marks), _line(self.snippet, 2_000, marks)
        try:
            return WebHit(
                title=title, url=self.url or "", snippet=snippet, date=_line(self.date, 64, marks)
            )
        except ValidationError:  # all else is as long as it may be
            return None


class _Found(BaseModel):
    """An engine's answer."""

    rows: list[_ResultRow] | None = Field(
        None, validation_alias=AliasChoices("results", "organic", AliasPath("web", "results"))
    )
    web: Object | None = None
    unresponsive_engines: list[Json] = []
    """SearXNG's: with some of these, nothing found does not mean that there is nothing."""


class _Kind(NamedTuple):
    """How one engine is asked."""

    url: str
    method: str
    path: str
    fields: Callable[[str, int], dict[str, str | int]]
    key_env: str | None = None
    header: str = ""
    scheme: str = ""
    pages: int = 10
    chars: int = 2_000
    words: int | None = None
    marks: bool = False
    """Whether titles and snippets are HTML, in which words of the query are marked."""


_KINDS = {
    "searxng": _Kind(
        "", "GET", "/search", lambda query, page: {"q": query, "format": "json", "pageno": page}
    ),
    "serper": _Kind(
        "https://google.serper.dev", "POST", "/search",
        lambda query, page: {"q": query, "num": 10, "page": page}, "SERPER_API_KEY", "X-API-KEY",
    ),
    "tavily": _Kind(
        "https://api.tavily.com", "POST", "/search",
        lambda query, page: {"query": query, "max_results": 20},
        "TAVILY_API_KEY", "Authorization", "Bearer ", pages=1, chars=400,
    ),
    "brave": _Kind(
        "https://api.search.brave.com", "GET", "/res/v1/web/search",
        lambda query, page: {"q": query, "count": 20, "offset": page - 1},
        "BRAVE_API_KEY", "X-Subscription-Token", chars=400, words=50, marks=True,
    ),
}  # fmt: skip
