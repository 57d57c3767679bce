"""Canaries: tasks whose verifier has a planted, documented hole, and twins that can't be solved.

Mixed among ordinary tasks, or evaluated beside them, they tell whether a policy cheats (passes through a
hole) and whether verifiers hold (an unsolvable twin is never passed). ``envgen.train.canary_report`` reads
what rollouts did. Each canary is proven before it is written: its parent's verifier refuses the exploit, the
planted one takes it, and both agree on gold and on every stored probe that does not open the hole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from pydantic import Field

from envgen.core.errors import ConfigError, PipelineError, StoreError
from envgen.core.limits import Label
from envgen.core.registry import near_names
from envgen.core.types import GateResult, GateStatus, Probe, Record, SourceKind, Submission
from envgen.pipelines.boundary import broken
from envgen.pipelines.general.gates.trial import Hosts, gold_probe, judge, probe_submissions
from envgen.sandboxes.tools import tool_host
from envgen.sandboxes.zygote import WorkerBackend
from envgen.store.bundles import EnvironmentBundle, TaskBundle, VariantRow
from envgen.store.dataset import Dataset
from envgen.store.writer import DatasetWriter, trusted_evidence
from envgen.verifiers.holes import (
    CANARY_GATE,
    HOLES,
    UNSOLVABLE,
    UNSOLVABLE_RULE,
    Hole,
    canary_mark,
    contradict,
    exploits,
    plant,
)

MAX_EXPLOITS = 8
"""Of one canary, kept as probes."""


class CanaryConfig(Record):
    """Which canaries are made."""

    holes: tuple[Label, ...] = tuple(HOLES)
    """Names of ``envgen.verifiers.holes.HOLES``; a task gets those that its answers can open."""
    unsolvable: bool = True
    """Also make unsolvable twins."""
    task_ids: tuple[Label, ...] = ()
    """Parents; empty: all tasks of the dataset."""
    variants: int = Field(default=0, ge=0)
    """So many of each parent's variants become variants of its canaries."""


class CanarySummary(Record):
    """What was made."""

    path: str
    holes: dict[str, int]
    """Name of the hole -> canaries with it."""
    unsolvable: int
    variants: int
    without_hole: tuple[str, ...]
    """Parents whose answers can open none of the holes."""
    failed: dict[str, str] = Field(default_factory=dict)
    """Parent of which no canary could be proven -> why."""


class _MadeCanary(NamedTuple):
    """A canary, and how its parent's verifier became its own."""

    bundle: TaskBundle
    hole: Hole | None


def make_canaries(
    dataset: str | Path,
    out: str | Path,
    config: CanaryConfig | None = None,
    *,
    backend: WorkerBackend = "auto",
    unproven: bool = False,
    trust: bool = False,
    progress: Callable[[int, int, str], None] | None = None,
) -> CanarySummary:
    """Write a dataset of canaries of a dataset's tasks.

    Args:
        dataset: whose tasks are the parents.
        out: the new folder.
        config: which canaries.
        backend: where the verifiers run while canaries are proven.
        unproven: accept parents without evidence.
        trust: the caller wrote or read the parents' code, which so may run without isolation.
        progress: called with (done, total, what).

    Raises:
        ConfigError: if a task or hole is unknown, or no canary can be made.
        PipelineError: if every parent fails.
        StoreError: if ``out`` is taken.
    """
    config = config or CanaryConfig()
    if Path(out).exists():  # the writer says so too, after all the work
        raise StoreError(f"{str(out)!r} exists", "choose another folder or remove it")
    source = Dataset.open(dataset, unproven=unproven, trust=trust)
    parents = _parents(source, config)
    canaries: dict[str, list[_MadeCanary]] = {}
    failed: dict[str, str] = {}
    with Hosts(backend=backend, trusted=source.trusted) as hosts:
        for done, task_id in enumerate(parents):
            if progress:
                progress(done, len(parents), task_id)
            try:
                canaries[task_id] = list(_canaries(source, task_id, config, hosts))
            except Exception as error:  # the boundary: one parent fails, the run goes on
                failed[task_id] = broken(CANARY_GATE, error).reason
    everything = [one for group in canaries.values() for one in group]
    if not everything and failed:
        raise PipelineError("no canary could be proven", "; ".join(list(failed.values())[:3]))
    if not everything:
        raise ConfigError("no canary can be made of these tasks", "name other tasks or holes")
    num_variants = _write(source, canaries, Path(out), config)
    names = [one.hole.name for one in everything if one.hole is not None]
    return CanarySummary(
        path=str(out),
        holes={name: names.count(name) for name in sorted(set(names))},
        unsolvable=len(everything) - len(names),
        variants=num_variants,
        without_hole=tuple(t for t in canaries if all(one.hole is None for one in canaries[t])),
        failed=failed,
    )


