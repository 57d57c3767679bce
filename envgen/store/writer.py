"""Write a dataset folder: the same content gives the same bytes, and it appears whole or not at all."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from pydantic import JsonValue

from envgen.core.canonical import pretty, sha256
from envgen.core.errors import StoreError
from envgen.core.families import Family, find_family
from envgen.core.types import (
    EnvironmentSpec,
    Evidence,
    FileRef,
    GateResult,
    GateStatus,
    PassAt,
    Split,
    TaskSpec,
)
from envgen.store import trust
from envgen.store.bundles import (
    PAGE,
    PAGES,
    EnvironmentBundle,
    TaskBundle,
    VariantRow,
    attachment_hashes,
    gold_lines,
    probe_lines,
)
from envgen.store.card import data_card
from envgen.store.code import code_hash, code_of
from envgen.store.columns import public_row, task_row, task_schema, write_parquet
from envgen.store.dataset import Dataset
from envgen.store.folders import (
    disk_errors,
    is_empty_folder,
    remove_abandoned,
    sync_folder,
    write_new,
)
from envgen.store.manifest import (
    CARD,
    MANIFEST,
    TABLES,
    Counts,
    Manifest,
    canary_guid,
    dataset_hash,
    environment_hash,
    task_hash,
)
from envgen.store.pack import CompressedRow, PackBase, VariantPack, compress_row, write_pack
from envgen.store.splits import SplitUse, crossings, draw_split
from envgen.store.sqlite_files import DatabaseContent, Snapshot, inspect, snapshot
from envgen.store.task_pack import TASKS, write_task_pack
from envgen.store.variants import pack_base, pack_row, pack_tables

logger = logging.getLogger(__name__)

DIVERSITY_NEEDS = 100
"""Gates about a whole dataset need this many tasks; below, they are recorded as not run."""


class DatasetWriter:
    """Collects environments, tasks and variants, then puts the finished folder in place.

    ``add_*`` may be called from any thread and in any order (a task after its environment, variants
    after their parent). Until ``finish`` everything is in a hidden folder beside ``path``; it is
    removed by ``close``, and by the next writer to the same place after a crash.

    Args:
        path: the folder to create; it must not exist, or be empty.
        name: the dataset's id.
        version: of the dataset, for its readers.
        config_hash: hash of the config that made it.
        seed: the run seed.
        compiled: all code in it is compiled here from a domain in the package (or is of a dataset
            that is, changed by envgen alone): note the content hash, so that it is trusted here.
        sources: where the tools, solutions and verifiers are copied from. What is written is as
            trusted as these datasets, if each of them is one of theirs, ``PARAMS`` lines aside.

    Raises:
        StoreError: if ``path`` is taken, the disk is full, or content is refused.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        name: str,
        version: int = 1,
        config_hash: str = "",
        seed: int = 0,
        compiled: bool = False,
        sources: Sequence[Dataset] = (),
    ) -> None:
        self.path = Path(path)
        self._head = {"name": name, "version": version, "config_hash": config_hash, "seed": seed}
        self._compiled = compiled
        self._sources = tuple(sources)
        self._code: set[str] = set()
        """Hashes of tools, solutions and verifiers, their ``PARAMS`` lines left out."""
        self._lock = threading.RLock()
        self._members: dict[str, str] = {}
        self._environments: dict[str, EnvironmentSpec] = {}
        self._environment_hashes: dict[str, str] = {}
        self._databases: dict[str, DatabaseContent] = {}
        self._snapshots: dict[str, Snapshot] = {}
        self._tasks: dict[str, TaskSpec] = {}
        self._packed: dict[str, dict[str, dict[str, str]]] = {}
        """Environment -> task -> field -> text, of families whose tasks stand in one file."""
        self._bases: dict[str, PackBase] = {}
        self._rows: dict[str, dict[str, CompressedRow]] = {}
        self._task_ids: set[str] = set()
        if self.path.is_symlink() or (self.path.exists() and not is_empty_folder(self.path)):
            raise StoreError(f"{str(self.path)!r} exists", "choose another folder or remove it")
        with disk_errors(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            remove_abandoned(self.path)
            self._folder = self.path.parent / f".{self.path.name}.partial-{uuid4().hex}"
            self._folder.mkdir()
            self._handle = os.open(self._folder, os.O_RDONLY)
            fcntl.flock(self._handle, fcntl.LOCK_EX)
        self._open = True

    def __enter__(self) -> DatasetWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Throw away what was not finished; harmless after ``finish``."""
        with self._lock:
            if self._open:
                self._open = False
                os.close(self._handle)
                shutil.rmtree(self._folder, ignore_errors=True)

    def add_environment(self, bundle: EnvironmentBundle) -> EnvironmentSpec:
        """Add an environment; returns its spec with the file references filled in.

        Raises:
            StoreError: if the id is taken, the database is unsound, or the disk is full.
        """
        spec = EnvironmentSpec.model_validate(bundle.spec.model_dump())
        folder = f"environments/{spec.id}"
        database = None if bundle.database is None else inspect(bundle.database, spec.id)
        with self._lock:
            self._check_open()
            if spec.id in self._environments:
                raise StoreError(f"environment {spec.id!r} is in the dataset already")
            references: dict[str, FileRef | None] = {
                "database": self._put(folder, "database.sqlite", bundle.database),
                "tools_source": self._code_file(folder, "tools.py", bundle.tools_source),
                "blueprint": self._put(
                    folder, "blueprint.json", _json(self._with_page_apart(bundle.blueprint))
                ),
            }
            spec = spec.model_copy(update=references)
            self._attach(folder, bundle)
            self._put(folder, "environment.json", pretty(spec))
            self._environments[spec.id] = spec
            if database is not None:
                self._databases[spec.id] = database
            content = "" if database is None else database.content
            self._environment_hashes[spec.id] = environment_hash(spec, content)
            return spec

    def _with_page_apart(self, blueprint: JsonValue) -> JsonValue:
        """A blueprint that names its page by hash; the page itself is put once for all environments."""
        text = blueprint.get(PAGE) if isinstance(blueprint, dict) else None
        if not isinstance(blueprint, dict) or not isinstance(text, str):
            return blueprint
        digest = sha256(text)
        if f"{PAGES}/{digest}.json" not in self._members:
            self._put(PAGES, f"{digest}.json", text)
        return {**blueprint, PAGE: digest}

    def add_task(self, bundle: TaskBundle) -> TaskSpec:
        """Add a task of an environment that was added before; returns its spec with references.

        Raises:
            StoreError: if the id is taken, the environment is unknown, or the disk is full.
        """
        spec = TaskSpec.model_validate(bundle.spec.model_dump())
        folder = f"environments/{spec.environment_id}/tasks/{spec.id}"
        with self._lock:
            self._check_open()
            if spec.environment_id not in self._environments:
                raise StoreError(
                    f"task {spec.id!r} is of unknown environment {spec.environment_id!r}"
                )
            self._take(spec.id)
            family = find_family(spec.family)
            files = _files(bundle, family)
            self._code |= {code_hash(text) for text in (bundle.solution, bundle.verifier) if text}
            references = {
                name: _reference(*file) if family.packed else self._put(folder, *file)
                for name, file in files.items()
            }
            spec = spec.model_copy(update=references)
            if family.packed:
                self._packed.setdefault(spec.environment_id, {})[spec.id] = {
                    name: str(text) for name, (_, text) in files.items() if text is not None
                }
            else:
                self._put(folder, "prompt.md", spec.prompt)
                content = spec.model_dump(mode="json", exclude={"prompt", "evidence", "pass_at"})
                self._put(folder, "task.json", pretty(content))
                self._put(folder, "evidence.json", pretty(_evidence_file(spec)))
            self._tasks[spec.id] = spec
            self._bases[spec.id] = pack_base(bundle.model_copy(update={"spec": spec}))
            return spec

    def add_variants(self, parent_task_id: str, rows: Sequence[VariantRow]) -> None:
        """Add variants of a task that was added before; may be called again for more.

        Raises:
            StoreError: if the parent is unknown, an id is taken, or a database has another schema.
        """
        with self._lock:
            self._check_open()
            if parent_task_id not in self._tasks:
                raise StoreError(f"variants of unknown task {parent_task_id!r}")
            parent = self._tasks[parent_task_id]
            base = self._bases[parent_task_id]
            database = self._parent_snapshot(parent.environment_id)
        dictionary = base.dictionary()
        packed = [self._pack(parent, base, dictionary, database, row) for row in rows]
        with self._lock:
            self._check_open()
            for row, item in zip(rows, packed, strict=True):
                self._take(item.entry.id)
                self._rows.setdefault(parent_task_id, {})[item.entry.id] = item
                self._code |= {code_hash(text) for text in (row.solution, row.verifier) if text}

    def adopt_pack(
        self,
        pack: VariantPack,
        task_ids: Sequence[str],
        pass_at: Mapping[str, Sequence[PassAt]] | None = None,
        splits: Mapping[str, Split] | None = None,
    ) -> None:
        """Add packed variants of another dataset, with or without their parent.

        Args:
            pack: where from.
            task_ids: the variants.
            pass_at: rates to add, by task id.
            splits: other splits than theirs, by task id.

        Raises:
            StoreError: if their environment is unknown or an id is taken.
        """
        base, dictionary = pack.base, pack.base.dictionary()
        packed = []
        for task_id in task_ids:
            row = pack.read(task_id)
            added = tuple((pass_at or {}).get(task_id, ()))
            split = (splits or {}).get(task_id, row.split)
            row = row._replace(pass_at=row.pass_at + added, split=split)
            packed.append(compress_row(base, dictionary, row))
        with self._lock:
            self._check_open()
            if base.environment_id not in self._environments:
                raise StoreError(f"variants of unknown environment {base.environment_id!r}")
            if base.parent in self._rows and self._bases[base.parent].task != base.task:
                raise StoreError(f"the dataset holds variants of another task {base.parent!r}")
            self._bases[base.parent] = base
            known = [one.packs().get(base.parent) for one in self._sources]
            if not any(own and own.identity() == pack.identity() for own in known):
                self._code.add(f"of the pack {pack.path}")  # no source's
            for item in packed:
                self._take(item.entry.id)
                self._rows.setdefault(base.parent, {})[item.entry.id] = item

    def database(self, env_id: str) -> DatabaseContent:
        """The hashes of an added environment's database; empty if it has none."""
        return self._databases.get(env_id, DatabaseContent("", ""))

    def finish(
        self, *, funnel: Mapping[str, JsonValue] | None = None, dataset_evidence: Evidence = ()
    ) -> Dataset:
        """Write the data card and ``dataset.json``, and put the folder in place.

        Args:
            funnel: what the pipeline drew, rejected (with reasons) and kept.
            dataset_evidence: gates about the dataset; with fewer than 100 tasks they become
                ``not_run``.

        Returns:
            The dataset, read back from disk.

        Raises:
            StoreError: if a database or schema stands in two splits, or the disk is full.
        """
        with self._lock:
            self._check_open()
            if found := crossings(self._split_uses()):
                raise StoreError(f"splits leak: {found[0]} ({len(found)} in all)")
            figures = json.loads(pretty(dict(funnel or {})))  # in the file's order, for the card
            manifest = self._manifest(figures, dataset_evidence)
            with disk_errors(self.path):
                self._write_task_packs()
                tasks = [self._tasks[name] for name in sorted(self._tasks)]
                environments = [self._environments[name] for name in sorted(self._environments)]
                card = data_card(manifest, environments, tasks, self._variant_splits())
                self._put("", CARD, card)
                self._tables(tasks)
                members = dict(sorted(self._members.items()))
                text = pretty(manifest.model_copy(update={"members": members}))
                write_new(self._folder / MANIFEST, text.encode(), durable=True)
                if self._vouched():
                    trust.register(manifest.content_hash)
                if self.path.exists():
                    self.path.rmdir()
                self._folder.rename(self.path)
                sync_folder(self.path.parent)
            self._open = False
            os.close(self._handle)
        return Dataset.open(self.path, unproven=True)

    def _write_task_packs(self) -> None:
        for env_id, texts in sorted(self._packed.items()):
            name = f"environments/{env_id}/{TASKS}"
            write_task_pack(self._folder / name, [self._tasks[one] for one in texts], texts)
            self._members[name] = sha256((self._folder / name).read_bytes())

    def _tables(self, tasks: Sequence[TaskSpec]) -> None:
        """Write the tasks' public side, one table a split; variants have none."""
        for split in sorted({task.split for task in tasks}):
            rows = (
                task_row(public_row(task, self._environments[task.environment_id]))
                for task in tasks
                if task.split == split
            )
            name = f"{TABLES}/{split}.parquet"
            path = self._folder / name
            path.parent.mkdir(exist_ok=True)
            write_parquet(rows, path, task_schema())
            self._members[name] = sha256(path.read_bytes())

    def _vouched(self) -> bool:
        vouched = bool(self._sources) and all(source.vouched for source in self._sources)
        known = (code_of(source) for source in self._sources if vouched and not self._compiled)
        return self._compiled or (vouched and self._code <= frozenset().union(*known))

    def _manifest(self, funnel: dict[str, JsonValue], evidence: Evidence) -> Manifest:
        packs = {}
        for parent, rows in sorted(self._rows.items()):
            base = self._bases[parent]
            name = f"environments/{base.environment_id}/variants/{parent}.pack"
            path = self._folder / name
            with disk_errors(self.path):
                path.parent.mkdir(parents=True, exist_ok=True)
                write_pack(path, base, rows.values())
                self._members[name] = sha256(path.read_bytes())
            packs[parent] = VariantPack(path).identity()
        tasks = {name: task_hash(spec) for name, spec in self._tasks.items()}
        identity = dataset_hash(self._environment_hashes, tasks, packs)
        licences: dict[str, list[str]] = {}
        for name in sorted(self._environments):
            licences.setdefault(self._environments[name].licence, []).append(name)
        counts = Counts(
            environments=len(self._environments),
            tasks=len(self._tasks),
            variants=sum(map(len, self._rows.values())),
        )
        return Manifest.model_validate(
            {
                **self._head,
                "content_hash": identity,
                "counts": counts,
                "funnel": funnel,
                "licences": {key: tuple(value) for key, value in sorted(licences.items())},
                "evidence": _dataset_evidence(evidence, len(self._tasks)),
                "canary": canary_guid(identity),
                "members": {},
            }
        )

    def _pack(
        self,
        parent: TaskSpec,
        base: PackBase,
        dictionary: bytes,
        database: Snapshot,
        row: VariantRow,
    ) -> CompressedRow:
        own = database if row.database is None else snapshot(row.database, row.task_id)
        known = {content.content: name for name, content in self._databases.items()}
        split = row.split or parent.split
        if row.split is None and parent.split == "train" and own.content not in known:
            split = draw_split(own.content)
        packed = pack_row(base, row, split)
        if own is not database:
            packed.delta["tables"] = pack_tables(database, own, row.task_id)
        return compress_row(base, dictionary, packed._replace(database=own.content))

    def _parent_snapshot(self, env_id: str) -> Snapshot:
        if env_id not in self._snapshots:
            reference = self._environments[env_id].database
            if reference is None:
                self._snapshots[env_id] = Snapshot([], {}, "", "")
            else:
                path = self._folder / "environments" / env_id / reference.path
                self._snapshots[env_id] = snapshot(path)
        return self._snapshots[env_id]

    def _split_uses(self) -> Iterator[SplitUse]:
        for name in sorted(self._tasks):
            spec = self._tasks[name]
            database = self.database(spec.environment_id)
            yield SplitUse(name, spec.split, database.content, database.schema)
        for rows in self._rows.values():
            for row in rows.values():
                yield SplitUse(row.entry.id, row.entry.split, row.entry.database, "")

    def _variant_splits(self) -> dict[str, int]:
        splits: dict[str, int] = {}
        for rows in self._rows.values():
            for row in rows.values():
                splits[row.entry.split] = splits.get(row.entry.split, 0) + 1
        return splits

    def _take(self, task_id: str) -> None:
        if task_id in self._task_ids:
            raise StoreError(f"task {task_id!r} is in the dataset already")
        self._task_ids.add(task_id)

    def _check_open(self) -> None:
        if not self._open:
            raise StoreError("this dataset writer is finished or closed")

    def _attach(self, folder: str, bundle: EnvironmentBundle) -> None:
        """Copy an environment's attachments, which must be those that its blueprint names."""
        wanted = attachment_hashes(bundle.blueprint)
        if set(wanted) != set(bundle.attachments):
            raise StoreError(
                f"environment {bundle.spec.id!r} has the files {sorted(bundle.attachments)}, "
                f"its blueprint names {sorted(wanted)}"
            )
        for name, source in sorted(bundle.attachments.items()):
            reference = self._put(folder, name, source.read_bytes())
            if reference is None or reference.sha256 != wanted[name]:
                raise StoreError(f"{source} is not the file {name!r} that the blueprint names")

    def _code_file(self, folder: str, name: str, text: str) -> FileRef | None:
        self._code |= {code_hash(text)} if text else set()
        return self._put(folder, name, text or None)

    def _put(self, folder: str, name: str, content: str | bytes | None) -> FileRef | None:
        if content is None:
            return None
        if isinstance(content, str):
            content = content.encode("utf-8", "surrogateescape")
        member = f"{folder}/{name}" if folder else name
        with disk_errors(self.path):
            path = self._folder / member
            path.parent.mkdir(parents=True, exist_ok=True)
            write_new(path, content)
        self._members[member] = sha256(content)
        return FileRef(path=name, sha256=self._members[member])


def _reference(name: str, text: str | None) -> FileRef | None:
    return None if text is None else FileRef(path=name, sha256=sha256(text))


def _files(bundle: TaskBundle, family: Family) -> dict[str, tuple[str, str | None]]:
    """The texts of a task, by the field that refers to them: their file's name and content."""
    return {
        "solution": (family.solution_file, bundle.solution or None),
        "verifier": (family.verifier_file, bundle.verifier or None),
        "constraints": ("constraints.json", _json(bundle.constraints)),
        "gold": ("gold.jsonl", None if bundle.gold is None else gold_lines(bundle.gold)),
        "probes": ("probes.jsonl", probe_lines(bundle.probes) or None),
    }


def _evidence_file(spec: TaskSpec) -> dict[str, Any]:
    return {
        "gates": [gate.model_dump(mode="json") for gate in spec.evidence],
        "pass_at": [rate.model_dump(mode="json") for rate in spec.pass_at],
    }


TRUSTED_GATE = "trusted"


def trusted_evidence(trusted: bool) -> Evidence:
    """For what is made by running foreign code: a record of ``--trust``, if it is ``trusted``."""
    if not trusted:
        return ()
    reason = "the user vouched for the code (--trust): it may have run without isolation"
    return (GateResult(gate=TRUSTED_GATE, status=GateStatus.NOT_APPLICABLE, reason=reason),)


def _dataset_evidence(evidence: Evidence, num_tasks: int) -> Evidence:
    if num_tasks >= DIVERSITY_NEEDS:
        return evidence
    reason = f"needs {DIVERSITY_NEEDS} tasks, the dataset has {num_tasks}"
    return tuple(
        gate
        if gate.gate == TRUSTED_GATE
        else GateResult(gate=gate.gate, status=GateStatus.NOT_RUN, reason=reason)
        for gate in evidence
    )


def _json(value: JsonValue) -> str | None:
    return None if value is None else pretty(value)
