from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest
from pydantic import JsonValue
from sqlalchemy import create_engine, make_url, text
from store_samples import trajectory

from envgen.core.errors import ConfigError, ResumeError, StoreError
from envgen.core.types import StopReason, Trajectory, TrajectoryError, Turn
from envgen.store.runs import RunStore, TaskCounts

CONFIG: dict[str, JsonValue] = {"policy": "random", "n": 4, "seed": 0}
HASH = "d" * 64
POSTGRES = os.environ.get("ENVGEN_TEST_POSTGRES", "")


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def db_url(request: pytest.FixtureRequest) -> Iterator[str | None]:
    if request.param == "sqlite":
        yield None
        return
    if not POSTGRES:
        pytest.skip("ENVGEN_TEST_POSTGRES names no PostgreSQL server")
    schema = f"envgen_test_{uuid4().hex}"
    engine = create_engine(make_url(POSTGRES).set(drivername="postgresql+psycopg"))
    with engine.begin() as connection:
        connection.execute(text(f"CREATE SCHEMA {schema}"))
    query = {"options": f"-csearch_path={schema}"}
    yield make_url(POSTGRES).update_query_dict(query).render_as_string(hide_password=False)
    with engine.begin() as connection:
        connection.execute(text(f"DROP SCHEMA {schema} CASCADE"))
    engine.dispose()


def open_run(folder: Path, db_url: str | None = None) -> RunStore:
    return RunStore.open(folder, config=CONFIG, dataset_hash=HASH, db_url=db_url)


def failed(task_id: str, sample: int) -> Trajectory:
    changes = {
        "score": None,
        "stop": StopReason.ERROR,
        "error": TrajectoryError(kind="EnvError", text="worker died"),
    }
    return trajectory(task_id, sample).model_copy(update=changes)


def test_trajectories_come_back_as_they_were(tmp_path: Path, db_url: str | None) -> None:
    added = [trajectory(name, i) for name in ("b-1", "a_1", "a-1") for i in range(3)]
    with open_run(tmp_path, db_url) as store:
        for item in reversed(added):
            store.add(item)
        store.flush()
        assert list(store.trajectories()) == sorted(added, key=lambda x: (x.task_id, x.sample))
        assert [x.sample for x in store.trajectories("a-1")] == [0, 1, 2]
        assert store.done() == {(x.task_id, x.sample) for x in added}


def test_endings_are_counted_and_what_the_verifier_judged(
    tmp_path: Path, db_url: str | None
) -> None:
    """Of this run alone, errors included."""
    lost = trajectory("a-1", 8).model_copy(
        update={"stop": StopReason.TURN_LIMIT, "reached_verifier": False}
    )
    with open_run(tmp_path / "run", db_url) as store:
        assert store.endings() == ({}, 0)
        judged = [trajectory("a-1", i, passed=i < 2) for i in range(3)]
        broken = failed("a-1", 7).model_copy(update={"reached_verifier": False})
        for one in (*judged, broken, lost):
            store.add(one)
        store.flush()
        assert store.endings() == ({"error": 1, "submitted": 3, "turn_limit": 1}, 3)
    with open_run(tmp_path / "other", db_url) as other:
        other.add(trajectory("a-1", 0))
        other.flush()
        assert other.endings() == ({"submitted": 1}, 1)


def test_counts_leave_errors_out(tmp_path: Path, db_url: str | None) -> None:
    with open_run(tmp_path, db_url) as store:
        store.add(trajectory("a", 0, passed=True))
        store.add(trajectory("a", 1, passed=False))
        store.add(failed("a", 2))
        store.add(failed("b", 0))
        store.flush()
        assert store.counts() == {"a": TaskCounts(2, 1, 1), "b": TaskCounts(0, 0, 1)}
        assert store.totals()["episodes"] == 4
        assert store.discard_errors() == 2
        assert store.done() == {("a", 0), ("a", 1)}
        store.add(trajectory("b", 0))


def test_stage_results_are_kept_and_replaced(tmp_path: Path, db_url: str | None) -> None:
    with open_run(tmp_path, db_url) as store:
        assert store.stage("draft") is None
        store.put_stage("draft", {"kept": [1, 2]})
        store.put_stage("draft", {"kept": [3]})
    with open_run(tmp_path, db_url) as store:
        assert store.stage("draft") == {"kept": [3]}


def test_a_run_resumes_and_refuses_duplicates(tmp_path: Path, db_url: str | None) -> None:
    with open_run(tmp_path, db_url) as store:
        store.add(trajectory("a", 0))
    with open_run(tmp_path, db_url) as store:
        assert store.done() == {("a", 0)}
        with pytest.raises(StoreError, match="stored already"):
            store.add(trajectory("a", 0))
        store.add(trajectory("a", 1))
    with RunStore.read(tmp_path, db_url=db_url) as store:
        assert len(list(store.trajectories())) == 2
        with pytest.raises(StoreError, match="reading only"):
            store.add(trajectory("a", 2))


