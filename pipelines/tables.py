"""The gate of a dataset's Parquet files: they must say the same as the files of its tasks."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from typing import Any

from envgen.core.errors import ConfigError
from envgen.core.types import GateResult, GateStatus
from envgen.pipelines.boundary import guarded
from envgen.store.columns import public_row, task_row, task_schema
from envgen.store.dataset import Dataset
from envgen.store.manifest import TABLES
from envgen.store.parquet_rows import parquet_rows


def tables(dataset: Dataset) -> GateResult:
    """Every split has a table that holds the public side of its tasks and nothing else."""
    return guarded("tables", lambda: _compared(dataset))


def _compared(dataset: Dataset) -> GateResult:
    rows: dict[str, list[dict[str, Any]]] = {}
    for task_id in sorted(dataset.own_task_ids):
        task = dataset.tasks[task_id]
        row = task_row(public_row(task, dataset.environments[task.environment_id]))
        rows.setdefault(f"{TABLES}/{task.split}.parquet", []).append(row)
    stored = {name for name in dataset.manifest.members if name.startswith(f"{TABLES}/")}
    faults = [f"{name} is of no split" for name in sorted(stored - set(rows))]
    for name, expected in rows.items():
        found = _fault(dataset, name, expected) if name in stored else "is missing"
        faults += [f"{name} {found}"] if found else []
    return GateResult(
        gate="tables",
        status=GateStatus.FAILED if faults else GateStatus.PASSED,
        n=sum(map(len, rows.values())),
        reason="; ".join(faults)[:500],
    )


def _fault(dataset: Dataset, name: str, expected: list[dict[str, Any]]) -> str:
    """What is wrong with a table; empty for nothing."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    content = (dataset.path / name).read_bytes()
    if hashlib.sha256(content).hexdigest() != dataset.manifest.members[name]:
        return "does not match its hash"
    try:
        with pq.ParquetFile(io.BytesIO(content)) as file:
            if not file.schema_arrow.equals(task_schema()):
                return "has other columns than tasks have"
            if file.metadata.num_rows != len(expected):
                return f"has {file.metadata.num_rows} rows for {len(expected)} tasks"
        whole = pa.Table.from_pylist(expected, task_schema()).to_pylist()
        for wanted, row in zip(whole, parquet_rows(dataset.path / name), strict=True):
            bare = (
                _without_submit(dataset, wanted)
                if len(row["tools"]) < len(wanted["tools"])
                else wanted
            )
            if changed := _changed(bare, row):
                return f"tells other {changed} of the task {wanted['id']!r} than its files"
    except (pa.ArrowException, OSError, ConfigError) as error:
        return f"can't be read: {error}"
    return ""


def _without_submit(dataset: Dataset, wanted: Mapping[str, Any]) -> Mapping[str, Any]:
    """A row as datasets held it before tables had the submit tool."""
    known = len(dataset.environments[wanted["environment_id"]].tools)
    return {**wanted, "tools": wanted["tools"][:known]}


def _changed(wanted: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    return " and ".join(name for name, value in wanted.items() if row[name] != value)