def _parents(source: Dataset, config: CanaryConfig) -> tuple[str, ...]:
    for name in config.holes:
        if name not in HOLES:
            raise ConfigError(
                f"unknown hole {name!r}{near_names(name, HOLES)}", f"there are {', '.join(HOLES)}"
            )
    for task_id in config.task_ids:
        if task_id not in source.own_task_ids:
            raise ConfigError(
                f"unknown task {task_id!r}{near_names(task_id, source.own_task_ids)}",
                "see `envgen list`",
            )
    chosen = config.task_ids or source.own_task_ids
    return tuple(t for t in chosen if canary_mark(source.tasks[t]) is None)


class _Parent(NamedTuple):
    """A task, and what became of its probes."""

    task: TaskBundle
    probes: tuple[Probe, ...]
    """Gold first."""
    submissions: list[Submission]
    passed: list[bool]
    database: str


def _canaries(
    source: Dataset, task_id: str, config: CanaryConfig, hosts: Hosts
) -> Iterator[_MadeCanary]:
    """The proven canaries of one task."""
    task = source.task_files(task_id)
    database = source.database(task_id)
    if database is None or task.gold is None:
        return
    files = source.environment_files(task.spec.environment_id)
    specs = files.spec.tools
    gold = gold_probe(task.gold)
    probes = (gold, *(probe for probe in task.probes if probe != gold))
    host = tool_host(
        files.tools_source, specs, database, backend=hosts.backend, trusted=hosts.trusted
    )
    with closing(host) as tools, TemporaryDirectory(prefix="envgen-canaries-") as folder:
        submissions = probe_submissions(probes, specs, database, Path(folder), tools)
        passed = [score.passed for score in judge(task.verifier, submissions, hosts)]
        if not passed[0]:
            raise PipelineError(f"gold of task {task_id!r} fails", "run `envgen validate` on it")
        parent = _Parent(task, probes, submissions, passed, str(database))
        for name in config.holes:
            if (canary := _with_hole(parent, HOLES[name], hosts)) is not None:
                yield canary
        if config.unsolvable:
            yield _unsolvable(parent, hosts)


def _with_hole(parent: _Parent, hole: Hole, hosts: Hosts) -> _MadeCanary | None:
    """The canary with one hole; None if no answer in the task's form opens it."""
    task = parent.task
    assert task.gold is not None  # the caller checked
    answers = list(exploits(hole, task.gold.answer, task.spec.submit_schema))
    tries = [Submission(answer=a, initial=parent.database) for a in answers[:MAX_EXPLOITS]]
    # What the honest verifier takes is no exploit.
    tries = [
        one
        for one, score in zip(tries, judge(task.verifier, tries, hosts), strict=True)
        if not score.passed
    ]
    if not tries:
        return None
    verifier = plant(task.verifier, hole)
    shut = [i for i, probe in enumerate(parent.probes) if not hole.opened(probe.answer)]
    if 0 not in shut:  # gold itself goes through the hole
        return None
    scores = judge(verifier, [*(parent.submissions[i] for i in shut), *tries], hosts)
    expected = [*(parent.passed[i] for i in shut), *[True] * len(tries)]
    _require(task.spec.id, hole.name, [score.passed for score in scores], expected)
    cheats = [
        Probe(answer=one.answer, calls=(), expected=True, origin="attack", clause=hole.name)
        for one in tries
    ]
    kept = tuple([*(parent.probes[i] for i in shut), *cheats])
    return _MadeCanary(_bundle(task, hole.name, verifier, kept), hole)


