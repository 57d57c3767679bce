"""Rubrics: what a good answer to a question holds, item by item, and what counts against it."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, ValidationError, model_validator

from envgen.core.errors import ConfigError
from envgen.core.limits import AtMost, Id, fault
from envgen.core.types import Record

Dimension = Literal["correctness", "citation", "coverage", "concision", "instruction"]
FORM = (
    'write {"question": str, "items": [{"id", "dimension", "text", "weight", "pitfall"}]}, 5 to 20 '
    "items"
)
"""The hint of every error about a rubric."""
_MAX_BYTES = 1 << 20


class RubricItem(Record):
    """One thing that an answer does or does not do."""

    id: Id
    dimension: Dimension
    text: Annotated[str, Field(min_length=1), AtMost(4_096)]
    """What the answer does: "says that ..."."""
    weight: float = Field(gt=0, le=1_000, allow_inf_nan=False)
    pitfall: bool = False
    """Whether it counts against the answer."""


class Rubric(Record):
    """A question, and the items by which an answer to it is judged."""

    question: Annotated[str, Field(min_length=1), AtMost(1 << 16)]
    items: Annotated[tuple[RubricItem, ...], Field(min_length=5, max_length=20)]

    @model_validator(mode="after")
    def _told_apart(self) -> Self:
        ids = [item.id for item in self.items]
        if twice := sorted({one for one in ids if ids.count(one) > 1}):
            raise ValueError(f"two items have the id {twice[0]!r}; give each its own")
        if all(item.pitfall for item in self.items):
            raise ValueError("all items are pitfalls; at least one must be worth something")
        return self

    def value(self, met: Collection[str]) -> float:
        """The share of the weight that is met, less that of the pitfalls; 0 to 1.

        Args:
            met: ids of the items that the answer meets.
        """
        whole = sum(item.weight for item in self.items if not item.pitfall)
        sums = (
            -item.weight if item.pitfall else item.weight for item in self.items if item.id in met
        )
        return min(1.0, max(0.0, sum(sums) / whole))


class RubricSet:
    """The rubric of each task: a single one for all, or one by the task's id."""

    def __init__(self, shared: Rubric | None, named: Mapping[str, Rubric]) -> None:
        self._shared, self._named = shared, dict(named)

    @classmethod
    def load(cls, path: Path) -> RubricSet:
        """Read a rubric's file, or a folder of files ``TASK.json``.

        Raises:
            ConfigError: if there is none, or one is malformed.
        """
        if not path.is_dir():
            return cls(load_rubric(path), {})
        files = sorted(path.glob("*.json"))
        if not files:
            raise ConfigError(f"no rubrics in {str(path)!r}", "name its files by task: TASK.json")
        return cls(None, {file.stem: load_rubric(file) for file in files})

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
