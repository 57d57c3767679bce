"""Small tasks of one environment in one file: thousands of them open in a second.

A ``row_file``. A row is a whole task: its record, its secret texts and its evidence. The index tells enough
to list and choose tasks, and each one's hash, which its record must have when it is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from pydantic import JsonValue, TypeAdapter

from envgen.core.canonical import dumps, sha256
from envgen.core.errors import DatasetError
from envgen.core.limits import Count, Json, Label, Text
from envgen.core.types import Evidence, FamilyName, Id, PassAt, Record, Sha256, Split, TaskSpec
from envgen.store.bundles import TEXTS, TaskBundle, parse_bundle
from envgen.store.manifest import check_proof, task_hash
from envgen.store.row_file import DICTIONARY_BYTES, FAULTS, RowFile, StoredRow, compress, write_rows

TASKS = "tasks.pack"
"""The file's name in the folder of its environment."""
_KIND = b"envgen-tasks 1\n"


class TaskEntry(Record):
    """Where one task stands in its pack."""

    id: Id
    offset: Count = 0
    length: Count = 0
    task: Sha256
    """Its ``task_hash``."""
    family: FamilyName
    split: Split
    level: Count


def write_task_pack(
    path: Path, specs: Iterable[TaskSpec], texts: Mapping[str, Mapping[str, str]]
) -> None:
    """Write tasks of one environment.

    Args:
        path: the new file.
        specs: with the references to their texts.
        texts: task id -> field of the task -> text.

    Raises:
        OSError: if the disk is full.
    """
    ordered = sorted(specs, key=lambda spec: spec.id)
    plain = {spec.id: _plain(spec, texts[spec.id]) for spec in ordered}
    shared = dumps(plain[ordered[0].id])[:DICTIONARY_BYTES]
    rows = []
    for spec in ordered:
        entry = TaskEntry(id=spec.id, task=task_hash(spec), **_facts(spec))
        blob = compress(plain[spec.id], shared.encode())
        dumped = entry.model_copy(update={"length": len(blob)}).model_dump(mode="json")
        rows.append(StoredRow(dumped, blob))
    write_rows(path, _KIND, {"environment_id": ordered[0].environment_id, "shared": shared}, rows)


class TaskPack:
    """A pack opened for reading.

    Args:
        path: the file, whose bytes have been checked.

    Attributes:
        environment_id: of all its tasks.
        entries: by task id.

    Raises:
        DatasetError: if it is no pack.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._rows = RowFile(path, _KIND)
            head = _Head.model_validate(self._rows.head)
            entries = _ENTRIES.validate_python(self._rows.index)
        except FAULTS as error:
            raise DatasetError(f"{path} is a corrupt pack of tasks: {error}") from error
        self.environment_id, self._shared = head.environment_id, head.shared.encode()
        self.entries = {entry.id: entry for entry in entries}
        if len(self.entries) != len(entries):
            raise DatasetError(f"{path} holds an id twice")

    def read(self, task_id: str) -> TaskBundle:
        """One task, checked against the index and its own hashes.

        Raises:
            DatasetError: if it is corrupt.
        """
        entry = self.entries[task_id]
        try:
            row = _PackedTask.model_validate(self._row(entry))
            measured = {"evidence": row.evidence, "pass_at": row.pass_at}
            if not isinstance(row.task, dict) or set(measured) & set(row.task):
                raise ValueError("its record is not a task record")
            spec = TaskSpec.model_validate({**row.task, **measured})
            if (spec.id, spec.environment_id) != (task_id, self.environment_id):
                raise ValueError(f"it is about task {spec.id!r} of {spec.environment_id!r}")
            derived = TaskEntry(id=spec.id, task=task_hash(spec), **_facts(spec))
            if derived != entry.model_copy(update={"offset": 0, "length": 0}):
                raise ValueError("its record is not the one that the index names")
            references = {name: getattr(spec, name) for name in TEXTS}
            named = {name: one.sha256 for name, one in references.items() if one is not None}
            if named != {name: sha256(text) for name, text in row.texts.items()}:
                raise ValueError("its texts are not those of its hashes")
            return parse_bundle(spec, row.texts)
        except FAULTS as error:
            raise DatasetError(f"task {task_id!r} in {self.path} is corrupt: {error}") from error

    def check_proofs(self) -> None:
        """Refuse a pack that holds a task without proof.

        Raises:
            DatasetError: naming the first one.
        """
        for entry in self.entries.values():
            try:
                row = self._row(entry)
                evidence = _EVIDENCE.validate_python(row["evidence"])  # type: ignore[index, call-overload]  # FAULTS
            except (*FAULTS, TypeError, KeyError) as error:
                raise DatasetError(
                    f"task {entry.id!r} in {self.path} is corrupt: {error}"
                ) from error
            check_proof(entry.id, evidence)

    def _row(self, entry: TaskEntry) -> JsonValue:
        return self._rows.read(entry.offset, entry.length, self._shared)


class _Head(Record):
    environment_id: Id
    shared: Text


class _PackedTask(Record):
    task: Json
    texts: dict[Label, Text]
    evidence: Evidence
    pass_at: tuple[PassAt, ...]


_ENTRIES = TypeAdapter(tuple[TaskEntry, ...])
_EVIDENCE: TypeAdapter[Evidence] = TypeAdapter(Evidence)


def _plain(spec: TaskSpec, texts: Mapping[str, str]) -> dict[str, JsonValue]:
    row: dict[str, JsonValue] = {
        "task": spec.model_dump(mode="json", exclude={"evidence", "pass_at"}),
        "texts": dict(texts),
        "evidence": [gate.model_dump(mode="json") for gate in spec.evidence],
        "pass_at": [rate.model_dump(mode="json") for rate in spec.pass_at],
    }
    return row


def _facts(spec: TaskSpec) -> dict[str, str | int]:
    return {"family": spec.family, "split": spec.split, "level": spec.difficulty.level}
