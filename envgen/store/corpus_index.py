"""Full-text search over a corpus: SQLite's FTS5, words as they are and Chinese by pairs of characters.

The index is a cache in the user's cache folder. Ties are broken by document id, and snippets
show the part of a document that holds most of the query, so the same query gives the same results anywhere.
"""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import threading
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol
from uuid import uuid4

from envgen.core.errors import StoreError
from envgen.store.corpus import Corpus, known_place
from envgen.store.folders import disk_errors

VERSION = 1
MAX_QUERY_CHARS = 2_000
"""A longer query is cut there."""
MAX_TERMS = 64
SNIPPET_CHARS = 240
MAX_DEPTH = 200
"""Results that pages reach."""
_CJK = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u3040-\u30ff\uac00-\ud7af"
_TERM = re.compile(rf"[{_CJK}]+|[^\W_{_CJK}]+(?:[.'\u2019][^\W_{_CJK}]+)*", re.UNICODE)


class Hit(NamedTuple):
    """A document that a query found."""

    id: str
    score: float
    """Higher is better."""


class CorpusIndex(Protocol):
    """A search engine over one corpus."""

    def search(self, query: str, k: int, skip: int = 0) -> Sequence[Hit]:
        """The ``k`` best documents after the first ``skip``; best first, ties by id.

        A query of nothing that is indexed finds nothing; no text raises.
        """
        ...


def terms(text: str) -> list[str]:
    """The words of a text as they are indexed: folded, without accents, Chinese as pairs of characters."""
    folded = unicodedata.normalize("NFKD", text).casefold()
    plain = "".join(one for one in folded if not unicodedata.combining(one))
    found: list[str] = []
    for match in _TERM.finditer(unicodedata.normalize("NFC", plain)):
        word = match.group()
        if not is_cjk(word[0]):
            found.append(re.sub(r"[.'\u2019]", "", word))
        elif len(word) == 1:
            found.append(word)
        else:
            found += (word[i : i + 2] for i in range(len(word) - 1))
    return found


def _units(text: str) -> Iterator[tuple[int, int]]:
    """Where the words of a text stand, and in Chinese each pair of characters."""
    for match in _TERM.finditer(text):
        start, end = match.span()
        if end - start > 1 and is_cjk(text[start]):
            yield from ((i, i + 2) for i in range(start, end - 1))
        else:
            yield start, end


def is_cjk(character: str) -> bool:
    """Whether a character is of a script without spaces between words."""
    return re.match(f"[{_CJK}]", character) is not None


class FTS5Index:
    """SQLite's FTS5 with BM25; titles count five times.

    Args:
        corpus: what to search; its index is built the first time.

    Raises:
        StoreError: if the index can't be built.
    """

    def __init__(self, corpus: Corpus) -> None:
        self.path = known_place(corpus.hash).with_suffix(f".fts5-{VERSION}.sqlite")
        self._local = threading.local()
        if not self.path.exists():
            _build(corpus, self.path)

    def search(self, query: str, k: int, skip: int = 0) -> list[Hit]:
        """See ``CorpusIndex``."""
        words = list(dict.fromkeys(terms(query[:MAX_QUERY_CHARS])))[:MAX_TERMS]
        if not words or k < 1:
            return []
        asked = " OR ".join(f'"{word}"' for word in words)
        try:
            rows = self._db.execute(_QUERY, (asked, k + skip)).fetchall()
        except sqlite3.Error as error:
            raise StoreError(
                f"the index {self.path} can't be read: {error}", "remove it"
            ) from error
        return [Hit(name, -score) for name, score in rows[skip:]]

    @property
    def _db(self) -> sqlite3.Connection:
        if not hasattr(self._local, "db"):
            uri = f"file:{self.path}?mode=ro&immutable=1"
            self._local.db = sqlite3.connect(uri, uri=True)
            self._local.db.execute("PRAGMA mmap_size = 268435456")
        found: sqlite3.Connection = self._local.db
        return found


_QUERY = """
SELECT ids.id, round(bm25(texts, 5.0, 1.0), 6) AS score FROM texts JOIN ids ON ids.number = texts.rowid
WHERE texts MATCH ? ORDER BY score, ids.id LIMIT ?
"""


def _build(corpus: Corpus, path: Path) -> None:
    temporary = path.with_name(f".{path.name}.{uuid4().hex}")
    with disk_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with contextlib.closing(sqlite3.connect(temporary, isolation_level=None)) as db:
                db.execute("PRAGMA journal_mode = OFF")
                db.execute("PRAGMA synchronous = OFF")
                db.execute("CREATE TABLE ids(number INTEGER PRIMARY KEY, id TEXT NOT NULL)")
                db.execute("CREATE VIRTUAL TABLE texts USING fts5(title, text, content='')")
                db.execute("BEGIN")
                for number, name in enumerate(corpus.ids):
                    page = corpus.page(name)
                    assert page is not None
                    db.execute("INSERT INTO ids VALUES (?, ?)", (number, name))
                    words = (number, " ".join(terms(page.title)), " ".join(terms(page.text)))
                    db.execute("INSERT INTO texts(rowid, title, text) VALUES (?, ?, ?)", words)
                db.execute("INSERT INTO texts(texts) VALUES ('optimize')")
                db.execute("COMMIT")
            os.replace(temporary, path)
        except sqlite3.Error as error:
            raise StoreError(f"can't build the index {path}: {error}") from error
        finally:
            temporary.unlink(missing_ok=True)


def snippet(text: str, query: str, length: int = SNIPPET_CHARS) -> str:
    """The part of a text with most of a query's words in it, the first one of equals.

    Cut at word borders, with ``...`` where something is left out.
    """
    wanted = set(terms(query[:MAX_QUERY_CHARS]))
    places = [
        (start, end, hit)
        for start, end in _units(text)
        if (hit := wanted.intersection(terms(text[start:end])))
    ]
    best, start = 0, 0
    for first, (begin, _, _) in enumerate(places):
        seen: set[str] = set()
        for _, end, hit in places[first:]:
            if end - begin > length:
                break
            seen |= hit
        if len(seen) > best:
            best, start = len(seen), begin
    start = max(0, start - length // 8)
    if start and not is_cjk(text[start]):
        start = text.rfind(" ", 0, start + 1) + 1
    end = min(len(text), start + length)
    if (
        end < len(text)
        and not is_cjk(text[end - 1])
        and (space := text.rfind(" ", start, end)) > start
    ):
        end = space
    cut = " ".join(text[start:end].split())
    return f"{'...' if start else ''}{cut}{'...' if end < len(text) else ''}"
