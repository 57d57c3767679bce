"""Rows in memory and in SQLite: the two forms of one database.

``Tables`` is ``{relation: {key: {column: value}}}``; every row holds all columns of its relation,
key included. Both directions are exact, and the same rows give the same SQLite content.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from envgen.core.ir import Column, Relation, Scalar

Row = dict[str, Scalar]
Tables = dict[str, dict[str, Row]]

_TEXT_TYPES = ("str", "date", "datetime")


def sql_type(column: Column) -> str:
    """SQLite's storage class for an IR column type."""
    if column.type in _TEXT_TYPES or column.type.startswith("entity:"):
        return "TEXT"
    return "INTEGER"


def create_statements(relations: Iterable[Relation]) -> list[str]:
    """``CREATE TABLE`` for each relation, STRICT, foreign keys declared, in the given order."""
    statements = []
    for relation in relations:
        parts = []
        for column in relation.columns:
            part = f'"{column.name}" {sql_type(column)}'
            if column.name == relation.key:
                part += " PRIMARY KEY"
            if not column.nullable:
                part += " NOT NULL"
            if column.type.startswith("entity:"):
                part += f' REFERENCES "{column.type.removeprefix("entity:")}"'
            parts.append(part)
        statements.append(
            f'CREATE TABLE "{relation.name}" ({", ".join(parts)}) STRICT, WITHOUT ROWID'
        )
    return statements


def write_sqlite(relations: Iterable[Relation], tables: Tables, path: Path) -> None:
    """Write ``tables`` to a new SQLite file at ``path``; rows go in by key order.

    Raises:
        FileExistsError: if ``path`` exists.
        OSError: if the disk is full.
    """
    if path.exists():
        raise FileExistsError(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        try:
            _fill(db, tuple(relations), tables)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode not in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE):
                raise
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path)) from error


def sqlite_image(relations: Iterable[Relation], tables: Tables) -> bytes:
    """What ``write_sqlite`` writes, as bytes (but for the header's counters)."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        _fill(db, tuple(relations), tables)
        return db.serialize()


def _fill(db: sqlite3.Connection, relations: tuple[Relation, ...], tables: Tables) -> None:
    db.execute("PRAGMA page_size = 4096")
    db.execute("PRAGMA journal_mode = OFF")
    db.execute("PRAGMA synchronous = OFF")
    db.execute("BEGIN")
    for statement in create_statements(relations):
        db.execute(statement)
    for relation in relations:
        names = [column.name for column in relation.columns]
        marks = ", ".join("?" * len(names))
        rows = tables.get(relation.name, {})
        db.executemany(
            f'INSERT INTO "{relation.name}" VALUES ({marks})',
            [[rows[key][name] for name in names] for key in sorted(rows)],
        )
    db.execute("COMMIT")


def in_file_order(relations: Iterable[Relation], tables: Tables) -> Tables:
    """The same tables with rows and columns in the order in which ``read_sqlite`` gives them."""
    found: Tables = {}
    for relation in relations:
        names = [column.name for column in relation.columns]
        rows = tables.get(relation.name, {})
        found[relation.name] = {key: {n: rows[key][n] for n in names} for key in sorted(rows)}
    return found


def read_sqlite(relations: Iterable[Relation], path: Path | str) -> Tables:
    """Read all rows of a SQLite file into ``Tables`` (bool columns come back as bool)."""
    tables: Tables = {}
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        for relation in relations:
            names = [column.name for column in relation.columns]
            bools = {column.name for column in relation.columns if column.type == "bool"}
            quoted = ", ".join(f'"{name}"' for name in names)
            rows: dict[str, Row] = {}
            for values in db.execute(
                f'SELECT {quoted} FROM "{relation.name}" ORDER BY "{relation.key}"'
            ):
                row: Row = dict(zip(names, values, strict=True))
                for name in bools:
                    row[name] = None if row[name] is None else bool(row[name])
                rows[str(row[relation.key])] = row
            tables[relation.name] = rows
    return tables
