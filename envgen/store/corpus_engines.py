"""Search engines by name."""

from __future__ import annotations

from typing import Literal, get_args

from envgen.core.errors import ConfigError
from envgen.core.registry import near_names
from envgen.store.corpus import Corpus
from envgen.store.corpus_fts5 import FTS5Index
from envgen.store.corpus_index import CorpusIndex

Engine = Literal["fts5", "tantivy"]


def check_engine(name: str) -> None:
    """Refuse a name that is no engine's.

    Raises:
        ConfigError: naming those that are.
    """
    if name not in get_args(Engine):
        raise ConfigError(f"unknown search engine {name!r}{near_names(name, get_args(Engine))}")


def open_index(corpus: Corpus, engine: str = "fts5") -> CorpusIndex:
    """The index of a corpus in an engine, built the first time.

    Args:
        corpus: what to search.
        engine: ``fts5`` or ``tantivy``.

    Raises:
        ConfigError: if there is no such engine.
        MissingExtraError: without the engine's package.
        StoreError: if the index can't be built or read.
    """
    check_engine(engine)
    if engine == "fts5":
        return FTS5Index(corpus)
    from envgen.store.corpus_tantivy import TantivyIndex

    return TantivyIndex(corpus)
