"""Tickets: the caller's handle on a request that the engine works on."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, InvalidStateError

from envgen.model.requests import Completion

_END = None
OnToken = Callable[[int, float], None]


class Ticket:
    """One submitted request. Any thread may wait for it, read its tokens, or cancel it.

    Args:
        cancel: tells the engine that nobody wants the reply any more.
        on_token: called with each new id and its log-probability, by the engine's thread; must return at
            once.
    """

    def __init__(self, cancel: Callable[[Ticket], None], on_token: OnToken | None = None) -> None:
        self._cancel = cancel
        self._on_token = on_token
        self._future: Future[Completion] = Future()
        self._tokens: queue.SimpleQueue[int | None] = queue.SimpleQueue()

    @property
    def done(self) -> bool:
        """Whether ``result`` would return or raise at once."""
        return self._future.done()

    def result(self, timeout: float | None = None) -> Completion:
        """The whole reply.

        Args:
            timeout: seconds to wait; None: until the engine is closed.

        Raises:
            TimeoutError: if it is not there in time; the request goes on.
            RequestCancelledError: if it was cancelled.
            EngineClosedError: if the engine was closed before.
            Exception: what broke the engine's loop.
        """
        return self._future.result(timeout)

    def tokens(self, timeout: float | None = None) -> Iterator[int]:
        """Each id as it comes, to be read once; raises at the end what ``result`` would raise.

        Args:
            timeout: seconds for all of it.

        Raises:
            TimeoutError: if an id is not there in time; the request goes on.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                token = self._tokens.get(timeout=left)
            except queue.Empty:
                raise TimeoutError(f"no token within {timeout} seconds") from None
            if token is _END:
                self._future.result(0)
                return
            yield token

    def add_done_callback(self, call: Callable[[], None]) -> None:
        """Have ``call`` called once ``done``: by the thread that makes it so, or at once if it is."""
        self._future.add_done_callback(lambda future: call())

    def cancel(self) -> None:
        """Give up: ``result`` raises ``RequestCancelledError``; the next step frees place and pages."""
        self._cancel(self)

    def push(self, token: int, logprob: float) -> None:
        """For the engine: one more id. What a broken callback raises ends this request and no other."""
        self._tokens.put(token)
        if self._on_token is None:
            return
        try:
            self._on_token(token, logprob)
        except Exception as error:
            self._on_token = None
            self.settle(error)
            self._cancel(self)

    def settle(self, outcome: Completion | BaseException) -> None:
        """For the engine: the end, once; later ones are ignored."""
        try:
            if isinstance(outcome, BaseException):
                self._future.set_exception(outcome)
            else:
                self._future.set_result(outcome)
        except InvalidStateError:
            return
        self._tokens.put(_END)
