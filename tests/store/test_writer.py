from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from store_samples import database, environment, small_dataset, task, variant

from envgen.core.errors import DatasetError, StoreError
from envgen.core.types import GateResult, GateStatus
from envgen.store.dataset import Dataset
from envgen.store.splits import assign_splits, draw_split
from envgen.store.writer import DatasetWriter


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def write(path: Path) -> str:
    return (
        "from pathlib import Path; from store_samples import small_dataset; "
        f"small_dataset(Path({str(path)!r}), variants=30)"
    )


def run(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    whole = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **env}
    return subprocess.run(
        [sys.executable, "-P", "-c", code], env=whole, capture_output=True, text=True
    )


def test_same_content_same_bytes_in_any_process(tmp_path: Path) -> None:
    for seed in ("0", "1", "4242"):
        assert run(write(tmp_path / seed), PYTHONHASHSEED=seed).returncode == 0
    first = contents(tmp_path / "0")
    assert first == contents(tmp_path / "1") == contents(tmp_path / "4242")


def test_order_and_threads_do_not_matter(tmp_path: Path) -> None:
    names = [f"trip-{i}" for i in range(12)]

    def fill(path: Path, order: list[str], num_threads: int) -> None:
        with DatasetWriter(path, name="many") as writer:

            def work(part: list[str]) -> None:
                for name in part:
                    rows = [(f"Hotel {name}", "Hangzhou", 200)]
                    writer.add_environment(environment(name, database(rows)))
                    writer.add_task(task(f"{name}-a", name))
                    numbers = [i + 100 * int(name[5:]) for i in range(4)]
                    for number in numbers:
                        writer.add_variants(f"{name}-a", [variant(number, f"{name}-a")])

            threads = [
                threading.Thread(target=work, args=(order[i::num_threads],))
                for i in range(num_threads)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            writer.finish()

    fill(tmp_path / "a", names, 1)
    fill(tmp_path / "b", names[::-1], 6)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_nothing_is_there_before_finish_or_after_an_error(tmp_path: Path) -> None:
    def stop(path: Path) -> None:
        with DatasetWriter(path, name="half") as writer:
            writer.add_environment(environment())
            assert not path.exists()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stop(tmp_path / "ds")
    assert not list(tmp_path.iterdir())


def test_a_killed_writer_leaves_no_dataset_and_is_cleaned_up(tmp_path: Path) -> None:
    code = (
        "import os, signal; from store_samples import environment; "
        "from envgen.store.writer import DatasetWriter; "
        f"w = DatasetWriter({str(tmp_path / 'ds')!r}, name='x'); w.add_environment(environment()); "
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert run(code).returncode == -9
    assert [path.name.split("-")[0] for path in tmp_path.iterdir()] == [".ds.partial"]
    small_dataset(tmp_path / "ds")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ds", "state"]


def test_a_living_writer_is_left_alone(tmp_path: Path) -> None:
    with DatasetWriter(tmp_path / "ds", name="one") as one:
        one.add_environment(environment())
        with DatasetWriter(tmp_path / "ds", name="two"):
            pass
        one.add_task(task())
        one.finish()


def test_a_full_disk_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    code = (
        "import resource, signal, sys; from store_samples import environment; "
        "from envgen.core.errors import StoreError; from envgen.store.writer import DatasetWriter; "
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))\n"
        f"with DatasetWriter({str(tmp_path / 'ds')!r}, name='x') as w:\n"
        "    try: w.add_environment(environment())\n"
        "    except StoreError as error: print(error)\n"
    )
    result = run(code)
    assert "can't write the dataset" in result.stdout, result.stderr
    assert not list(tmp_path.iterdir())