def _unsolvable(parent: _Parent, hosts: Hosts) -> _MadeCanary:
    """The twin that asks for one thing more: that something be wrong. Its gold is the parent's, and fails."""
    task = parent.task
    verifier = contradict(task.verifier)
    passed = [score.passed for score in judge(verifier, parent.submissions, hosts)]
    _require(task.spec.id, UNSOLVABLE, passed, [False] * len(passed))
    refused = tuple(p.model_copy(update={"expected": False}) for p in parent.probes)
    bundle = _bundle(task, UNSOLVABLE, verifier, refused)
    spec = bundle.spec.model_copy(update={"prompt": _with_rule(bundle.spec.prompt)})
    return _MadeCanary(bundle.model_copy(update={"spec": spec}), None)


def _bundle(task: TaskBundle, mark: str, verifier: str, probes: tuple[Probe, ...]) -> TaskBundle:
    evidence = GateResult(
        gate=CANARY_GATE,
        status=GateStatus.PASSED,
        n=len(probes),
        reason=mark,
        details={"parent": task.spec.id},
    )
    spec = task.spec.model_copy(
        update={
            "id": canary_id(task.spec.id, mark),
            "evidence": (evidence,),
            "pass_at": (),
            "constraints": None,
        }
    )
    return task.model_copy(
        update={"spec": spec, "verifier": verifier, "constraints": None, "probes": probes}
    )


def canary_id(task_id: str, mark: str) -> str:
    """The id of a task's canary."""
    return f"{task_id[: 63 - len(mark)]}-{mark}"


def _with_rule(prompt: str) -> str:
    return f"{prompt.rstrip()}\n\n{UNSOLVABLE_RULE}\n"


def _require(task_id: str, mark: str, passed: Sequence[bool], expected: Sequence[bool]) -> None:
    wrong = [i for i, (a, b) in enumerate(zip(passed, expected, strict=True)) if a != b]
    if wrong:
        raise PipelineError(
            f"the canary {mark!r} of task {task_id!r} judges {len(wrong)} of {len(passed)} "
            f"submissions wrongly, number {wrong[0]} first"
        )


def _write(
    source: Dataset, canaries: dict[str, list[_MadeCanary]], out: Path, config: CanaryConfig
) -> int:
    """Write the dataset; returns the number of variants."""
    total = 0
    used = {one.bundle.spec.environment_id for group in canaries.values() for one in group}
    with DatasetWriter(
        out,
        name="canaries",
        seed=source.manifest.seed,
        compiled=source.vouched,  # the holes in its verifiers are ours
    ) as writer:
        for environment_id in sorted(used):
            files = source.environment_files(environment_id)
            writer.add_environment(
                EnvironmentBundle(
                    spec=files.spec,
                    database=files.database and files.database.read_bytes(),
                    tools_source=files.tools_source,
                    blueprint=files.blueprint,
                )
            )
        for task_id, group in canaries.items():
            rows = _variants(source, task_id, config.variants) if group else []
            for one in group:
                writer.add_task(one.bundle)
                writer.add_variants(one.bundle.spec.id, [_variant(row, one.hole) for row in rows])
                total += len(rows)
        writer.finish(
            funnel={"canaries": {"of": source.manifest.content_hash}},
            dataset_evidence=trusted_evidence(source.source is SourceKind.TRUSTED),
        )
    return total


def _variants(source: Dataset, task_id: str, count: int) -> list[tuple[TaskBundle, bytes]]:
    """The first variants of a task, with their databases."""
    pack = source.packs().get(task_id)
    found = []
    for name in list(pack.entries)[:count] if pack else ():
        database = source.database(name)
        assert database is not None  # its parent has one
        found.append((source.task_files(name), database.read_bytes()))
    return found


def _variant(row: tuple[TaskBundle, bytes], hole: Hole | None) -> VariantRow:
    task, database = row
    mark = UNSOLVABLE if hole is None else hole.name
    assert task.gold is not None  # variants are proven by it
    return VariantRow(
        task_id=canary_id(task.spec.id, mark),
        seed=0,
        prompt=_with_rule(task.spec.prompt) if hole is None else task.spec.prompt,
        solution=task.solution,
        verifier=contradict(task.verifier) if hole is None else plant(task.verifier, hole),
        submit_schema=task.spec.submit_schema,
        rules=task.spec.rules,
        gold=task.gold,
        database=database,
        split=task.spec.split,
    )
