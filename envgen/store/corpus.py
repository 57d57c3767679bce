"""A corpus: documents and the facts that stand in them, in one SQLite file named by its content.

Every document is about one thing, its *entity*, which has its id. A fact says a value of one of the
entity's attributes and where it stands in the text. A value may name another document (``ref``). Indexes are
caches (``corpus_index``); a dataset names its corpus by hash, and finds it in this user's cache folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal, NamedTuple
from uuid import uuid4

from pydantic import Field, StringConstraints, ValidationError

from envgen.core.canonical import dumps
from envgen.core.errors import DatasetError, StoreError
from envgen.core.limits import Count, Label, Language, Real, Text, Whole, fault
from envgen.core.types import Id, Record, Sha256
from envgen.store.folders import disk_errors
from envgen.store.trust import cache_folder

FORMAT = 1
AttributeKey = Annotated[
    str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,63}\.[a-z][a-z0-9_]{0,63}$")
]
"""``class.attribute``."""
Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
Phrases = dict[
    Language, tuple[Annotated[str, StringConstraints(min_length=1, max_length=400)], ...]
]
Kind = Literal["name", "key", "year", "number", "entity"]


class SourceNote(Record):
    """Where documents come from."""

    name: Label
    url: Label = ""
    commit: Label = ""
    licence: Label = "unknown"
    notice: Text = ""


class AttributeSpec(Record):
    """What an attribute's values are, and how questions word it.

    ``clue``, ``between``, ``above``, ``below`` are predicates that follow the noun ("was made in {value}");
    ``ask`` are whole questions about ``{it}``.
    """

    kind: Kind
    """name: a string that several entities share. key: one nearly of its own. entity: a document's title."""
    of: Name | None = None
    """The class of the documents that an entity value names."""
    many: bool = False
    """Whether an entity may have several values."""
    unit: Label = ""
    clue: Phrases = Field(default_factory=dict)
    between: Phrases = Field(default_factory=dict)
    above: Phrases = Field(default_factory=dict)
    below: Phrases = Field(default_factory=dict)
    ask: Phrases = Field(default_factory=dict)


class CorpusHeader(Record):
    """What a corpus says of itself."""

    format: Count = FORMAT
    name: Id
    title: Label = ""
    date: Label = ""
    """As of when its documents speak."""
    sources: tuple[SourceNote, ...] = ()
    classes: dict[Name, dict[Language, Label]] = Field(default_factory=dict)
    """Class -> its noun, by language."""
    attributes: dict[AttributeKey, AttributeSpec] = Field(default_factory=dict)


class Fact(Record):
    """One value of one attribute of a document's entity, where the text says it."""

    attribute: Name
    value: Label | Real | Whole
    start: Count
    end: Count
    ref: Id | None = None


class CorpusDocument(Record):
    """A document with its facts."""

    id: Id
    kind: Name = Field(alias="class")
    title: Label
    text: Text
    url: Label | None = None
    date: Label | None = None
    language: Language = "en"
    source: Label = ""
    facts: tuple[Fact, ...] = ()


class DocumentText(NamedTuple):
    """A document as a reader sees it."""

    id: str
    title: str
    text: str
    url: str | None
    language: str
    kind: str


_TABLES = (
    "CREATE TABLE documents(id TEXT PRIMARY KEY, record TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE header(record TEXT NOT NULL)",
)


def write_corpus(
    folder: str | Path, header: CorpusHeader, documents: Iterable[CorpusDocument]
) -> Corpus:
    """Write a corpus below ``folder``, as ``HASH.sqlite``, and make it known to this user.

    Raises:
        DatasetError: if there is no document, two have one id, or a fact is not where it says.
        StoreError: if the disk is full.
    """
    folder = Path(folder)
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        temporary = folder / f".{uuid4().hex}.partial"
        try:
            _fill(temporary, header, documents)
            digest = _digest(temporary)
            path = folder / f"{digest}.sqlite"
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    corpus = Corpus(path)
    corpus.remember()
    return corpus


def _fill(path: Path, header: CorpusHeader, documents: Iterable[CorpusDocument]) -> None:
    number = 0
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = OFF")
        db.execute("PRAGMA synchronous = OFF")
        for statement in _TABLES:
            db.execute(statement)
        db.execute("BEGIN")
        db.execute("INSERT INTO header VALUES (?)", (dumps(header),))
        for document in documents:
            number += 1
            for fact in document.facts:
                if not 0 <= fact.start < fact.end <= len(document.text):
                    raise DatasetError(
                        f"document {document.id!r}: the fact {fact.attribute!r} lies outside its text"
                    )
            record = document.model_dump(mode="json", by_alias=True)
            try:
                db.execute("INSERT INTO documents VALUES (?, ?)", (document.id, dumps(record)))
            except sqlite3.IntegrityError as error:
                raise DatasetError(f"two documents have the id {document.id!r}") from error
        db.execute("COMMIT")
    if not number:
        raise DatasetError("there is no document to make a corpus of")


