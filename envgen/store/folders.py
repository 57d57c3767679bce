"""Folders that appear whole or not at all."""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from envgen.core.errors import StoreError

logger = logging.getLogger(__name__)


MARKS = {
    "dataset.json": "a dataset",
    "run.json": "a run of `envgen rollout`",
    "metrics.jsonl": "a run of `envgen train`; its model is in last/",
    "config.json": "a model",
}
"""Files that tell what a folder is."""


def told_of(path: Path) -> str:
    """What a folder that was taken for another one is, for the end of an error: ``; it is a model``."""
    return next((f"; it is {what}" for mark, what in MARKS.items() if (path / mark).is_file()), "")


def write_new(path: Path, content: bytes, *, durable: bool = False) -> None:
    """Write a file that must not exist yet; ``durable``: on disk when this returns."""
    with path.open("xb") as file:
        file.write(content)
        if durable:
            file.flush()
            os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Put a folder's entries (a rename in it) on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def is_empty_folder(path: Path) -> bool:
    """Whether ``path`` is a folder with nothing in it."""
    return path.is_dir() and not any(path.iterdir())


def remove_abandoned(path: Path) -> None:
    """Remove what writers to ``path`` left that died: their folders are not locked any more."""
    for folder in path.parent.glob(f".{path.name}.partial-*"):
        handle = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        else:
            logger.info("removing the unfinished %s", folder)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(handle)


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn a disk's errors into a ``StoreError`` that names ``path``."""
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"can't write the dataset {str(path)!r}: {error.strerror or error}"
        ) from error
