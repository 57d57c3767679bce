"""Reproducible rollouts: episodes take their turns together, so the engine's batches never vary.

Threads that ask an engine whenever they are ready form batches by chance, and the last bits of a sum depend
on its batch. Here the engine runs only when every unfinished episode waits for a reply, and requests are
sorted. So a training run that was killed and resumed samples the same rollouts as an uninterrupted one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from envgen.model.engine import Engine
from envgen.model.requests import Completion, Request

T = TypeVar("T")
R = TypeVar("R")


@dataclass(eq=False)
class _Waiting:
    """One episode's request."""

    request: Request
    running: threading.Semaphore
    ready: threading.Event = field(default_factory=threading.Event)
    outcome: Completion | BaseException | None = None

    @property
    def done(self) -> bool:
        return self.ready.is_set()

    def result(self, timeout: float | None = None) -> Completion:
        """Return the reply. It lets other episodes run meanwhile; every request is answered in the end."""
        self.running.release()
        self.ready.wait()
        self.running.acquire()
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        assert self.outcome is not None
        return self.outcome

    def cancel(self) -> None:
        """Do nothing: the reply of an episode that gives up is not read."""


class LockstepEngine:
    """An engine for policies that answers when all playing episodes wait.

    Args:
        engine: not started; only ``play``'s thread uses it.
        concurrency: episodes that run at once, while the others wait. Hundreds of threads contend for the
            interpreter's lock: 256 took nearly twice as long as 4.
    """

    def __init__(self, engine: Engine, concurrency: int = 4) -> None:
        self.engine = engine
        self._lock = threading.Condition()
        self._waiting: list[_Waiting] = []
        self._playing = 0
        self._running = threading.Semaphore(concurrency)

    @property
    def model(self) -> object:
        """The engine's model."""
        return self.engine.model

    @property
    def max_context(self) -> int:
        """The engine's window, in tokens."""
        return self.engine.max_context

    @property
    def policy_version(self) -> str:
        """The engine's version of the weights."""
        return self.engine.policy_version

    def submit(self, request: Request) -> _Waiting:
        """Queue a request; ``result`` of what is returned waits for the reply.

        Raises:
            PolicyError, ConfigError: as the engine's ``check``.
        """
        self.engine.check(request)
        waiting = _Waiting(request, self._running)
        with self._lock:
            self._waiting.append(waiting)
            self._lock.notify_all()
        return waiting

    def close(self) -> None:
        """Do nothing: there is no thread to stop."""

    def play(self, items: Sequence[T], episode: Callable[[T], R]) -> list[R]:
        """Run ``episode(item)`` for all items, each in its own thread; return the results in order.

        Raises:
            Exception: the first exception of an episode, in order of the items, once all have ended.
        """
        results: list[R | BaseException | None] = [None] * len(items)
        self._playing = len(items)

        def run(i: int) -> None:
            try:
                with self._running:
                    results[i] = episode(items[i])
            except BaseException as error:  # raised below, in the caller's thread
                results[i] = error
            finally:
                with self._lock:
                    self._playing -= 1
                    self._lock.notify_all()

        threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(len(items))]
        for thread in threads:
            thread.start()
        self._serve()
        for thread in threads:
            thread.join()
        found: list[R] = []
        for result in results:
            if isinstance(result, BaseException):
                raise result
            found.append(result)  # type: ignore[arg-type]  # every thread has left its result
        return found

    def _serve(self) -> None:
        while True:
            with self._lock:
                self._lock.wait_for(lambda: len(self._waiting) >= self._playing)
                batch, self._waiting = self._waiting, []
                if not self._playing:
                    return
            # Sampling seeds differ between episodes, so this order does not depend on timing.
            batch.sort(key=lambda w: (w.request.params.seed, list(w.request.prompt_ids)))
            self._answer(batch)

    def _answer(self, batch: list[_Waiting]) -> None:
        outcomes: Sequence[Completion | BaseException]
        try:
            outcomes = self.engine.generate([waiting.request for waiting in batch])
        except Exception as error:  # each episode records it
            outcomes = [error] * len(batch)
        for waiting, outcome in zip(batch, outcomes, strict=True):
            waiting.outcome = outcome
            waiting.ready.set()
