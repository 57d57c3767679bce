"""``envgen variants``: many training episodes from proven tasks, by new rows and re-bound parameters.

A variant passes three checks of its own (gold runs, the verifier accepts, an independent solver agrees
that there is an answer); all other gates are inherited from its parent and recorded as inherited.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from pydantic import Field

from envgen.core.errors import ConfigError, PipelineError
from envgen.core.executor import LocalExecutor, WorkerSpec
from envgen.core.types import Record, SourceKind
from envgen.pipelines.general.variant_chunk import VariantChunk, VariantRows, make_chunk
from envgen.sandboxes.zygote import WorkerBackend
from envgen.store.bundles import EnvironmentBundle
from envgen.store.dataset import Dataset
from envgen.store.writer import DatasetWriter

CHUNK = 50
_WORKER = "envgen.pipelines.general.variant_chunk:worker"


class VariantsConfig(Record):
    """What variants to make."""

    per_task: int = Field(default=100, ge=1)
    seed: int = 0
    task_ids: tuple[str, ...] = ()
    """Parents; empty: all tasks of the dataset."""


class VariantsSummary(Record):
    """What was made."""

    path: str
    parents: int
    variants: int
    rejected: int
    skipped_parents: tuple[str, ...]
    """Tasks that can't be re-seeded."""
    seconds: float
    variants_per_second: float
    bytes: int


def variants(
    config: VariantsConfig,
    dataset: str | Path,
    out: str | Path,
    *,
    workers: int | None = None,
    backend: WorkerBackend = "auto",
    unproven: bool = False,
    progress: Callable[[int, int, str], None] | None = None,
) -> VariantsSummary:
    """Write a dataset at ``out`` that holds ``dataset``'s tasks and their variants.

    Raises:
        ConfigError: if ``out`` exists or a task is unknown.
        PipelineError: if no variant could be made.
    """
    out = Path(out)
    if out.exists():
        raise ConfigError(f"{str(out)!r} exists", "choose another --out, or remove it")
    source = Dataset.open(dataset, unproven=unproven)
    parents = list(config.task_ids or source.own_task_ids)
    unknown = [task_id for task_id in parents if task_id not in source.tasks]
    if unknown:
        raise ConfigError(f"no task {unknown[0]!r} in {str(dataset)!r}", "see `envgen list`")
    started = time.monotonic()
    skipped = tuple(task_id for task_id in parents if not _can_reseed(source, task_id))
    chunks = [
        VariantChunk(
            dataset=str(source.path),
            task_id=task_id,
            start=start,
            stop=min(start + CHUNK, config.per_task),
            seed=config.seed,
            backend=backend,
            unproven=unproven,
        )
        for task_id in parents
        if task_id not in skipped
        for start in range(0, config.per_task, CHUNK)
    ]
    total = rejected = 0
    with _writer(source, out, config) as writer:
        for done, (chunk, result) in enumerate(_run(chunks, workers), 1):
            writer.add_variants(chunk.task_id, result.rows)
            total += len(result.rows)
            rejected += result.rejected
            if progress:
                progress(done, len(chunks), f"{chunk.task_id}: {len(result.rows)} more variants")
        if total == 0:
            raise PipelineError(
                "no variant could be made",
                f"{len(skipped)} tasks can't be re-seeded; code that another version of envgen wrote "
                "can't be extended: generate the dataset again",
            )
        manifest = source.manifest
        writer.finish(funnel=manifest.funnel, dataset_evidence=manifest.evidence)
    seconds = time.monotonic() - started
    return VariantsSummary(
        path=str(out),
        parents=len(parents) - len(skipped),
        variants=total,
        rejected=rejected,
        skipped_parents=skipped,
        seconds=seconds,
        variants_per_second=total / seconds,
        bytes=sum(path.stat().st_size for path in out.rglob("*") if path.is_file()),
    )


def _can_reseed(dataset: Dataset, task_id: str) -> bool:
    environment = dataset.environment_files(dataset.tasks[task_id].environment_id)
    has_ir = dataset.task_files(task_id).constraints is not None
    return has_ir and environment.spec.author == "procedural" and environment.blueprint is not None


def _run(
    chunks: list[VariantChunk], workers: int | None
) -> Iterator[tuple[VariantChunk, VariantRows]]:
    """Results as they come; with one worker, in this process."""
    count = min(workers or os.cpu_count() or 1, len(chunks))
    if count <= 1:
        yield from ((chunk, make_chunk(chunk)) for chunk in chunks)
        return
    executor = LocalExecutor(count, ahead=1)
    with closing(executor.run(WorkerSpec(_WORKER), chunks)) as outcomes:
        for outcome in outcomes:
            if outcome.error is not None:
                raise outcome.error
            yield outcome.item, outcome.value


def _writer(source: Dataset, out: Path, config: VariantsConfig) -> DatasetWriter:
    """A writer that holds all of ``source`` but its variants; the caller closes it."""
    manifest = source.manifest
    writer = DatasetWriter(
        out,
        name=manifest.name,
        version=manifest.version,
        config_hash=manifest.config_hash,
        seed=config.seed,
        register=source.source is not SourceKind.FOREIGN,
    )
    try:
        for environment_id in source.environments:
            files = source.environment_files(environment_id)
            writer.add_environment(
                EnvironmentBundle(
                    spec=files.spec,
                    database=files.database.read_bytes() if files.database else None,
                    tools_source=files.tools_source,
                    blueprint=files.blueprint,
                )
            )
        for task_id in source.own_task_ids:
            writer.add_task(source.task_files(task_id))
    except BaseException:
        writer.close()
        raise
    return writer