def test_runs_share_one_database(tmp_path: Path, db_url: str | None) -> None:
    url = db_url or f"sqlite:///{tmp_path / 'all.sqlite'}"
    with open_run(tmp_path / "x", url) as one, open_run(tmp_path / "y", url) as two:
        one.add(trajectory("a", 0))
        two.add(trajectory("a", 0))
        two.add(trajectory("a", 1))
        one.flush()
        two.flush()
        assert (len(one.done()), len(two.done())) == (1, 2)


def test_many_threads_add(tmp_path: Path, db_url: str | None) -> None:
    with open_run(tmp_path, db_url) as store:

        def work(thread: int) -> None:
            for i in range(50):
                store.add(trajectory(f"t{thread}", i))

        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        store.flush()
        assert sum(x.n for x in store.counts().values()) == 400


def test_token_arrays_are_files_with_hashes(tmp_path: Path) -> None:
    item = trajectory().model_copy(update={"turns": (Turn(message_index=1), Turn(message_index=3))})
    arrays = {"completion_ids": np.arange(5, dtype=np.int32), "logprobs": np.zeros(5, np.float32)}
    with open_run(tmp_path) as store:
        store.add(item, {1: arrays})
        store.flush()
        stored = next(store.trajectories())
        reference = stored.turns[1].tokens
        assert stored.turns[0].tokens is None
        assert reference is not None
        found = store.tokens(reference)
        assert {name: x.tolist() for name, x in found.items()} == {
            name: x.tolist() for name, x in arrays.items()
        }
        (tmp_path / reference.path).write_bytes(b"x")
        with pytest.raises(StoreError, match="hash"):
            store.tokens(reference)


def test_another_config_or_dataset_is_refused(tmp_path: Path) -> None:
    open_run(tmp_path).close()
    with pytest.raises(ResumeError, match="n: 4 -> 5"):
        RunStore.open(tmp_path, config={**CONFIG, "n": 5}, dataset_hash=HASH)
    with pytest.raises(ResumeError, match="another dataset"):
        RunStore.open(tmp_path, config=CONFIG, dataset_hash="e" * 64)


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    with open_run(tmp_path), pytest.raises(StoreError, match="another process"):
        open_run(tmp_path)


def test_nonsense_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no run"):
        RunStore.read(tmp_path)
    with pytest.raises(ConfigError, match="not a database URL"):
        open_run(tmp_path / "a", "what://ever")
    open_run(tmp_path / "b").close()
    (tmp_path / "b" / "run.sqlite").write_bytes(b"no database" * 100)
    with pytest.raises(StoreError, match="not a database"):
        open_run(tmp_path / "b")
    (tmp_path / "b" / "run.json").write_text("{")
    with pytest.raises(StoreError, match="corrupt"):
        open_run(tmp_path / "b")


KILLED = """
import sys
from store_samples import trajectory
from envgen.store.runs import RunStore
store = RunStore.open(sys.argv[1], config={"policy": "random", "n": 4, "seed": 0}, dataset_hash="d" * 64)
done = store.done()
for i in range(2000):
    if ("a", i) not in done:
        store.add(trajectory("a", i))
        if i == 700:
            print("going", flush=True)
store.close()
"""


def test_kill_nine_loses_nothing_committed(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    child = subprocess.Popen(
        [sys.executable, "-P", "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, env=env
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"going\n"
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    with RunStore.read(tmp_path) as store:
        before = len(store.done())
        assert list(store.trajectories()) == [trajectory("a", i) for i in range(before)]
    subprocess.run([sys.executable, "-P", "-c", KILLED, str(tmp_path)], check=True, env=env)
    with RunStore.read(tmp_path) as store:
        assert len(store.done()) == 2000


FULL = """
import resource, signal, sys
from store_samples import trajectory
from envgen.core.errors import StoreError
from envgen.store.runs import RunStore
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = RunStore.open(sys.argv[1], config={"policy": "random", "n": 4, "seed": 0}, dataset_hash="d" * 64)
for i in range(20):
    store.add(trajectory("a", i))
store.flush()
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
try:
    for i in range(20, 20_000):
        store.add(trajectory("a", i))
    store.close()
except StoreError as error:
    print("refused:", error, flush=True)
    try:
        store.close()
    except StoreError:
        print("again")
"""


def test_a_full_disk_is_an_error_and_loses_nothing(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run(
        [sys.executable, "-P", "-c", FULL, str(tmp_path)],
        capture_output=True, text=True, check=True, env=env,
    )  # fmt: skip
    assert "refused: can't write the run database" in result.stdout
    assert "again" in result.stdout
    with open_run(tmp_path) as store:
        done = store.done()
        assert {("a", i) for i in range(20)} <= done
        assert len(done) < 20_000
        store.add(trajectory("a", 19_999))


def test_two_thousand_trajectories_a_second(tmp_path: Path) -> None:
    items = [trajectory("a", i) for i in range(2000)]
    with open_run(tmp_path) as store:
        start = time.process_time()  # of all threads; what else the machine does is left out
        for item in items:
            store.add(item)
        store.flush()
        cpu_s = time.process_time() - start
    assert len(items) / cpu_s >= 2000
