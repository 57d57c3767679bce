"""How long the stages of a long pipeline took, in all calls that it was made in."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from envgen.core.canonical import pretty

Progress = Callable[[int, int, str], None]
OnEnd = Callable[[str, float, bool], None]
"""Told of a stage: its name, its seconds in all calls, and whether an earlier call had finished it."""


class Stages:
    """Times stages, says where the pipeline is, and remembers both in a file.

    A stage that was stopped adds up over the calls; one that was finished in an earlier call keeps its time,
    for to find it done takes next to none.

    Args:
        path: of the file.
        total: number of stages.
        progress: called with (stages done, total, what).
        ended: called at the end of each stage.
    """

    def __init__(
        self,
        path: Path,
        total: int,
        progress: Progress | None = None,
        ended: OnEnd | None = None,
    ) -> None:
        self._path, self._total, self._progress, self._ended = path, total, progress, ended
        state = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        self._finished: list[str] = state.get("finished", [])
        seconds: dict[str, float] = state.get("seconds", {})
        self.seconds = {name: seconds[name] for name in self._finished} | seconds
        """Of the stages that were begun, in their order."""
        self._done = 0

    @contextmanager
    def stage(self, name: str) -> Iterator[Progress]:
        """Time what is inside; yields what its own progress is told to."""

        def say(done: int, total: int, what: str) -> None:
            if self._progress:
                self._progress(self._done, self._total, f"{name}: {done}/{total} {what}")

        before = name in self._finished
        started = time.monotonic()
        say(0, 1, "")
        ended = False
        try:
            yield say
            ended = True
        finally:
            self._note(name, time.monotonic() - started, ended)
        self._done += 1
        if self._ended:
            self._ended(name, self.seconds[name], before)

    def _note(self, name: str, seconds: float, ended: bool) -> None:
        if name in self._finished:
            return
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds
        if ended:
            self._finished.append(name)
        state = {"seconds": self.seconds, "finished": self._finished}
        self._path.write_text(pretty(state), encoding="utf-8")
