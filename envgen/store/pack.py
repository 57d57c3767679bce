"""Variants of one task, packed in one file: quick to read one by one, small together.

A ``row_file`` whose head is the base: what the variants share, and the parent's texts.
A row holds only what differs from the base. Its hash is taken before compression, so the identity
of a pack does not depend on the zlib that wrote it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import JsonValue, TypeAdapter

from envgen.core.canonical import content_hash, dumps
from envgen.core.errors import DatasetError
from envgen.core.limits import Count, Object
from envgen.core.types import Evidence, Id, PassAt, Record, Sha256, Split
from envgen.store.row_file import DICTIONARY_BYTES, FAULTS, RowFile, StoredRow, compress, write_rows

_KIND = b"envgen-variants 1\n"


class PackEntry(Record):
    """Where one variant stands in its pack."""

    id: Id
    offset: Count
    length: Count
    row: Sha256
    """Hash of the row's canonical JSON."""
    database: Sha256 | Literal[""]
    """Content hash of the variant's database; empty where its environment has none."""
    split: Split
    pass_at: tuple[PassAt, ...] = ()


class PackBase(NamedTuple):
    """The part that a pack's variants share."""

    parent: str
    environment_id: str
    task: dict[str, JsonValue]
    """The parent's texts and spec, without evidence."""
    evidence: Evidence

    def dictionary(self) -> bytes:
        """The preset dictionary for the rows' compression."""
        return dumps(self.task).encode()[-DICTIONARY_BYTES:]


class PackRow(NamedTuple):
    """A packed variant: its index data, its own evidence, and the delta to its parent."""

    id: str
    database: str
    split: Split
    delta: dict[str, JsonValue]
    evidence: Evidence
    pass_at: tuple[PassAt, ...] = ()


class CompressedRow(NamedTuple):
    """A row as it stands in the file."""

    entry: PackEntry
    blob: bytes


def compress_row(base: PackBase, dictionary: bytes, row: PackRow) -> CompressedRow:
    """One row, ready for ``write_pack`` (which sets its offset)."""
    gates: list[JsonValue] = [gate.model_dump(mode="json") for gate in row.evidence]
    blob = compress({"delta": row.delta, "evidence": gates}, dictionary)
    entry = PackEntry(
        id=row.id,
        offset=0,
        length=len(blob),
        row=content_hash(row.delta),
        database=row.database,
        split=row.split,
        pass_at=row.pass_at,
    )
    return CompressedRow(entry, blob)


def write_pack(path: Path, base: PackBase, rows: Iterable[CompressedRow]) -> None:
    """Write a pack; the rows' order does not matter.

    Raises:
        OSError: if the disk is full.
    """
    head: dict[str, JsonValue] = {
        "parent": base.parent,
        "environment_id": base.environment_id,
        "task": base.task,
        "evidence": [gate.model_dump(mode="json") for gate in base.evidence],
    }
    dumped = ((entry.model_dump(mode="json", exclude_defaults=True), blob) for entry, blob in rows)
    write_rows(path, _KIND, head, (StoredRow(entry, blob) for entry, blob in dumped))


class VariantPack:
    """A pack opened for reading.

    Args:
        path: the file, whose bytes have been checked.

    Raises:
        DatasetError: if it is no pack.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._rows = RowFile(path, _KIND)
            base = _Base.model_validate(self._rows.head)
            entries = _ENTRIES.validate_python(self._rows.index)
            self.base = PackBase(base.parent, base.environment_id, base.task, base.evidence)
        except FAULTS as error:
            raise DatasetError(f"{path} is a corrupt variant pack: {error}") from error
        self.entries = {entry.id: entry for entry in entries}
        if len(self.entries) != len(entries):
            raise DatasetError(f"{path} holds an id twice")
        self._dictionary = self.base.dictionary()

    def identity(self) -> str:
        """Hash of what the variants are, without evidence and pass rates."""
        return content_hash(
            {
                "parent": self.base.parent,
                "environment_id": self.base.environment_id,
                "task": self.base.task,
                "rows": [[x.id, x.row, x.database, x.split] for x in self.entries.values()],
            }
        )

    def read(self, task_id: str) -> PackRow:
        """One variant's row, checked against the index.

        Raises:
            DatasetError: if it is corrupt.
        """
        entry = self.entries[task_id]
        try:
            plain = self._rows.read(entry.offset, entry.length, self._dictionary)
            row = _VariantRow.model_validate(plain)
            if content_hash(row.delta) != entry.row:
                raise DatasetError(f"variant {task_id!r} in {self.path} does not match its hash")
        except FAULTS as error:
            raise DatasetError(f"variant {task_id!r} in {self.path} is corrupt: {error}") from error
        return PackRow(task_id, entry.database, entry.split, row.delta, row.evidence, entry.pass_at)


class _Base(Record):
    """The head of a pack as it is read."""

    parent: Id
    environment_id: Id
    task: Object
    evidence: Evidence


class _VariantRow(Record):
    """A variant as it is read."""

    delta: Object
    evidence: Evidence


_ENTRIES = TypeAdapter(tuple[PackEntry, ...])
