"""SQLite files as content: their rows, their hashes, and building one from rows.

A SQLite header holds the library's version and a change counter, so two files with the same rows
may differ in bytes. Identity is therefore the hash of schema and rows; integrity is the bytes'.
Files may be hostile: they are opened immutable, schema functions are not trusted, views and
triggers are never run, and every statement has a step budget.
"""

from __future__ import annotations

import base64
import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from envgen.core.errors import DatasetError

MAGIC = b"SQLite format 3\x00"
_STEPS = 500_000_000
_MAX_CELL = 64 * 1024 * 1024
_MAX_KEY = 1 << 20
"""Bytes of a value in an index on an expression."""
_KEY_FUNCTIONS = frozenset(
    "abs coalesce ifnull iif length lower ltrim nullif round rtrim substr substring trim typeof upper".split()
)
"""What an index on an expression may call: none takes longer than its arguments are long."""
_CHUNK = 500

Cell = str | int | float | bytes | None
Rows = list[list[Cell]]


class TableInfo(NamedTuple):
    """One ordinary table: its columns and the order in which its rows are read."""

    name: str
    columns: tuple[tuple[str, str, int, int], ...]
    """(name, declared type, not null, position in the primary key)"""
    order: str


class DatabaseContent(NamedTuple):
    """Hashes of a database: ``content`` of schema and rows, ``schema`` of tables and columns."""

    content: str
    schema: str


def check_header(head: bytes, name: str) -> None:
    """Refuse what is no SQLite database, or one that needs a WAL file beside it.

    Raises:
        DatasetError: saying which.
    """
    if len(head) < 100 or not head.startswith(MAGIC):
        raise DatasetError(f"{name} is not a SQLite database")
    if head[18] != 1 or head[19] != 1:
        raise DatasetError(
            f"{name} is in WAL mode and can't be read from a read-only folder",
            "set PRAGMA journal_mode = DELETE before writing it",
        )


@contextmanager
def open_database(source: Path | bytes, name: str = "") -> Iterator[sqlite3.Connection]:
    """Open a file (immutable) or the bytes of one for reading.

    Raises:
        DatasetError: if it is no readable SQLite database, also while it is being read.
    """
    name = name or (str(source) if isinstance(source, Path) else "the database")
    try:
        with closing(_connect(source, name)) as db:
            _bound(db)
            db.execute("PRAGMA trusted_schema = OFF")
            db.execute("PRAGMA cell_size_check = ON")
            yield db
    except (sqlite3.Error, UnicodeDecodeError, OverflowError, MemoryError) as error:
        raise DatasetError(f"{name} is not a sound SQLite database: {error}") from error


def _bound(db: sqlite3.Connection) -> None:
    """Give what runs on a connection a budget of steps, and its values a size."""
    budget = [_STEPS // 1_000_000]

    def tick() -> int:
        budget[0] -= 1
        return int(budget[0] < 0)

    db.set_progress_handler(tick, 1_000_000)
    db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_CELL)


def _connect(source: Path | bytes, name: str) -> sqlite3.Connection:
    if isinstance(source, Path):
        with source.open("rb") as file:
            check_header(file.read(100), name)
        uri = f"file:{quote(str(source.absolute()))}?mode=ro&immutable=1"
        return sqlite3.connect(uri, uri=True, isolation_level=None)
    check_header(source[:100], name)
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.deserialize(source)
    return db


def tables_of(db: sqlite3.Connection) -> list[TableInfo]:
    """The ordinary tables, by name.

    Raises:
        DatasetError: if the database holds virtual tables or generated columns.
    """
    tables = []
    listed = _table_list(db)
    for schema, name, kind, _ncol, without_rowid, _strict in sorted(listed):
        if schema != "main" or str(name).startswith("sqlite_") or kind == "view":
            continue
        if kind != "table":
            raise DatasetError(f"table {name!r} is a {kind} table; only ordinary tables are read")
        info = db.execute(f"PRAGMA table_xinfo({_quoted(name)})").fetchall()
        if any(c[6] for c in info):
            raise DatasetError(f"table {name!r} has generated columns; only stored ones are read")
        columns = tuple((str(c[1]), str(c[2]).upper(), int(c[3]), int(c[5])) for c in info)
        keys = sorted((c for c in columns if c[3]), key=lambda c: c[3])
        order = ", ".join(_quoted(c[0]) for c in keys) if without_rowid else _rowid_name(columns)
        tables.append(TableInfo(str(name), columns, order))
    return tables


def _table_list(db: sqlite3.Connection) -> list[tuple[str, str, str, int, int, int]]:
    """``PRAGMA table_list``, which may not count the columns of views.

    It would expand them, and views of views grow without end, in no step that is counted.
    """

    def authorize(action: int, *_: object) -> int:
        return sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_SELECT else sqlite3.SQLITE_OK

    db.set_authorizer(authorize)
    try:
        return db.execute("PRAGMA table_list").fetchall()
    finally:
        db.set_authorizer(None)


