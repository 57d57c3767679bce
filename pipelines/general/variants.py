"""``envgen variants``: many training episodes from proven tasks, by new rows and re-bound parameters.

A variant passes three checks of its own (gold runs, the verifier accepts, an independent solver agrees
that there is an answer); all other gates are inherited from its parent and recorded as inherited.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import cache
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from pydantic import Field

from envgen.core.errors import ConfigError, PipelineError
from envgen.core.executor import LocalExecutor, WorkerSpec
from envgen.core.seeding import derive, rng
from envgen.core.types import GateResult, GateStatus, GoldRun, Record, SourceKind
from envgen.environments.runner import run_gold
from envgen.pipelines.general.author import ProceduralAuthor
from envgen.pipelines.general.draft import Draft
from envgen.pipelines.general.gates.generality import PARAMS_LINE
from envgen.pipelines.general.gates.meaning import params_of
from envgen.pipelines.general.gates.trial import Hosts
from envgen.pipelines.general.reload import draft_of
from envgen.pipelines.general.solve import solve
from envgen.pipelines.general.tables import write_sqlite
from envgen.sandboxes.tools import ToolHost, tool_host
from envgen.sandboxes.verifier import VerifierInput
from envgen.sandboxes.zygote import WorkerBackend
from envgen.store.bundles import EnvironmentBundle, VariantRow
from envgen.store.dataset import Dataset
from envgen.store.writer import DatasetWriter

CHUNK = 50
TRIES = 4
"""Re-seeds tried for one variant."""


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


class _Chunk(Record):
    dataset: str
    task_id: str
    start: int
    stop: int
    seed: int
    backend: WorkerBackend
    unproven: bool


class _Rows(Record):
    rows: tuple[VariantRow, ...]
    rejected: int


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
        _Chunk(
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
    found: dict[_Chunk, _Rows] = {}
    for chunk, result in _run(chunks, workers):
        found[chunk] = result
        if progress:
            progress(len(found), len(chunks), f"{chunk.task_id}: {len(result.rows)} more variants")
    made: dict[str, list[VariantRow]] = {}
    for chunk in chunks:
        made.setdefault(chunk.task_id, []).extend(found[chunk].rows)
    rejected = sum(result.rejected for result in found.values())
    total = sum(map(len, made.values()))
    if total == 0:
        raise PipelineError(
            "no variant could be made",
            f"{len(skipped)} tasks can't be re-seeded; code that another version of envgen wrote can't "
            "be extended: generate the dataset again",
        )
    _write(source, out, made, config)
    seconds = time.monotonic() - started
    return VariantsSummary(
        path=str(out),
        parents=len(made),
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


def _run(chunks: list[_Chunk], workers: int | None) -> Iterator[tuple[_Chunk, _Rows]]:
    """Results as they come; with one worker, in this process."""
    count = min(workers or os.cpu_count() or 1, len(chunks))
    if count <= 1:
        yield from ((chunk, make_chunk(chunk)) for chunk in chunks)
        return
    executor = LocalExecutor(count, ahead=0)
    with closing(executor.run(WorkerSpec(_WORKER), chunks)) as outcomes:
        for outcome in outcomes:
            if outcome.error is not None:
                raise outcome.error
            yield outcome.item, outcome.value


_WORKER = "envgen.pipelines.general.variants:worker"


@contextmanager
def worker() -> Iterator[Callable[[_Chunk], _Rows]]:
    """What a worker process does: ``make_chunk``."""
    yield make_chunk


@cache
def _open(path: str, unproven: bool) -> Dataset:
    return Dataset.open(path, unproven=unproven)


@cache
def _hosts(backend: WorkerBackend, trusted: bool) -> Hosts:
    return Hosts(backend=backend, trusted=trusted)


def make_chunk(chunk: _Chunk) -> _Rows:
    """Variants ``start`` .. ``stop`` of one task; deterministic in the chunk."""
    dataset = _open(chunk.dataset, chunk.unproven)
    draft = draft_of(dataset, chunk.task_id)
    database = dataset.database(chunk.task_id)
    if draft is None or database is None:
        raise PipelineError(f"task {chunk.task_id!r} can't be re-seeded")
    trusted = dataset.source is not SourceKind.FOREIGN
    hosts = _hosts(chunk.backend, trusted)
    author = ProceduralAuthor()
    rows: dict[int, VariantRow] = {}
    pending = list(range(chunk.start, chunk.stop))
    rejected = 0
    with (
        # Code that is trusted by hash may run in this process: no fork for each variant.
        closing(_tools(draft, database, hosts, inline=trusted)) as tools,
        TemporaryDirectory(prefix="envgen-variants-") as folder,
    ):
        for attempt in range(TRIES):
            candidates = []
            for i in pending:
                seed = derive(chunk.seed, chunk.task_id, i, attempt)
                path = Path(folder) / f"{i}-{attempt}.sqlite"
                child = author.reseed(draft, seed)
                solved = None if child is None else _solve(child, seed, path, tools, hosts)
                if solved is not None:
                    candidates.append((i, seed, solved))
            accepted = _verified(draft, [solved for _, _, solved in candidates], hosts)
            for (i, seed, solved), fine in zip(candidates, accepted, strict=True):
                if fine:
                    rows[i] = _row(solved, f"{chunk.task_id[:50]}-v{i}", seed)
            left = [i for i in pending if i not in rows]
            rejected += len(left)
            pending = left
            if not pending:
                break
    return _Rows(rows=tuple(rows[i] for i in sorted(rows)), rejected=rejected)


def _tools(draft: Draft, database: Path, hosts: Hosts, *, inline: bool) -> ToolHost:
    if not inline:
        return hosts.tools(draft, database)
    return tool_host(draft.tools_source, draft.tools, database, backend="inline", trusted=True)


class _Solved(NamedTuple):
    """A re-seeded draft that the solution and the independent solver can solve."""

    draft: Draft
    gold: GoldRun
    initial: Path
    final: Path


def _solve(child: Draft, seed: int, path: Path, tools: ToolHost, hosts: Hosts) -> _Solved | None:
    """None unless gold and the solver agree that there is an answer."""
    write_sqlite(child.relations, child.tables, path)
    after = path.with_suffix(".final")
    result = run_gold(
        child.solution, child.tools, tools, hosts.solutions[0], database=path, final=after
    )
    if result.fault is not None or result.gold.answer is None or not _solvable(child, seed):
        return None
    return _Solved(child, result.gold, path, after if result.changed else path)


def _verified(parent: Draft, solved: list[_Solved], hosts: Hosts) -> list[bool]:
    """Whether each gold answer passes its verifier: the parent's with other ``PARAMS``, in one run."""
    same = [
        PARAMS_LINE.sub("", one.draft.verifier) == PARAMS_LINE.sub("", parent.verifier)
        for one in solved
    ]
    inputs = [
        VerifierInput(
            {"answer": one.gold.answer, "params": params_of(one.draft.verifier)},
            one.initial,
            one.final,
        )
        for one in solved
    ]
    replies = hosts.verifier.verify_many(parent.verifier + _BATCH, inputs)
    return [
        fits and reply.fault is None and not reply.broken
        for fits, reply in zip(same, replies, strict=True)
    ]


