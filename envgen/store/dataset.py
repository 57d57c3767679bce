"""Read a dataset folder: every byte is checked before anything in it is used."""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from pydantic import JsonValue, TypeAdapter, ValidationError

from envgen.core.errors import DatasetError, StoreError
from envgen.core.families import find_family
from envgen.core.limits import fault
from envgen.core.types import (
    EnvironmentSpec,
    Evidence,
    FamilyName,
    PassAt,
    Record,
    SourceKind,
    Split,
    TaskSpec,
)
from envgen.store.bundles import (
    PAGE,
    PAGES,
    TEXTS,
    EnvironmentFiles,
    TaskBundle,
    attachment_hashes,
    parse_bundle,
    parse_json,
)
from envgen.store.checks import check_members, read_manifest
from envgen.store.manifest import (
    Manifest,
    canary_guid,
    check_proof,
    dataset_hash,
    environment_hash,
    task_hash,
)
from envgen.store.pack import VariantPack
from envgen.store.recent import Recent
from envgen.store.sqlite_files import DatabaseContent, Snapshot, build, inspect, snapshot
from envgen.store.task_pack import TASKS, TaskPack
from envgen.store.trust import cache_folder, source_kind
from envgen.store.variants import unpack, unpack_tables

_JSON: TypeAdapter[JsonValue] = TypeAdapter(JsonValue)
_RECENT = 256
"""Tasks kept unpacked: an episode asks for its own several times."""


class EvidenceFile(Record):
    """The content of ``evidence.json``: what was measured, not what the task is."""

    gates: Evidence = ()
    pass_at: tuple[PassAt, ...] = ()


class _Task(NamedTuple):
    """Where a task stands: in its folder, as a variant in its parent's pack, or beside others in one file."""

    environment_id: str
    spec: TaskSpec | None = None
    pack: VariantPack | None = None
    tasks: TaskPack | None = None


class TaskHeader(NamedTuple):
    """The facts of a task that need no spec."""

    environment_id: str
    family: FamilyName
    split: Split
    level: int


