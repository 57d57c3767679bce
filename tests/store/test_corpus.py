"""Corpora and their index: content names them, and no query or file breaks them."""

from __future__ import annotations

import pickle
import shutil
import sqlite3
from pathlib import Path

import pytest
from poems import POEMS, poems_corpus

from envgen.core.errors import ConfigError, DatasetError, StoreError
from envgen.pipelines.search.sources import build_corpus
from envgen.store.corpus import (
    Corpus,
    CorpusDocument,
    CorpusHeader,
    Fact,
    find_corpus,
    write_corpus,
)
from envgen.store.corpus_fts5 import FTS5Index


@pytest.fixture
def small(tmp_path: Path) -> Corpus:
    return poems_corpus(tmp_path / "corpus")


def test_content_names_a_corpus_whatever_the_order(small: Corpus, tmp_path: Path) -> None:
    again = write_corpus(tmp_path / "again", small.header, reversed(list(small.documents())))
    assert again.hash == small.hash == find_corpus(small.hash).hash
    assert pickle.loads(pickle.dumps(small)).ids == small.ids == tuple(sorted(POEMS))


def test_a_changed_or_foreign_file_is_refused(small: Corpus, tmp_path: Path) -> None:
    changed = tmp_path / small.path.name
    shutil.copy(small.path, changed)
    with sqlite3.connect(changed) as db:
        db.execute("UPDATE documents SET record = replace(record, 'corner', 'centre')")
    db.close()
    with pytest.raises(DatasetError, match="not that of its name"):
        Corpus(changed)
    with sqlite3.connect(changed) as db:
        db.execute("CREATE TRIGGER t AFTER INSERT ON header BEGIN SELECT 1; END")
    db.close()
    with pytest.raises(DatasetError, match="other tables"):
        Corpus(changed)
    changed.write_bytes(b"SQLite format 3\0" + b"x" * 5_000)
    with pytest.raises(DatasetError, match="corrupt"):
        Corpus(changed)
    with pytest.raises(DatasetError, match="no corpus at"):
        Corpus(tmp_path / "nowhere")
    with pytest.raises(StoreError, match="not on this machine"):
        find_corpus("0" * 64)


def test_what_is_no_corpus_is_refused(tmp_path: Path) -> None:
    one = CorpusDocument.model_validate({"id": "a", "class": "x", "title": "A", "text": "abc"})
    with pytest.raises(DatasetError, match="no document"):
        write_corpus(tmp_path / "a", CorpusHeader(name="c"), [])
    with pytest.raises(DatasetError, match="'a'"):
        write_corpus(tmp_path / "b", CorpusHeader(name="c"), [one, one])
    outside = one.model_copy(update={"facts": (Fact(attribute="y", value="abcd", start=0, end=4),)})
    with pytest.raises(DatasetError, match="outside"):
        write_corpus(tmp_path / "c", CorpusHeader(name="c"), [outside])
    assert not list(tmp_path.rglob("*.partial"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"title,year\ncaf\xe9,1912\n", "not UTF-8 at byte 14"),
        (b"", "names no columns"),
        (b"title,title\na,b\n", "or one twice"),
        (b"title,year\n", "has no rows"),
        (b'title,year\n"a,b\n', "can't be read"),
    ],
)
def test_a_table_that_cannot_be_read_says_why(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "films.csv").write_bytes(content)
    with pytest.raises((ConfigError, DatasetError), match=message):
        build_corpus([tmp_path / "films.csv"], tmp_path / "corpus")


def test_the_same_rows_give_the_same_documents_whatever_the_file(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [
        {"title": f"Film {i}", "year": 1950 + i % 7, "genre": ("noir", "drama")[i % 2]}
        for i in range(30)
    ]
    (tmp_path / "csv").mkdir()
    lines = ["title,year,genre", *(",".join(map(str, row.values())) for row in rows)]
    (tmp_path / "csv" / "films.csv").write_text("\n".join(lines))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "films.parquet")
    with sqlite3.connect(tmp_path / "any.sqlite") as db:
        db.execute("CREATE TABLE films(title, year REAL, genre)")
        db.executemany("INSERT INTO films VALUES (:title, :year, :genre)", rows)
    db.close()
    (tmp_path / "csv" / "about.md").write_text("# About films\n\nThey are seen in the dark.\n")
    found = {}
    for source in ("csv", "films.parquet", "any.sqlite"):
        corpus = build_corpus([tmp_path / source], tmp_path / f"{source}-corpus")
        found[source] = [
            (one.title, one.text, one.facts) for one in corpus.documents() if one.kind == "films"
        ]
    assert found["csv"] == found["films.parquet"] == found["any.sqlite"]
    assert len(found["csv"]) == 30
    assert (
        FTS5Index(Corpus(tmp_path / "csv-corpus")).search("seen in the dark", 1)[0].id == "page-0"
    )
    (tmp_path / "any.exe").touch()
    with pytest.raises(ConfigError, match="no known kind"):
        build_corpus([tmp_path / "any.exe"], tmp_path / "none")
