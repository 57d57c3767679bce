"""A run: its trajectories and stage results, committed as they complete, resumed where it stopped.

A run folder holds ``run.json`` (what the run is), ``run.sqlite`` (unless a database URL says
otherwise) and ``tokens/`` (one npz file per captured model reply).
"""

from __future__ import annotations

import json
import os
import threading
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import JsonValue
from sqlalchemy import (
    Connection,
    Engine,
    and_,
    case,
    create_engine,
    delete,
    event,
    func,
    insert,
    select,
)
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError

from envgen.core.canonical import content_hash, dumps
from envgen.core.errors import ConfigError, StoreError, UnjudgedError, install_hint
from envgen.core.types import FileRef, Trajectory
from envgen.store.folders import told_of
from envgen.store.run_folder import RUN_FILE, identify, load, lock_folder
from envgen.store.run_tables import prepare, runs, stages, trajectories
from envgen.store.run_writer import RowWrite, RunWriter
from envgen.store.token_files import Arrays, read_tokens, write_tokens

DATABASE = "run.sqlite"
_MAX_RECORD = 256 << 20
_MAX_INTEGER = (1 << 31) - 1
"""Of a column in PostgreSQL; a record holds what there was."""
"""Bytes of one episode's record, decompressed."""

Tokens = Mapping[int, Arrays]
"""Turn number -> array name -> array."""


UNJUDGED = UnjudgedError.__name__
"""The kind of error of an episode that waits for a judge."""


class TaskCounts(NamedTuple):
    """One task's episodes in a run."""

    n: int
    """Error-free episodes."""
    c: int
    """Of these, passed."""
    errors: int
    """Episodes that count neither way."""


