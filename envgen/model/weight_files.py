"""Tensors in a folder's safetensors files: ``model.safetensors``, or shards and an index.

Reading maps files into memory a little at a time, for what is mapped counts as the process's memory.
Writing makes all files under temporary names and renames them once the last is complete.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from uuid import uuid4

from torch import Tensor

from envgen.core.canonical import pretty
from envgen.core.errors import CheckpointError, ConfigError, MissingExtraError, install_hint

try:
    from safetensors import SafetensorError, safe_open
    from safetensors.torch import save_file
except ImportError as error:
    raise MissingExtraError(
        "the safetensors package is not installed", install_hint("train")
    ) from error

WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
MAPPED_BYTES = 16 << 20
"""Tensors of about this size together are mapped at a time."""
GET_AGAIN = "copy or download the folder again"
_OURS = re.compile(r"model(-\d{5}-of-\d{5})?\.safetensors|" + re.escape(INDEX_FILE))
_BITS = re.compile(r"\d+")


class Stored(NamedTuple):
    """The header's entry for one tensor."""

    file: str
    shape: tuple[int, ...]
    dtype: str
    """As safetensors writes it: F32, BF16, F16, F8_E4M3, ..."""

    @property
    def num_bytes(self) -> int:
        """Size of its elements in bytes."""
        bits = _BITS.search(self.dtype)
        return math.prod(self.shape) * (int(bits[0]) if bits else 8) // 8


class WeightFiles:
    """The tensors of a model folder.

    Args:
        folder: holds ``model.safetensors``, or shards and ``model.safetensors.index.json``.

    Attributes:
        stored: name -> file, shape and dtype; file by file.

    Raises:
        CheckpointError: if there are no weights, a file can't be read, or the index is wrong.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.stored: dict[str, Stored] = {}
        if (folder / WEIGHTS_FILE).is_file():
            self.stored = _tensors(folder, WEIGHTS_FILE)
            return
        for file, names in _index(folder).items():
            held = _tensors(folder, file)
            lacking = sorted(map(repr, names - held.keys()))
            if lacking:
                raise CheckpointError(
                    f"{file!r} is missing {some(lacking)}, listed for it in {str(folder / INDEX_FILE)!r}",
                    GET_AGAIN,
                )
            self.stored |= {name: held[name] for name in held if name in names}

    def read(self, names: list[str]) -> Iterator[tuple[str, Tensor]]:
        """Each of ``names`` with its tensor; drop a tensor before asking for the next one.

        Raises:
            CheckpointError: if a file has changed and can't be read any more.
        """
        for batch in self._batches(names):
            path = self._folder / self.stored[batch[0]].file
            with _opened(path) as opened:
                for name in batch:
                    yield name, opened.get_tensor(name)

    def _batches(self, names: list[str]) -> Iterator[list[str]]:
        """Names of one file each, together about ``MAPPED_BYTES``."""
        batch: list[str] = []
        size, file = 0, ""
        for name in names:
            stored = self.stored[name]
            if batch and (stored.file != file or size >= MAPPED_BYTES):
                yield batch
                batch, size = [], 0
            batch.append(name)
            size, file = size + stored.num_bytes, stored.file
        if batch:
            yield batch


def some(names: list[str], most: int = 3) -> str:
    """The first few of ``names``, and how many more there are."""
    shown = ", ".join(names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, framework="pt") as opened:
            yield opened
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            f"can't read the weights {str(path)!r}, which are cut short or not safetensors: {error}",
            GET_AGAIN,
        ) from error


def _tensors(folder: Path, file: str) -> dict[str, Stored]:
    """List the tensors of a file, in its order."""
    with _opened(folder / file) as opened:
        found = {}
        for name in opened.offset_keys():
            part = opened.get_slice(name)
            found[name] = Stored(file, tuple(part.get_shape()), str(part.get_dtype()))
        return found


def _index(folder: Path) -> dict[str, set[str]]:
    """File -> names of its tensors, as the index says."""
    path = folder / INDEX_FILE
    if not path.is_file():
        raise CheckpointError(
            f"{str(folder)!r} holds neither {WEIGHTS_FILE} nor {INDEX_FILE}",
            "give a model folder; `envgen model init` makes one",
        )
    try:
        places = json.loads(path.read_bytes())["weight_map"]
        pairs = [(str(file), str(name)) for name, file in places.items()]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(
            f"can't read the weights' index {str(path)!r}: {error!r}", GET_AGAIN
        ) from error
    files: dict[str, set[str]] = {}
    for file, name in sorted(pairs):
        files.setdefault(file, set()).add(name)
    for file in files:
        _require_inside(path, file)
    gone = [repr(file) for file in files if not (folder / file).is_file()]
    if gone:
        raise CheckpointError(f"{str(path)!r} names {some(gone)}, not in the folder", GET_AGAIN)
    return files


def _require_inside(index: Path, file: str) -> None:
    """Refuse paths that leave the folder. Links are the owner's: download caches are made of them."""
    path = PurePosixPath(file)
    if path.is_absolute() or ".." in path.parts or "\\" in file or ":" in file or not path.parts:
        raise CheckpointError(
            f"{str(index)!r} names the shard {file!r}, which is not inside the model folder",
            "do not trust this folder",
        )


