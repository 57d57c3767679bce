"""The episodes that are still to be played, in chunks, and what happens to those whose worker died."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from envgen.core import seeding
from envgen.core.types import StopReason, Style, Trajectory
from envgen.rollout.episode import DIED, EpisodeResult

MAX_WORKER_DEATHS = 3
"""After so many deaths, the last of them alone, the episode itself is to blame."""


class Chunk(NamedTuple):
    """Samples of one task for one worker."""

    task_id: str
    samples: tuple[int, ...]


class Work:
    """The episodes that are left: first in chunks of one task, then one by one if their worker died.

    Any episode of a chunk may have killed the worker, so each is tried again in a chunk of its own, and
    the last time while nothing else runs.
    """

    def __init__(self, todo: Iterable[tuple[str, int]], size: int) -> None:
        self._shared = deque(_chunks(todo, size))
        self._alone: deque[Chunk] = deque()
        self._deaths: Counter[tuple[str, int]] = Counter()

    def __bool__(self) -> bool:
        return bool(self._shared or self._alone)

    def round(self) -> Iterator[Chunk]:
        """Yield the chunks that may run side by side now; ``died`` may add to them meanwhile."""
        if not self._shared:
            yield self._alone.popleft()
            return
        while self._shared:
            yield self._shared.popleft()

    def died(self, chunk: Chunk) -> list[tuple[str, int]]:
        """Take back a dead worker's chunk, and return the (task id, sample) pairs that are given up."""
        given_up = []
        for sample in chunk.samples:
            key = (chunk.task_id, sample)
            self._deaths[key] += 1
            left = MAX_WORKER_DEATHS - self._deaths[key]
            if left == 0:
                given_up.append(key)
            else:
                (self._alone if left == 1 else self._shared).append(Chunk(key[0], (sample,)))
        return given_up


def lost(
    key: tuple[str, int], policy: str, run_seed: int, style: Style | None, error: BaseException
) -> EpisodeResult:
    """The result of an episode that killed its worker every time, at last alone: it scores 0."""
    task_id, sample = key
    trajectory = Trajectory(
        task_id=task_id,
        sample=sample,
        policy=policy,
        seed=episode_seed(run_seed, task_id, sample),
        style=style,
        messages=(),
        stop=StopReason.SANDBOX_DIED,
        score=DIED,
        faults=(str(error)[:2_000],),
    )
    return EpisodeResult(trajectory)


def episode_seed(run_seed: int, task_id: str, sample: int) -> int:
    """The seed of one episode."""
    return seeding.derive(run_seed, task_id, sample)


def _chunks(todo: Iterable[tuple[str, int]], size: int) -> Iterator[Chunk]:
    waiting: dict[str, list[int]] = {}
    for task_id, sample in todo:
        waiting.setdefault(task_id, []).append(sample)
    for task_id, samples in waiting.items():
        for i in range(0, len(samples), size):
            yield Chunk(task_id, tuple(samples[i : i + size]))
