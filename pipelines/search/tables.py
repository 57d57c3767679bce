"""The rows of tables, as texts: CSV, TSV, Parquet, and the tables of a SQLite file."""

from __future__ import annotations

import csv
import io
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from envgen.core.errors import ConfigError, DatasetError
from envgen.pipelines.search.texts import read_text
from envgen.store.parquet_rows import parquet_rows
from envgen.store.sqlite_files import open_database, tables_of

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
    except (OSError, csv.Error, sqlite3.Error, ValueError, MemoryError) as error:
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
    rows = parquet_rows(path)
    first = next(rows, None)
    found = [] if first is None else chain([first], rows)
    yield _RawTable(path.stem, list(first or ()), found)


def _sqlite(path: Path) -> Iterator[_RawTable]:
    with open_database(path) as db:
        for table in tables_of(db):
            columns = [column[0] for column in table.columns]
            quoted = table.name.replace('"', '""')
            rows = db.execute(f'SELECT * FROM "{quoted}"')
            yield _RawTable(
                table.name, columns, (dict(zip(columns, row, strict=True)) for row in rows)
            )


def _text(value: object) -> str:
    """A value on one line; what is no text, number or date is left out."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        value = int(value)
    if value is None or isinstance(value, bytes | list | dict):
        return ""
    return " ".join(str(value).split())