def test_taken_paths_and_ids_are_refused(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    (tmp_path / "file").touch()
    for name in ("full", "file"):
        with pytest.raises(StoreError, match="exists"):
            DatasetWriter(tmp_path / name, name="x")
    (tmp_path / "empty").mkdir()
    with DatasetWriter(tmp_path / "empty", name="x") as writer:
        writer.add_environment(environment())
        with pytest.raises(StoreError, match="already"):
            writer.add_environment(environment())
        writer.add_task(task())
        with pytest.raises(StoreError, match="already"):
            writer.add_task(task())
        with pytest.raises(StoreError, match="unknown environment"):
            writer.add_task(task("other", "nowhere"))
        with pytest.raises(StoreError, match="unknown task"):
            writer.add_variants("nowhere", [variant(1)])
        writer.add_variants("trip-1-a", [variant(1)])
        with pytest.raises(StoreError, match="already"):
            writer.add_variants("trip-1-a", [variant(1)])
        dataset = writer.finish()
        with pytest.raises(StoreError, match="finished"):
            writer.add_task(task("late"))
    assert dataset.manifest.counts.variants == 1


def test_unsound_databases_are_refused(tmp_path: Path) -> None:
    with DatasetWriter(tmp_path / "ds", name="x") as writer:
        with pytest.raises(DatasetError, match="SQLite"):
            writer.add_environment(environment(content=b"no database"))
        writer.add_environment(environment())
        writer.add_task(task())
        row = variant(1).model_copy(
            update={"database": database(extra="CREATE TABLE more (x INTEGER) STRICT")}
        )
        with pytest.raises(DatasetError, match="another schema"):
            writer.add_variants("trip-1-a", [row])


def test_no_database_or_schema_crosses_splits(tmp_path: Path) -> None:
    same_rows = environment("trip-2")
    same_schema = environment("trip-2", database([("Pine", "Hangzhou", 1)]))
    for other, match in ((same_rows, "database"), (same_schema, "schema")):
        with DatasetWriter(tmp_path / "ds", name="x") as writer:
            writer.add_environment(environment("trip-1"))
            writer.add_environment(other)
            writer.add_task(task("a", "trip-1"))
            writer.add_task(task("b", "trip-2", split="test"))
            with pytest.raises(StoreError, match=f"splits leak: {match}"):
                writer.finish()


def test_variants_are_split_by_database(tmp_path: Path) -> None:
    with DatasetWriter(tmp_path / "ds", name="x") as writer:
        writer.add_environment(environment())
        writer.add_task(task())
        rows = [variant(i) for i in range(100)]
        twins = [x.model_copy(update={"task_id": f"{x.task_id}-twin"}) for x in rows]
        writer.add_variants("trip-1-a", rows + twins)
        dataset = writer.finish()
    splits = {row.task_id: dataset.tasks[row.task_id].split for row in rows}
    assert set(splits.values()) == {"train", "validation", "test"}
    for row in rows:
        assert dataset.tasks[f"{row.task_id}-twin"].split == splits[row.task_id]


def test_variants_of_a_test_task_stay_in_test(tmp_path: Path) -> None:
    with DatasetWriter(tmp_path / "ds", name="x") as writer:
        writer.add_environment(environment())
        writer.add_task(task(split="test"))
        writer.add_variants("trip-1-a", [variant(i) for i in range(20)])
        dataset = writer.finish()
    assert {spec.split for spec in dataset.tasks.values()} == {"test"}


def test_whole_schemas_are_dealt_to_splits() -> None:
    schemas = {f"env-{i}": f"schema-{i % 5}" for i in range(20)}
    splits = assign_splits(schemas, seed=3, validation=0.2, test=0.2)
    by_schema = {(schemas[name], split) for name, split in splits.items()}
    assert len(by_schema) == 5
    assert set(splits.values()) == {"train", "validation", "test"}
    assert set(assign_splits({"a": "x", "b": "x"}).values()) == {"train"}
    assert draw_split("x", seed=1) == draw_split("x", seed=1)


def test_gates_about_the_dataset_need_a_hundred_tasks(tmp_path: Path) -> None:
    gate = GateResult(gate="planted_rank", status=GateStatus.PASSED, n=50, figure=0.4)
    with DatasetWriter(tmp_path / "ds", name="x") as writer:
        writer.add_environment(environment())
        writer.add_task(task())
        manifest = writer.finish(dataset_evidence=(gate,)).manifest
    assert manifest.evidence[0].status == "not_run"
    assert "100" in manifest.evidence[0].reason


def test_the_card_says_what_it_must(tmp_path: Path) -> None:
    dataset = small_dataset(tmp_path / "ds", variants=5)
    text = (tmp_path / "ds" / "README.md").read_text()
    for words in (
        "# sample (version 1)",
        "OpenStreetMap (ODbL)",
        "CC0-1.0",
        "| drafts | 5 |",
        "gold: 2",
        f"canary GUID {dataset.manifest.canary}",
        "| 0.97 to below 0.99 | 3 |",
        "| 1e-1 to below 1e0 | 3 |",
        dataset.manifest.content_hash,
        "| train | 3 | 5 |",
    ):
        assert words in text, words


def test_twenty_thousand_variants_fit(tmp_path: Path) -> None:
    """At 2,000 here: less than 5 KB each, and quick to open."""
    with DatasetWriter(tmp_path / "ds", name="x") as writer:
        writer.add_environment(environment())
        writer.add_task(task())
        writer.add_variants("trip-1-a", [variant(i) for i in range(2000)])
        writer.finish()
    size = sum(map(len, contents(tmp_path / "ds").values()))
    assert size < 2000 * 5000 / 4
    assert len(Dataset.open(tmp_path / "ds").tasks) == 2001