_BATCH = """

def verify(given, initial, final, rules=verify):
    PARAMS.clear()
    PARAMS.update(given["params"])
    return rules(given["answer"], initial, final)
"""
"""Makes a verifier take its parameters with the answer, so that one process judges many variants."""


def _row(solved: _Solved, task_id: str, seed: int) -> VariantRow:
    child = solved.draft
    slim = tuple(call.model_copy(update={"result": None}) for call in solved.gold.calls)
    return VariantRow(
        task_id=task_id,
        seed=seed,
        prompt=child.prompt,
        solution=child.solution,
        verifier=child.verifier,
        constraints=child.problem.model_dump(mode="json") if child.problem else None,
        submit_schema=child.submit_schema,
        rules=child.rules,
        gold=GoldRun(calls=slim, answer=solved.gold.answer),
        database=solved.initial.read_bytes(),
        evidence=tuple(
            GateResult(gate=gate, status=GateStatus.PASSED, n=1) for gate in ("gold", "reseeds")
        ),
    )


def _solvable(child: Draft, seed: int) -> bool:
    problem = child.problem
    if problem is None:
        return False
    return any(True for _ in islice(solve(problem, child.tables, rng(seed, "solve")), 1))


def _write(
    source: Dataset, out: Path, made: dict[str, list[VariantRow]], config: VariantsConfig
) -> None:
    manifest = source.manifest
    writer = DatasetWriter(
        out,
        name=manifest.name,
        version=manifest.version,
        config_hash=manifest.config_hash,
        seed=config.seed,
        register=source.source is not SourceKind.FOREIGN,
    )
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
    for task_id, rows in made.items():
        writer.add_variants(task_id, rows)
    writer.finish(funnel=manifest.funnel, dataset_evidence=manifest.evidence)
