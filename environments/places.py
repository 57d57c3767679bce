"""Where an episode's tools run: opened again, and brought to where it was, when it is lost.

No action of an agent may make its episode vanish, and no trouble of the machine may cost the agent. So who
caused a death is found out: what was done is done again, once, alone, in a fresh place. If that dies, the
agent's actions are the cause (``AgentKilledError``); if not, the episode goes on there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from envgen.core.errors import ToolFaultError, ToolsDiedError, ToolTimeoutError

MAX_DEATHS = 3
"""So many deaths in one episode are its own, whatever a repetition says."""


class AgentKilledError(Exception):
    """The agent's actions kill what they run in. Not an error of ours: the episode is scored."""


class Place(Protocol):
    """What tools run in."""

    @property
    def cpu_s(self) -> float:
        """Seconds on the processor that what was done there has taken; never raises."""

    def close(self) -> None:
        """End it; harmless a second time."""


P = TypeVar("P", bound=Place)
R = TypeVar("R")


class Places(Generic[P]):
    """The place of one episode. One thread at a time.

    Args:
        open_place: opens a fresh one; ``True``: one that nothing else runs in. What it raises is an error
            of the environment or of this machine.

    Attributes:
        cpu_s: what all that was done has taken on the processor; repetitions don't count.
        deaths: how often the place has died.
    """

    def __init__(self, open_place: Callable[[bool], P]) -> None:
        self._open = open_place
        self._place: P | None = None
        self._alone = False
        self._done: list[Callable[[P], object]] = []
        self.cpu_s = 0.0
        self.deaths = 0

    @property
    def used(self) -> bool:
        """Whether anything was done."""
        return bool(self._done)

    def do(self, act: Callable[[P], R]) -> R:
        """Do something there and note it; ``act`` raises ToolsDiedError when the place is dead.

        Raises:
            ToolFaultError: from ``act``, as if it had never been done: the next one finds a fresh place.
            ToolTimeoutError: likewise.
            AgentKilledError: when what was done kills a fresh place, too.
        """
        try:
            return self._do(act)
        except ToolsDiedError as error:
            self.close()
            self.deaths += 1
            if self.deaths >= MAX_DEATHS:
                raise AgentKilledError(str(error)) from error
        self._alone = True
        try:
            return self._do(act)
        except ToolsDiedError as error:
            self.deaths += 1
            raise AgentKilledError(str(error)) from error

    def _do(self, act: Callable[[P], R]) -> R:
        place = self._at_hand()
        before = place.cpu_s
        try:
            result = act(place)
        except (ToolFaultError, ToolTimeoutError):
            self.cpu_s += place.cpu_s - before
            self.close()
            raise
        self.cpu_s += place.cpu_s - before
        self._done.append(act)
        return result

    def _at_hand(self) -> P:
        """The place; a fresh one is brought to where the last one was."""
        if self._place is None:
            self._place = self._open(self._alone)
            for act in self._done:
                try:
                    act(self._place)
                except (ToolFaultError, ToolTimeoutError) as error:
                    self.close()
                    raise ToolsDiedError(f"what was done can't be done again: {error}") from error
        return self._place

    def close(self) -> None:
        """End the place; what was done stays noted."""
        place, self._place = self._place, None
        if place is not None:
            place.close()
