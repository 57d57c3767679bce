"""Run folders from a stranger, made to keep this process busy or to fill its memory."""

from __future__ import annotations

import io
import os
import sqlite3
import zipfile
import zlib
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from store_samples import trajectory

from envgen.core.canonical import sha256
from envgen.core.errors import StoreError
from envgen.core.types import FileRef
from envgen.store import key_sets
from envgen.store.runs import RunStore
from envgen.store.token_files import read_tokens


def a_run(folder: Path, *statements: tuple[str, tuple[object, ...]]) -> Path:
    """A run of one episode, whose database was then changed."""
    with RunStore.open(folder, config={"n": 1}, dataset_hash="d" * 64) as run:
        run.add(trajectory("t-1", 0))
    with closing(sqlite3.connect(folder / "run.sqlite", isolation_level=None)) as db:
        for sql, values in statements:
            db.execute(sql, values)
    return folder


def test_a_record_that_grows_without_end_is_refused(tmp_path: Path) -> None:
    packer = zlib.compressobj(9)
    pieces = [packer.compress(bytes(1 << 24)) for _ in range(24)]
    bomb = b"".join([*pieces, packer.flush()])
    assert len(bomb) < 1 << 20
    folder = a_run(tmp_path / "run", ("UPDATE trajectories SET record = ?", (bomb,)))
    with RunStore.read(folder) as run, pytest.raises(StoreError, match="longer than"):
        list(run.trajectories())


def test_a_record_that_is_a_text_is_refused(tmp_path: Path) -> None:
    folder = a_run(tmp_path / "run", ("UPDATE trajectories SET record = ?", ("text",)))
    with RunStore.read(folder) as run, pytest.raises(StoreError, match="is corrupt"):
        list(run.trajectories())


def test_files_that_never_end_are_refused(tmp_path: Path) -> None:
    folder = a_run(tmp_path / "run")
    os.mkfifo(folder / "run.sqlite-journal")
    with pytest.raises(StoreError, match="no regular file"):
        RunStore.read(folder)
    os.truncate(folder / "run.json", 20 << 30)
    (folder / "run.sqlite-journal").unlink()
    with pytest.raises(StoreError, match="is corrupt"):
        RunStore.read(folder)


ENDLESS = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT n FROM c"


@pytest.mark.parametrize(
    "sql",
    [
        f"CREATE VIEW v AS {ENDLESS}",
        "CREATE TRIGGER g AFTER INSERT ON trajectories BEGIN "
        f"INSERT INTO stages(name) {ENDLESS}; END",
    ],
)
def test_a_database_that_would_compute_is_refused(tmp_path: Path, sql: str) -> None:
    folder = a_run(tmp_path / "run", (sql, ()))
    with pytest.raises(StoreError, match="views or triggers"):
        RunStore.read(folder)
    with pytest.raises(StoreError, match="views or triggers"):
        RunStore.open(folder, config={"n": 1}, dataset_hash="d" * 64)


def test_a_database_that_is_somebody_elses_is_not_touched(tmp_path: Path) -> None:
    folder = a_run(tmp_path / "run")
    other = tmp_path / "other.sqlite"
    with closing(sqlite3.connect(other)) as db:
        db.execute("CREATE TABLE secret(x)")
    before = other.read_bytes()
    (folder / "run.sqlite").unlink()
    (folder / "run.sqlite").symlink_to(other)
    with pytest.raises(StoreError, match="a link"):
        RunStore.read(folder)
    assert other.read_bytes() == before


def test_arrays_that_grow_without_end_are_refused(tmp_path: Path) -> None:
    zeros, few, wide = io.BytesIO(), io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(zeros, "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("ids.npy", "w", force_zip64=True) as file:
            header = {"descr": "|u1", "fortran_order": False, "shape": (1100 << 20,)}
            np.lib.format.write_array_header_1_0(file, header)
            for _ in range(1100):
                file.write(bytes(1 << 20))
    np.savez(few, topk_changes=key_sets._varints(np.array([10**9, 10**3, 10**3])))
    np.savez(wide, topk_changes=key_sets._varints(np.array([2, 1, 2**31, 1, 0, 5])))
    for content in (zeros.getvalue(), few.getvalue(), wide.getvalue()):
        (tmp_path / "x.npz").write_bytes(content)
        with pytest.raises(StoreError, match="can't read token arrays"):
            read_tokens(tmp_path, FileRef(path="x.npz", sha256=sha256(content)))
