"""The Executor on Ray: each worker is an actor, on this machine or on a cluster.

Datasets and run folders are paths, so the machines of a cluster must share them.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from envgen.core.errors import ConfigError, WorkerDiedError, install_hint
from envgen.core.executor import ItemOutcome, WorkerSpec

logger = logging.getLogger(__name__)

_AHEAD = 4


class ActorWorker:
    """The actor: it runs the opened worker."""

    def __init__(self, worker: WorkerSpec) -> None:
        self._manager = worker.open()
        self._work = self._manager.__enter__()

    def ready(self) -> bool:
        """Answers once the worker is open."""
        return True

    def work(self, item: Any) -> tuple[Any, BaseException | None]:
        """One item's value or error."""
        try:
            return self._work(item), None
        except Exception as error:  # the boundary: errors travel as values
            return None, error

    def close(self) -> None:
        """Close the worker."""
        self._manager.__exit__(None, None, None)


@dataclass
class _Actor:
    handle: Any
    under_way: dict[Any, Any] = field(default_factory=dict)
    """Reference -> item."""


@dataclass(frozen=True)
class RayExecutor:
    """Runs work in ``actors`` Ray actors of ``threads`` threads each.

    Attributes:
        actors: how many.
        threads: items that an actor works on at once.
        address: a cluster's address; None: the one that is connected, else a new local one.
        cpus: reserved for each actor.
    """

    actors: int
    threads: int = 1
    address: str | None = None
    cpus: float = 1.0

    def __post_init__(self) -> None:
        if self.actors < 1 or self.threads < 1:
            raise ConfigError(
                f"actors and threads must be at least 1, got {self.actors} and {self.threads}"
            )

    def run(self, worker: WorkerSpec, items: Iterable[Any]) -> Iterator[ItemOutcome]:
        """See ``envgen.core.executor.Executor``."""
        ray = _import_ray()
        if not ray.is_initialized():
            ray.init(address=self.address, log_to_driver=False, include_dashboard=False)
        actors = [_Actor(self._spawn(ray, worker)) for _ in range(self.actors)]
        try:
            for actor in actors:
                ray.get(actor.handle.ready.remote())
            yield from self._work(ray, worker, actors, iter(items))
        finally:
            _end(ray, actors)

    def _spawn(self, ray: Any, worker: WorkerSpec) -> Any:
        options = {"num_cpus": self.cpus, "max_concurrency": self.threads + 1}
        return ray.remote(**options)(ActorWorker).remote(worker)

    def _work(
        self, ray: Any, worker: WorkerSpec, actors: list[_Actor], items: Iterator[Any]
    ) -> Iterator[ItemOutcome]:
        exhausted = False
        while True:
            for actor in sorted(actors, key=lambda a: len(a.under_way)):
                while not exhausted and len(actor.under_way) < self.threads + _AHEAD:
                    try:
                        item = next(items)
                    except StopIteration:
                        exhausted = True
                        break
                    actor.under_way[actor.handle.work.remote(item)] = item
            owners = {reference: actor for actor in actors for reference in actor.under_way}
            if not owners:
                return
            ready, _ = ray.wait(list(owners), num_returns=1, timeout=1.0)
            for reference in ready:
                actor = owners[reference]
                item = actor.under_way.get(reference)
                try:
                    value, error = ray.get(reference)
                except ray.exceptions.RayActorError:
                    logger.warning("an actor died; %d items were under way", len(actor.under_way))
                    lost = list(actor.under_way.values())
                    actor.under_way.clear()
                    actor.handle = self._spawn(ray, worker)
                    ray.get(
                        actor.handle.ready.remote()
                    )  # one that can't begin is an error, and no item's
                    yield from (
                        ItemOutcome(i, error=WorkerDiedError("an actor died")) for i in lost
                    )
                    break
                del actor.under_way[reference]
                yield ItemOutcome(item, value, error)


def _import_ray() -> Any:
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise ConfigError("Ray is not installed", install_hint("scale")) from error


def _end(ray: Any, actors: list[_Actor]) -> None:
    """Close the workers, then end the actors."""
    with suppress(ray.exceptions.RayError):
        ray.get([actor.handle.close.remote() for actor in actors], timeout=5)
    for actor in actors:
        ray.kill(actor.handle)
