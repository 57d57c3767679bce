"""Run work on many items: an Executor, and its form for one machine (threads, worker processes).

What crosses a process is a ``WorkerSpec`` (a function's name and plain arguments), items and results,
never a live object. In each process the spec is opened once; it gives a function that is called with one
item at a time, from ``threads`` threads. A worker process that dies costs its items (they come back as
``WorkerDiedError``) and is replaced, however often: what an item brings about must not end the work on
others. One that dies before it is open costs none; if that happens again and again, it is this machine's
fault, and an error. Workers end when their parent does, even if it was killed.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import chain
from multiprocessing.connection import wait as wait_connections
from typing import Any, Protocol

from envgen.core.errors import ConfigError, WorkerDiedError
from envgen.core.threads import go_on
from envgen.core.worker_process import ItemOutcome, WorkerProcess, WorkerSpec, attempt

__all__ = ["Executor", "LocalExecutor", "ItemOutcome", "WorkerSpec"]

logger = logging.getLogger(__name__)

_MAX_UNOPENED = 20
"""So many worker processes in a row may die before they are open."""


class Executor(Protocol):
    """Runs a worker over items, somewhere."""

    def run(self, worker: WorkerSpec, items: Iterable[Any]) -> Iterator[ItemOutcome]:
        """Yield an Outcome for each item as it completes, in any order.

        Items are taken lazily. Closing the iterator stops the work: items under way are dropped.
        """
        ...


@dataclass(frozen=True)
class LocalExecutor:
    """Threads in this process (``processes=0``), or worker processes with threads in each."""

    processes: int = 0
    threads: int = 1
    ahead: int = 4
    """Items that wait in a worker process beside those under way; 0 for few long ones."""

    def __post_init__(self) -> None:
        if self.processes < 0 or self.threads < 1:
            raise ConfigError(
                f"processes and threads must be at least 1, got {self.processes} and {self.threads}"
            )

    def run(self, worker: WorkerSpec, items: Iterable[Any]) -> Generator[ItemOutcome]:
        """See ``Executor.run``."""
        if self.processes == 0:
            return _run_threads(worker, iter(items), self.threads)
        return _run_processes(worker, iter(items), self)


# --- threads ----------------------------------------------------------------------------------


def _run_threads(worker: WorkerSpec, items: Iterator[Any], threads: int) -> Generator[ItemOutcome]:
    with worker.open() as work:
        if threads == 1:
            for item in items:
                go_on()
                yield attempt(work, item)
            return
        pool = ThreadPoolExecutor(threads, thread_name_prefix="envgen-worker")
        pending: set[Future[ItemOutcome]] = set()
        try:
            more = True
            while more or pending:
                while more and len(pending) < 2 * threads:
                    try:
                        pending.add(pool.submit(attempt, work, next(items)))
                    except StopIteration:
                        more = False
                done, pending = wait(pending, timeout=1.0, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


# --- processes --------------------------------------------------------------------------------


@dataclass
class _Child:
    process: WorkerProcess
    under_way: dict[int, Any] = field(default_factory=dict)
    opened: bool = False


def _run_processes(
    worker: WorkerSpec, items: Iterator[Any], form: LocalExecutor
) -> Generator[ItemOutcome]:
    numbered: Iterator[tuple[int, Any]] = enumerate(items)
    threads = form.threads
    children: list[_Child] = []
    exhausted, unopened = False, 0
    try:
        for _ in range(form.processes):
            children.append(_Child(WorkerProcess(worker, threads)))
        while True:
            for child in sorted(children, key=lambda c: len(c.under_way)):
                while not exhausted and len(child.under_way) < threads + form.ahead:
                    try:
                        number, item = next(numbered)
                    except StopIteration:
                        exhausted = True
                        break
                    child.under_way[number] = item
                    with contextlib.suppress(OSError):  # a dead child shows when it is read
                        child.process.pipe.send((number, item))
            busy = {child.process.pipe: child for child in children if child.under_way}
            if not busy:
                return
            go_on()
            for ready in wait_connections(list(busy), timeout=1.0):
                child = busy[ready]  # type: ignore[index]  # only our own pipes were waited for
                outcomes = _received(child)
                unopened = 0 if child.opened else unopened
                if outcomes is None:
                    children.remove(child)
                    code = child.process.wait(5)
                    if child.opened:
                        outcomes = _buried(child, code)
                    else:
                        unopened, outcomes = unopened + 1, []
                        numbered, exhausted = chain(child.under_way.items(), numbered), False
                    if unopened >= _MAX_UNOPENED:
                        raise WorkerDiedError(
                            f"{unopened} worker processes in a row ended before they had begun, the last "
                            f"with exit code {code}: nothing can be worked on here",
                            "look at this machine's memory and log; what was done is stored",
                        )
                    children.append(_Child(WorkerProcess(worker, threads)))
                yield from outcomes
    finally:
        for child in children:
            child.process.pipe.close()  # all end at once
        for child in children:
            child.process.wait(10)


def _received(child: _Child) -> list[ItemOutcome] | None:
    """All outcomes that wait in the pipe; None when the child is gone."""
    outcomes = []
    try:
        while True:
            number, value, error = child.process.pipe.recv()
            if number >= 0:
                outcomes.append(ItemOutcome(child.under_way.pop(number), value, error))
            elif error is not None:
                raise error  # the worker could not be opened: no use in going on
            else:
                child.opened = True
            if not child.process.pipe.poll():
                return outcomes
    except (EOFError, ConnectionResetError):
        return outcomes or None


def _buried(child: _Child, code: int) -> list[ItemOutcome]:
    text = f"a worker process ended with exit code {code}"
    logger.warning("%s; %d items were under way", text, len(child.under_way))
    return [ItemOutcome(item, error=WorkerDiedError(text)) for item in child.under_way.values()]
