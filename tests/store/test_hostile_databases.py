"""SQLite files that were made to keep this process busy, or to fill its memory."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from envgen.store.sqlite_files import build, inspect, snapshot


def create_database(
    path: Path, *statements: str, entries: tuple[tuple[str, str, str], ...] = ()
) -> Path:
    """A database; ``entries`` (type, name, SQL) get into its schema unchecked."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        for statement in statements:
            db.execute(statement)
        db.execute("PRAGMA writable_schema = ON")
        for kind, name, sql in entries:
            row = (kind, name, name if kind == "view" else "t", sql)
            db.execute("INSERT INTO sqlite_schema VALUES (?, ?, ?, 0, ?)", row)
    return path


def test_views_of_views_are_not_expanded(tmp_path: Path) -> None:
    """Each doubles what the one before stands for: 2**40 of them were expanded to count columns."""
    views = tuple(
        (
            "view",
            f"v{i}",
            f"CREATE VIEW v{i} AS WITH a AS (SELECT * FROM {'t' if not i else f'v{i - 1}'}), "
            f"b AS (SELECT * FROM {'t' if not i else f'v{i - 1}'}) SELECT a.x FROM a, b",
        )
        for i in range(40)
    )
    path = create_database(tmp_path / "views.sqlite", "CREATE TABLE t(x)", entries=views)
    start = time.monotonic()
    inspect(path)
    build(snapshot(path).statements, {"t": [[1]]}, tmp_path / "copy.sqlite")
    inspect(tmp_path / "copy.sqlite")
    assert time.monotonic() - start < 10


@pytest.mark.parametrize(
    "expression",
    [
        "length(hex(zeroblob(x * 0 + 300000000)))",
        "x LIKE '%a%a%a%a%a%b'",
        "instr(x, zeroblob(1000000))",
        "printf('%.1000000d', x)",
    ],
)
def test_an_index_may_not_compute_without_end(tmp_path: Path, expression: str) -> None:
    """A variant's database is built in this process, and so are its indexes."""
    index = ("index", "i", f"CREATE INDEX i ON t({expression})")
    path = create_database(tmp_path / "a.sqlite", "CREATE TABLE t(x)", entries=(index,))
    with pytest.raises(sqlite3.Error, match="not authorized"):
        build(snapshot(path).statements, {"t": [["a" * 1000]]}, tmp_path / "copy.sqlite")


def test_what_an_index_is_usually_made_of_is_built(tmp_path: Path) -> None:
    path = create_database(
        tmp_path / "a.sqlite",
        "CREATE TABLE t(a TEXT PRIMARY KEY CHECK(a LIKE '%x%'), n INT) WITHOUT ROWID",
        "INSERT INTO t VALUES ('ax', 1)",
        "CREATE UNIQUE INDEX i ON t(lower(a), n + 1) WHERE n IS NOT NULL",
        "CREATE VIEW v AS SELECT hex(a) AS h FROM t",
        "CREATE TRIGGER g AFTER INSERT ON t BEGIN SELECT hex(1); END",
    )
    found = snapshot(path)
    build(found.statements, found.tables, tmp_path / "copy.sqlite")
    assert inspect(tmp_path / "copy.sqlite") == inspect(path)
