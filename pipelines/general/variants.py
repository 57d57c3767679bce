"""``envgen variants``: many training episodes from proven tasks, by new rows and re-bound parameters.

A variant passes three checks of its own: gold runs, the verifier accepts what it answers and leaves behind,
and so does evaluating the constraint IR, which knows neither program: gold's answer is the witness that
there is one. All other gates are inherited from its parent and recorded as inherited.

The interpreters are started once a process, and the solution's fork serves a whole chunk of variants:
re-seeds are one program with other parameters.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from pydantic import Field, JsonValue

from envgen.core.errors import ConfigError, PipelineError
from envgen.core.executor import ItemOutcome
from envgen.core.limits import Label, Whole
from envgen.core.seeding import derive
from envgen.core.types import GateResult, GateStatus, GoldRun, Record, SourceKind
from envgen.environments.runner import GoldResult, run_gold, toolbox_of
from envgen.pipelines.boundary import broken, outcomes
from envgen.pipelines.general.author import ProceduralAuthor, draft_of
from envgen.pipelines.general.draft import Draft
from envgen.pipelines.general.gates.meaning import params_of
from envgen.pipelines.general.gates.trial import Hosts, shared_hosts
from envgen.pipelines.general.semantics.evaluate import accepted
from envgen.pipelines.general.semantics.tables import read_sqlite, sqlite_image
from envgen.sandboxes.folders import overwrite
from envgen.sandboxes.programs.params import same_program, split
from envgen.sandboxes.solution import SolutionRunner
from envgen.sandboxes.tools import ToolHost, tool_host
from envgen.sandboxes.verifier import VerifierInput
from envgen.sandboxes.zygote import WorkerBackend
from envgen.store.bundles import VariantRow
from envgen.store.dataset import Dataset
from envgen.store.writer import DatasetWriter, trusted_evidence

CHUNK = 50
"""Variants that a worker makes at a time."""
TRIES = 4
"""Re-seeds tried for one variant, each over as many rows as ``Tasks.reseeded`` draws; then it is left out."""
_WORKER = "envgen.pipelines.general.variants:worker"


class VariantsConfig(Record):
    """A request for variants."""

    per_task: int = Field(default=100, ge=1)
    """Variants of each task."""
    seed: Whole = 0
    task_ids: tuple[Label, ...] = ()
    """Parents; empty: all tasks of the dataset."""


class VariantsSummary(Record):
    """The outcome of making variants."""

    path: str
    parents: int
    variants: int
    asked: int
    rejected: int
    """Re-seeds that failed, those of variants that a later re-seed made included."""
    reasons: dict[str, int]
    """Failure while variants were made -> number of times."""
    skipped_parents: tuple[str, ...]
    """Tasks that can't be re-seeded."""
    seconds: float
    variants_per_second: float
    bytes: int


class VariantChunk(Record):
    """Variants ``start`` .. ``stop`` of a task."""

    dataset: str
    task_id: str
    start: int
    stop: int
    seed: int
    backend: WorkerBackend
    unproven: bool
    trust: bool = False


class VariantRows(Record):
    """The variants of a chunk."""

    rows: tuple[VariantRow, ...]
    rejected: int
    reasons: tuple[str, ...] = ()
    """The failures on the way, one for each re-seed that broke."""


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
        raise ConfigError(f"{str(dataset)!r} has no task {unknown[0]!r}", "see `envgen list`")
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
        results = outcomes(_WORKER, make_chunk, chunks, workers, ahead=1)
        for done, (chunk, outcome) in enumerate(results, 1):
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
                "; ".join(reason for reason, _ in reasons.most_common(3))
                or f"{len(skipped)} tasks can't be re-seeded; code that another version of envgen wrote "
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


def _rows(chunk: VariantChunk, outcome: ItemOutcome) -> VariantRows:
    """The variants of a chunk; none, with the reason, where it broke."""
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
        sources=[source],
    )
    try:
        for environment_id in source.environments:
            writer.add_environment(source.environment_files(environment_id).bundle())
        for task_id in source.own_task_ids:
            writer.add_task(source.task_files(task_id))
    except BaseException:
        writer.close()
        raise
    return writer


@contextmanager
def worker() -> Iterator[Callable[[VariantChunk], VariantRows]]:
    """Give a worker process its function."""
    yield make_chunk


@cache
def _open(path: str, unproven: bool, trust: bool) -> Dataset:
    return Dataset.open(path, unproven=unproven, trust=trust)


def make_chunk(chunk: VariantChunk) -> VariantRows:
    """The variants of a chunk; deterministic in it."""
    dataset = _open(chunk.dataset, chunk.unproven, chunk.trust)
    draft = draft_of(dataset, chunk.task_id)
    database = dataset.database(chunk.task_id)
    if draft is None or database is None:
        raise PipelineError(f"task {chunk.task_id!r} can't be re-seeded")
    hosts = shared_hosts(chunk.backend, dataset.trusted)
    with (
        # Code that is trusted by hash may run in this process: no fork for each variant.
        closing(_tools(draft, database, hosts, inline=dataset.vouched)) as tools,
        closing(hosts.solutions().series()) as series,
        TemporaryDirectory(prefix="envgen-variants-") as folder,
    ):
        return _Reseeder(draft, hosts, tools, series, Path(folder)).rows(chunk)


