"""Threads that stop working when the thread that waits for them is interrupted.

Without it Ctrl-C would wait for every model's reply and every proof under way: an executor joins its threads,
and so does the interpreter at its end.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from threading import Event
from types import TracebackType

_OVER: ContextVar[Event | None] = ContextVar("over", default=None)


class Threads(ThreadPoolExecutor):
    """A pool; leaving it by Ctrl-C, or by closing the generator that it serves, gives up what is under way.

    Args:
        count: of threads.
        over: the event that is set then; pools of one piece of work share it.
    """

    def __init__(self, count: int, over: Event | None = None) -> None:
        self.over = over or Event()
        super().__init__(count, initializer=_OVER.set, initargs=(self.over,))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        # After an error what is under way is waited for: replies are paid for, and kept.
        if kind is not None and not issubclass(kind, Exception):
            self.over.set()
            self.shutdown(wait=False, cancel_futures=True)
        return super().__exit__(kind, error, trace)


def over() -> Event | None:
    """The event that cancels this thread's work, as policies take it; None outside of ``Threads``."""
    return _OVER.get()


def go_on() -> None:
    """Raise KeyboardInterrupt once this thread's work is given up; long work asks from time to time."""
    event = _OVER.get()
    if event is not None and event.is_set():
        raise KeyboardInterrupt  # an Exception would be taken for a fault of what is worked on
