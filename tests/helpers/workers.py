"""Workers for executor tests; spawned processes import them by name."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def squares(folder: str = "") -> Iterator[Callable[[int], tuple[int, int]]]:
    """Squares; negative items fail, 666 kills the process, big ones sleep."""

    def work(item: int) -> tuple[int, int]:
        if item == 666:
            os._exit(3)
        if item < 0:
            raise ValueError(f"negative: {item}")
        if item >= 1000:
            time.sleep(item / 1000)
        return item * item, os.getpid()

    yield work
    if folder:
        (Path(folder) / str(os.getpid())).touch()


@contextmanager
def broken() -> Iterator[Any]:
    """Can't be opened."""
    raise RuntimeError("no luck")
    yield


@contextmanager
def stillborn(folder: str, births: int) -> Iterator[Callable[[int], int]]:
    """Dies before it is open, until so many have been born."""
    born = len(list(Path(folder).iterdir()))
    if born < births:
        (Path(folder) / str(os.getpid())).touch()
        os._exit(7)
    yield lambda item: item


@contextmanager
def surroundings() -> Iterator[Callable[[int], tuple[str | None, str, int, str]]]:
    """Where a worker finds itself: its main file, the end of its path, -O, what stdin says."""
    main = getattr(sys.modules["__main__"], "__file__", None)
    yield lambda item: (main, sys.path[-1], sys.flags.optimize, sys.stdin.read())


@contextmanager
def unpicklable() -> Iterator[Callable[[int], Any]]:
    """Results that can't be sent."""
    yield lambda item: threading.Lock()
