from __future__ import annotations

import pickle
import sqlite3
from contextlib import closing
from pathlib import Path

from store_samples import environment, gold, small_dataset, task, variant

from envgen.core.types import SourceKind
from envgen.store.dataset import Dataset
from envgen.store.manifest import task_hash
from envgen.store.recent import Recent


def test_round_trip_gives_back_what_was_written(tmp_path: Path) -> None:
    small_dataset(tmp_path / "ds")
    dataset = Dataset.open(tmp_path / "ds")
    assert dataset.manifest.counts.model_dump() == {"environments": 2, "tasks": 3, "variants": 0}
    assert sorted(dataset.tasks) == ["trip-1-a", "trip-1-b", "trip-2-a"]
    files = dataset.environment_files("trip-1")
    assert files.tools_source == environment().tools_source
    assert files.blueprint == {"rows": 2}
    assert files.database is not None
    assert files.database.read_bytes() == environment().database
    assert dataset.database("trip-1-a") == files.database
    bundle = dataset.task_files("trip-1-a")
    expected = task()
    assert bundle.model_copy(update={"spec": expected.spec}) == expected
    assert dataset.tasks["trip-1-a"].evidence == expected.spec.evidence


def test_variants_are_materialised_on_demand(tmp_path: Path) -> None:
    dataset = small_dataset(tmp_path / "ds", variants=20)
    assert len(dataset.tasks) == 23
    assert len(dataset.own_task_ids) == 3
    assert not (tmp_path / "cache").exists()
    row = variant(7)
    spec = dataset.tasks[row.task_id]
    assert spec.variant_of == "trip-1-a"
    assert spec.prompt == row.prompt
    assert spec.environment_id == "trip-1"
    bundle = dataset.task_files(row.task_id)
    assert (bundle.solution, bundle.verifier) == (row.solution, row.verifier)
    assert bundle.constraints == row.constraints
    assert bundle.gold == row.gold
    path = dataset.database(row.task_id)
    assert path is not None
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        assert db.execute("SELECT name, price FROM hotels ORDER BY name").fetchall() == [
            ("Inn 7", 102),
            ("Palace 7", 197),
        ]
    assert dataset.database(row.task_id) == path


def test_facts_are_those_of_the_specs(tmp_path: Path) -> None:
    dataset = small_dataset(tmp_path / "ds", variants=20)
    for task_id, spec in dataset.tasks.items():
        expected = (spec.environment_id, spec.family, spec.split, spec.difficulty.level)
        assert dataset.facts(task_id) == expected


def test_what_was_made_last_is_remembered_and_no_more() -> None:
    loaded: list[str] = []

    def make(key: str) -> str:
        loaded.append(key)
        return key.upper()

    recent = Recent(make, 2)
    assert [recent(key) for key in "abacaab"] == list("ABACAAB")
    assert loaded == ["a", "b", "c", "b"]


def test_variants_inherit_the_evidence_they_did_not_earn(tmp_path: Path) -> None:
    spec = small_dataset(tmp_path / "ds", variants=1).tasks["trip-1-a-v00000"]
    found = {gate.gate: gate.inherited_from for gate in spec.evidence}
    assert found == {"gold": None, "mutants": "trip-1-a", "prefixes": "trip-1-a"}


def test_identity_ignores_evidence_and_pass_rates() -> None:
    spec = task().spec
    assert task_hash(spec) == task_hash(spec.model_copy(update={"evidence": ()}))
    assert task_hash(spec) != task_hash(spec.model_copy(update={"prompt": "other"}))


def test_generated_here_is_local_and_the_rest_foreign(tmp_path: Path) -> None:
    assert small_dataset(tmp_path / "a", register=False).source is SourceKind.FOREIGN
    assert small_dataset(tmp_path / "b").source is SourceKind.LOCAL
    registry = tmp_path / "state" / "envgen" / "trusted-datasets"
    assert registry.stat().st_mode & 0o777 == 0o600
    registry.chmod(0o666)
    assert Dataset.open(tmp_path / "b").source is SourceKind.FOREIGN


def test_a_dataset_survives_pickling(tmp_path: Path) -> None:
    dataset = small_dataset(tmp_path / "ds", variants=2)
    again = pickle.loads(pickle.dumps(dataset))
    assert list(again.tasks) == list(dataset.tasks)


def test_public_form_holds_no_secret(tmp_path: Path) -> None:
    dataset = small_dataset(tmp_path / "ds")
    public = dataset.tasks["trip-1-a"].public(dataset.environments["trip-1"])
    text = public.model_dump_json()
    assert "solution" not in text
    assert "evidence" not in text


def test_gold_is_kept_exactly(tmp_path: Path) -> None:
    assert small_dataset(tmp_path / "ds").task_files("trip-1-a").gold == gold()