class RunStore:
    """The record of one run. Thread-safe; one thread writes.

    Make one with ``RunStore.open`` (new or resumed) or ``RunStore.read`` (look only).
    """

    def __init__(
        self, folder: Path, engine: Engine, identity: dict[str, Any], lock: int | None
    ) -> None:
        self.folder = folder
        self.config: dict[str, JsonValue] = identity["config"]
        self.dataset_hash: str = identity["dataset_hash"]
        self._engine = engine
        self._id: str = identity["run_id"]
        self._lock_handle = lock
        self._taken_lock = threading.Lock()
        self._taken = self.done() if lock is not None else set()
        self._writer = RunWriter(engine) if lock is not None else None

    @classmethod
    def open(
        cls,
        folder: str | Path,
        *,
        config: Mapping[str, JsonValue],
        dataset_hash: str,
        db_url: str | None = None,
    ) -> RunStore:
        """Create a run in ``folder``, or resume the one that is there.

        Args:
            folder: the run folder.
            config: the resolved config, without times and paths; a resumed run must have the same.
            dataset_hash: content hash of the dataset.
            db_url: an SQLAlchemy URL; None: ``run.sqlite`` in the folder.

        Raises:
            ResumeError: if the folder's run has another config or dataset.
            StoreError: if the store can't be opened, or another process has it open.
        """
        folder = Path(folder)
        wanted = {"config": dict(config), "dataset_hash": dataset_hash}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = lock_folder(folder)
        except OSError as error:
            raise StoreError(f"can't open the run folder {str(folder)!r}: {error}") from error
        try:
            identity = identify(folder, wanted)
            engine = _engine(folder, db_url)
            try:
                prepare(engine)
                _enter_run(engine, identity)
                return cls(folder, engine, identity, lock)
            except SQLAlchemyError as error:
                engine.dispose()
                raise StoreError(f"can't open the run database: {_first_line(error)}") from error
        except BaseException:
            os.close(lock)
            raise

    @classmethod
    def read(cls, folder: str | Path, *, db_url: str | None = None) -> RunStore:
        """Open the run in ``folder`` to look at it, also while it is going on.

        Raises:
            StoreError: if there is none.
        """
        folder = Path(folder)
        if not (folder / RUN_FILE).is_file():
            raise StoreError(f"there is no run in {str(folder)!r}{told_of(folder)}")
        if db_url is None and not (folder / DATABASE).is_file():
            raise StoreError(
                f"{str(folder)!r} has no {DATABASE}", "give the database URL of the run (--db)"
            )
        for beside in folder.glob(f"{DATABASE}-*"):
            if not beside.is_file():  # SQLite would wait for a pipe without end
                raise StoreError(f"{str(beside)!r} is no regular file")
        identity = load(folder)
        engine = _engine(folder, db_url)
        try:
            prepare(engine)
            return cls(folder, engine, identity, None)
        except SQLAlchemyError as error:
            raise StoreError(f"can't read the run database: {_first_line(error)}") from error

    def __enter__(self) -> RunStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def done(self) -> set[tuple[str, int]]:
        """(task id, sample) of every stored episode, errored ones included."""
        query = select(trajectories.c.task_id, trajectories.c.sample).where(self._mine())
        with self._reading() as connection:
            return {(row[0], row[1]) for row in connection.execute(query)}

    def add(self, trajectory: Trajectory, tokens: Tokens | None = None) -> None:
        """Store one episode; returns once it is queued, and it is committed within moments.

        Args:
            trajectory: the episode; its ``turns`` get references to the token files.
            tokens: the token arrays of its turns.

        Raises:
            StoreError: if the episode is stored already, or this or an earlier write failed.
        """
        writer = self._writing()
        key = (trajectory.task_id, trajectory.sample)
        with self._taken_lock:
            if key in self._taken:
                raise StoreError(f"task {key[0]!r} sample {key[1]} is stored already")
            self._taken.add(key)
        if tokens:
            trajectory = self._put_tokens(trajectory, tokens)
        writer.put(RowWrite(insert(trajectories), _row(self._id, trajectory)))

    def trajectories(self, task_id: str | None = None) -> Iterator[Trajectory]:
        """The committed episodes, by task id and sample; of one task or of all."""
        query = (
            select(trajectories.c.record)
            .where(self._mine())
            .order_by(trajectories.c.task_id, trajectories.c.sample)
        )
        if task_id is not None:
            query = query.where(trajectories.c.task_id == task_id)
        with self._reading() as connection:
            for row in connection.execution_options(yield_per=200).execute(query):
                yield _trajectory(row[0])

    def counts(self) -> dict[str, TaskCounts]:
        """Episodes, passes and errors per task."""
        columns = trajectories.c
        valid = columns.error.is_(None)
        query = (
            select(
                columns.task_id,
                func.sum(case((valid, 1), else_=0)),
                func.sum(case((and_(valid, columns.passed.is_(True)), 1), else_=0)),
                func.sum(case((valid, 0), else_=1)),
            )
            .where(self._mine())
            .group_by(columns.task_id)
            .order_by(columns.task_id)
        )
        with self._reading() as connection:
            return {
                row[0]: TaskCounts(int(row[1]), int(row[2]), int(row[3]))
                for row in connection.execute(query)
            }

    def totals(self) -> dict[str, float]:
        """Sums over all episodes: episodes, calls, tokens, cost and seconds."""
        names = ("num_calls", "prompt_tokens", "completion_tokens", "cost_usd", "wall_s")
        sums = [func.coalesce(func.sum(trajectories.c[name]), 0) for name in names]
        query = select(func.count(), *sums).where(self._mine())
        with self._reading() as connection:
            row = connection.execute(query).one()
        return dict(zip(("episodes", *names), map(float, row), strict=True))

    def endings(self) -> tuple[dict[str, int], int]:
        """How many episodes ended in which way, and how many of all the verifier judged."""
        columns = trajectories.c
        reached = func.sum(case((columns.reached_verifier.is_(True), 1), else_=0))
        query = select(columns.stop, func.count(), reached).where(self._mine())
        with self._reading() as connection:
            rows = connection.execute(query.group_by(columns.stop).order_by(columns.stop)).all()
        return {row[0]: int(row[1]) for row in rows}, sum(int(row[2]) for row in rows)

    def tokens(self, reference: FileRef) -> dict[str, np.ndarray[Any, Any]]:
        """The token arrays of one turn.

        Raises:
            StoreError: if the file is missing or does not match its hash.
        """
        return read_tokens(self.folder, reference)

    def unjudged(self) -> int:
        """How many episodes only a judge can score."""
        query = select(func.count()).where(self._mine(), trajectories.c.error == UNJUDGED)
        with self._reading() as connection:
            return int(connection.execute(query).scalar_one())

    def discard_errors(self) -> int:
        """Forget errored episodes, so that a resumed run tries them again; returns how many.

        Those that wait for a judge are kept.
        """
        self._writing().flush()
        # Of a row without an error, `error != UNJUDGED` is unknown, and it is kept.
        query = delete(trajectories).where(self._mine(), trajectories.c.error != UNJUDGED)
        try:
            with self._engine.begin() as connection:
                count = connection.execute(query).rowcount
        except SQLAlchemyError as error:
            raise StoreError(f"can't write the run database: {_first_line(error)}") from error
        with self._taken_lock:
            self._taken = self.done()
        return count

    def stage(self, name: str) -> JsonValue:
        """A stage's stored result, or None."""
        query = select(stages.c.value).where(stages.c.run_id == self._id, stages.c.name == name)
        with self._reading() as connection:
            value = connection.execute(query).scalar()
        result: JsonValue = None if value is None else json.loads(value)
        return result

    def put_stage(self, name: str, value: JsonValue) -> None:
        """Store a stage's result, committed on return; a later one replaces it.

        Raises:
            StoreError: if it can't be written.
        """
        row = {"run_id": self._id, "name": name, "value": dumps(value)}
        old = delete(stages).where(stages.c.run_id == self._id, stages.c.name == name)
        writer = self._writing()
        writer.put(RowWrite(insert(stages), row, before=old))
        writer.flush()

    def flush(self) -> None:
        """Wait until everything added is committed.

        Raises:
            StoreError: if a write failed.
        """
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        """Commit everything, stop the writer and give up the folder.

        Raises:
            StoreError: if a write failed.
        """
        writer, self._writer = self._writer, None
        try:
            if writer is not None:
                writer.close()
        finally:
            self._engine.dispose()
            if self._lock_handle is not None:
                os.close(self._lock_handle)
                self._lock_handle = None

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        try:
            with self._engine.connect() as connection:
                yield connection
        except SQLAlchemyError as error:
            raise StoreError(f"can't read the run database: {_first_line(error)}") from error

    def _mine(self) -> Any:
        return trajectories.c.run_id == self._id

    def _writing(self) -> RunWriter:
        if self._writer is None:
            raise StoreError("this run store is closed or was opened for reading only")
        return self._writer

    def _put_tokens(self, trajectory: Trajectory, tokens: Tokens) -> Trajectory:
        turns = list(trajectory.turns)
        for number, arrays in sorted(tokens.items()):
            name = f"tokens/{trajectory.task_id}/{trajectory.sample}-{number}.npz"
            reference = write_tokens(self.folder, name, arrays)
            turns[number] = turns[number].model_copy(update={"tokens": reference})
        return trajectory.model_copy(update={"turns": tuple(turns)})


