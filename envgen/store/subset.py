"""Part of a dataset as a dataset of its own, and its public side as rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from pydantic import JsonValue

from envgen.core.canonical import dumps
from envgen.core.errors import ConfigError, StoreError
from envgen.core.types import PassAt, PublicTask, SourceKind
from envgen.store.bundles import EnvironmentBundle
from envgen.store.dataset import Dataset
from envgen.store.writer import DatasetWriter

_BATCH = 1000
"""Rows written, or told of, at a time."""


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

    A subset is trusted on this machine only if ``dataset`` is.

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
        register=dataset.source is not SourceKind.FOREIGN,
    ) as writer:
        for env_id in sorted(used):
            files = dataset.environment_files(env_id)
            writer.add_environment(
                EnvironmentBundle(
                    spec=files.spec,
                    database=files.database and files.database.read_bytes(),
                    tools_source=files.tools_source,
                    blueprint=files.blueprint,
                    attachments=files.attachments,
                )
            )
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


def public_tasks(dataset: Dataset) -> Iterator[PublicTask]:
    """What agents may know of each task, by id."""
    for task_id in sorted(dataset.tasks):
        spec = dataset.tasks[task_id]
        yield spec.public(dataset.environments[spec.environment_id])


def export(
    dataset: Dataset,
    path: str | Path,
    format: Literal["jsonl", "parquet"],
    *,
    progress: Callable[[int, int, str], None] | None = None,
) -> int:
    """Write the public side of all tasks to one file; no solution, verifier, rows or proof.

    In Parquet, structured fields are JSON texts. ``tools`` are in OpenAI's form in both.

    Args:
        dataset: where from.
        path: the new file.
        format: of the file.
        progress: called with (done, total, what) now and then.

    Returns:
        The number of tasks written.

    Raises:
        ConfigError: if the format is unknown.
        StoreError: if the file exists or can't be written.
    """
    path = Path(path)
    if format not in ("jsonl", "parquet"):
        raise ConfigError(f"unknown export format {format!r}", "choose jsonl or parquet")
    if path.exists():
        raise StoreError(f"{str(path)!r} exists", "choose another file or remove it")
    partial = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write = _jsonl if format == "jsonl" else _parquet
        write(_rows(dataset, progress), partial)
        partial.rename(path)
    except OSError as error:
        raise StoreError(f"can't write {str(path)!r}: {error.strerror or error}") from error
    finally:
        partial.unlink(missing_ok=True)
    return len(dataset.tasks)


def _rows(
    dataset: Dataset, progress: Callable[[int, int, str], None] | None
) -> Iterator[dict[str, JsonValue]]:
    for done, task in enumerate(public_tasks(dataset)):
        if progress and done % _BATCH == 0:
            progress(done, len(dataset.tasks), "")
        row: dict[str, JsonValue] = task.model_dump(mode="json")
        row["tools"] = [tool.openai() for tool in task.tools]
        yield row


def _jsonl(rows: Iterable[dict[str, JsonValue]], path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(dumps(row) + "\n")


def _parquet(rows: Iterable[dict[str, JsonValue]], path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    structured = ("submit_schema", "rules", "tools", "limits")
    texts = ("id", "environment_id", "family", "prompt", "policy_text", *structured, "split")
    schema = pa.schema([*((name, pa.string()) for name in texts), ("level", pa.int64())])
    with pq.ParquetWriter(path, schema) as writer:
        batch: list[dict[str, JsonValue]] = []
        for row in rows:
            batch.append({**row, **{name: dumps(row[name]) for name in structured}})
            if len(batch) == _BATCH:
                writer.write_table(pa.Table.from_pylist(batch, schema))
                batch = []
        writer.write_table(pa.Table.from_pylist(batch, schema))