class Dataset:
    """A dataset folder whose every file matched its hash when it was opened.

    Open one with ``Dataset.open(path)``. Objects are safe to share between threads and survive
    pickling by opening the folder again.

    Attributes:
        path: the folder.
        manifest: ``dataset.json``.
        environments: id -> spec.
        tasks: id -> spec; the variants' specs are made when asked for.
        source: who vouches for the code in it.
    """

    path: Path
    manifest: Manifest
    environments: Mapping[str, EnvironmentSpec]
    tasks: Mapping[str, TaskSpec]
    source: SourceKind

    def __init__(self, path: Path, *, unproven: bool = False, trust: bool = False) -> None:
        self.path = path
        self._unproven = unproven
        self._trust = trust
        self._lock = threading.Lock()
        self._snapshots: dict[str, Snapshot] = {}
        self._materialised: set[str] = set()
        self.manifest = read_manifest(path)
        check_members(path, self.manifest)
        self._databases: dict[str, DatabaseContent] = {}
        self.environments = self._read_environments()
        self._index: dict[str, _Task] = {}
        self._packs: dict[str, VariantPack] = {}
        self._unpacked = Recent(self._unpack, _RECENT)
        self._pack_facts: dict[str, TaskHeader] = {}
        self._read_tasks()
        self._read_task_packs()
        self._read_packs()
        self.tasks = _Tasks(list(self._index), self._spec)
        self._check_identity()
        self.source = source_kind(self.manifest.content_hash)
        if trust and self.source is SourceKind.FOREIGN:
            self.source = SourceKind.TRUSTED

    @classmethod
    def open(cls, path: str | Path, *, unproven: bool = False, trust: bool = False) -> Dataset:
        """Open and check the dataset folder at ``path``.

        Args:
            path: the folder.
            unproven: also accept tasks whose evidence is missing or negative.
            trust: the caller wrote or read the code in it, which so may run without isolation.

        Raises:
            DatasetError: if the folder is missing, corrupt, hostile, too new or unproven.
        """
        try:
            return cls(Path(path), unproven=unproven, trust=trust)
        except OSError as error:
            raise DatasetError(f"can't read the dataset in {str(path)!r}: {error}") from error
        except (ValidationError, ValueError, RecursionError) as error:
            wrong = (
                f"{error.title}, {fault(error)}" if isinstance(error, ValidationError) else error
            )
            raise DatasetError(f"the dataset in {str(path)!r} is corrupt: {wrong}") from error

    def __reduce__(self) -> tuple[Callable[..., Dataset], tuple[Path, bool, bool, str]]:
        return _reopen, (self.path, self._unproven, self._trust, self.manifest.content_hash)

    def __repr__(self) -> str:
        counts = self.manifest.counts
        return f"<Dataset {self.manifest.name!r} {counts.environments} environments {counts.tasks} tasks>"

    @property
    def vouched(self) -> bool:
        """Whether a hash says that its code is envgen's own work."""
        return self.source in (SourceKind.PACKAGE, SourceKind.LOCAL)

    @property
    def trusted(self) -> bool:
        """Whether its code may run without isolation: by its hash, or because the user says so."""
        return self.source is not SourceKind.FOREIGN

    @cached_property
    def own_task_ids(self) -> tuple[str, ...]:
        """The tasks that count: all but the variants."""
        return tuple(name for name, task in self._index.items() if task.pack is None)

    def environment_files(self, env_id: str) -> EnvironmentFiles:
        """An environment with its files' contents; its database as a path, never to be written.

        Raises:
            DatasetError: if a file changed since the dataset was opened.
        """
        spec = self.environments[env_id]
        folder = f"environments/{env_id}"
        tools = (
            "" if spec.tools_source is None else self._text(f"{folder}/{spec.tools_source.path}")
        )
        blueprint: JsonValue = None
        if spec.blueprint is not None:
            blueprint = self._with_page(
                parse_json(self._text(f"{folder}/{spec.blueprint.path}"), "blueprint.json")
            )
        return EnvironmentFiles(
            spec=spec,
            database=None if spec.database is None else self.path / folder / spec.database.path,
            tools_source=tools,
            blueprint=blueprint,
            attachments=self._attachments(folder, blueprint),
        )

    def task_files(self, task_id: str) -> TaskBundle:
        """A task with its secrets.

        Raises:
            DatasetError: if a file changed since the dataset was opened.
        """
        task = self._index[task_id]
        if task.spec is None:
            return self._unpacked(task_id)
        spec = task.spec
        surrogates = find_family(spec.family).surrogates
        texts = {
            name: self._text(
                f"{_task_folder(spec)}/{getattr(spec, name).path}",
                "surrogateescape" if surrogates else "strict",
            )
            for name in TEXTS
            if getattr(spec, name) is not None
        }
        return parse_bundle(spec, texts)

    def facts(self, task_id: str) -> TaskHeader:
        """A task's environment, family, split and level; cheap for variants, too."""
        task = self._index[task_id]
        if task.spec is not None:
            return _facts(task.spec)
        if task.tasks is not None:
            entry = task.tasks.entries[task_id]
            return TaskHeader(task.environment_id, entry.family, entry.split, entry.level)
        assert task.pack is not None
        parent = task.pack.base.parent
        if parent not in self._pack_facts:  # family and level are the parent's
            self._pack_facts[parent] = _facts(self._spec(task_id))
        return self._pack_facts[parent]._replace(split=task.pack.entries[task_id].split)

    def database(self, task_id: str) -> Path | None:
        """The initial database of a task, never to be written; a variant's is made on demand.

        A variant's database goes to a cache folder of this user, named by its content.
        """
        task = self._index[task_id]
        environment = self.environments[task.environment_id]
        if environment.database is None:
            return None
        own = self.path / "environments" / task.environment_id / environment.database.path
        if task.pack is None:
            return own
        entry = task.pack.entries[task_id]
        folder = cache_folder() / "variants" / entry.database[:2]
        path = folder / f"{entry.database}.sqlite"
        if entry.database not in self._materialised:
            if not _holds(path, entry.database):
                parent = self._snapshot(task.environment_id, own)
                tables = unpack_tables(parent, task.pack.read(task_id))
                _materialise(parent, tables, path, entry.database)
            self._materialised.add(entry.database)
        return path

    def database_hash(self, task_id: str) -> str:
        """Content hash of a task's initial database; empty if it has none."""
        task = self._index[task_id]
        if task.pack is not None:
            return task.pack.entries[task_id].database
        return self._databases.get(task.environment_id, DatabaseContent("", "")).content

    def packs(self) -> Mapping[str, VariantPack]:
        """The packed variants, by parent task id."""
        return self._packs

    def _spec(self, task_id: str) -> TaskSpec:
        task = self._index[task_id]
        return self.task_files(task_id).spec if task.spec is None else task.spec

    def _unpack(self, task_id: str) -> TaskBundle:
        task = self._index[task_id]
        if task.tasks is not None:
            return task.tasks.read(task_id)
        assert task.pack is not None
        return unpack(task.pack.base, task.pack.read(task_id))

    def _snapshot(self, env_id: str, path: Path) -> Snapshot:
        with self._lock:
            if env_id not in self._snapshots:
                self._snapshots[env_id] = snapshot(path)
            return self._snapshots[env_id]

    def _with_page(self, blueprint: JsonValue) -> JsonValue:
        """A blueprint with its domain's page in place of the page's hash."""
        if not isinstance(blueprint, dict) or PAGE not in blueprint:
            return blueprint
        name = f"{PAGES}/{blueprint[PAGE]}.json"
        if name not in self.manifest.members:
            raise DatasetError(f"the dataset is missing {name!r}, which a blueprint names")
        text = self._text(name)
        digest = hashlib.sha256(text.encode()).hexdigest()
        if digest != blueprint[PAGE]:  # the content hash covers the page by its name alone
            raise DatasetError(f"{name!r} holds another page than its name says")
        return {**blueprint, PAGE: text}

    def _attachments(self, folder: str, blueprint: JsonValue) -> dict[str, Path]:
        found = {}
        for name, digest in attachment_hashes(blueprint).items():
            if self.manifest.members.get(f"{folder}/{name}") != digest:
                raise DatasetError(f"{folder}/{name} is not the file that its blueprint names")
            found[name] = self.path / folder / name
        return found

    def _text(self, name: str, errors: str = "strict") -> str:
        try:
            content = (self.path / name).read_bytes()
        except OSError as error:
            raise DatasetError(f"can't read {self.path / name}: {error}") from error
        if hashlib.sha256(content).hexdigest() != self.manifest.members[name]:
            raise DatasetError(f"{self.path / name} changed after the dataset was opened")
        try:
            return content.decode(errors=errors)
        except UnicodeDecodeError as error:
            raise DatasetError(f"{self.path / name} is not UTF-8 text") from error

    def _read_environments(self) -> dict[str, EnvironmentSpec]:
        specs = {}
        for name in sorted(self.manifest.members):
            parts = name.split("/")
            if len(parts) != 3 or parts[2] != "environment.json":
                continue
            spec = EnvironmentSpec.model_validate_json(self._text(name))
            if spec.id != parts[1]:
                raise DatasetError(f"{name} is about environment {spec.id!r}")
            self._check_references(spec, f"environments/{spec.id}")
            if spec.database is not None:
                path = self.path / "environments" / spec.id / spec.database.path
                self._databases[spec.id] = inspect(path)
            specs[spec.id] = spec
        return specs

    def _read_tasks(self) -> None:
        for name in sorted(self.manifest.members):
            parts = name.split("/")
            if len(parts) != 5 or parts[2] != "tasks" or parts[4] != "task.json":
                continue
            folder = name.removesuffix("/task.json")
            for needed in ("prompt.md", "evidence.json"):
                if f"{folder}/{needed}" not in self.manifest.members:
                    raise DatasetError(f"task {parts[3]!r} has no {needed}")
            evidence = EvidenceFile.model_validate_json(self._text(f"{folder}/evidence.json"))
            content = _JSON.validate_json(self._text(name))
            if not isinstance(content, dict) or {"prompt", "evidence", "pass_at"} & set(content):
                raise DatasetError(f"{name} is not a task record")
            prompt = self._text(f"{folder}/prompt.md")
            measured = {"evidence": evidence.gates, "pass_at": evidence.pass_at}
            spec = TaskSpec.model_validate({**content, "prompt": prompt, **measured})
            if spec.id != parts[3] or spec.environment_id != parts[1]:
                raise DatasetError(f"{name} is about task {spec.id!r} of {spec.environment_id!r}")
            self._check_references(spec, folder)
            self._add(spec.id, _Task(spec.environment_id, spec))
            if not self._unproven:
                check_proof(spec.id, spec.evidence)

    def _read_task_packs(self) -> None:
        for name in sorted(self.manifest.members):
            parts = name.split("/")
            if len(parts) != 3 or parts[2] != TASKS:
                continue
            pack = TaskPack(self.path / name)
            if pack.environment_id != parts[1]:
                raise DatasetError(f"{name} is about tasks of {pack.environment_id!r}")
            for task_id in pack.entries:
                self._add(task_id, _Task(parts[1], tasks=pack))
            if not self._unproven:
                pack.check_proofs()

    def _read_packs(self) -> None:
        for name in sorted(self.manifest.members):
            parts = name.split("/")
            if len(parts) != 4 or parts[2] != "variants":
                continue
            pack = VariantPack(self.path / name)
            if pack.base.environment_id != parts[1] or pack.base.parent != parts[3][:-5]:
                raise DatasetError(f"{name} is about the variants of {pack.base.parent!r}")
            self._packs[pack.base.parent] = pack
            for task_id in pack.entries:
                self._add(task_id, _Task(parts[1], pack=pack))
            if not self._unproven:
                check_proof(pack.base.parent, pack.base.evidence)

    def _add(self, task_id: str, task: _Task) -> None:
        if task_id in self._index:
            raise DatasetError(f"task {task_id!r} is in the dataset twice")
        if task.environment_id not in self.environments:
            raise DatasetError(
                f"task {task_id!r} is of unknown environment {task.environment_id!r}"
            )
        self._index[task_id] = task

    def _check_references(self, spec: EnvironmentSpec | TaskSpec, folder: str) -> None:
        for field in type(spec).model_fields:
            reference: Any = getattr(spec, field)
            if not hasattr(reference, "sha256"):
                continue
            listed = self.manifest.members.get(f"{folder}/{reference.path}")
            if "/" in reference.path or listed != reference.sha256:
                raise DatasetError(
                    f"{field} of {spec.id!r} is {reference.path!r}, which is not the file of that hash"
                )

    def _check_identity(self) -> None:
        environments = {
            name: environment_hash(spec, self._databases.get(name, DatabaseContent("", "")).content)
            for name, spec in self.environments.items()
        }
        tasks = {}
        for name, task in self._index.items():
            if task.tasks is not None:
                tasks[name] = task.tasks.entries[name].task
            elif task.spec is not None:
                tasks[name] = task_hash(task.spec, self.manifest.format_version)
        packs = {name: pack.identity() for name, pack in self._packs.items()}
        found = dataset_hash(environments, tasks, packs)
        if found != self.manifest.content_hash:
            raise DatasetError(f"the content of {self.path} does not match its content hash")
        if self.manifest.canary != canary_guid(found):
            raise DatasetError(f"the canary of {self.path} is not the one of its content")


