"""Run work on many items: an Executor, and its form for one machine (threads, spawned processes).

What crosses a process is a ``WorkerSpec`` (a function's name and plain arguments), items and results,
never a live object. In each process the spec is opened once; it gives a function that is called with one
item at a time, from ``threads`` threads. A worker process that dies costs its items (they come back as
``WorkerDiedError``) and is replaced. Workers end when their parent does, even if it was killed.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_connections
from typing import Any, NamedTuple, Protocol

from envgen.core.errors import ConfigError, WorkerDiedError

logger = logging.getLogger(__name__)

Work = Callable[[Any], Any]

_MAX_DEATHS = 20


class WorkerSpec(NamedTuple):
    """How a process makes its worker: ``module:function`` and picklable keyword arguments.

    The function returns a context manager whose value is called with one item, from several threads.
    """

    target: str
    kwargs: dict[str, Any] = {}

    def open(self) -> AbstractContextManager[Work]:
        """Import the function and call it."""
        module, _, name = self.target.partition(":")
        found: AbstractContextManager[Work] = getattr(importlib.import_module(module), name)(
            **self.kwargs
        )
        return found


@dataclass(frozen=True)
class Outcome:
    """What became of one item: a value, or the error it raised."""

    item: Any
    value: Any = None
    error: BaseException | None = None


class Executor(Protocol):
    """Runs a worker over items, somewhere."""

    def run(self, worker: WorkerSpec, items: Iterable[Any]) -> Iterator[Outcome]:
        """Yield an Outcome for each item as it completes, in any order.

        Items are taken lazily. Closing the iterator stops the work: items under way are dropped.
        """
        ...


@dataclass(frozen=True)
class LocalExecutor:
    """Threads in this process (``processes=0``), or spawned processes with threads in each."""

    processes: int = 0
    threads: int = 1
    ahead: int = 4
    """Items that wait in a worker process beside those under way; 0 for few long ones."""

    def __post_init__(self) -> None:
        if self.processes < 0 or self.threads < 1:
            raise ConfigError(f"no work with {self.processes} processes of {self.threads} threads")

    def run(self, worker: WorkerSpec, items: Iterable[Any]) -> Generator[Outcome]:
        """See ``Executor.run``."""
        if self.processes == 0:
            return _run_threads(worker, iter(items), self.threads)
        return _run_processes(worker, iter(items), self)


# --- threads ----------------------------------------------------------------------------------


def _run_threads(worker: WorkerSpec, items: Iterator[Any], threads: int) -> Generator[Outcome]:
    with worker.open() as work:
        if threads == 1:
            for item in items:
                yield _attempt(work, item)
            return
        pool = ThreadPoolExecutor(threads, thread_name_prefix="envgen-worker")
        pending: set[Future[Outcome]] = set()
        try:
            more = True
            while more or pending:
                while more and len(pending) < 2 * threads:
                    try:
                        pending.add(pool.submit(_attempt, work, next(items)))
                    except StopIteration:
                        more = False
                done, pending = wait(pending, timeout=1.0, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _attempt(work: Work, item: Any) -> Outcome:
    try:
        return Outcome(item, work(item))
    except Exception as error:  # the boundary: errors travel as values
        return Outcome(item, error=error)


# --- processes --------------------------------------------------------------------------------


@dataclass
class _Child:
    process: multiprocessing.process.BaseProcess
    pipe: Connection
    under_way: dict[int, Any] = field(default_factory=dict)


def _run_processes(
    worker: WorkerSpec, items: Iterator[Any], form: LocalExecutor
) -> Generator[Outcome]:
    numbered, threads = enumerate(items), form.threads
    children = [_spawn(worker, threads) for _ in range(form.processes)]
    exhausted, deaths = False, 0
    try:
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
                        child.pipe.send((number, item))
            busy = {child.pipe: child for child in children if child.under_way}
            if not busy:
                return
            for ready in wait_connections(list(busy), timeout=1.0):
                child = busy[ready]  # type: ignore[index]  # only our own pipes were waited for
                outcomes = _received(child)
                if outcomes is None:
                    deaths += 1
                    outcomes = _buried(child)
                    if deaths > _MAX_DEATHS:
                        raise WorkerDiedError(f"{deaths} worker processes died; giving up")
                    children[children.index(child)] = _spawn(worker, threads)
                yield from outcomes
    finally:
        _end(children)


def _spawn(worker: WorkerSpec, threads: int) -> _Child:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(
        target=_child_main, args=(worker, threads, theirs), name="envgen-worker", daemon=False
    )
    process.start()
    theirs.close()
    return _Child(process, ours)


def _received(child: _Child) -> list[Outcome] | None:
    """All outcomes that wait in the pipe; None when the child is gone."""
    outcomes = []
    try:
        while True:
            number, value, error = child.pipe.recv()
            if number < 0:
                raise error  # the worker could not be opened: no use in going on
            outcomes.append(Outcome(child.under_way.pop(number), value, error))
            if not child.pipe.poll():
                return outcomes
    except (EOFError, ConnectionResetError):
        return outcomes or None


def _buried(child: _Child) -> list[Outcome]:
    child.pipe.close()
    child.process.join(5)
    text = f"a worker process ended with exit code {child.process.exitcode}"
    logger.warning("%s; %d items were under way", text, len(child.under_way))
    return [Outcome(item, error=WorkerDiedError(text)) for item in child.under_way.values()]


def _end(children: list[_Child]) -> None:
    for child in children:
        child.pipe.close()  # the child ends when its end of the pipe does
    for child in children:
        child.process.join(10)
        if child.process.exitcode is None:
            child.process.kill()
            child.process.join(5)
        child.process.close()


def _child_main(worker: WorkerSpec, threads: int, pipe: Connection) -> None:
    """A worker process: threads that work, while the main thread reads items."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    todo: queue.SimpleQueue[tuple[int, Any] | None] = queue.SimpleQueue()
    sending = threading.Lock()

    def send(number: int, value: Any, error: BaseException | None) -> None:
        with sending, contextlib.suppress(OSError):
            try:
                pipe.send((number, value, error))
            except (TypeError, AttributeError, ValueError) as unpicklable:
                pipe.send((number, None, ConfigError(f"can't be sent back: {unpicklable}")))

    def loop(work: Work) -> None:
        while (entry := todo.get()) is not None:
            outcome = _attempt(work, entry[1])
            send(entry[0], outcome.value, outcome.error)

    try:
        manager = worker.open()
        work = manager.__enter__()
    except Exception as error:  # the boundary: the parent raises it
        send(-1, None, error)
        return
    runners = [threading.Thread(target=loop, args=(work,), daemon=True) for _ in range(threads)]
    for runner in runners:
        runner.start()
    with contextlib.suppress(EOFError, OSError):
        while True:
            todo.put(pipe.recv())
    # The parent wants no more. Work under way is dropped: its result has no reader.
    _drain(todo)
    for _ in runners:
        todo.put(None)
    for runner in runners:
        runner.join(0.5)
    if any(runner.is_alive() for runner in runners):
        os._exit(0)  # not held up by a thread that hangs
    manager.__exit__(None, None, None)


def _drain(todo: queue.SimpleQueue[tuple[int, Any] | None]) -> None:
    with contextlib.suppress(queue.Empty):
        while True:
            todo.get_nowait()
