"""What the web answered, kept as lines of JSON: the same search or page is asked for once, and replays.

Only the very same query of the same engine hits: one that is like it has other answers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import Field, ValidationError

from envgen.core.canonical import dumps, sha256
from envgen.core.errors import EnvgenError, StoreError
from envgen.core.limits import Count, Day, Name, Text, fault
from envgen.core.types import Record
from envgen.pipelines.search.web.engines import WebAddress, WebHit
from envgen.pipelines.search.web.pages import WebPage
from envgen.store.folders import disk_errors

R = TypeVar("R", bound=Record)


class CacheMissError(EnvgenError):
    """Raised when a cache that only replays does not hold what is asked for."""


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


class CachedSearch(Record):
    """A search with its answer."""

    engine: Name
    query: Text
    page: Count
    day: Day = Field(default_factory=_today)
    """When it was asked, in UTC."""
    hits: tuple[WebHit, ...]


class CachedPage(Record):
    """A page, or why it can't be read."""

    asked: WebAddress
    day: Day = Field(default_factory=_today)
    """When it was fetched."""
    page: WebPage | None = None
    error: Text = ""
    hint: Text = ""


def web_id(url: str) -> str:
    """The id of a page, by its URL."""
    return f"w-{sha256(url)[:16]}"


class _Lines(Generic[R]):
    """An append-only file of records; the first one of a key counts."""

    def __init__(self, path: Path, kind: type[R], key: Callable[[R], str]) -> None:
        self._path, self._kind, self._key = path, kind, key
        self._places: dict[str, tuple[int, int]] = {}
        self._end = 0
        self._lock = threading.Lock()

    def load(self) -> Iterator[R]:
        """All records, each checked; a last line that was cut off is none.

        Raises:
            StoreError: naming the line that is wrong.
        """
        if not self._path.exists():
            return
        with disk_errors(self._path), self._path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    return
                try:
                    record = self._kind.model_validate_json(line)
                except ValidationError as error:
                    raise StoreError(
                        f"{self._path}, line {number}: {fault(error)}",
                        "remove the line, or name another folder",
                    ) from error
                self._places.setdefault(self._key(record), (self._end, len(line)))
                self._end += len(line)
                yield record

    def keys(self) -> list[str]:
        """The keys so far, sorted."""
        return sorted(self._places.copy())

    def get(self, key: str) -> R | None:
        """The record of a key."""
        place = self._places.get(key)
        if place is None:
            return None
        with disk_errors(self._path), self._path.open("rb") as file:
            file.seek(place[0])
            return self._kind.model_validate_json(file.read(place[1]))

    def put(self, record: R) -> R:
        """Keep a record, and return the one that is kept: another thread may have been faster."""
        line = dumps(record).encode() + b"\n"
        key = self._key(record)
        with self._lock:
            if key not in self._places:
                with disk_errors(self._path), self._path.open("ab") as file:
                    file.truncate(self._end)
                    file.write(line)
                self._places[key] = (self._end, len(line))
                self._end += len(line)
                return record
        kept = self.get(key)
        assert kept is not None
        return kept


class WebCache:
    """Searches and pages in a folder; safe to share between threads, for one process at a time.

    Args:
        folder: holds ``searches.jsonl`` and ``pages.jsonl``; made if it is missing.
        replay_only: nothing is fetched, and what is not here is a ``CacheMissError``.

    Raises:
        StoreError: if the folder can't be read or written, or a line in it is wrong.
    """

    def __init__(self, folder: str | Path, *, replay_only: bool = False) -> None:
        self.folder = Path(folder)
        self.replay_only = replay_only
        if not replay_only:
            with disk_errors(self.folder):
                self.folder.mkdir(parents=True, exist_ok=True)
        self._searches = _Lines(
            self.folder / "searches.jsonl",
            CachedSearch,
            lambda one: dumps((one.engine, one.query, one.page)),
        )
        self._pages = _Lines(self.folder / "pages.jsonl", CachedPage, lambda one: web_id(one.asked))
        self._found: dict[str, WebHit] = {}
        for search in self._searches.load():
            self._remember(search)
        for _ in self._pages.load():
            pass  # their places are noted, their texts stay on disk

    def hits(
        self, engine: str, query: str, page: int, ask: Callable[[], list[WebHit]]
    ) -> list[WebHit]:
        """What an engine found, from here, or else by asking it.

        Raises:
            CacheMissError: if it is not here and this cache only replays.
        """
        kept = self._searches.get(dumps((engine, query, page)))
        if kept is None:
            self._may_fetch(f"of {engine} no answer to {query[:200]!r}, page {page}")
            found = CachedSearch(engine=engine, query=query, page=page, hits=tuple(ask()))
            kept = self._searches.put(found)
            self._remember(kept)
        return list(kept.hits)

    def page(self, url: str, fetch: Callable[[], CachedPage]) -> CachedPage:
        """A page, from here, or else by fetching it.

        Raises:
            CacheMissError: if it is not here and this cache only replays.
        """
        kept = self._pages.get(web_id(url))
        if kept is None:
            self._may_fetch(f"no page {url[:200]!r}")
            kept = self._pages.put(fetch())
        return kept

    def hit(self, page_id: str) -> WebHit | None:
        """The first hit that had this id."""
        return self._found.get(page_id)

    def pages(self) -> Iterator[CachedPage]:
        """All pages that were fetched, by id."""
        for key in self._pages.keys():
            kept = self._pages.get(key)
            assert kept is not None
            yield kept

    def unread(self) -> Iterator[tuple[str, WebHit]]:
        """Hits whose page nobody fetched, by id."""
        read = set(self._pages.keys())
        yield from sorted((key, hit) for key, hit in self._found.items() if key not in read)

    def _remember(self, search: CachedSearch) -> None:
        for hit in search.hits:
            self._found.setdefault(web_id(hit.url), hit)

    def _may_fetch(self, missing: str) -> None:
        if self.replay_only:
            raise CacheMissError(
                f"the cache {str(self.folder)!r} holds {missing}, and only replays",
                "run once without replay_only, where the web can be reached",
            )
