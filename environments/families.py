"""The environment class of each family of tasks."""

from __future__ import annotations

from typing import Literal

from envgen.core.errors import ConfigError
from envgen.environments.code import CodeEnv
from envgen.environments.episodes import EpisodeEnv
from envgen.environments.general import GeneralEnv
from envgen.sandboxes.zygote import Isolation, WorkerBackend
from envgen.store.dataset import Dataset

Family = Literal["general", "code", "search", "interpreter", "proof"]


def make_env(
    dataset: Dataset,
    family: Family,
    *,
    backend: WorkerBackend = "auto",
    isolate: Isolation = "environment",
    unproven: bool = False,
) -> EpisodeEnv:
    """An environment that plays a family's tasks of a dataset.

    Raises:
        ConfigError: if there is none for the family, or it can't use the backend.
    """
    if family == "general":
        return GeneralEnv(dataset, backend=backend, isolate=isolate, unproven=unproven)
    if family == "code":
        if backend == "process" or backend == "inline":  # so that the type is narrowed
            raise ConfigError(
                f"code tasks don't run with backend {backend!r}", "use bubblewrap or docker"
            )
        return CodeEnv(dataset, backend=backend, unproven=unproven)
    raise ConfigError(f"no environment plays tasks of family {family!r}", "general and code are")
