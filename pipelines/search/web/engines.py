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
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, Protocol
from urllib.parse import urlencode

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from envgen.core.environ import secret
from envgen.core.errors import ConfigError, SearchEngineError
from envgen.core.limits import Label, fault
from envgen.core.registry import near_names
from envgen.core.types import Record
from envgen.pipelines.search.web.client import PASSING, HttpAnswer, PageError, parse_url, send
from envgen.policies.http import TransientError

logger = logging.getLogger(__name__)

MAX_ANSWER_BYTES = 2 << 20
ANSWER_SECONDS = 30.0
MAX_WAIT_S = 60.0
"""A server that asks for a longer wait has spent its quota."""
MAX_QUERY_CHARS = 2_000
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
    try:
        parse_url(base)
    except PageError as error:
        raise ConfigError(
            f"the URL of {name!r} is not an http(s) URL", f"write it as {name}@https://HOST"
        ) from error
    if "@" in base or "?" in base:
        raise ConfigError(
            f"the URL of {name!r} holds a user's name or a query", "write https://HOST/PATH alone"
        )
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
        key = self._key(kind)
        answer = self._answer(kind.request(query, page, key), key)
        try:
            found = kind.answer.model_validate_json(answer.body)
        except ValidationError as error:
            no_json = error.errors(include_url=False)[0]["type"] == "json_invalid"
            raise self._error(
                SearchEngineError,
                "gave no JSON" if no_json else f"gave an answer of another form: {fault(error)}",
                f"check that {self.base} is the API's address",
                key,
            ) from error
        hits = list(_hits(found.rows()))
        if not hits and (flaw := found.flaw()):
            raise self._error(SearchEngineError, flaw, "wait, or enable other engines in it", key)
        return hits

    def _key(self, kind: _Kind) -> str:
        key = secret(kind.key_env, required=kind.key_env is not None) or ""
        if not re.fullmatch(r"[!-~]*", key):
            raise KeyRefusedError(
                f"the value of {kind.key_env} holds characters that no key has", "set it again"
            )
        return key

    def _answer(self, request: _Request, key: str) -> HttpAnswer:
        """The engine's answer with status 200, at last."""
        for attempt in itertools.count():
            answer, wait = None, None
            try:
                deadline = time.monotonic() + ANSWER_SECONDS
                answer = send(
                    request.method,
                    self.base + request.target,
                    headers=request.headers,
                    content=request.content,
                    limit=MAX_ANSWER_BYTES,
                    deadline=deadline,
                    public_only=False,
                )
            except TransientError as error:
                failure = f"does not answer: {error}"
            else:
                if answer.status not in PASSING:
                    return self._accepted(answer, key)
                failure, wait = f"says HTTP {answer.status}{_words(answer)}", answer.retry_after_s
            wait = self.backoff_s * 2**attempt if wait is None else wait
            if attempt >= self.max_retries or wait > MAX_WAIT_S:
                spent = answer is not None and answer.status == 429
                raise self._error(
                    QuotaSpentError if spent else SearchEngineError,
                    f"{failure} ({attempt + 1} attempts)",
                    "wait, search less often, or get a larger quota"
                    if spent
                    else f"check that {self.base} is up, or try again later",
                    key,
                )
            logger.info("%s: %s; again in %.1f s", self.name, _without(key, failure), wait)
            time.sleep(wait)
        raise AssertionError("unreachable")

    def _accepted(self, answer: HttpAnswer, key: str) -> HttpAnswer:
        status, said = answer.status, f"says HTTP {answer.status}{_words(answer)}"
        if status == 200:
            if answer.cut:
                raise self._error(
                    SearchEngineError,
                    f"gave an answer of more than {MAX_ANSWER_BYTES >> 20} MiB",
                    f"check that {self.base} is the API's address",
                    key,
                )
            return answer
        variable = _KINDS[self.name].key_env
        if status in (402, 432, 433) or (status == 400 and "credit" in said.lower()):
            raise self._error(QuotaSpentError, said, "the account's quota is spent: top it up", key)
        if status == 403 and variable is None:
            hint = "enable JSON in its settings.yml: search.formats: [html, json]"
            raise self._error(SearchEngineError, said, hint, key)
        if status in (401, 403) and variable is not None:
            raise self._error(KeyRefusedError, said, f"set {variable} to a valid key", key)
        hint = f"check that {self.base} is the API's address"
        if status in (400, 422):
            hint = "it refuses the query: word it in another way"
        raise self._error(SearchEngineError, said, hint, key)

    def _error(
        self, error: type[SearchEngineError], said: str, hint: str, key: str
    ) -> SearchEngineError:
        return error(_without(key, f"{self.name} {said}"), hint)


def cut_query(query: str, chars: int, words: int | None = None) -> str:
    """The first words of a query that an engine's limits leave; a word too long is cut itself."""
    text = " ".join(query.split()[:words])
    if len(text) <= chars:
        return text
    return text[: chars + 1].rpartition(" ")[0] or text[:chars]


def _without(key: str, text: str) -> str:
    """A text without the key, which a server may quote."""
    return text.replace(key, "[key]") if key else text


def _words(answer: HttpAnswer) -> str:
    """What a server says of its refusal, in a line; of a page of HTML nothing."""
    text = " ".join(answer.body[:2_000].decode("utf-8", "replace").split())
    return f": {text[:200]}" if text and not text.startswith("<") else ""


