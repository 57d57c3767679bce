"""The files of a task that a family's environment plays."""

from __future__ import annotations

from envgen.core.errors import ConfigError
from envgen.core.registry import near_names
from envgen.store.bundles import TaskBundle
from envgen.store.dataset import Dataset


def load_task(dataset: Dataset, task_id: str, family: str) -> TaskBundle:
    """A task with its secrets.

    Raises:
        ConfigError: if the dataset has no such task, or it is of another family.
        DatasetError: if a file changed since the dataset was opened.
    """
    if task_id not in dataset.tasks:
        near = near_names(task_id, dataset.own_task_ids)
        raise ConfigError(f"unknown task {task_id!r}{near}")
    files = dataset.task_files(task_id)
    if files.spec.family != family:
        raise ConfigError(f"task {task_id!r} is of family {files.spec.family!r}, not {family!r}")
    return files