def _rowid_name(columns: tuple[tuple[str, str, int, int], ...]) -> str:
    taken = {c[0].lower() for c in columns}
    free = [name for name in ("rowid", "_rowid_", "oid") if name not in taken]
    return free[0] if free else "1"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _rows(db: sqlite3.Connection, table: TableInfo) -> sqlite3.Cursor:
    return db.execute(f"SELECT * FROM {_quoted(table.name)} ORDER BY {table.order}")


def _encode(value: object) -> object:
    if isinstance(value, bytes):
        return {"$b": base64.b64encode(value).decode()}
    raise TypeError(f"SQLite gave a {type(value).__name__}")


def schema_statements(db: sqlite3.Connection) -> list[list[str]]:
    """(type, SQL) of every schema object, in an order in which they can be created."""
    ranks = {"table": 0, "index": 1, "view": 2, "trigger": 3}
    found = db.execute(
        "SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL "
        "AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
    ).fetchall()
    found.sort(key=lambda row: (ranks[row[0]], row[1]))
    return [[kind, sql] for kind, _name, sql in found]


def inspect(source: Path | bytes, name: str = "") -> DatabaseContent:
    """Read a whole database and hash it.

    Raises:
        DatasetError: if it is no sound SQLite database.
    """
    with open_database(source, name) as db:
        return _read(db, lambda table, text: None)


def _read(db: sqlite3.Connection, keep: Callable[[str, str], None]) -> DatabaseContent:
    """Hash a database; ``keep`` gets each table's name and the JSON of some of its rows, in order."""
    digest = hashlib.sha256(json.dumps(schema_statements(db)).encode())
    shape = []
    for table in tables_of(db):
        shape.append([table.name, *sorted(map(list, table.columns))])
        digest.update(json.dumps(["table", table.name]).encode())
        cursor = _rows(db, table)
        while chunk := cursor.fetchmany(_CHUNK):
            text = json.dumps(chunk, default=_encode)
            digest.update(text.encode())
            keep(table.name, text)
    schema = hashlib.sha256(json.dumps(shape).encode()).hexdigest()
    return DatabaseContent(digest.hexdigest(), schema)


class Snapshot(NamedTuple):
    """A database in memory, as rows that JSON can hold (blobs as ``{"$b": base64}``)."""

    statements: list[list[str]]
    tables: dict[str, list[list[object]]]
    content: str
    schema: str


def snapshot(source: Path | bytes, name: str = "") -> Snapshot:
    """Read a whole database into memory.

    Raises:
        DatasetError: if it is no sound SQLite database.
    """
    with open_database(source, name) as db:
        tables: dict[str, list[list[object]]] = {table.name: [] for table in tables_of(db)}
        hashes = _read(db, lambda table, text: tables[table].extend(json.loads(text)))
        return Snapshot(schema_statements(db), tables, hashes.content, hashes.schema)


def build(statements: list[list[str]], tables: dict[str, list[list[object]]], path: Path) -> None:
    """Write a new SQLite file with this schema and these rows; same input, same bytes.

    Raises:
        sqlite3.Error: also where the schema would have this process compute without end.
    """
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        _bound(db)
        db.execute("PRAGMA page_size = 4096")
        db.execute("PRAGMA journal_mode = OFF")
        db.execute("PRAGMA synchronous = OFF")
        db.execute("PRAGMA trusted_schema = OFF")
        db.execute("PRAGMA ignore_check_constraints = ON")  # the caller knows the content's hash
        db.execute("BEGIN")
        for kind, sql in statements:
            if kind == "table":
                db.execute(sql)
        for name in sorted(tables):
            rows = tables[name]
            if rows:
                marks = ", ".join("?" * len(rows[0]))
                db.executemany(
                    f"INSERT INTO {_quoted(name)} VALUES ({marks})", map(_decode_row, rows)
                )
        db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_KEY)
        db.set_authorizer(_authorize_index)
        for kind, sql in statements:
            if kind != "table":
                db.execute(sql)
        db.set_authorizer(None)
        db.execute("COMMIT")


def _authorize_index(action: int, _first: str | None, name: str | None, *_: object) -> int:
    """Let an index on an expression call a few functions only."""
    called = action == sqlite3.SQLITE_FUNCTION
    return sqlite3.SQLITE_DENY if called and name not in _KEY_FUNCTIONS else sqlite3.SQLITE_OK


def _decode_row(row: list[object]) -> list[object]:
    return [base64.b64decode(str(x["$b"])) if isinstance(x, dict) else x for x in row]


def delta(rows: list[list[object]], parent: list[list[object]]) -> list[object] | None:
    """``rows`` as a list of parent row numbers and new rows, or None if nothing differs."""
    if rows == parent:
        return None
    places = {json.dumps(row): i for i, row in enumerate(parent)}
    return [places.get(json.dumps(row), row) for row in rows]


def undelta(changed: list[object] | None, parent: list[list[object]]) -> list[list[object]]:
    """The rows that ``delta`` packed."""
    if changed is None:
        return parent
    rows: list[list[object]] = []
    for item in changed:
        if isinstance(item, int) and 0 <= item < len(parent):
            rows.append(parent[item])
        elif isinstance(item, list):
            rows.append(item)
        else:
            raise DatasetError("a packed row is neither a number nor a row")
    return rows
