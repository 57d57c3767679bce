"""The place where an episode's tools run. A place that dies is replaced and brought to the same state.

No action of an agent may make its episode vanish, and no trouble of the machine may cost the agent. To find
the cause of a death, the recorded actions are repeated once, alone, in a fresh place. If that dies too, the
agent is the cause (``AgentKilledError``); if not, the episode goes on there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from envgen.core.errors import ToolFaultError, ToolsDiedError, ToolTimeoutError

MAX_DEATHS = 3
"""So many deaths in one episode are its own, whatever a repetition says."""


class AgentKilledError(Exception):
    """The agent's actions kill whatever they run in. This is no error of ours: the episode is scored."""


class Place(Protocol):
    """Something that tools run in, such as a worker."""

    @property
    def cpu_s(self) -> float:
        """Processor seconds that the actions in it have taken; never raises."""

    def close(self) -> None:
        """End it; a second call does nothing."""


P = TypeVar("P", bound=Place)
R = TypeVar("R")


class Places(Generic[P]):
    """The place of one episode. One thread at a time.

    Args:
        open_place: opens a fresh one; with ``True``, one that nothing else runs in. Its exceptions are
            errors of the environment or of this machine.

    Attributes:
        cpu_s: processor seconds of all actions; repetitions don't count.
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
        """Whether any action was taken."""
        return bool(self._done)

    def do(self, act: Callable[[P], R]) -> R:
        """Perform an action and record it; ``act`` raises ToolsDiedError when the place is dead.

        Raises:
            ToolFaultError: from ``act``; the action is not recorded, and the next one runs in a fresh place.
            ToolTimeoutError: likewise.
            AgentKilledError: when the recorded actions kill a fresh place, too.
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
        """The open place, or a fresh one in which the recorded actions have been repeated."""
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
        """End the place; the recorded actions are kept."""
        place, self._place = self._place, None
        if place is not None:
            place.close()
