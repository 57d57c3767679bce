"""The environment that plays a family's tasks of a dataset."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from envgen.core.errors import ConfigError
from envgen.core.families import find_family
from envgen.environments.episodes import EpisodeEnv
from envgen.store.dataset import Dataset


def make_env(
    dataset: str | Path | Dataset | None = None, family: str = "", **options: Any
) -> EpisodeEnv:
    """An environment that plays a family's tasks of a dataset.

    Args:
        dataset: a dataset folder, ``package:NAME``, or an open ``Dataset``. None: the one shipped with the
            family.
        family: whose tasks.
        options: of the family's environment: ``backend``, ``isolate``, ``unproven``, ``render_mode``, ...

    Raises:
        ConfigError: if there is no such family, it can't use the backend, or no dataset is named or shipped.
    """
    if dataset is None:
        dataset = find_family(family).shipped
        if not dataset:
            raise ConfigError(
                f"no dataset is named, and family {family!r} ships none", 'give dataset="FOLDER"'
            )
    env: EpisodeEnv = find_family(family).load("env")(dataset, **options)
    return env


def check_backend(
    dataset: Dataset,
    task_ids: Iterable[str],
    backend: str = "auto",
    isolate: str = "environment",
) -> None:
    """Refuse at once what would fail in every episode: to run code in a place that it may not run in.

    Raises:
        ConfigError: if a family has no environment, or can't use the backend.
        SandboxUnavailableError: if the code can't be isolated here, or isn't trusted without.
    """
    for family in sorted({dataset.facts(task_id).family for task_id in task_ids}):
        env = make_env(dataset, family, backend=backend, isolate=isolate)
        try:
            env.check()
        finally:
            env.close()
