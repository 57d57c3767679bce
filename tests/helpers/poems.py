"""A corpus of four documents, two of them in Chinese, and what a process finds in it."""

from __future__ import annotations

from pathlib import Path

from envgen.store.corpus import Corpus, CorpusDocument, CorpusHeader, write_corpus
from envgen.store.corpus_engines import open_index
from envgen.store.corpus_index import CorpusIndex, Hit

POEMS = {
    "p1": ("静夜思", "李白。床前明月光\uff0c疑是地上霜。"),
    "p2": ("春望", "杜甫。国破山河在\uff0c城春草木深。"),
    "c1": ("C++ & AT&T", "The language was made at AT&T. O'Brien wrote on it in 1.985."),
    "c2": ("Caf\u00e9", "A caf\u00e9 at the corner. The corner is dark. A caf\u00e9 it is."),
}


def poems_corpus(folder: Path, more: dict[str, tuple[str, str]] | None = None) -> Corpus:
    """Write the corpus, with ``more`` documents: id -> title, text."""
    documents = [
        CorpusDocument.model_validate({"id": name, "class": "text", "title": title, "text": text})
        for name, (title, text) in (POEMS | (more or {})).items()
    ]
    return write_corpus(folder, CorpusHeader(name="small"), documents)


def search_afresh(corpus: Corpus, engine: str, query: str) -> list[Hit]:
    """What an index that is opened here finds."""
    return list(open_index(corpus, engine).search(query, 5))


def search_given(index: CorpusIndex, query: str) -> list[Hit]:
    """What an index that was opened elsewhere finds."""
    return list(index.search(query, 5))
