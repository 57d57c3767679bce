"""Token arrays of one model reply: one npz file each, named with its hash in the trajectory.

Key sets (``topk``) are stored as what changes from token to token; see ``key_sets``.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4
from zipfile import BadZipFile

import numpy as np

from envgen.core.canonical import sha256
from envgen.core.errors import StoreError
from envgen.core.types import FileRef
from envgen.store import key_sets

KEY_SETS, PACKED = "topk", "topk_changes"
_MAX_BYTES = 1 << 30
"""Of one reply's arrays, decompressed."""

Arrays = Mapping[str, np.ndarray[Any, Any]]
"""Array name -> array: prompt_ids, completion_ids, logprobs, ..."""


def write_tokens(folder: Path, name: str, arrays: Arrays) -> FileRef:
    """Write arrays to ``folder / name``, whole or not at all; the same arrays, the same bytes.

    Raises:
        StoreError: if an array holds Python objects, or the file can't be written.
    """
    if any(array.dtype.hasobject for array in arrays.values()):
        raise StoreError("token arrays of Python objects can't be stored")
    named: dict[str, Any] = dict(sorted(arrays.items()))
    if KEY_SETS in named:
        named[PACKED] = key_sets.encode(named.pop(KEY_SETS))
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **named)
    content = buffer.getvalue()
    path = folder / name
    partial = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(content)
        partial.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise StoreError(f"can't write token arrays {str(path)!r}: {error}") from error
    return FileRef(path=name, sha256=sha256(content))


def read_tokens(folder: Path, reference: FileRef) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays in a token file.

    Raises:
        StoreError: if it is missing, leaves the folder, or does not match its hash.
    """
    path = (folder / reference.path).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise StoreError(f"token arrays {reference.path!r} are outside of the run folder")
    try:
        content = path.read_bytes()
        if sha256(content) != reference.sha256:
            raise StoreError(f"token arrays {str(path)!r} do not match their hash")
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            size = sum(member.file_size for member in arrays.zip.infolist())
            if size > _MAX_BYTES:
                raise ValueError(f"arrays of {size} bytes; at most {_MAX_BYTES} are read")
            found = {name: arrays[name] for name in arrays.files}
        if PACKED in found:
            found[KEY_SETS] = key_sets.decode(found.pop(PACKED))
        return found
    except (OSError, ValueError, AttributeError, MemoryError, BadZipFile) as error:
        raise StoreError(f"can't read token arrays {str(path)!r}: {error}") from error