def _digest(path: Path) -> str:
    """Hash of a corpus's header and documents, whatever SQLite wrote the file."""
    found = hashlib.sha256()
    with contextlib.closing(_open(path)) as db:
        for (text,) in db.execute("SELECT record FROM header"):
            found.update(text.encode() + b"\n")
        for (text,) in db.execute("SELECT record FROM documents ORDER BY id"):
            found.update(text.encode() + b"\n")
    return found.hexdigest()


def _open(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(f"file:{path.resolve()}?mode=ro&immutable=1", uri=True)
    db.execute("PRAGMA trusted_schema = OFF")
    return db


class Corpus:
    """A corpus opened for reading; safe to share between threads.

    Args:
        path: the file, or a folder with one corpus in it.

    Attributes:
        hash: of its content; the file is refused if it is another.
        header: what it says of itself.

    Raises:
        DatasetError: if it is missing, corrupt, or not the corpus of its name.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = _corpus_file(Path(path))
        self._local = threading.local()
        try:
            with contextlib.closing(_open(self.path)) as db:
                tables = tuple(
                    row[0] for row in db.execute("SELECT sql FROM sqlite_master ORDER BY name")
                )
                if tables != _TABLES:
                    raise DatasetError(f"{self.path} holds other tables than a corpus")
                rows = db.execute("SELECT record FROM header").fetchall()
            self.header = CorpusHeader.model_validate_json(rows[0][0])
            self.hash: str = _digest(self.path)
        except ValidationError as error:
            raise DatasetError(f"the header of {self.path} is corrupt: {fault(error)}") from error
        except (sqlite3.Error, ValueError, IndexError, OSError) as error:
            raise DatasetError(f"{self.path} is not a corpus, or is corrupt: {error}") from error
        if self.hash != self.path.stem:
            raise DatasetError(
                f"{self.path} holds the corpus {self.hash[:12]}, not that of its name",
                "build it again",
            )

    def __reduce__(self) -> tuple[type[Corpus], tuple[Path]]:
        return Corpus, (self.path,)

    def __len__(self) -> int:
        return int(self._db.execute("SELECT count(*) FROM documents").fetchone()[0])

    @property
    def _db(self) -> sqlite3.Connection:
        if not hasattr(self._local, "db"):
            self._local.db = _open(self.path)
        found: sqlite3.Connection = self._local.db
        return found

    def page(self, document_id: str) -> DocumentText | None:
        """A document as a reader sees it; None if there is none of this id."""
        row = self._db.execute(
            "SELECT record FROM documents WHERE id = ?", (document_id,)
        ).fetchone()
        if row is None:
            return None
        record = json.loads(row[0])
        fields = (record[name] for name in ("id", "title", "text", "url", "language", "class"))
        return DocumentText(*fields)

    def documents(self) -> Iterator[CorpusDocument]:
        """All documents, by id, each checked by its type."""
        for (text,) in self._db.execute("SELECT record FROM documents ORDER BY id"):
            yield CorpusDocument.model_validate_json(text)

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """The documents' ids, sorted."""
        return tuple(row[0] for row in self._db.execute("SELECT id FROM documents ORDER BY id"))

    def remember(self) -> None:
        """Let this user's datasets find the corpus: put it into the cache folder, as a link if it can be."""
        place = known_place(self.hash)
        if place.exists():
            return
        with disk_errors(place.parent):
            place.parent.mkdir(parents=True, exist_ok=True)
            temporary = place.with_name(f".{place.name}.{uuid4().hex}")
            try:
                os.link(self.path.resolve(), temporary)
            except OSError:
                shutil.copyfile(self.path, temporary)
            temporary.replace(place)


def known_place(digest: str) -> Path:
    """Where the corpus of this hash lies if this user has it."""
    return cache_folder() / "corpora" / f"{digest}.sqlite"


def find_corpus(digest: Sha256) -> Corpus:
    """The corpus of this hash, from the cache folder.

    Raises:
        StoreError: if it is not there.
    """
    place = known_place(digest)
    if not place.exists():
        raise StoreError(
            f"the corpus {digest[:12]} is not on this machine",
            "name its file with --corpus or `envgen corpus info FILE`, or build it again from its sources",
        )
    return Corpus(place)


def _corpus_file(path: Path) -> Path:
    if not path.is_dir():
        if not path.is_file():
            raise DatasetError(
                f"there is no corpus at {str(path)!r}", "make one: `envgen corpus build`"
            )
        return path
    found = sorted(one for one in path.glob("*.sqlite") if len(one.stem) == 64)
    if len(found) != 1:
        what = "no corpus" if not found else f"{len(found)} corpora"
        raise DatasetError(f"{str(path)!r} holds {what}", "name the file of one")
    return found[0]