def _tools(draft: Draft, database: Path, hosts: Hosts, *, inline: bool) -> ToolHost:
    if not inline:
        return hosts.tools(draft, database)
    return tool_host(draft.tools_source, draft.tools, database, backend="inline", trusted=True)


class _Solved(NamedTuple):
    """A re-seeded draft whose gold answer the IR accepts."""

    draft: Draft
    seed: int
    gold: GoldRun
    initial: bytes
    final: bytes


class _Reseeder:
    """Re-seeds one draft and proves what comes of it."""

    def __init__(
        self, parent: Draft, hosts: Hosts, tools: ToolHost, series: SolutionRunner, folder: Path
    ) -> None:
        self.parent, self.hosts, self.tools, self.series = parent, hosts, tools, series
        self.author = ProceduralAuthor()
        self.toolbox = toolbox_of(parent.tools)
        self.initial = folder / "initial.sqlite"
        self.final = folder / "final.sqlite"

    def rows(self, chunk: VariantChunk) -> VariantRows:
        """A row for each number of the chunk that one of ``TRIES`` re-seeds fits."""
        rows: dict[int, VariantRow] = {}
        reasons: list[str] = []
        pending, rejected = list(range(chunk.start, chunk.stop)), 0
        for attempt in range(TRIES):
            found = {}
            for i in pending:
                try:
                    solved = self.solved(derive(chunk.seed, chunk.task_id, i, attempt))
                except Exception as error:  # the boundary: one re-seed is lost, the chunk goes on
                    reasons.append(broken("re-seed", error).reason)
                    continue
                if solved is not None:
                    found[i] = solved
            for i, passed in zip(found, self.verified(list(found.values())), strict=True):
                if passed:
                    rows[i] = _row(found[i], f"{chunk.task_id[:50]}-v{i}")
            pending = [i for i in pending if i not in rows]
            rejected += len(pending)
            if not pending:
                break
        kept = tuple(rows[i] for i in sorted(rows))
        return VariantRows(rows=kept, rejected=rejected, reasons=tuple(reasons))

    def solved(self, seed: int) -> _Solved | None:
        """The re-seed; None unless there is one, and the IR accepts what gold answers and leaves behind.

        One whose verifier is another program is none: it was compiled by another version of envgen.
        """
        child = self.author.reseed(self.parent, seed)
        if child is None or not same_program(child.verifier, self.parent.verifier):
            return None
        initial = final = sqlite_image(child.relations, child.tables)
        result = self.run(child, initial)
        if result.fault is not None or result.gold.answer is None:
            return None
        tables = child.tables
        if result.changed:
            final, tables = self.final.read_bytes(), read_sqlite(child.relations, self.final)
        if child.problem is None or not accepted(
            child.problem, child.tables, result.gold.answer, tables
        ):
            return None
        return _Solved(child, seed, result.gold, initial, final)

    def run(self, child: Draft, database: bytes) -> GoldResult:
        """The gold run; a fault counts only if the solution has it in a fresh fork too."""
        overwrite(self.initial, database)
        for runner in (self.series, self.hosts.solutions()):
            result = run_gold(
                child.solution,
                self.parent.tools,
                self.tools,
                runner,
                toolbox=self.toolbox,
                database=self.initial,
                final=self.final,
            )
            if result.fault is None:
                break
        return result

    def verified(self, solved: list[_Solved]) -> list[bool]:
        """Whether each answer passes its verifier: the parent's with other ``PARAMS``, in one run."""
        inputs = [
            VerifierInput(
                {"answer": one.gold.answer, "params": _params(one.draft.verifier)},
                one.initial,
                one.final,
            )
            for one in solved
        ]
        replies = self.hosts.verifier.verify_many(self.parent.verifier + _BATCH, inputs)
        return [reply.fault is None and not reply.broken for reply in replies]


_BATCH = """

def verify(given, initial, final, rules=verify):
    PARAMS.clear()
    PARAMS.update(given["params"])
    return rules(given["answer"], initial, final)
"""
"""Makes a verifier take its parameters with the answer, so that one process judges many variants."""


def _params(source: str) -> dict[str, JsonValue]:
    parts = split(source)
    return {} if parts is None else params_of(parts.line)


def _row(solved: _Solved, task_id: str) -> VariantRow:
    child = solved.draft
    slim = tuple(call.model_copy(update={"result": None}) for call in solved.gold.calls)
    return VariantRow(
        task_id=task_id,
        seed=solved.seed,
        prompt=child.prompt,
        solution=child.solution,
        verifier=child.verifier,
        constraints=child.problem.model_dump(mode="json") if child.problem else None,
        submit_schema=child.submit_schema,
        rules=child.rules,
        gold=GoldRun(calls=slim, answer=solved.gold.answer),
        database=solved.initial,
        evidence=tuple(
            GateResult(gate=gate, status=GateStatus.PASSED, n=1) for gate in ("gold", "reseeds")
        ),
    )
