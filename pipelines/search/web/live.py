"""The web as a place to search: an engine and its pages, asked for once and replayed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from envgen.core.errors import ConfigError
from envgen.pipelines.search.web.cache import CachedPage, WebCache, web_id
from envgen.pipelines.search.web.client import PageError
from envgen.pipelines.search.web.engines import WebEngine, WebHit
from envgen.pipelines.search.web.pages import PageDownError, WebPage, fetch_page

MAX_ENGINE_PAGES = 10
"""Of an engine's pages so many are asked for at most, to fill one of ours."""


class LiveWeb:
    """Searches the web and reads what was found; safe to share between threads.

    Args:
        engine: what searches.
        cache: what was asked before comes from here; all else is kept here.
        allow_private: read pages of private networks, too.
    """

    def __init__(self, engine: WebEngine, cache: WebCache, allow_private: bool = False) -> None:
        self.engine = engine
        self.cache = cache
        self.allow_private = allow_private

    def search(self, query: str, k: int = 10, page: int = 1) -> list[dict[str, str]]:
        """The ``page``-th ``k`` hits, best first, each with ``id``, ``title``, ``url`` and ``snippet``.

        Raises:
            SearchEngineError: if the engine can't say.
            CacheMissError: if the cache only replays, and was not asked this before.
            ConfigError: if ``k`` or ``page`` is less than 1, or a key is missing.
        """
        if k < 1 or page < 1:
            raise ConfigError(f"page {page} of {k} hits can't be had", "count both from 1")
        query = query.encode("utf-8", "replace").decode()
        found: dict[str, WebHit] = {}
        for number in range(1, MAX_ENGINE_PAGES + 1):
            before = len(found)
            for hit in self._engine_page(query, number):
                found.setdefault(hit.url, hit)
            if len(found) >= page * k or len(found) == before:
                break
        return [
            {"id": web_id(one.url), "title": one.title, "url": one.url, "snippet": one.snippet}
            for one in list(found.values())[(page - 1) * k : page * k]
        ]

    def page(self, page_id: str) -> WebPage | None:
        """A page that some search of this cache found; None if none did.

        Raises:
            PageError: if it can't be read, with words for the agent; such an answer replays, too, unless it
                may pass with time.
            CacheMissError: if the cache only replays, and the page was not read before.
        """
        hit = self.cache.hit(page_id)
        if hit is None:
            return None
        kept = self.cache.page(hit.url, lambda: self._fetch(hit.url))
        if kept.page is None:
            raise PageError(kept.error, kept.hint)
        return kept.page

    def documents(self) -> Iterator[dict[str, Any]]:
        """What was seen, by id, as the lines that ``envgen corpus build`` takes.

        Pages that were read; of the other hits, what the engine showed of them: who searches the corpus finds
        them beside the pages, as agents did.
        """
        for kept in self.cache.pages():
            page_id = web_id(kept.asked)
            hit = self.cache.hit(page_id)
            if kept.page is not None:
                title = kept.page.title or (hit.title if hit else "") or kept.asked
                language = kept.page.language or "und"
                yield _line(page_id, title, kept.page.text, kept.page.url, kept.day, language)
        for page_id, hit in self.cache.unread():
            yield _line(
                page_id, hit.title or hit.url, hit.snippet or hit.title, hit.url, hit.date, "und"
            )

    def _engine_page(self, query: str, number: int) -> list[WebHit]:
        return self.cache.hits(
            self.engine.name, query, number, lambda: self.engine.search(query, number)
        )

    def _fetch(self, url: str) -> CachedPage:
        try:
            page = fetch_page(url, allow_private=self.allow_private)
        except PageDownError:
            raise
        except PageError as error:
            return CachedPage(asked=url, error=str(error), hint=error.hint)
        return CachedPage(asked=url, page=page)


def _line(
    page_id: str, title: str, text: str, url: str, date: str, language: str
) -> dict[str, Any]:
    return {
        "id": page_id, "class": "page", "title": title, "text": text or title, "language": language,
        "url": url, "date": date, "source": urlsplit(url).hostname or "", "facts": [],
    }  # fmt: skip
