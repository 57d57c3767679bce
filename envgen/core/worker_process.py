"""A worker process: one that opens a ``WorkerSpec`` and works on items until its parent wants no more.

It is a new interpreter that imports the worker's module and nothing of the caller's: multiprocessing's
spawned processes run the caller's main module once more, which takes time and, in a script without
``if __name__ == "__main__":``, begins the script anew.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import multiprocessing
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.spawn import get_command_line
from pathlib import Path
from typing import Any, NamedTuple

from envgen.core.errors import ConfigError

Work = Callable[[Any], Any]

_MAIN = Path(__file__).with_name("worker_main.py")


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
class ItemOutcome:
    """The outcome of one item: a value, or the error it raised."""

    item: Any
    value: Any = None
    error: BaseException | None = None


def attempt(work: Work, item: Any) -> ItemOutcome:
    """The outcome of one item."""
    try:
        return ItemOutcome(item, work(item))
    except Exception as error:  # the boundary: errors travel as values
        return ItemOutcome(item, error=error)


class WorkerProcess:
    """A worker process, seen from its parent; it ends when ``pipe`` closes, so also with the parent.

    ``pipe`` takes ``(number, item)`` and gives ``(number, value, error)``, in any order; a negative number
    comes first and says that the worker is open, or why it can't be opened.
    """

    def __init__(self, worker: WorkerSpec, threads: int) -> None:
        self.pipe, theirs = multiprocessing.Pipe()
        with theirs:
            handle = theirs.fileno()
            self._process = subprocess.Popen(
                [*_interpreter(), "-P", _MAIN, str(handle)],
                pass_fds=[handle],
                stdin=subprocess.DEVNULL,
            )
        with contextlib.suppress(OSError):  # one that is dead already shows when it is read
            self.pipe.send(sys.path)
            self.pipe.send((worker, threads))

    def wait(self, timeout_s: float) -> int:
        """Close the pipe and wait for the end, which comes after ``timeout_s`` at the latest.

        Returns:
            The exit code; negative for a signal.
        """
        self.pipe.close()
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


def _interpreter() -> list[str | bytes]:
    """This interpreter and its options, as multiprocessing would start it."""
    command: list[str | bytes] = [*get_command_line()]
    return command[: command.index("-c")]


def serve(pipe: Connection) -> None:
    """Run the process: threads work, while the main thread reads items."""
    worker, threads = pipe.recv()
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
            outcome = attempt(work, entry[1])
            send(entry[0], outcome.value, outcome.error)

    try:
        manager = worker.open()
        work = manager.__enter__()
        gc.collect()
        gc.freeze()  # what was imported stays; looking through it again and again takes a tenth of the time
    except Exception as error:  # the boundary: the parent raises it
        send(-1, None, error)
        return
    send(-1, None, None)
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
