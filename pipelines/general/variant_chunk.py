"""Some variants of one task: what a worker process of ``envgen variants`` makes at a time.

The interpreters are started once a process and the solution's fork serves the whole chunk: re-seeds are one
program with other parameters. Each variant is still solved, judged and searched by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import cache
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from pydantic import JsonValue

from envgen.core.errors import PipelineError
from envgen.core.seeding import derive, rng
from envgen.core.types import GateResult, GateStatus, GoldRun, Record
from envgen.environments.runner import GoldResult, run_gold, toolbox_of
from envgen.pipelines.boundary import broken
from envgen.pipelines.general.author import ProceduralAuthor
from envgen.pipelines.general.draft import Draft
from envgen.pipelines.general.gates.meaning import params_of
from envgen.pipelines.general.gates.trial import Hosts
from envgen.pipelines.general.reload import draft_of
from envgen.pipelines.general.semantics.tables import sqlite_image
from envgen.pipelines.general.space.answers import solve
from envgen.sandboxes.folders import overwrite
from envgen.sandboxes.programs.params import same_program, split
from envgen.sandboxes.solution import SolutionRunner
from envgen.sandboxes.tools import ToolHost, tool_host
from envgen.sandboxes.verifier import VerifierInput
from envgen.sandboxes.zygote import WorkerBackend
from envgen.store.bundles import VariantRow
from envgen.store.dataset import Dataset

TRIES = 4
"""Re-seeds tried for one variant."""


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
    """What was made of a chunk."""

    rows: tuple[VariantRow, ...]
    rejected: int
    reasons: tuple[str, ...] = ()
    """What broke on the way, once for each re-seed."""


@contextmanager
def worker() -> Iterator[Callable[[VariantChunk], VariantRows]]:
    """What a worker process does: ``make_chunk``."""
    yield make_chunk


@cache
def _open(path: str, unproven: bool, trust: bool) -> Dataset:
    return Dataset.open(path, unproven=unproven, trust=trust)


@cache
def _hosts(backend: WorkerBackend, trusted: bool) -> Hosts:
    return Hosts(backend=backend, trusted=trusted)


def make_chunk(chunk: VariantChunk) -> VariantRows:
    """The variants of a chunk; deterministic in it."""
    dataset = _open(chunk.dataset, chunk.unproven, chunk.trust)
    draft = draft_of(dataset, chunk.task_id)
    database = dataset.database(chunk.task_id)
    if draft is None or database is None:
        raise PipelineError(f"task {chunk.task_id!r} can't be re-seeded")
    hosts = _hosts(chunk.backend, dataset.trusted)
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
    """A re-seeded draft that the solution and the independent solver can solve."""

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
            for i, accepted in zip(found, self.verified(list(found.values())), strict=True):
                if accepted:
                    rows[i] = _row(found[i], f"{chunk.task_id[:50]}-v{i}")
            pending = [i for i in pending if i not in rows]
            rejected += len(pending)
            if not pending:
                break
        made = tuple(rows[i] for i in sorted(rows))
        return VariantRows(rows=made, rejected=rejected, reasons=tuple(reasons))

    def solved(self, seed: int) -> _Solved | None:
        """The re-seed; None unless there is one, and gold and the solver agree that it has an answer.

        One whose verifier is another program is none: it was compiled by another version of envgen.
        """
        child = self.author.reseed(self.parent, seed)
        if child is None or not same_program(child.verifier, self.parent.verifier):
            return None
        initial = final = sqlite_image(child.relations, child.tables)
        result = self.run(child, initial)
        if result.fault is not None or result.gold.answer is None or not _solvable(child, seed):
            return None
        if result.changed:
            final = self.final.read_bytes()
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


def _solvable(child: Draft, seed: int) -> bool:
    problem = child.problem
    if problem is None:
        return False
    return any(True for _ in islice(solve(problem, child.tables, rng(seed, "solve")), 1))
