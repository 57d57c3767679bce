"""The environment class of each family of tasks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

from envgen.core.errors import ConfigError
from envgen.core.types import Family
from envgen.environments.code import CodeEnv
from envgen.environments.code_hosts import CodeBackend
from envgen.environments.episodes import EpisodeEnv
from envgen.environments.general import GeneralEnv
from envgen.sandboxes.zygote import Isolation, WorkerBackend, choose
from envgen.store.dataset import Dataset


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
        return CodeEnv(dataset, backend=code_backend(backend), unproven=unproven)
    raise ConfigError(f"no environment plays tasks of family {family!r}", "general and code are")


def check_backend(
    dataset: Dataset,
    task_ids: Iterable[str],
    backend: WorkerBackend = "auto",
    isolate: Isolation = "environment",
) -> None:
    """Refuse at once what would fail in every episode: to run code in a place that it may not run in.

    Raises:
        ConfigError: if a family has no environment, or can't use the backend.
        SandboxUnavailableError: if the code can't be isolated here, or isn't trusted without.
    """
    families = {dataset.facts(task_id).family for task_id in task_ids}
    if "general" in families:
        choose(backend, dataset.trusted, isolate)
    for family in sorted(families):
        make_env(dataset, family, backend=backend, isolate=isolate).close()


def code_backend(backend: str) -> CodeBackend:
    """A backend that code tasks can use.

    Raises:
        ConfigError: if it is none of theirs.
    """
    for name in get_args(CodeBackend):
        if name == backend:
            return name  # type: ignore[no-any-return]  # one of the literals
    raise ConfigError(f"code tasks don't run with backend {backend!r}", "use bubblewrap or docker")
