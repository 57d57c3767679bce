"""Parquet of strangers: what it decodes into is bounded, whatever its size."""

from __future__ import annotations

import datetime
import resource
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from envgen.core.errors import ConfigError
from envgen.store import parquet_rows as module
from envgen.store.parquet_rows import parquet_rows


def bomb(path: Path, rows: int = 16) -> int:
    """Write rows of 100 MB that share one value; the file's size."""
    column = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), ["a" * 100_000_000])
    pq.write_table(pa.table({"prompt": column}), path, compression="zstd")
    return path.stat().st_size


def test_values_are_those_of_arrow(tmp_path: Path) -> None:
    when = datetime.datetime(2024, 5, 6, 7, 8, 9, tzinfo=datetime.UTC)
    rows = [{"a": i, "b": {"c": ["x\n\u2028é", None]}, "d": i / 3, "when": when} for i in range(40)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "r.parquet", row_group_size=7)
    assert list(parquet_rows(tmp_path / "r.parquet")) == [row | {"when": str(when)} for row in rows]


def test_a_bomb_costs_an_error(tmp_path: Path) -> None:
    assert bomb(tmp_path / "b.parquet") < 100_000
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ConfigError, match=r"decodes into more than 1 GiB"):
        list(parquet_rows(tmp_path / "b.parquet"))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # KiB


def test_a_row_that_is_too_large_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROW_BYTES", 1 << 20)
    bomb(tmp_path / "b.parquet", rows=1)
    with pytest.raises(ConfigError, match="row above 1 MiB"):
        list(parquet_rows(tmp_path / "b.parquet"))


def test_what_is_none_is_told(tmp_path: Path) -> None:
    (tmp_path / "b.parquet").write_bytes(b"PAR1" + b"\xff" * 99 + b"PAR1")
    with pytest.raises(ConfigError, match="can't be read"):
        list(parquet_rows(tmp_path / "b.parquet"))
    with pytest.raises(ConfigError, match="FileNotFoundError"):
        list(parquet_rows(tmp_path / "none.parquet"))


def test_reading_may_stop(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": list(range(100_000))}), tmp_path / "r.parquet")
    rows = parquet_rows(tmp_path / "r.parquet")
    assert next(rows) == {"a": 0}
    rows.close()
