r"""Variants of one task, packed in one file: quick to read one by one, small together.

Layout (all lengths big-endian)::

    "envgen-variants 1\n"
    length (8 bytes), zlib(JSON base)      what the variants share, and the parent's texts
    zlib(JSON row) ...                     one per variant, compressed with the base as dictionary
    zlib(JSON index)                       one entry per variant, by task id
    index offset (8), index length (8), "ENVGPACK"

A row holds only what differs from the base. Its hash is taken before compression, so the identity
of a pack does not depend on the zlib that wrote it.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import JsonValue, TypeAdapter

from envgen.core.canonical import content_hash, dumps
from envgen.core.errors import DatasetError
from envgen.core.limits import Count, Object
from envgen.core.types import Evidence, Id, PassAt, Record, Sha256, Split

_HEAD = b"envgen-variants 1\n"
_TAIL = b"ENVGPACK"
_MAX_PLAIN = 256 * 1024 * 1024
_ZDICT = 32_000


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
        return dumps(self.task).encode()[-_ZDICT:]


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
    plain = dumps(
        {"delta": row.delta, "evidence": [gate.model_dump(mode="json") for gate in row.evidence]}
    ).encode()
    packer = zlib.compressobj(6, zlib.DEFLATED, zlib.MAX_WBITS, zdict=dictionary)
    blob = packer.compress(plain) + packer.flush()
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
    head = zlib.compress(
        dumps(
            {
                "parent": base.parent,
                "environment_id": base.environment_id,
                "task": base.task,
                "evidence": [gate.model_dump(mode="json") for gate in base.evidence],
            }
        ).encode(),
        6,
    )
    with path.open("xb") as file:
        file.write(_HEAD + len(head).to_bytes(8, "big") + head)
        entries = []
        for entry, blob in sorted(rows, key=lambda row: row.entry.id):
            changed = entry.model_copy(update={"offset": file.tell()})
            entries.append(changed.model_dump(mode="json", exclude_defaults=True))
            file.write(blob)
        index = zlib.compress(dumps(entries).encode(), 6)
        offset = file.tell()
        file.write(index + offset.to_bytes(8, "big") + len(index).to_bytes(8, "big") + _TAIL)


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
            with path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(0)
                if file.read(len(_HEAD)) != _HEAD:
                    raise DatasetError(f"{path} is no variant pack of a known version")
                head = file.read(_bounded(int.from_bytes(file.read(8), "big"), size))
                file.seek(max(0, size - 24))
                tail = file.read(24)
                if tail[16:] != _TAIL:
                    raise DatasetError(f"{path} ends too early")
                file.seek(_bounded(int.from_bytes(tail[:8], "big"), size))
                index = file.read(_bounded(int.from_bytes(tail[8:16], "big"), size))
            base = _Base.model_validate(json.loads(_inflate(head, b"")))
            entries = _ENTRIES.validate_python(json.loads(_inflate(index, b"")))
            self.base = PackBase(base.parent, base.environment_id, base.task, base.evidence)
        except (OSError, ValueError, zlib.error, RecursionError) as error:
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
            with self.path.open("rb") as file:
                file.seek(entry.offset)
                plain = json.loads(_inflate(file.read(entry.length), self._dictionary))
            row = _VariantRow.model_validate(plain)
            if content_hash(row.delta) != entry.row:
                raise DatasetError(f"variant {task_id!r} in {self.path} does not match its hash")
        except (OSError, ValueError, zlib.error, RecursionError) as error:
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


def _bounded(length: int, size: int) -> int:
    if length > size:
        raise ValueError("a length that is longer than the file")
    return length


def _inflate(blob: bytes, dictionary: bytes) -> bytes:
    opened = zlib.decompressobj(zlib.MAX_WBITS, dictionary) if dictionary else zlib.decompressobj()
    plain = opened.decompress(blob, _MAX_PLAIN)
    if not opened.eof:
        raise ValueError("a block that is cut short or larger than 256 MB")
    return plain
