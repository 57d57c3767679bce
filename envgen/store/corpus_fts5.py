"""Full-text search over a corpus with SQLite's FTS5: the engine that needs nothing, and that gates use.

The index is a file beside the corpus in the user's cache folder, made when it is first wanted.
"""

from __future__ import annotations

import contextlib
import math
import os
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

from envgen.core.errors import StoreError
from envgen.store.corpus import Corpus, known_place
from envgen.store.corpus_index import TITLE_WEIGHT, Hit, query_terms, terms
from envgen.store.folders import disk_errors

VERSION = 2
_MOST = 2.2
"""FTS5's k1 + 1: a word adds less than so many times its weight to a score."""
_HOPE = 1.5
"""Leaving words out is tried if they add at most so many times the weight of one that is kept."""
_ROUNDED = 1e-6
_COUNT = "SELECT count(*) FROM texts WHERE texts MATCH ?"
_BEST = f"""
SELECT rowid, round(bm25(texts, {TITLE_WEIGHT}.0, 1.0), 6) AS score FROM texts WHERE texts MATCH ?
ORDER BY score, rowid LIMIT ?
"""


class FTS5Index:
    """SQLite's FTS5 with BM25; titles count five times.

    Args:
        corpus: what to search; its index is built the first time.

    Raises:
        StoreError: if the index can't be built.
    """

    def __init__(self, corpus: Corpus) -> None:
        self.corpus = corpus
        self.path = known_place(corpus.hash).with_suffix(f".fts5-{VERSION}.sqlite")
        self._local = threading.local()
        self._counts: dict[str, int] = {}
        if not self.path.exists():
            _build(corpus, self.path)

    def __reduce__(self) -> tuple[type[FTS5Index], tuple[Corpus]]:
        return FTS5Index, (self.corpus,)

    def search(self, query: str, k: int, skip: int = 0) -> list[Hit]:
        """See ``CorpusIndex``."""
        words = query_terms(query)
        if not words or k < 1:
            return []
        ids = self.corpus.ids
        try:
            rows = self._search(words, k + skip)
        except sqlite3.Error as error:
            raise StoreError(
                f"the index {self.path} can't be read: {error}", "remove it"
            ) from error
        return [Hit(ids[number], -score) for number, score in rows[skip:]]

    def _search(self, words: Sequence[str], n: int) -> list[tuple[int, float]]:
        """The n best rows.

        Scoring every document with a common word takes most of the time. So the rarest words are looked for
        first: if n documents with them score more than all other words together can add, those are the best.
        """
        counts = {word: count for word in words if (count := self._count(word))}
        known = sorted(counts, key=lambda word: (counts[word], word))
        weights = [self._weight(counts[word]) for word in known]
        reached = 0
        for size in range(1, len(known)):
            reached += counts[known[size - 1]]
            rest = _MOST * sum(weights[size:])
            if reached >= n and rest <= _HOPE * weights[size - 1]:
                rows = self._best_with(known[:size], known[size:], n)
                if len(rows) == n and -rows[-1][1] > rest + _ROUNDED:
                    return rows
                break
        return self._best(_any(known), n) if known else []

    def _best_with(
        self, words: Sequence[str], others: Sequence[str], n: int
    ) -> list[tuple[int, float]]:
        """The n best rows with any of ``words``; ``others`` count, too."""
        found = dict(self._best(_any(words), n))
        found |= self._best(f"({_any(words)}) AND ({_any(others)})", n)
        return sorted(found.items(), key=lambda row: (row[1], row[0]))[:n]

    def _best(self, asked: str, n: int) -> list[tuple[int, float]]:
        return self._db.execute(_BEST, (asked, n)).fetchall()

    def _count(self, word: str) -> int:
        """How many documents have a word; remembered of words that there are."""
        if word not in self._counts:
            n: int = self._db.execute(_COUNT, (_any([word]),)).fetchone()[0]
            if not n:
                return 0
            self._counts[word] = n
        return self._counts[word]

    def _weight(self, count: int) -> float:
        """What FTS5 makes of it: a word that half of all documents have weighs next to nothing."""
        rest = len(self.corpus.ids) - count
        return max(1e-6, math.log((rest + 0.5) / (count + 0.5)))

    @property
    def _db(self) -> sqlite3.Connection:
        if not hasattr(self._local, "db"):
            uri = f"file:{self.path}?mode=ro&immutable=1"
            self._local.db = sqlite3.connect(uri, uri=True)
            self._local.db.execute("PRAGMA mmap_size = 268435456")
        found: sqlite3.Connection = self._local.db
        return found


def _any(words: Sequence[str]) -> str:
    return " OR ".join(f'"{word}"' for word in words)


def _build(corpus: Corpus, path: Path) -> None:
    temporary = path.with_name(f".{path.name}.{uuid4().hex}")
    with disk_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with contextlib.closing(sqlite3.connect(temporary, isolation_level=None)) as db:
                db.execute("PRAGMA journal_mode = OFF")
                db.execute("PRAGMA synchronous = OFF")
                dots = "tokenize = \"unicode61 tokenchars '.'\""  # 3.14 is one word
                db.execute(
                    f"CREATE VIRTUAL TABLE texts USING fts5(title, text, content='', {dots})"
                )
                db.execute("BEGIN")
                for number, name in enumerate(corpus.ids):
                    page = corpus.page(name)
                    assert page is not None
                    words = (number, " ".join(terms(page.title)), " ".join(terms(page.text)))
                    db.execute("INSERT INTO texts(rowid, title, text) VALUES (?, ?, ?)", words)
                db.execute("INSERT INTO texts(texts) VALUES ('optimize')")
                db.execute("COMMIT")
            os.replace(temporary, path)
        except sqlite3.Error as error:
            raise StoreError(f"can't build the index {path}: {error}") from error
        finally:
            temporary.unlink(missing_ok=True)
