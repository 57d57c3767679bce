"""The episodes that a server has open: bounded in number, one caller each at a time, given up when idle."""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from pydantic import JsonValue

from envgen.core.errors import EnvgenError
from envgen.core.families import find_family
from envgen.integrations.sessions import Episodes, Opening, Session, StepResult

logger = logging.getLogger(__name__)
T = TypeVar("T")

_PATIENCE_S = 5.0
"""Seconds that closing a place waits for the step under way there."""


class FullError(EnvgenError):
    """Raised when a server has as many episodes open as it may."""


class GoneError(EnvgenError):
    """Raised for a place that was given up, or never was."""


class Seat:
    """One client's place: its session, and who may reach it.

    Attributes:
        id: known to whoever opened it; it reads rewards.
        key: for the agent alone: it calls tools.
        name: the client's own name of the episode.
        owner: the key that opened it, which alone reaches it by its id; empty where no key is asked for.
        held: whether a client's socket stands for it.
    """

    def __init__(self, session: Session, owner: str, held: bool) -> None:
        self.owner, self.held = owner, held
        self.id, self.key = secrets.token_urlsafe(18), secrets.token_urlsafe(18)
        self.name: str | None = None
        self.session = session
        self.lock, self.turn = asyncio.Lock(), threading.Lock()
        """One task waits here for another, and one thread for another."""
        self.used = time.monotonic()
        self.family = ""
        self.fault = ""
        """Why the episode has no verdict, if its environment broke."""
        self.closed = False


class Seats:
    """All places of a server.

    Args:
        episodes: what is played.
        most: places at once.
        idle_s: a place that nobody used for so long is given up.
        threads: calls of tools that run at once.
    """

    def __init__(self, episodes: Episodes, *, most: int, idle_s: float, threads: int) -> None:
        self.episodes, self.most, self.idle_s = episodes, most, idle_s
        self._by_id: dict[str, Seat] = {}
        self._by_key: dict[str, Seat] = {}
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="envgen-seat")
        self._next = episodes.stream()
        self._taking = threading.Lock()

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, id: object) -> bool:
        return id in self._by_id

    def open(self, owner: str = "", *, held: bool = False) -> Seat:
        """Open a place. When all are taken, the oldest finished one that no socket holds makes room.

        Raises:
            FullError: if there are too many.
        """
        if len(self._by_id) >= self.most:
            over = [
                one for one in self._by_id.values() if one.session.outcome.done and not one.held
            ]
            if not over:
                raise FullError(
                    f"{self.most} sessions are open, the most that this server takes",
                    "close some, or start it with --max-sessions",
                )
            oldest = min(over, key=lambda one: one.used)
            self._forget(oldest)
            self._pool.submit(_end, oldest)
        seat = Seat(self.episodes.session(), owner, held)
        self._by_id[seat.id] = self._by_key[seat.key] = seat
        return seat

    def find(self, name: str, *, agent: bool = False, owner: str = "") -> Seat:
        """The place of this id that ``owner`` opened, or of this key of an agent.

        Raises:
            GoneError: if there is none.
        """
        found = (self._by_key if agent else self._by_id).get(name)
        if found is None or not (agent or found.owner == owner):
            raise GoneError("there is no such session", "it was closed, or nobody used it for long")
        return found

    async def reset(self, seat: Seat, task_id: str | None, seed: int | None) -> Opening:
        """Begin an episode; see ``begin``."""
        return await self._threaded(seat, partial(self.begin, seat, task_id, seed))

    async def say(self, seat: Seat, message: JsonValue) -> StepResult:
        """A turn; see ``Session.say``."""
        return await self.do(seat, lambda session: session.say(message))

    async def call(self, seat: Seat, name: JsonValue, arguments: JsonValue) -> StepResult:
        """A call; see ``Session.call``."""
        return await self.do(seat, lambda session: session.call(name, arguments))

    async def do(self, seat: Seat, work: Callable[[Session], T]) -> T:
        """Work of a place's session, in a thread, after whatever is under way there."""
        return await self._threaded(seat, partial(self.play, seat, work))

    async def _threaded(self, seat: Seat, work: Callable[[], T]) -> T:
        async with seat.lock:  # a thread that only waits would be missing elsewhere
            return await self.hop(work)

    async def hop(self, work: Callable[[], T]) -> T:
        """Work in one of the server's threads."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def begin(self, seat: Seat, task_id: str | None, seed: int | None) -> Opening:
        """Begin an episode, in the caller's thread; see ``Session.reset``.

        Without a task and a seed, it is the next in the server's order.

        Raises:
            FullError: if too many of its family are being played.
        """
        episodes = self.episodes
        with self._taking:
            if task_id is None:
                task_id = next(self._next) if seed is None else episodes.draw(seed)
            self._take(seat, episodes.family(episodes.require(task_id)))
        seat.fault = ""
        return self.play(seat, lambda session: session.reset(task_id, seed))

    def _take(self, seat: Seat, family: str) -> None:
        most = find_family(family).sessions
        others = list(self._by_id.values())
        playing = sum(one.family == family for one in others if one is not seat)
        if most and playing >= most:
            raise FullError(
                f"{playing} sessions play {family!r}, the most that this server takes",
                "each has a sandbox of its own: close some",
            )
        seat.family = family

    def play(self, seat: Seat, work: Callable[[Session], T]) -> T:
        """Run work on a place's session in the caller's thread, after whatever is under way there.

        Raises:
            GoneError: if the place was given up.
        """
        with seat.turn:
            if seat.closed:
                raise GoneError("the session was closed")
            seat.used = time.monotonic()
            try:
                return work(seat.session)
            except EnvgenError as error:
                if seat.session.outcome.stop.startswith("error"):
                    seat.fault = str(error)
                raise
            finally:
                seat.used = time.monotonic()
                if seat.session.outcome.done:  # its sandbox is gone, and leaves room for another's
                    seat.family = ""

    async def close(self, seat: Seat) -> None:
        """Give a place up; harmless a second time."""
        if self._forget(seat):
            await self.hop(partial(_end, seat))

    def _forget(self, seat: Seat) -> bool:
        self._by_key.pop(seat.key, None)
        return self._by_id.pop(seat.id, None) is not None

    async def sweep(self) -> None:
        """Give up, now and then, what nobody uses; runs until it is cancelled."""
        while True:
            await asyncio.sleep(min(10.0, self.idle_s / 4))
            late = time.monotonic() - self.idle_s
            for seat in list(self._by_id.values()):
                if seat.used < late and not seat.turn.locked():
                    await self.close(seat)

    async def shut(self) -> None:
        """Give up everything."""
        await asyncio.gather(*(self.close(seat) for seat in list(self._by_id.values())))
        self._pool.shutdown(wait=False, cancel_futures=True)


def _end(seat: Seat) -> None:
    waited = seat.turn.acquire(timeout=_PATIENCE_S)  # what goes on longer loses its sandbox
    try:
        seat.closed = True
        seat.session.close()
    except EnvgenError as error:  # it is gone already
        logger.warning("a session did not close: %s", error)
    finally:
        if waited:
            seat.turn.release()
