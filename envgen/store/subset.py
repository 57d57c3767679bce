"""Parts of datasets as a dataset of its own, and a dataset's public side as rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from pydantic import JsonValue

from envgen.core.canonical import content_hash, dumps
from envgen.core.errors import ConfigError, StoreError
from envgen.core.limits import Count, Label
from envgen.core.types import Id, PassAt, Record, Split
from envgen.store.bundles import TaskBundle
from envgen.store.columns import public_row, task_row, task_schema, write_parquet
from envgen.store.dataset import Dataset
from envgen.store.manifest import task_hash
from envgen.store.one_file import one_file, text_lines
from envgen.store.pack import VariantPack
from envgen.store.splits import SplitUse, held_out
from envgen.store.writer import DatasetWriter

_BATCH = 1000
"""Rows between two words of progress."""


def subset(
    dataset: Dataset,
    task_ids: Iterable[str],
    path: str | Path,
    *,
    name: str | None = None,
    pass_at: Mapping[str, Sequence[PassAt]] | None = None,
    funnel: Mapping[str, JsonValue] | None = None,
) -> Dataset:
    """Copy some tasks, with their environments and evidence, into a new dataset folder.

    A subset is trusted on this machine only if ``dataset`` is, by its hash.

    Args:
        dataset: where from.
        task_ids: the tasks to keep; variants may be kept without their parent.
        path: the new folder.
        name: its id; the old one by default.
        pass_at: measured rates to add, by task id.
        funnel: entries to add to the dataset's funnel.

    Raises:
        StoreError: if an id is unknown, ``path`` is taken or the disk is full.
    """
    kept = dict.fromkeys(task_ids)
    if unknown := [task_id for task_id in kept if task_id not in dataset.tasks]:
        raise StoreError(f"task {unknown[0]!r} is not in {dataset.path}")
    own = [task_id for task_id in dataset.own_task_ids if task_id in kept]
    variants: dict[str, list[str]] = {}
    for parent, pack in dataset.packs().items():
        if chosen := [task_id for task_id in kept if task_id in pack.entries]:
            variants[parent] = chosen
    used = {dataset.facts(task_id).environment_id for task_id in own}
    used |= {dataset.packs()[parent].base.environment_id for parent in variants}
    manifest = dataset.manifest
    with DatasetWriter(
        path,
        name=name or manifest.name,
        version=manifest.version,
        config_hash=manifest.config_hash,
        seed=manifest.seed,
        sources=[dataset],
    ) as writer:
        for env_id in sorted(used):
            writer.add_environment(dataset.environment_files(env_id).bundle())
        for task_id in own:
            bundle = dataset.task_files(task_id)
            rates = (*bundle.spec.pass_at, *(pass_at or {}).get(task_id, ()))
            spec = bundle.spec.model_copy(update={"pass_at": rates})
            writer.add_task(bundle.model_copy(update={"spec": spec}))
        for parent, chosen in variants.items():
            writer.adopt_pack(dataset.packs()[parent], chosen, pass_at)
        return writer.finish(
            funnel={**manifest.funnel, **(funnel or {})}, dataset_evidence=manifest.evidence
        )


class MergeSummary(Record):
    """What a merged dataset holds."""

    path: Label
    datasets: Count
    environments: Count
    tasks: Count
    variants: Count
    twice: Count
    """Tasks that more than one of the datasets held."""
    moved: Count
    """Tasks that are now in the stricter split of a like task of another dataset."""


def merge(
    datasets: Sequence[str | Path | Dataset],
    out: str | Path,
    *,
    name: Id = "merged",
    unproven: bool = False,
) -> MergeSummary:
    """Copy all tasks of several datasets, of whatever families, into one new folder.

    Tasks keep their splits, unless the datasets put one database or schema into different ones: its tasks
    then share the strictest of them (test, then validation). What stands in several datasets, equal, is
    copied once. The result is trusted on this machine if all of them are.

    Args:
        datasets: where from, in this order.
        out: the new folder.
        name: its id.
        unproven: also accept tasks whose evidence is missing or negative.

    Raises:
        ConfigError: if there are fewer than two datasets.
        StoreError: if two of them give one id to different things, ``out`` is taken, or the disk is full.
    """
    if len(datasets) < 2:
        raise ConfigError("to merge takes two datasets or more", "envgen merge A B --out C")
    sources = [
        one if isinstance(one, Dataset) else Dataset.open(one, unproven=unproven)
        for one in datasets
    ]
    return copy_datasets(
        sources, out, name=name, funnel={"merged": [one.manifest.content_hash for one in sources]}
    )


def copy_datasets(
    sources: Sequence[Dataset], out: str | Path, *, name: Id, funnel: Mapping[str, JsonValue]
) -> MergeSummary:
    """The same of one dataset or more that are open, with what their maker says of them.

    Raises:
        StoreError: as ``merge``.
    """
    with DatasetWriter(out, name=name, sources=sources) as writer:
        union = _Union(writer)
        for source in sources:
            union.take(source)
        splits = union.write()
        merged = writer.finish(funnel=funnel)
    return MergeSummary(
        path=str(out),
        datasets=len(sources),
        twice=union.twice,
        moved=len({use.task_id for use in union.uses if splits[use.task_id] != use.split}),
        **merged.manifest.counts.model_dump(),
    )


class _Union:
    """What several datasets hold, each thing once; tasks are written when all splits are known."""

    def __init__(self, writer: DatasetWriter) -> None:
        self.writer = writer
        self.twice = 0
        self.uses: list[SplitUse] = []
        self._hashes: dict[str, str] = {}
        self._tasks: list[tuple[Dataset, str]] = []
        self._packs: list[tuple[VariantPack, list[str]]] = []

    def take(self, source: Dataset) -> None:
        """Add a dataset's environments, and note its tasks.

        Raises:
            StoreError: if an id stands for something else already.
        """
        for env_id in sorted(source.environments):
            files = source.environment_files(env_id)
            if _is_new(self._hashes, env_id, content_hash(files.spec), "environment"):
                self.writer.add_environment(files.bundle())
        for task_id in source.own_task_ids:
            spec = source.tasks[task_id]
            database = self.writer.database(spec.environment_id)
            self.uses.append(SplitUse(task_id, spec.split, *database))
            same = task_hash(spec.model_copy(update={"split": "train"}))
            if _is_new(self._hashes, task_id, same, "task"):
                self._tasks.append((source, task_id))
            else:
                self.twice += 1
        for pack in source.packs().values():
            new = [one for one in pack.entries if one not in self._hashes]
            self._hashes |= dict.fromkeys(new, "")
            self.twice += len(pack.entries) - len(new)
            self._packs += [(pack, new)] * bool(new)
            rows = (pack.entries[one] for one in new)
            self.uses += (SplitUse(row.id, row.split, row.database, "") for row in rows)

    def write(self) -> dict[str, Split]:
        """Write the tasks; their splits, by id."""
        splits = held_out(self.uses)
        for source, task_id in self._tasks:
            self.writer.add_task(_moved(source.task_files(task_id), splits[task_id]))
        for pack, new in self._packs:
            self.writer.adopt_pack(pack, new, splits=splits)
        return splits


def _moved(bundle: TaskBundle, split: Split) -> TaskBundle:
    return bundle.model_copy(update={"spec": bundle.spec.model_copy(update={"split": split})})


def _is_new(seen: dict[str, str], name: str, digest: str, what: str) -> bool:
    """Whether an id is new; else it must stand for the same thing."""
    if name not in seen:
        seen[name] = digest
        return True
    if seen[name] != digest:
        raise StoreError(f"two datasets hold a different {what} {name!r}", "leave one of them out")
    return False


def export(
    dataset: Dataset,
    path: str | Path | None,
    format: Literal["jsonl", "parquet"],
    *,
    progress: Callable[[int, int, str], None] | None = None,
) -> int:
    """Write the public side of all tasks to one file; no solution, verifier, rows or proof.

    ``tools`` are in OpenAI's form. Of Parquet's columns ``envgen.store.columns`` tells more.

    Args:
        dataset: where from.
        path: the new file; None: standard output, for jsonl.
        format: of the file.
        progress: called with (done, total, what) now and then.

    Returns:
        The number of tasks written.

    Raises:
        ConfigError: if the format is unknown, or Parquet should go to standard output.
        StoreError: if the file exists or can't be written.
    """
    if format not in ("jsonl", "parquet"):
        raise ConfigError(f"unknown export format {format!r}", "choose jsonl or parquet")
    rows = _rows(dataset, progress)
    if format == "jsonl":
        with text_lines(None if path is None else Path(path)) as file:
            file.writelines(dumps(row) + "\n" for row in rows)
    elif path is None:
        raise ConfigError("Parquet can't go to standard output", "name a file with --out")
    else:
        with one_file(Path(path)) as partial:
            write_parquet(map(task_row, rows), partial, task_schema())
    return len(dataset.tasks)


def _rows(
    dataset: Dataset, progress: Callable[[int, int, str], None] | None
) -> Iterator[dict[str, JsonValue]]:
    for done, task_id in enumerate(sorted(dataset.tasks)):
        if progress and done % _BATCH == 0:
            progress(done, len(dataset.tasks), "")
        task = dataset.tasks[task_id]
        yield public_row(task, dataset.environments[task.environment_id])