def write_weights(folder: Path, tensors: Mapping[str, Tensor], max_shard_bytes: int) -> None:
    """Write tensors to ``folder``; a weight file of another division that is there already goes.

    Cut short while writing (killed, disk full), the old files are whole.

    Raises:
        CheckpointError: if the disk does not take them.
        ConfigError: if ``max_shard_bytes`` is below 1.
    """
    if max_shard_bytes < 1:
        raise ConfigError(f"max_shard_bytes is {max_shard_bytes}", "give a number of bytes")
    shards = _shards(tensors, max_shard_bytes)
    names = [WEIGHTS_FILE]
    if len(shards) > 1:
        names = [f"model-{i:05}-of-{len(shards):05}.safetensors" for i in range(1, len(shards) + 1)]
    written: dict[Path, Path] = {}
    with _disk(folder, written):
        for name, shard in zip(names, shards, strict=True):
            partial = written[folder / name] = folder / f".{name}.{uuid4().hex}.partial"
            _save({key: tensors[key].contiguous() for key in shard}, partial)
        if len(shards) > 1:
            partial = written[folder / INDEX_FILE] = folder / f".{INDEX_FILE}.{uuid4().hex}.partial"
            partial.write_text(pretty(_map(tensors, names, shards)), encoding="utf-8")
        for path, partial in written.items():
            partial.replace(path)
        for path in folder.iterdir():
            if _OURS.fullmatch(path.name) and path not in written:
                path.unlink()


def _save(tensors: dict[str, Tensor], path: Path) -> None:
    """One file, with the permissions that new files have here; safetensors makes private ones."""
    path.touch()
    mode = path.stat().st_mode
    save_file(tensors, path, {"format": "pt"})
    path.chmod(mode)


def _shards(tensors: Mapping[str, Tensor], most: int) -> list[list[str]]:
    shards: list[list[str]] = [[]]
    size = 0
    for name, tensor in tensors.items():
        if shards[-1] and size + tensor.nbytes > most:
            shards.append([])
            size = 0
        shards[-1].append(name)
        size += tensor.nbytes
    return shards


def _map(
    tensors: Mapping[str, Tensor], names: list[str], shards: list[list[str]]
) -> dict[str, object]:
    places = {key: name for name, shard in zip(names, shards, strict=True) for key in shard}
    return {
        "metadata": {"total_size": sum(tensor.nbytes for tensor in tensors.values())},
        "weight_map": places,
    }


@contextmanager
def _disk(folder: Path, written: Mapping[Path, Path]) -> Iterator[None]:
    """Make the folder; tell of a disk's errors, and leave no partial file behind."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            f"can't write the model to {str(folder)!r}: {error}",
            "what was there before is unharmed; check the path and the room on the disk",
        ) from error
    finally:
        for partial in written.values():
            with suppress(OSError):
                partial.unlink(missing_ok=True)
