"""Records that somebody else wrote, whatever file they are in, as tasks that nobody has proven."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from envgen.core.errors import ConfigError, PipelineError
from envgen.core.limits import Count, Label
from envgen.core.types import Id, Record
from envgen.pipelines.search.tables import SUFFIXES, read_tables
from envgen.store.bundles import EnvironmentBundle, TaskBundle
from envgen.store.splits import assign_splits
from envgen.store.writer import DatasetWriter


class RecordsSummary(Record):
    """What was taken, and what was left out for which reason."""

    path: Label
    tasks: Count
    left_out: dict[Label, Count]
    """Reason -> records."""
    notes: tuple[Label, ...] = ()
    """What a witness found, in lines: of records that it left out the first ``MAX_TOLD``."""


MAX_TOLD = 20


class Refusal(NamedTuple):
    """Why a task is left out: the reason that is counted, and what is told of this one."""

    reason: str
    told: str


class Testimony(NamedTuple):
    """What a witness says of all tasks: those to leave out by id, and lines about the rest."""

    refused: Mapping[str, Refusal]
    notes: tuple[str, ...] = ()


Witness = Callable[[Mapping[str, TaskBundle]], Testimony]


def import_records(
    file: Path,
    out: Path,
    environment: EnvironmentBundle,
    task_of: Callable[[Mapping[str, Any]], TaskBundle | str],
    *,
    name: Id,
    witness: Witness = lambda tasks: Testimony({}),
) -> RecordsSummary:
    """Make a dataset of a file's records; of those with one id the first.

    Args:
        file: JSONL, JSON (a list), or a table.
        out: the dataset folder; it must not exist.
        environment: of all of them.
        task_of: the task of a record, or why there is none.
        name: the dataset's id.
        witness: looks at all tasks that were found, before they are written.

    Raises:
        ConfigError: if the file can't be read, or ``out`` exists.
        PipelineError: if no record gives a task.
    """
    if out.exists():
        raise ConfigError(f"{str(out)!r} exists", "choose another --out, or remove it")
    left_out: Counter[str] = Counter()
    tasks: dict[str, TaskBundle] = {}
    numbers: dict[str, int] = {}
    for number, record in enumerate(read_records(file), 1):
        found = task_of(record)
        if isinstance(found, str):
            left_out[found] += 1
        elif found.spec.id in tasks:
            left_out["asked twice"] += 1
        else:
            tasks[found.spec.id] = found
            numbers[found.spec.id] = number
    said = witness(tasks) if tasks else Testimony({})
    left_out.update(one.reason for one in said.refused.values())
    told = [f"record {numbers[task_id]}: {one.told}" for task_id, one in said.refused.items()]
    more = (f"and {len(told) - MAX_TOLD} more",) if len(told) > MAX_TOLD else ()
    tasks = {task_id: task for task_id, task in tasks.items() if task_id not in said.refused}
    if not tasks:
        reasons = ", ".join(f"{n} x {reason}" for reason, n in left_out.most_common(3))
        raise PipelineError(f"no record of {str(file)!r} gives a task", reasons or "it is empty")
    splits = assign_splits({name: name for name in tasks}, seed=0)
    with DatasetWriter(out, name=name) as writer:
        writer.add_environment(environment)
        for task_id, task in sorted(tasks.items()):
            spec = task.spec.model_copy(update={"split": splits[task_id]})
            writer.add_task(task.model_copy(update={"spec": spec}))
        writer.finish(funnel={"imported": file.name, "left out": dict(left_out)})
    return RecordsSummary(
        path=str(out),
        tasks=len(tasks),
        left_out=dict(left_out),
        notes=(*said.notes, *told[:MAX_TOLD], *more),
    )


def read_records(file: Path) -> Iterator[Mapping[str, Any]]:
    """The records of a file.

    Raises:
        ConfigError: if it can't be read, naming the line.
    """
    if not file.is_file():
        raise ConfigError(f"there is no file {str(file)!r}", "give JSONL, JSON or a table")
    suffix = file.suffix.lower()
    if suffix in SUFFIXES:
        for table in read_tables(file):
            yield from table.rows
        return
    number = 0
    try:
        text = file.read_text(encoding="utf-8-sig")
        lines = text.split("\n") if suffix == ".jsonl" else [text]  # a record may hold U+2028
        for number, line in enumerate(lines, 1):
            found = json.loads(line) if line.strip() else []
            for record in found if isinstance(found, list) else [found]:
                if not isinstance(record, dict):
                    raise ConfigError(f"{str(file)!r}, line {number}: a record must be an object")
                yield record
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, ConfigError):
            raise
        place = f", line {number}" if number > 1 else ""
        raise ConfigError(
            f"{str(file)!r}{place} can't be read: {error}", "give JSONL, JSON or a table"
        ) from error
