"""The one thread that writes a run's database, in batches."""

from __future__ import annotations

import queue
import threading
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Delete, Engine, Insert
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from envgen.core.errors import StoreError

_BATCH = 256
_QUEUE = 1024


@dataclass(frozen=True)
class RowWrite:
    """One row to insert, and what to delete before it."""

    statement: Insert
    row: dict[str, Any]
    before: Delete | None = None


class RunWriter:
    """Commits rows in the order they come, as many at once as are waiting.

    The first failure is final: what was committed stays, and every later call raises it.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._queue: queue.Queue[RowWrite | threading.Event | None] = queue.Queue(_QUEUE)
        self._error: StoreError | None = None
        self._thread = threading.Thread(target=self._run, name="envgen-run-writer", daemon=True)
        self._thread.start()

    def put(self, write: RowWrite) -> None:
        """Queue a row; waits while the queue is full.

        Raises:
            StoreError: if an earlier write failed.
        """
        self._raise()
        self._offer(write)

    def flush(self) -> None:
        """Wait until all queued rows are committed.

        Raises:
            StoreError: if a write failed.
        """
        reached = threading.Event()
        self._offer(reached)
        while not reached.wait(1.0):
            self._check_alive()
        self._raise()

    def close(self) -> None:
        """Commit what is queued and end the thread.

        Raises:
            StoreError: if a write failed.
        """
        self._offer(None)
        self._thread.join()
        self._raise()

    def _offer(self, item: RowWrite | threading.Event | None) -> None:
        while True:
            self._check_alive()
            try:
                return self._queue.put(item, timeout=1.0)
            except queue.Full:
                continue

    def _check_alive(self) -> None:
        if not self._thread.is_alive():
            raise StoreError("the run's writer thread has died")

    def _raise(self) -> None:
        if self._error is not None:
            raise StoreError(*self._error.args) from self._error

    def _run(self) -> None:
        going = True
        while going:
            batch: list[RowWrite] = []
            reached: list[threading.Event] = []
            item = self._queue.get()
            while True:
                if isinstance(item, RowWrite):
                    batch.append(item)
                elif item is None:
                    going = False
                else:
                    reached.append(item)
                if len(batch) >= _BATCH or not going:
                    break
                try:
                    item = self._queue.get_nowait()
                except queue.Empty:
                    break
            if batch and self._error is None:
                self._commit(batch)
            for event in reached:
                event.set()

    def _commit(self, batch: list[RowWrite]) -> None:
        try:
            with self._engine.begin() as connection:
                start = 0
                for end in range(1, len(batch) + 1):
                    last = batch[end - 1]
                    if end < len(batch) and _together(last, batch[end]):
                        continue
                    if last.before is not None:
                        connection.execute(last.before)
                    connection.execute(last.statement, [x.row for x in batch[start:end]])
                    start = end
        except (SQLAlchemyError, OverflowError) as error:  # sqlite3 raises the latter bare
            cause = error.orig if isinstance(error, DBAPIError) else error
            text = str(cause).strip().split("\n")[0]
            hint = "free disk space" if "full" in text or "disk" in text else ""
            self._error = StoreError(
                f"can't write the run database: {text}; what was committed before is kept",
                hint or "start the same command again to resume",
            )


def _together(a: RowWrite, b: RowWrite) -> bool:
    return a.before is None and b.before is None and a.statement.table is b.statement.table
