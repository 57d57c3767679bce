"""Sabotage of a dataset's Parquet: each falsification is told, though its hash was listed anew."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from store_samples import small_dataset

from envgen.core.canonical import sha256
from envgen.core.types import GateStatus
from envgen.pipelines.tables import tables
from envgen.pipelines.validate import validate
from envgen.store.columns import task_schema, write_parquet
from envgen.store.dataset import Dataset

TABLE = "data/train.parquet"
Rows = list[dict[str, Any]]


def relisted(folder: Path, name: str) -> None:
    """List a file's new hash, or that it is gone, as an attacker would."""
    path = folder / "dataset.json"
    manifest = json.loads(path.read_text())
    manifest["members"].pop(name, None)
    if (folder / name).exists():
        manifest["members"][name] = sha256((folder / name).read_bytes())
    path.write_text(json.dumps(manifest))


def rewritten(folder: Path, change: Callable[[Rows], object]) -> None:
    """Change rows of the table, in place."""
    rows = pq.read_table(folder / TABLE).to_pylist()
    change(rows)
    write_parquet(rows, folder / TABLE, task_schema())
    relisted(folder, TABLE)


def reason(folder: Path) -> str:
    result = tables(Dataset.open(folder))
    assert (result.status is GateStatus.PASSED) == (not result.reason)
    return result.reason


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows[1].update(prompt="Reward me."), "other prompt of the task"),
        (lambda rows: rows[0].update(level=9), "other level"),
        (lambda rows: rows[0].update(submit_schema="{}"), "other submit_schema"),
        (lambda rows: rows[0]["tools"][0]["function"].update(description="x"), "other tools"),
        (lambda rows: rows[0]["limits"].update(turns=1), "other limits"),
        (lambda rows: rows[0]["rules"].clear(), "other rules"),
        (lambda rows: rows.pop(), "rows for"),
        (lambda rows: rows.append(rows[0]), "rows for"),
        (lambda rows: rows.reverse(), "other id"),
        (lambda rows: rows[0].update(split="test"), "other split"),
    ],
)
def test_a_falsified_row_is_told(
    tmp_path: Path, change: Callable[[Rows], object], message: str
) -> None:
    folder = small_dataset(tmp_path / "ds", variants=2).path
    assert reason(folder) == ""
    rewritten(folder, change)
    assert message in reason(folder)


def test_tables_of_before_the_submit_tool_stood_in_them_still_hold(tmp_path: Path) -> None:
    folder = small_dataset(tmp_path / "ds").path
    rewritten(folder, lambda rows: [row["tools"].pop() for row in rows])
    assert reason(folder) == ""
    rewritten(folder, lambda rows: [row["tools"].pop() for row in rows])
    assert "other tools" in reason(folder)


def test_a_table_that_is_missing_strange_or_none_is_told(tmp_path: Path) -> None:
    folder = small_dataset(tmp_path / "ds").path
    good = (folder / TABLE).read_bytes()
    (folder / TABLE).write_bytes(b"PAR1")
    relisted(folder, TABLE)
    assert "can't be read" in reason(folder)
    pq.write_table(pa.table({"prompt": ["x"]}), folder / TABLE)
    relisted(folder, TABLE)
    assert "other columns" in reason(folder)
    (folder / TABLE).write_bytes(
        good[:4] + b"\xff" * 40 + good[44:]
    )  # its first page; columns and rows agree
    relisted(folder, TABLE)
    assert "can't be read" in reason(folder)
    (folder / TABLE).unlink()
    relisted(folder, TABLE)
    assert "is missing" in reason(folder)
    for name in (TABLE, "data/test.parquet"):
        (folder / name).write_bytes(good)
        relisted(folder, name)
    assert reason(folder) == "data/test.parquet is of no split"


def test_validate_fails_on_a_falsified_row(tmp_path: Path) -> None:
    folder = small_dataset(tmp_path / "ds").path
    for change, failed in ((lambda rows: None, []), (lambda rows: rows[0].clear(), ["tables"])):
        rewritten(folder, change)
        report = validate(folder, backend="process", trust=True)
        found = [one.gate for one in report.dataset_evidence if one.status is GateStatus.FAILED]
        assert found == failed
        assert not (failed and report.passed)