def _hits(rows: Iterable[WebHit | None]) -> Iterable[WebHit]:
    """Hits that lead somewhere, each URL once."""
    seen: set[str] = set()
    for hit in rows:
        if hit is not None and hit.url not in seen:
            seen.add(hit.url)
            yield hit


def _hit(
    title: str | None, url: str | None, snippet: str | None, date: str | None
) -> WebHit | None:
    """A hit whose texts are as long as a hit's may be; None if its URL is none of the web."""
    try:
        return WebHit(
            title=_line(title, 400),
            url=url or "",
            snippet=_line(snippet, 2_000),
            date=_line(date, 64),
        )
    except ValidationError:  # only the URL can be wrong here: javascript:, a path, or none
        return None


def _line(text: str | None, limit: int) -> str:
    return " ".join((text or "").replace("\0", " ").split())[:limit]


class _Answer(BaseModel):
    """A part of an engine's answer: what is not named here is ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class _SearxRow(_Answer):
    title: str | None = None
    url: str | None = None
    content: str | None = None
    publishedDate: str | None = None


class _Searx(_Answer):
    results: list[_SearxRow]
    unresponsive_engines: list[Any] = Field(default_factory=list)

    def rows(self) -> Iterable[WebHit | None]:
        """The hits."""
        return (_hit(one.title, one.url, one.content, one.publishedDate) for one in self.results)

    def flaw(self) -> str:
        """Why there may be no hits, other than that nothing fits."""
        if not self.unresponsive_engines:
            return ""
        return f"found nothing because its engines don't answer: {self.unresponsive_engines!r:.200}"


class _SerperRow(_Answer):
    title: str | None = None
    link: str | None = None
    snippet: str | None = None
    date: str | None = None


class _Serper(_Answer):
    organic: list[_SerperRow]

    def rows(self) -> Iterable[WebHit | None]:
        """The hits."""
        return (_hit(one.title, one.link, one.snippet, one.date) for one in self.organic)

    def flaw(self) -> str:
        """Nothing."""
        return ""


class _TavilyRow(_Answer):
    title: str | None = None
    url: str | None = None
    content: str | None = None
    published_date: str | None = None


class _Tavily(_Answer):
    results: list[_TavilyRow]

    def rows(self) -> Iterable[WebHit | None]:
        """The hits."""
        return (_hit(one.title, one.url, one.content, one.published_date) for one in self.results)

    def flaw(self) -> str:
        """Nothing."""
        return ""


class _BraveRow(_Answer):
    title: str | None = None
    url: str | None = None
    description: str | None = None
    age: str | None = None


class _BraveWeb(_Answer):
    results: list[_BraveRow] = Field(default_factory=list)


class _Brave(_Answer):
    web: _BraveWeb | None = None
    """Missing where nothing fits."""

    def rows(self) -> Iterable[WebHit | None]:
        """The hits, without the marks around words of the query."""
        for one in self.web.results if self.web else ():
            title, text = (
                html.unescape(_MARKS.sub("", part or "")) for part in (one.title, one.description)
            )
            yield _hit(title, one.url, text, one.age)

    def flaw(self) -> str:
        """Nothing."""
        return ""


class _Request(NamedTuple):
    method: str
    target: str
    headers: Mapping[str, str]
    content: bytes = b""


class _Kind(NamedTuple):
    """How one engine is asked."""

    url: str
    key_env: str | None
    pages: int
    chars: int
    words: int | None
    request: Callable[[str, int, str], _Request]
    answer: type[_Searx | _Serper | _Tavily | _Brave]


def _get(path: str, headers: Mapping[str, str], **query: str | int) -> _Request:
    return _Request("GET", f"{path}?{urlencode(query)}", {"Accept": "application/json", **headers})


def _post(path: str, headers: Mapping[str, str], **body: str | int) -> _Request:
    content = json.dumps(body, ensure_ascii=False).encode()
    return _Request("POST", path, {"Content-Type": "application/json", **headers}, content)


def _ask_searxng(query: str, page: int, key: str) -> _Request:
    return _get("/search", {}, q=query, format="json", pageno=page)


def _ask_serper(query: str, page: int, key: str) -> _Request:
    return _post("/search", {"X-API-KEY": key}, q=query, num=10, page=page)


def _ask_tavily(query: str, page: int, key: str) -> _Request:
    return _post("/search", {"Authorization": f"Bearer {key}"}, query=query, max_results=20)


def _ask_brave(query: str, page: int, key: str) -> _Request:
    headers = {"X-Subscription-Token": key}
    return _get("/res/v1/web/search", headers, q=query, count=20, offset=page - 1)


_KINDS = {
    "searxng": _Kind("", None, 10, MAX_QUERY_CHARS, None, _ask_searxng, _Searx),
    "serper": _Kind(
        "https://google.serper.dev", "SERPER_API_KEY", 10, MAX_QUERY_CHARS, None, _ask_serper, _Serper
    ),
    "tavily": _Kind("https://api.tavily.com", "TAVILY_API_KEY", 1, 400, None, _ask_tavily, _Tavily),
    "brave": _Kind(
        "https://api.search.brave.com", "BRAVE_API_KEY", 10, 400, 50, _ask_brave, _Brave
    ),
}  # fmt: skip
