"""Other rows are drawn from whatever database somebody packs."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random

from envgen.pipelines.packed.rows import OtherRowsDrawer


def test_rows_beyond_what_the_schema_or_sqlite_takes_are_drawn_again(tmp_path: Path) -> None:
    path, folder = tmp_path / "own.sqlite", tmp_path / "other"
    folder.mkdir()
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE a (k TEXT PRIMARY KEY, n INTEGER CHECK (n > 0), d TEXT)")
        rows = [(str(i), 2**63 - 1 if i % 2 else 1, "9999-12-31") for i in range(4)]
        db.executemany("INSERT INTO a VALUES (?, ?, ?)", rows)
        db.commit()
    drawer = OtherRowsDrawer(path, folder, Random(1))
    made = [*drawer.shuffled(), *drawer.tied(), *drawer.edges(lambda _: False)]
    assert made
    for other in made:
        with closing(sqlite3.connect(other.path)) as db:
            assert db.execute(
                "SELECT min(n) > 0 AND max(n) < 9223372036854775808 FROM a"
            ).fetchone() == (1,)
