"""From files to a corpus: tables become documents of their rows, and their columns facts."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from envgen.core.errors import ConfigError
from envgen.pipelines.search.tables import SUFFIXES, RowTable, read_tables
from envgen.pipelines.search.texts import HTML, PageText, read_html, read_text
from envgen.store.corpus import (
    AttributeSpec,
    Corpus,
    CorpusDocument,
    CorpusHeader,
    Fact,
    SourceNote,
    write_corpus,
)
from envgen.store.corpus_lines import CorpusSchema, parse_lines, read_schema

_SHARED = 0.7
"""Strings of which more than this share are different name their rows rather than group them."""
_REFERS = 0.8
"""A column refers to a table if so many of its values are titles there."""
_TEXTS = (".md", ".txt", *HTML)
_TITLES = ("title", "name", "label")
_NUMBER = re.compile(r"-?\d{1,15}(?:\.\d{1,9})?")
Progress = Callable[[int, int, str], None]


def build_corpus(
    sources: Sequence[str | Path],
    out: str | Path,
    *,
    name: str = "corpus",
    title: str = "",
    date: str = "",
    licence: str = "unknown",
    schema: str | Path | None = None,
    progress: Progress | None = None,
) -> Corpus:
    """Make a corpus of tables (CSV, TSV, Parquet, SQLite), documents (JSONL) and texts.

    A table is a class of entities, one a row, named by its file; the column ``title``, ``name`` or
    ``label``, or else the first, names the row. A column whose values are titles of another table refers to
    it. A line of JSONL is a ``CorpusDocument``. Texts (Markdown, plain, HTML) have no
    facts.

    Args:
        sources: the files, and folders of such.
        out: the folder of the corpus, which is a file named by its content.
        name: an id for it.
        title: what readers call it.
        date: as of when it speaks.
        licence: of its documents.
        schema: a TOML file with ``[classes]``, ``[attribute."X.y"]`` and ``[[source]]``.
        progress: called now and then.

    Raises:
        ConfigError: if a source can't be read, or the schema is wrong.
        DatasetError: if there is no document, or two have one id.
    """
    given = read_schema(schema) if schema is not None else CorpusSchema()
    files = list(_files(sources))
    tables = [
        _Table(table)
        for path in files
        if path.suffix.lower() in SUFFIXES
        for table in read_tables(path)
    ]
    if twice := [kind for kind, n in Counter(table.kind for table in tables).items() if n > 1]:
        raise ConfigError(f"two tables are named {twice[0]!r}", "rename one of the files")
    titles = {table.kind: table.titles() for table in tables}
    for table in tables:
        table.find_references({kind: own for kind, own in titles.items() if kind != table.kind})
    attributes = {key: spec for table in tables for key, spec in table.attributes()}
    classes = {table.kind: {"en": table.noun} for table in tables}
    notes = tuple(SourceNote(name=Path(source).name, licence=licence) for source in sources)
    header = CorpusHeader(
        name=name,
        title=title or given.corpus.get("title", "") or name,
        date=date or given.corpus.get("date", ""),
        sources=given.source or notes,
        classes=classes | given.classes,
        attributes=attributes | given.attribute,
    )
    parts: list[Iterable[CorpusDocument]] = [table.documents() for table in tables]
    parts += [_documents(path) for path in files if path.suffix.lower() == ".jsonl"]
    parts.append(_pages([path for path in files if path.suffix.lower() in _TEXTS]))
    return write_corpus(out, header, _reported(parts, progress))


def _reported(
    parts: Iterable[Iterable[CorpusDocument]], progress: Progress | None
) -> Iterator[CorpusDocument]:
    number = 0
    for part in parts:
        for document in part:
            number += 1
            if progress and number % 1_000 == 0:
                progress(number, 0, "documents")
            yield document


def _files(sources: Sequence[str | Path]) -> Iterator[Path]:
    """The files to read; of a folder all below it that are of a known kind, in order."""
    known = (*SUFFIXES, ".jsonl", *_TEXTS)
    for source in map(Path, sources):
        if not source.exists():
            raise ConfigError(
                f"there is no file or folder {str(source)!r}", "name files, or a folder of files"
            )
        if source.is_dir():
            found = [one for one in sorted(source.rglob("*")) if one.suffix.lower() in known]
            if not found:
                raise ConfigError(
                    f"{str(source)!r} holds no file of a known kind", f"known are {' '.join(known)}"
                )
            yield from (one for one in found if one.is_file() and not one.is_symlink())
        elif source.suffix.lower() in known:
            yield source
        else:
            raise ConfigError(
                f"{str(source)!r} is of no known kind", f"known are {' '.join(known)}"
            )


def _documents(path: Path) -> Iterator[CorpusDocument]:
    with path.open("rb") as file:
        yield from parse_lines(file, path)


def _pages(files: Sequence[Path]) -> Iterator[CorpusDocument]:
    """Texts without facts; the title is HTML's own, or the first heading."""
    for number, path in enumerate(files):
        html = path.suffix.lower() in HTML
        title, text = read_html(path) if html else PageText("", read_text(path))
        heading = None if html else re.search(r"^#+ +(.+)$", text, re.MULTILINE)
        title = (heading[1] if heading else title or path.stem.replace("_", " ")).strip()[:2_000]
        yield CorpusDocument.model_validate(
            {
                "id": f"page-{number}",
                "class": "page",
                "title": title,
                "text": text,
                "source": path.name,
            }
        )


