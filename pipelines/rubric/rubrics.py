"""Rubrics in files: one for all tasks of a run, or one for each."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from pydantic import ValidationError

from envgen.core.errors import ConfigError, DatasetError
from envgen.core.limits import fault
from envgen.store.dataset import Dataset
from envgen.store.manifest import MANIFEST
from envgen.verifiers.rubrics.rubric import Rubric, is_rubric

FORM = (
    'write {"question": str, "items": [{"id", "dimension", "text", "weight", "pitfall"}]}, 5 to 20 '
    "items"
)
"""The hint of every error about a rubric."""
_MAX_BYTES = 1 << 20


class RubricSet:
    """The rubric of each task: a single one for all, or one by the task's id."""

    def __init__(self, shared: Rubric | None, named: Mapping[str, Rubric]) -> None:
        self._shared, self._named = shared, dict(named)

    @classmethod
    def load(cls, path: Path) -> RubricSet:
        """Read a rubric's file, a folder of files ``TASK.json``, or those of a dataset's open questions.

        Raises:
            ConfigError: if there is none, or one is malformed.
            DatasetError: if the dataset can't be read.
        """
        if (path / MANIFEST).is_file():
            return cls.of_dataset(Dataset.open(path, unproven=True))
        if not path.is_dir():
            return cls(load_rubric(path), {})
        files = sorted(path.glob("*.json"))
        if not files:
            raise ConfigError(f"no rubrics in {str(path)!r}", "name its files by task: TASK.json")
        return cls(None, {file.stem: load_rubric(file) for file in files})

    @classmethod
    def of_dataset(cls, dataset: Dataset) -> RubricSet:
        """The rubrics of a dataset's open questions.

        Raises:
            ConfigError: if it has none.
        """
        texts = {name: dataset.task_files(name).verifier for name in dataset.tasks}
        named = {}
        for name, text in texts.items():
            try:
                if is_rubric(text):
                    named[name] = Rubric.model_validate_json(text)
            except ValidationError as error:
                raise DatasetError(f"the rubric of task {name!r}: {fault(error)}") from error
        if not named:
            raise ConfigError(
                f"{str(dataset.path)!r} has no open questions", "generate search --kind open"
            )
        return cls(None, named)

    def require(self, task_ids: Iterable[str]) -> None:
        """Refuse tasks that have no rubric, before anything is paid for.

        Raises:
            ConfigError: if there is such a task.
        """
        lacking = sorted(set(task_ids) - self._named.keys()) if self._shared is None else []
        if lacking:
            more = f" and {len(lacking) - 1} others" if lacking[1:] else ""
            raise ConfigError(
                f"task {lacking[0]!r}{more} has no rubric", f"add {lacking[0]}.json to the folder"
            )

    def of(self, task_id: str) -> Rubric:
        """The rubric of a task that ``require`` has let through."""
        return self._shared if self._shared is not None else self._named[task_id]


def load_rubric(path: Path) -> Rubric:
    """The rubric in a JSON file.

    Raises:
        ConfigError: if it can't be read, with the item that is wrong and what to do.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(_MAX_BYTES + 1)
        if len(raw) > _MAX_BYTES:
            raise ConfigError(f"rubric {str(path)!r} is larger than 1 MiB", FORM)
        value = json.loads(raw)
    except OSError as error:
        raise ConfigError(
            f"rubric {str(path)!r} can't be read: {error.strerror}", "name a file or a folder"
        ) from error
    except (ValueError, RecursionError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"rubric {str(path)!r} is not JSON: {error}", FORM) from error
    try:
        return Rubric.model_validate(value)
    except ValidationError as error:
        raise ConfigError(f"rubric {str(path)!r}: {_named(value, error)}", FORM) from error


def _named(value: object, error: ValidationError) -> str:
    """What is wrong, with the id of the item that it is about."""
    where = error.errors(include_url=False)[0]["loc"]
    text = fault(error)
    if isinstance(value, dict) and len(where) > 1 and where[0] == "items":
        items = value["items"]
        item = items[where[1]] if isinstance(items, list) and isinstance(where[1], int) else None
        if isinstance(item, dict) and isinstance(item.get("id"), str):
            return f"item {item['id'][:64]!r}: {text}"
    return text
