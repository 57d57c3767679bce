"""The rows of tables, as texts: CSV, TSV, Parquet, and the tables of a SQLite file."""

from __future__ import annotations

import contextlib
import csv
import io
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from envgen.core.errors import ConfigError, DatasetError
from envgen.pipelines.search.texts import read_text

MAX_FIELD_CHARS = 1 << 20
SUFFIXES = (".csv", ".tsv", ".parquet", ".sqlite", ".db")


class RowTable(NamedTuple):
    """A table."""

    name: str
    source: str
    """The file's name."""
    rows: list[dict[str, str]]
    """Each with all columns; an empty text where there is no value."""


def read_tables(path: Path) -> Iterator[RowTable]:
    """The tables in a file.

    Raises:
        ConfigError: if it can't be read, with what to do.
        DatasetError: if one has no rows.
    """
    readers = {".csv": _csv, ".tsv": _csv, ".parquet": _parquet, ".sqlite": _sqlite, ".db": _sqlite}
    try:
        for name, columns, rows in readers[path.suffix.lower()](path):
            found = [{column: _text(row.get(column)) for column in columns} for row in rows]
            if not found:
                raise DatasetError(f"{str(path)!r} has no rows in {name!r}")
            yield RowTable(name, path.name, found)
    except ConfigError:
        raise
    except (OSError, csv.Error, sqlite3.Error, ValueError) as error:
        raise ConfigError(f"{str(path)!r} can't be read: {error}") from error


class _RawTable(NamedTuple):
    name: str
    columns: list[str]
    rows: Iterable[Mapping[str, Any]]


def _csv(path: Path) -> Iterator[_RawTable]:
    csv.field_size_limit(MAX_FIELD_CHARS)
    separator = "\t" if path.suffix.lower() == ".tsv" else ","
    file = io.StringIO(read_text(path), newline="")
    reader = csv.DictReader(file, delimiter=separator, strict=True)
    columns = list(reader.fieldnames or ())
    if not columns or len(set(columns)) != len(columns):
        raise ConfigError(f"{str(path)!r}: its first line names no columns, or one twice")
    yield _RawTable(path.stem, columns, reader)


def _parquet(path: Path) -> Iterator[_RawTable]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        rows = (row for batch in file.iter_batches() for row in batch.to_pylist())
        yield _RawTable(path.stem, list(file.schema_arrow.names), rows)


def _sqlite(path: Path) -> Iterator[_RawTable]:
    with contextlib.closing(
        sqlite3.connect(f"file:{path.resolve()}?mode=ro&immutable=1", uri=True)
    ) as db:
        db.execute("PRAGMA trusted_schema = OFF")
        db.row_factory = sqlite3.Row
        names = db.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%' ORDER BY name"
        )
        for (name,) in names.fetchall():
            quoted = name.replace('"', '""')
            rows = db.execute(f'SELECT * FROM "{quoted}"')
            columns = [column[0] for column in rows.description]
            yield _RawTable(name, columns, ({key: row[key] for key in row.keys()} for row in rows))


def _text(value: object) -> str:
    """A value on one line; what is no text, number or date is left out."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        value = int(value)
    if value is None or isinstance(value, bytes | list | dict):
        return ""
    return " ".join(str(value).split())
