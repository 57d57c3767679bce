"""From drafts to a dataset: each is written, proven by its family's own validator, and kept or counted."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from pydantic import JsonValue

from envgen.core.canonical import content_hash
from envgen.core.errors import ConfigError, PipelineError
from envgen.core.families import EVERYWHERE, find_family
from envgen.core.types import Evidence, GateStatus, Id, Record
from envgen.pipelines.boundary import failure
from envgen.pipelines.partial import partial_folder
from envgen.pipelines.validate import (
    ProofItem,
    TaskValidation,
    TaskValidator,
    ValidateOptions,
    prove_all,
    validators,
)
from envgen.sandboxes.zygote import WorkerBackend
from envgen.store.bundles import EnvironmentBundle, TaskBundle
from envgen.store.dataset import Dataset
from envgen.store.splits import assign_splits
from envgen.store.writer import DatasetWriter


class TaskDraft(NamedTuple):
    """A task that is still to be proven."""

    environment: EnvironmentBundle
    """Shared by tasks that give it the same id."""
    task: TaskBundle
    group: str
    """What must not stand in two splits: tasks of one group share theirs."""


class AssembleSummary(Record):
    """The outcome of an assembly."""

    path: str
    environments: int
    tasks: int
    drafted: int
    rejected: dict[str, int]
    """Drafts by the gate that they failed."""
    seconds: float


def assemble(
    config: Record,
    out: str | Path,
    drafts: Sequence[TaskDraft],
    *,
    name: Id,
    seed: int = 0,
    most: int | None = None,
    told: Mapping[str, JsonValue] | None = None,
    backend: WorkerBackend = "auto",
    workers: int | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> AssembleSummary:
    """Prove drafts of one family from a dataset's files, and write those that hold as a dataset.

    What is kept has passed the very gates that ``envgen validate`` runs, on the very bytes that are written;
    their results are its evidence. Splits are dealt by group. An interrupted assembly of the same drafts goes
    on where it stopped: results are kept in ``OUT.partial`` as they come.

    Args:
        config: of the family's pipeline: the dataset notes its hash.
        out: the dataset folder; it must not exist.
        drafts: of one family.
        name: the dataset's id.
        seed: of the gates' random choices and the splits.
        most: keep no more than so many, the first ones that hold.
        told: what else the funnel says of how they came about.
        backend: where gates run generated code.
        workers: processes that prove; default: one per core. The bytes don't depend on it.
        progress: called after each draft.

    Raises:
        ConfigError: if ``out`` exists, drafts are of several families, or their family's record says
            nothing of a gate.
        PipelineError: if no draft was proven; the hint tells why.
        ResumeError: if ``OUT.partial`` holds another configuration's work.
    """
    out, started = Path(out), time.monotonic()
    if out.exists():
        raise ConfigError(f"{str(out)!r} exists", "choose another --out, or remove it")
    families = {draft.task.spec.family for draft in drafts}
    if len(families) != 1:
        raise ConfigError(f"drafts of families {sorted(families)}", "assemble one family at a time")
    options = ValidateOptions(seed=seed, backend=backend)
    out.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f"{out.name}.drafts-", dir=out.parent) as scratch:
        dataset = _written(Path(scratch) / "drafts", drafts, {}, name=name, seed=seed)
        partial = partial_folder(
            out, {"config": config.model_dump(mode="json"), "drafts": dataset.manifest.content_hash}
        )
        with validators(dataset, options, sorted(families)) as own:
            (validator,) = own.values()
            results = _proven(partial / "proofs.jsonl", validator, drafts, workers, progress)
    evidence, rejected, reasons = _sorted_out(results)
    _require_known(families.pop(), evidence)
    kept = [draft for draft in drafts if draft.task.spec.id in evidence][:most]
    if not kept:
        why = "; ".join(f"{reason} ({n} times)" for reason, n in reasons.most_common(3))
        shutil.rmtree(partial)  # or other settings would be refused as another configuration
        raise PipelineError("no task was proven", why or "there are no drafts")
    numbers: dict[str, JsonValue] = {
        "drafted": len(drafts),
        "rejected": dict(sorted(rejected.items())),
        "tasks": len(kept),
        "environments": len({draft.environment.spec.id for draft in kept}),
        **(told or {}),
    }
    dataset = _written(
        out, kept, evidence, name=name, seed=seed, config_hash=content_hash(config), funnel=numbers
    )
    shutil.rmtree(partial)
    return AssembleSummary(
        path=str(out),
        environments=len(dataset.environments),
        tasks=len(dataset.own_task_ids),
        drafted=len(drafts),
        rejected=dict(rejected),
        seconds=time.monotonic() - started,
    )


class _SortedOut(NamedTuple):
    """Findings about drafts: the evidence of those that hold, and the others counted."""

    evidence: dict[str, Evidence]
    rejected: Counter[str]
    """By the gate that failed first."""
    reasons: Counter[str]


def _require_known(family: str, evidence: Mapping[str, Evidence]) -> None:
    known = {*EVERYWHERE, *find_family(family).gates}
    if left := sorted({gate.gate for one in evidence.values() for gate in one} - known):
        raise ConfigError(
            f"family {family!r} says nothing of its gates {', '.join(map(repr, left))}",
            "name in Family.gates what each reads that the generator did not, or INWARD",
        )


def _sorted_out(results: Sequence[TaskValidation]) -> _SortedOut:
    found = _SortedOut({}, Counter(), Counter())
    for one in results:
        if (bad := failure(one.evidence)) is not None:
            found.rejected[bad.gate] += 1
            found.reasons[f"{bad.gate}: {bad.reason}"] += 1
        elif any(gate.status is GateStatus.PASSED for gate in one.evidence):
            found.evidence[one.task_id] = one.evidence
        else:
            found.rejected["nothing proven"] += 1
    return found


def _proven(
    journal: Path,
    validator: TaskValidator,
    drafts: Sequence[TaskDraft],
    workers: int | None,
    progress: Callable[[int, int, str], None] | None,
) -> list[TaskValidation]:
    """The findings about all drafts, in their order; those in the journal are taken over."""
    names = [draft.task.spec.id for draft in drafts]
    done = {found.task_id: found for found in _read(journal)}
    left = [ProofItem(validator.family, name) for name in names if name not in done]

    def note(number: int, _: int, name: str) -> None:
        if progress:
            progress(len(names) - len(left) + number, len(names), name)

    with open(journal, "a") as file:
        file.write("\n")  # ends a line that was cut off

        def keep(found: TaskValidation) -> None:
            file.write(found.model_dump_json() + "\n")
            file.flush()

        proven = prove_all({validator.family: validator}, left, workers, note, keep)
    done |= {found.task_id: found for found in proven}
    return [done[name] for name in names]


def _read(journal: Path) -> Iterator[TaskValidation]:
    for line in journal.read_text().split("\n") if journal.exists() else ():
        try:
            yield TaskValidation.model_validate_json(line)
        except ValueError:  # empty, or cut off while being written: that task is proven again
            continue


def _written(
    path: Path,
    drafts: Sequence[TaskDraft],
    evidence: dict[str, Evidence],
    *,
    name: Id,
    seed: int,
    config_hash: str = "",
    funnel: dict[str, JsonValue] | None = None,
) -> Dataset:
    """A dataset of the drafts, whether they are proven or not."""
    splits = assign_splits({draft.task.spec.id: draft.group for draft in drafts}, seed=seed)
    with DatasetWriter(path, name=name, seed=seed, config_hash=config_hash) as writer:
        added = set()
        for environment, task, _ in drafts:
            if environment.spec.id not in added:
                added.add(environment.spec.id)
                writer.add_environment(environment)
            own = {"split": splits[task.spec.id], "evidence": evidence.get(task.spec.id, ())}
            writer.add_task(task.model_copy(update={"spec": task.spec.model_copy(update=own)}))
        writer.finish(funnel=funnel or {})
    return Dataset.open(path, unproven=True)