class _Tasks(Mapping[str, TaskSpec]):
    """Task specs by id, made when asked for."""

    def __init__(self, ids: list[str], make: Callable[[str], TaskSpec]) -> None:
        self._ids = dict.fromkeys(ids)
        self._make = make

    def __getitem__(self, key: str) -> TaskSpec:
        return self._make(key)

    def __iter__(self) -> Iterator[str]:
        return iter(self._ids)

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, key: object) -> bool:
        return key in self._ids


def _facts(spec: TaskSpec) -> TaskHeader:
    return TaskHeader(spec.environment_id, spec.family, spec.split, spec.difficulty.level)


def _task_folder(spec: TaskSpec) -> str:
    return f"environments/{spec.environment_id}/tasks/{spec.id}"


def _holds(path: Path, content: str) -> bool:
    """Whether a file of the cache, which anything may have written, is the database of that hash."""
    try:
        return not path.is_symlink() and path.is_file() and inspect(path).content == content
    except (OSError, DatasetError):
        return False


def _materialise(
    parent: Snapshot, tables: dict[str, list[list[object]]], path: Path, content: str
) -> None:
    temporary = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        build(parent.statements, tables, temporary)
        if inspect(temporary).content != content:
            raise DatasetError(f"variant database {content[:12]} does not match its hash")
        temporary.chmod(0o444)
        temporary.replace(path)
    except (OSError, sqlite3.Error) as error:
        raise StoreError(
            f"can't make a variant's database in {str(path.parent)!r}: {error}",
            "free disk space, or set XDG_CACHE_HOME to another folder",
        ) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def _reopen(path: Path, unproven: bool, trust: bool, identity: str) -> Dataset:
    dataset = Dataset.open(path, unproven=unproven, trust=trust)
    if dataset.manifest.content_hash != identity:
        raise DatasetError(f"{path} now holds another dataset")
    return dataset