class _Table:
    """A table: its rows, and what its columns are."""

    def __init__(self, table: RowTable) -> None:
        self.source = table.source
        self.kind = _name(table.name) or "row"
        self.noun = _singular(self.kind.replace("_", " "))
        self.rows = table.rows
        columns = list(self.rows[0])
        named = [one for one in columns if _name(one) in _TITLES]
        self.title = (named or columns)[0]
        self.specs: dict[str, AttributeSpec] = {}
        self.columns: dict[str, str] = {}
        self.references: dict[str, dict[str, str]] = {}
        for column in columns:
            attribute = _name(column)
            if column == self.title or not attribute or attribute in ("id", "title"):
                continue
            values = [row[column] for row in self.rows if row[column]]
            if values and attribute not in self.columns.values():
                self.columns[column] = attribute
                self.specs[column] = _column(attribute, values)

    def titles(self) -> dict[str, str]:
        """Title -> document id, of titles that one row has."""
        counts = Counter(row[self.title] for row in self.rows)
        return {
            row[self.title]: self.id(number)
            for number, row in enumerate(self.rows)
            if row[self.title] and counts[row[self.title]] == 1
        }

    def id(self, number: int) -> str:
        """The id of a row's document: its place, which gives nothing away."""
        return f"{self.kind[:40].replace('_', '-')}-{number}"

    def find_references(self, titles: dict[str, dict[str, str]]) -> None:
        """Make columns entities whose values are titles of another table."""
        for column, spec in self.specs.items():
            if spec.kind not in ("name", "key"):
                continue
            values = {row[column] for row in self.rows if row[column]}
            for kind, known in sorted(titles.items()):
                if values and len(values & set(known)) >= _REFERS * len(values):
                    self.specs[column] = AttributeSpec(kind="entity", of=kind)
                    self.references[column] = known

    def attributes(self) -> Iterator[tuple[str, AttributeSpec]]:
        """What the header says of its columns."""
        for column, attribute in self.columns.items():
            yield f"{self.kind}.{attribute}", self.specs[column]

    def documents(self) -> Iterator[CorpusDocument]:
        """A document of each row that has a title."""
        for number, row in enumerate(self.rows):
            if row[self.title]:
                yield self._document(number, row)

    def _document(self, number: int, row: dict[str, str]) -> CorpusDocument:
        title, name = row[self.title][:2_000], self.id(number)
        article = "an" if self.noun[0] in "aeiou" else "a"
        text, facts = f"{title} is {article} {self.noun}.", []
        for column, attribute in self.columns.items():
            value = row[column]
            if not value:
                continue
            label = attribute.replace("_", " ")
            frames = (f" Its {label} is ", f" The {label} is ", f" It has the {label} ")
            text += frames[sha256(f"{name} {attribute}".encode()).digest()[0] % len(frames)]
            start = len(text)
            text += f"{value}."
            known = _value(self.specs[column], value)
            if len(value) <= 4_000 and known is not None:
                ref = self.references.get(column, {}).get(value)
                end = start + len(value)
                facts.append(Fact(attribute=attribute, value=known, start=start, end=end, ref=ref))
        return CorpusDocument.model_validate(
            {"id": name, "class": self.kind, "title": title, "text": text, "source": self.source,
             "facts": facts}
        )  # fmt: skip


def _column(attribute: str, values: Sequence[str]) -> AttributeSpec:
    """What a column holds, by its values."""
    if all(_NUMBER.fullmatch(value) for value in values):
        numbers = [float(value) for value in values]
        years = all(number.is_integer() and 1000 <= number <= 2100 for number in numbers)
        return AttributeSpec(kind="year" if years and "year" in attribute else "number")
    different = len(set(values)) / len(values)
    return AttributeSpec(kind="key" if different > _SHARED else "name")


def _value(spec: AttributeSpec, value: str) -> str | int | float | None:
    if spec.kind not in ("year", "number"):
        return value if len(value) <= 400 else None
    return int(value) if "." not in value else float(value)


def _singular(noun: str) -> str:
    """A file's name as the noun of one of its rows."""
    if noun.endswith("ies") and len(noun) > 4:
        return f"{noun[:-3]}y"
    return noun[:-1] if noun.endswith("s") and not noun.endswith(("ss", "us", "is")) else noun


def _name(text: str) -> str:
    """A column's or file's name as an attribute or class."""
    plain = re.sub(r"[^a-z0-9]+", "_", text.casefold()).strip("_")
    return (plain if plain[:1].isalpha() else plain and f"n_{plain}")[:64]


def describe(corpus: Corpus) -> dict[str, Any]:
    """What a corpus is and how much it holds, by class, language and attribute."""
    documents: Counter[str] = Counter()
    facts: Counter[str] = Counter()
    values: dict[str, set[object]] = defaultdict(set)
    languages: Counter[str] = Counter()
    for document in corpus.documents():
        documents[document.kind] += 1
        languages[document.language] += 1
        for fact in document.facts:
            key = f"{document.kind}.{fact.attribute}"
            facts[key] += 1
            values[key].add(fact.value)
    kinds = {key: spec.kind for key, spec in corpus.header.attributes.items()}
    rows = [
        {
            "attribute": key,
            "kind": kinds.get(key, "name"),
            "facts": number,
            "values": len(values[key]),
        }
        for key, number in sorted(facts.items())
    ]
    return {
        "path": str(corpus.path),
        "hash": corpus.hash,
        "title": corpus.header.title,
        "date": corpus.header.date,
        "documents": dict(documents),
        "languages": dict(languages),
        "attributes": rows,
    }
