"""``envgen pack``: read, prove and seal a folder; after an edit, prove only what changed."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

from pydantic import JsonValue

from envgen.core.canonical import content_hash, sha256
from envgen.core.errors import ConfigError, DatasetError, EnvError, PipelineError
from envgen.core.limits import Label, Seconds
from envgen.core.seeding import derive
from envgen.core.types import (
    Difficulty,
    EnvironmentSpec,
    Evidence,
    GateResult,
    GateStatus,
    Probe,
    Record,
    TaskSpec,
    ToolSpec,
)
from envgen.pipelines.general.draft import Draft
from envgen.pipelines.general.gates.trial import Hosts, not_applicable, outcome
from envgen.pipelines.packed.folder import EnvironmentFolder, TaskFolder, read_folder
from envgen.pipelines.packed.gates import NO_SOLUTION, PackedProof, gate_names, prove_packed
from envgen.sandboxes.tools import ToolHost, tool_host
from envgen.sandboxes.zygote import WorkerBackend, choose
from envgen.store.bundles import EnvironmentBundle, TaskBundle
from envgen.store.dataset import Dataset
from envgen.store.manifest import MANIFEST
from envgen.store.sqlite_files import inspect
from envgen.store.writer import DatasetWriter, trusted_evidence

PACKED = "packed"
"""The author of environments that were packed: a person, whose code always runs isolated."""
_NO_PARAMS = "\n\nPARAMS = {}\n"


class PackedTask(Record):
    """The outcome of one task."""

    task_id: Label
    reused: bool
    """It was proven before and nothing of it has changed."""
    evidence: Evidence

    @property
    def failures(self) -> Evidence:
        """The gates that failed."""
        return tuple(one for one in self.evidence if one.status is GateStatus.FAILED)


class PackSummary(Record):
    """The outcome of packing."""

    path: Label
    environment_id: Label
    tools: tuple[Label, ...]
    tasks: tuple[PackedTask, ...]
    written: bool
    """Whether the dataset was written: only if every task passed."""
    seconds: Seconds

    @property
    def passed(self) -> bool:
        """Whether every task passed."""
        return not any(task.failures for task in self.tasks)


def pack(
    folder: str | Path,
    out: str | Path,
    *,
    seed: int = 0,
    backend: WorkerBackend = "auto",
    trust: bool = False,
    progress: Callable[[int, int, str], None] | None = None,
) -> PackSummary:
    """Turn a folder that a person wrote into a dataset (``docs/pack.md``); all or nothing.

    Args:
        folder: tools.py, a database and tasks.
        out: the dataset; an earlier one that was packed from this environment is replaced.
        seed: seeds the gates' random choices.
        backend: where the code runs.
        trust: the caller wrote or read the code, which so may run without isolation.
        progress: called after each task.

    Raises:
        ConfigError: if the folder lacks something, or ``out`` is not such a dataset.
        SandboxUnavailableError: if the code can't be isolated here.
    """
    started = time.monotonic()
    choose(backend, trust)  # or refuse at once
    source, out = read_folder(Path(folder)), Path(out)
    old = _packed_before(out, source)
    if old is not None and old.manifest.seed != seed:
        old = None  # its gates drew otherwise
    tasks: list[PackedTask] = []
    bundles: list[TaskBundle] = []
    with (
        TemporaryDirectory(prefix="envgen-pack-") as scratch,
        Hosts(backend=backend, trusted=trust) as hosts,
    ):
        database = Path(scratch) / "database.sqlite"
        database.write_bytes(source.database)
        with closing(_tools(source, database, hosts)) as tools:
            for done, task in enumerate(source.tasks, 1):
                proof = _reused(old, source, task)
                fresh = proof is None
                if proof is None:
                    proof = _proof(source, task, hosts, database, tools, seed)
                bundles.append(_task_bundle(source, task, proof))
                tasks.append(PackedTask(task_id=task.id, reused=not fresh, evidence=proof.evidence))
                if progress:
                    progress(done, len(source.tasks), task.id)
    summary = PackSummary(
        path=str(out),
        environment_id=source.id,
        tools=tuple(spec.name for spec in source.tools),
        tasks=tuple(tasks),
        written=not any(task.failures for task in tasks),
        seconds=time.monotonic() - started,
    )
    if summary.written:
        _write(source, bundles, out, seed, trust)
    return summary


def proofs(
    source: EnvironmentFolder,
    *,
    seed: int = 0,
    backend: WorkerBackend = "auto",
    only: Collection[str] = (),
) -> dict[str, Evidence]:
    """The evidence of each task of a folder, by its name; nothing is written. ``only``: of these gates.

    Raises:
        PipelineError: if its tools do not load.
        SandboxUnavailableError: if the code can't be isolated here.
    """
    with TemporaryDirectory(prefix="envgen-pack-") as scratch, Hosts(backend=backend) as hosts:
        database = Path(scratch) / "database.sqlite"
        database.write_bytes(source.database)
        with closing(_tools(source, database, hosts)) as tools:
            return {
                task.id: _proof(source, task, hosts, database, tools, seed, only).evidence
                for task in source.tasks
            }


def _tools(source: EnvironmentFolder, database: Path, hosts: Hosts) -> ToolHost:
    try:
        return tool_host(
            source.tools_source,
            source.tools,
            database,
            backend=hosts.backend,
            trusted=hosts.trusted,
        )
    except EnvError as error:
        raise PipelineError(
            f"tools.py does not load: {error}",
            "it may import Python's standard library only, and must define every tool",
        ) from error


def _draft(source: EnvironmentFolder, task: TaskFolder) -> Draft:
    solution = task.solution
    if solution and "PARAMS" not in solution:
        solution = solution.rstrip("\n") + _NO_PARAMS
    return Draft(
        environment_id=source.id,
        category=source.settings.category,
        title=source.settings.title or source.id,
        relations=(),
        tables={},
        tools=source.tools,
        tools_source=source.tools_source,
        policy_text=source.policy_text,
        author=PACKED,
        task_id=task.id,
        prompt=task.prompt,
        submit_schema=task.submit_schema,
        solution=solution,
        verifier=task.verifier,
        level=task.settings.level,
    )


def _probes(task: TaskFolder) -> tuple[Probe, ...]:
    right = (Probe(answer=x, expected=True, origin="alternative") for x in task.answers.right)
    wrong = (Probe(answer=x, expected=False, origin="other") for x in task.answers.wrong)
    return (*right, *wrong)


def _proof(
    source: EnvironmentFolder,
    task: TaskFolder,
    hosts: Hosts,
    database: Path,
    tools: ToolHost,
    seed: int,
    only: Collection[str] = (),
) -> PackedProof:
    draft, seed = _draft(source, task), derive(seed, "pack", task.id)
    return prove_packed(
        draft, hosts, database, tools, _probes(task), seed=seed, any_rows=task.settings.any_rows,
        allowed_writes=task.settings.allowed_writes, only=only,
    )  # fmt: skip


def _task_bundle(source: EnvironmentFolder, task: TaskFolder, proof: PackedProof) -> TaskBundle:
    calls = proof.gold.calls if proof.gold else ()
    draft = _draft(source, task)
    spec = TaskSpec(
        id=task.id,
        environment_id=source.id,
        prompt=task.prompt,
        submit_schema=task.submit_schema,
        limits=task.settings.limits,
        split=task.settings.split,
        difficulty=Difficulty(
            level=task.settings.level,
            gold_calls=len(calls),
            distinct_tools=len({call.name for call in calls}),
        ),
        evidence=proof.evidence,
    )
    return TaskBundle(
        spec=spec,
        solution=draft.solution,
        verifier=draft.verifier,
        gold=proof.gold,
        probes=proof.probes,
    )


def _packed_before(out: Path, source: EnvironmentFolder) -> Dataset | None:
    """The dataset at ``out`` that this one replaces.

    Raises:
        ConfigError: if something else is there.
    """
    if not out.is_symlink() and (not out.exists() or (out.is_dir() and not any(out.iterdir()))):
        return None
    hint = "choose another --out, or remove it"
    if out.is_symlink() or not (out / MANIFEST).is_file():
        raise ConfigError(f"--out {str(out)!r} exists and is not a dataset", hint)
    old = Dataset.open(out, unproven=True)
    found = {name: spec.author for name, spec in old.environments.items()}
    if found != {source.id: PACKED}:
        raise ConfigError(
            f"--out {str(out)!r} is a dataset that was not packed from this folder", hint
        )
    return old


def _reused(old: Dataset | None, source: EnvironmentFolder, task: TaskFolder) -> PackedProof | None:
    """The earlier proof of a task, if neither it nor its environment has changed."""
    if old is None or task.id not in old.tasks:
        return None
    stored = old.task_files(task.id)
    files = old.environment_files(source.id)
    before = _key(
        files.spec.tools,
        files.tools_source,
        files.spec.policy_text,
        old.database_hash(task.id),
        stored,
    )
    now = _key(
        source.tools,
        source.tools_source,
        source.policy_text,
        inspect(source.database).content,
        _task_bundle(source, task, PackedProof((), None, _probes(task))),
    )
    evidence = stored.spec.evidence
    whole = [gate.gate for gate in evidence] == list(gate_names())
    failed = any(gate.status in (GateStatus.FAILED, GateStatus.NOT_RUN) for gate in evidence)
    if task.settings.any_rows and not _any_rows(evidence):
        return None
    if task.settings.allowed_writes != allowed_writes(evidence):
        return None
    if before != now or not whole or failed:
        return None
    return PackedProof(evidence, stored.gold, stored.probes)


def _key(
    tools: Sequence[ToolSpec], source: str, policy: str, database: str, task: TaskBundle
) -> str:
    """The hash of everything that a proof depends on."""
    known = [probe for probe in task.probes if probe.origin != "gold"]
    parts: list[JsonValue] = [
        [tool.model_dump(mode="json") for tool in tools],
        sha256(source),
        policy,
        database,
        task.spec.prompt,
        task.spec.submit_schema,
        task.solution,
        task.verifier,
        [probe.model_dump(mode="json") for probe in known],
    ]
    return content_hash(parts)


def _write(
    source: EnvironmentFolder, bundles: list[TaskBundle], out: Path, seed: int, trust: bool
) -> None:
    """Write the dataset beside ``out`` and put it in its place."""
    settings = source.settings
    fresh = out.with_name(f".{out.name}.packed-{uuid4().hex}")
    spec = EnvironmentSpec(
        id=source.id,
        category=settings.category,
        title=settings.title or source.id,
        description=settings.description,
        language=settings.language,
        tools=source.tools,
        policy_text=source.policy_text,
        author=PACKED,
        licence=settings.licence,
        sources=settings.sources,
    )
    try:
        with DatasetWriter(fresh, name=source.id, seed=seed) as writer:
            writer.add_environment(
                EnvironmentBundle(
                    spec=spec, database=source.database, tools_source=source.tools_source
                )
            )
            for bundle in bundles:
                writer.add_task(bundle)
            writer.finish(dataset_evidence=trusted_evidence(trust))
        _swap(fresh, out)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _swap(fresh: Path, out: Path) -> None:
    """Put ``fresh`` in the place of ``out``, and remove the old one after that."""
    gone = out.with_name(f".{out.name}.old-{uuid4().hex}")
    if out.exists():
        out.rename(gone)
    fresh.rename(out)
    shutil.rmtree(gone, ignore_errors=True)


def prove_again(dataset: Dataset, task_id: str, hosts: Hosts, seed: int) -> Evidence:
    """Run the gates of a packed task again, from the dataset's files alone."""
    stored = dataset.task_files(task_id)
    files = dataset.environment_files(stored.spec.environment_id)
    database = dataset.database(task_id)
    if database is None:
        raise DatasetError(f"packed task {task_id!r} has no database")
    spec = files.spec
    draft = Draft(
        environment_id=spec.id,
        category=spec.category,
        title=spec.title,
        relations=(),
        tables={},
        tools=spec.tools,
        tools_source=files.tools_source,
        policy_text=spec.policy_text,
        author=spec.author,
        task_id=task_id,
        prompt=stored.spec.prompt,
        submit_schema=stored.spec.submit_schema or {},
        solution=stored.solution,
        verifier=stored.verifier,
    )
    known = [probe for probe in stored.probes if probe.origin != "gold"]
    host = tool_host(
        files.tools_source, spec.tools, database, backend=hosts.backend, trusted=hosts.trusted
    )
    with closing(host) as tools:
        proof = prove_packed(
            draft,
            hosts,
            database,
            tools,
            known,
            seed=seed,
            any_rows=_any_rows(stored.spec.evidence),
            allowed_writes=allowed_writes(stored.spec.evidence),
        )
    return (*proof.evidence, _same_gold(stored, proof))


def _any_rows(evidence: Evidence) -> bool:
    """Whether a task was proven on other rows."""
    return any(g.gate == "reseeds" and g.status is GateStatus.PASSED for g in evidence)


def allowed_writes(evidence: Evidence) -> tuple[str, ...]:
    """The tools of which a task's author allowed further calls."""
    found = [one.details.get("allowed") for one in evidence if one.gate == "unrequested"]
    return tuple(str(name) for one in found if isinstance(one, list) for name in one)


def _same_gold(stored: TaskBundle, proof: PackedProof) -> GateResult:
    """Whether the solution does what the dataset says of gold."""
    if not stored.solution:
        return not_applicable("stored", NO_SOLUTION)
    same = proof.gold == stored.gold and proof.probes == stored.probes
    reason = "gold.jsonl or probes.jsonl is not what the solution gives"
    return outcome("stored", same, 1, reason=reason)
