from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from store_samples import small_dataset, variant

from envgen.core.errors import ConfigError, StoreError
from envgen.core.types import PassAt, SourceKind
from envgen.store.dataset import Dataset
from envgen.store.subset import export, subset

RATE = PassAt(policy="random-valid", n=100, c=7, seed=1)


def test_a_subset_keeps_tasks_evidence_and_rates(tmp_path: Path) -> None:
    dataset = small_dataset(tmp_path / "ds", variants=10)
    kept = subset(
        dataset,
        ["trip-2-a", "trip-1-a-v00003"],
        tmp_path / "kept",
        pass_at={"trip-2-a": [RATE], "trip-1-a-v00003": [RATE]},
        funnel={"filter": {"kept": 2}},
    )
    assert sorted(kept.tasks) == ["trip-1-a-v00003", "trip-2-a"]
    assert sorted(kept.environments) == ["trip-1", "trip-2"]
    assert kept.manifest.counts.model_dump() == {"environments": 2, "tasks": 1, "variants": 1}
    assert kept.tasks["trip-2-a"].pass_at == (RATE,)
    assert kept.tasks["trip-2-a"].evidence == dataset.tasks["trip-2-a"].evidence
    found = kept.task_files("trip-1-a-v00003")
    assert found.spec.pass_at == (RATE,)
    assert found.solution == variant(3).solution
    assert kept.database("trip-1-a-v00003") == dataset.database("trip-1-a-v00003")
    assert kept.manifest.funnel["filter"] == {"kept": 2}
    assert "pass@10 | pass@100" in (tmp_path / "kept" / "README.md").read_text()
    assert Dataset.open(tmp_path / "kept").source is SourceKind.LOCAL


def test_rates_do_not_change_identity(tmp_path: Path) -> None:
    dataset = small_dataset(tmp_path / "ds", variants=2)
    rates = {task_id: [RATE] for task_id in dataset.tasks}
    again = subset(dataset, list(dataset.tasks), tmp_path / "again", pass_at=rates)
    assert again.manifest.content_hash == dataset.manifest.content_hash


def test_a_subset_of_foreign_tasks_stays_foreign(tmp_path: Path) -> None:
    dataset = small_dataset(tmp_path / "ds", register=False)
    kept = subset(dataset, ["trip-1-b"], tmp_path / "kept")
    assert kept.source is SourceKind.FOREIGN
    assert Dataset.open(tmp_path / "kept").source is SourceKind.FOREIGN


def test_unknown_tasks_are_refused(tmp_path: Path) -> None:
    dataset = small_dataset(tmp_path / "ds")
    with pytest.raises(StoreError, match="'nope' is not in"):
        subset(dataset, ["nope"], tmp_path / "kept")
    assert not (tmp_path / "kept").exists()


def test_exports_hold_the_public_side_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("envgen.store.subset._BATCH", 2)
    dataset = small_dataset(tmp_path / "ds", variants=3)
    updates: list[tuple[int, int, str]] = []
    n = export(
        dataset, tmp_path / "t.jsonl", "jsonl", progress=lambda *so_far: updates.append(so_far)
    )
    assert n == 6
    assert updates == [(0, 6, ""), (2, 6, ""), (4, 6, "")]
    assert export(dataset, tmp_path / "t.parquet", "parquet") == 6
    text = (tmp_path / "t.jsonl").read_text()
    rows = [json.loads(line) for line in text.splitlines()]
    assert [row["id"] for row in rows] == sorted(dataset.tasks)
    assert rows[0]["tools"][0]["function"]["name"] == "list_hotels"
    for secret in ("solution", "verifier", "evidence", "constraints", "PARAMS", "Lotus"):
        assert secret not in text
    table = pq.read_table(tmp_path / "t.parquet").to_pylist()
    assert [row["prompt"] for row in table] == [row["prompt"] for row in rows]
    assert json.loads(table[0]["submit_schema"]) == rows[0]["submit_schema"]
    with pytest.raises(StoreError, match="exists"):
        export(dataset, tmp_path / "t.jsonl", "jsonl")
    with pytest.raises(ConfigError, match="csv"):
        export(dataset, tmp_path / "t.csv", "csv")  # type: ignore[arg-type]  # hostile input