def _row(run_id: str, trajectory: Trajectory) -> dict[str, Any]:
    score, error = trajectory.score, trajectory.error
    return {
        "run_id": run_id,
        "task_id": trajectory.task_id,
        "sample": trajectory.sample,
        "policy": trajectory.policy,
        "stop": trajectory.stop.value,
        "passed": None if score is None else score.passed,
        "value": None if score is None else score.value,
        "error": None if error is None else error.kind,
        "num_calls": min(trajectory.num_calls, _MAX_INTEGER),
        "reached_verifier": trajectory.reached_verifier,
        "prompt_tokens": min(trajectory.usage.prompt_tokens, _MAX_INTEGER),
        "completion_tokens": min(trajectory.usage.completion_tokens, _MAX_INTEGER),
        "cost_usd": trajectory.usage.cost_usd,
        "wall_s": trajectory.wall_s,
        "record": zlib.compress(trajectory.model_dump_json().encode(), 1),
    }


def _trajectory(record: bytes) -> Trajectory:
    try:
        opened = zlib.decompressobj()
        plain = opened.decompress(record, _MAX_RECORD)
        if not opened.eof:
            raise ValueError(f"it is cut short, or longer than {_MAX_RECORD} bytes")
        return Trajectory.model_validate_json(plain)
    except (zlib.error, ValueError, TypeError) as error:  # a column may hold a text
        raise StoreError(f"a stored trajectory is corrupt: {error}") from error


def _engine(folder: Path, db_url: str | None) -> Engine:
    try:
        url = make_url(db_url or f"sqlite:///{folder / DATABASE}")
        if url.drivername in ("postgres", "postgresql"):
            url = url.set(drivername="postgresql+psycopg")
        if db_url is None and (folder / DATABASE).is_symlink():
            raise StoreError(f"{str(folder / DATABASE)!r} is a link, not the run's own database")
        engine = create_engine(url)
    except (ArgumentError, NoSuchModuleError) as error:
        raise ConfigError(f"{db_url!r} is not a database URL that SQLAlchemy knows") from error
    except ModuleNotFoundError as error:
        raise ConfigError(f"the driver {error.name!r} is missing", install_hint("scale")) from error
    if url.get_backend_name() == "sqlite":
        event.listen(engine, "connect", _tune_sqlite)
    return engine


def _tune_sqlite(connection: Any, _record: object) -> None:
    """Set it up; refuse views and triggers, which envgen never makes: they could compute without end."""
    for pragma in ("trusted_schema = OFF", "busy_timeout = 30000"):
        connection.execute(f"PRAGMA {pragma}")
    query = "SELECT count(*) FROM sqlite_schema WHERE type IN ('view', 'trigger')"
    if connection.execute(query).fetchone()[0]:
        raise StoreError("the run database holds views or triggers, which envgen did not make")
    for pragma in ("journal_mode = WAL", "synchronous = NORMAL"):
        connection.execute(f"PRAGMA {pragma}")


def _enter_run(engine: Engine, identity: dict[str, Any]) -> None:
    with engine.begin() as connection:
        query = select(runs.c.id).where(runs.c.id == identity["run_id"])
        if connection.execute(query).first() is None:
            row = {
                "id": identity["run_id"],
                "config": dumps(identity["config"]),
                "config_hash": content_hash(identity["config"]),
                "dataset_hash": identity["dataset_hash"],
            }
            connection.execute(insert(runs), row)


def _first_line(error: SQLAlchemyError) -> str:
    cause = error.orig if isinstance(error, DBAPIError) else error
    return str(cause).strip().split("\n")[0]
