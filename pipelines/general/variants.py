"""``envgen variants``: many training episodes from proven tasks, by new rows and re-bound parameters.

A variant passes three checks of its own (gold runs, the verifier accepts, an independent solver agrees
that there is an answer); all other gates are inherited from its parent and recorded as inherited.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from pydantic import Field

from envgen.core.errors import ConfigError, PipelineError
from envgen.core.executor import ItemOutcome, LocalExecutor, WorkerSpec
from envgen.core.limits import Label, Whole
from envgen.core.types import Record, SourceKind
from envgen.core.worker_process import attempt
from envgen.pipelines.boundary import broken
from envgen.pipelines.general.variant_chunk import VariantChunk, VariantRows, make_chunk
from envgen.sandboxes.zygote import WorkerBackend
from envgen.store.bundles import EnvironmentBundle
from envgen.store.dataset import Dataset
from envgen.store.writer import DatasetWriter, trusted_evidence

CHUNK = 50
_WORKER = "envgen.pipelines.general.variant_chunk:worker"


class VariantsConfig(Record):
    """What variants to make."""

    per_task: int = Field(default=100, ge=1)
    """Variants of each task."""
    seed: Whole = 0
    task_ids: tuple[Label, ...] = ()
    """Parents; empty: all tasks of the dataset."""


class VariantsSummary(Record):
    """What was made."""

    path: str
    parents: int
    variants: int
    asked: int
    rejected: int
    reasons: dict[str, int]
    """What broke while variants were made -> how often."""
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
    trust: bool = False,
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
    source = Dataset.open(dataset, unproven=unproven, trust=trust)
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
            trust=trust,
        )
        for task_id in parents
        if task_id not in skipped
        for start in range(0, config.per_task, CHUNK)
    ]
    total = rejected = 0
    reasons: Counter[str] = Counter()
    with _writer(source, out, config) as writer:
        for done, (chunk, outcome) in enumerate(_run(chunks, workers), 1):
            result = _rows(chunk, outcome)
            writer.add_variants(chunk.task_id, result.rows)
            total += len(result.rows)
            rejected += result.rejected
            reasons.update(f"{chunk.task_id}: {reason}" for reason in result.reasons)
            if progress:
                progress(done, len(chunks), f"{chunk.task_id}: {len(result.rows)} more variants")
        if total == 0:
            raise PipelineError(
                "no variant could be made",
                f"{'; '.join(reason for reason, _ in reasons.most_common(3))}"
                if reasons
                else f"{len(skipped)} tasks can't be re-seeded; code that another version of envgen wrote "
                "can't be extended: generate the dataset again",
            )
        manifest = source.manifest
        evidence = (*manifest.evidence, *trusted_evidence(source.source is SourceKind.TRUSTED))
        writer.finish(funnel=manifest.funnel, dataset_evidence=evidence)
    seconds = time.monotonic() - started
    return VariantsSummary(
        path=str(out),
        parents=len(parents) - len(skipped),
        variants=total,
        asked=len(parents) * config.per_task,
        rejected=rejected,
        reasons=dict(reasons.most_common()),
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
) -> Iterator[tuple[VariantChunk, ItemOutcome]]:
    """Outcomes as they come; with one worker, in this process."""
    count = min(workers or os.cpu_count() or 1, len(chunks))
    if count <= 1:
        yield from ((chunk, attempt(make_chunk, chunk)) for chunk in chunks)
        return
    executor = LocalExecutor(count, ahead=1)
    with closing(executor.run(WorkerSpec(_WORKER), chunks)) as outcomes:
        yield from ((outcome.item, outcome) for outcome in outcomes)


def _rows(chunk: VariantChunk, outcome: ItemOutcome) -> VariantRows:
    """What came of a chunk; nothing, with the reason, where it broke."""
    if outcome.error is None:
        result: VariantRows = outcome.value
        return result
    reason = broken("variants", outcome.error).reason
    return VariantRows(rows=(), rejected=chunk.stop - chunk.start, reasons=(reason,))


def _writer(source: Dataset, out: Path, config: VariantsConfig) -> DatasetWriter:
    """A writer that holds all of ``source`` but its variants; the caller closes it."""
    manifest = source.manifest
    writer = DatasetWriter(
        out,
        name=manifest.name,
        version=manifest.version,
        config_hash=manifest.config_hash,
        seed=config.seed,
        source=source,
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
