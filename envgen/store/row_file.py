r"""Many small records in one file: quick to read one by one, small together.

Layout (all lengths big-endian)::

    a line that names the kind of file
    length (8 bytes), zlib(JSON head)      what the rows share
    zlib(JSON row) ...                     each compressed with a dictionary that the head gives
    zlib(JSON index)                       one entry a row, with its offset and length
    index offset (8), index length (8), "ENVGPACK"
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from pydantic import JsonValue, TypeAdapter

from envgen.core.canonical import dumps

_TAIL = b"ENVGPACK"
_MAX_PLAIN = 256 * 1024 * 1024
DICTIONARY_BYTES = 32_000
"""What zlib looks back at."""
_JSON: TypeAdapter[JsonValue] = TypeAdapter(JsonValue)
FAULTS = (OSError, ValueError, zlib.error, RecursionError)
"""What reading a corrupt file raises."""


class StoredRow(NamedTuple):
    """A row as it stands in the file, and its entry in the index without the offset."""

    entry: Mapping[str, JsonValue]
    blob: bytes


def compress(plain: JsonValue, dictionary: bytes) -> bytes:
    """The bytes of a row.

    Raises:
        UnicodeEncodeError: if a text in it can't be UTF-8.
    """
    packer = zlib.compressobj(6, zlib.DEFLATED, zlib.MAX_WBITS, zdict=dictionary)
    return packer.compress(dumps(plain).encode()) + packer.flush()


def write_rows(path: Path, kind: bytes, head: JsonValue, rows: Iterable[StoredRow]) -> None:
    """Write the file; rows are sorted by their ids.

    Raises:
        OSError: if the disk is full.
    """
    first = zlib.compress(dumps(head).encode(), 6)
    with path.open("xb") as file:
        file.write(kind + len(first).to_bytes(8, "big") + first)
        entries: list[JsonValue] = []
        for entry, blob in sorted(rows, key=lambda row: str(row.entry["id"])):
            entries.append({**entry, "offset": file.tell()})
            file.write(blob)
        index = zlib.compress(dumps(entries).encode(), 6)
        offset = file.tell()
        file.write(index + offset.to_bytes(8, "big") + len(index).to_bytes(8, "big") + _TAIL)


class RowFile:
    """The file opened for reading.

    Attributes:
        head: what the rows share.
        index: one entry a row.

    Raises:
        OSError, ValueError, zlib.error, RecursionError: if it is not such a file (``FAULTS``).
    """

    def __init__(self, path: Path, kind: bytes) -> None:
        self.path = path
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            if file.read(len(kind)) != kind:
                raise ValueError("its first line names another kind of file, or another version")
            head = file.read(_bounded(int.from_bytes(file.read(8), "big"), size))
            file.seek(max(0, size - 24))
            tail = file.read(24)
            if tail[16:] != _TAIL:
                raise ValueError("it ends too early")
            file.seek(_bounded(int.from_bytes(tail[:8], "big"), size))
            index = file.read(_bounded(int.from_bytes(tail[8:16], "big"), size))
        self.head, self.index = _inflate(head, b""), _inflate(index, b"")

    def read(self, offset: int, length: int, dictionary: bytes) -> JsonValue:
        """One row.

        Raises:
            OSError, ValueError, zlib.error, RecursionError: if it is corrupt (``FAULTS``).
        """
        with self.path.open("rb") as file:
            file.seek(offset)
            return _inflate(file.read(length), dictionary)


def _bounded(length: int, size: int) -> int:
    if length > size:
        raise ValueError("a length that is longer than the file")
    return length


def _inflate(blob: bytes, dictionary: bytes) -> JsonValue:
    opened = zlib.decompressobj(zlib.MAX_WBITS, dictionary) if dictionary else zlib.decompressobj()
    plain = opened.decompress(blob, _MAX_PLAIN)
    if not opened.eof:
        raise ValueError("a block that is cut short or larger than 256 MB")
    return _JSON.validate_json(plain)
