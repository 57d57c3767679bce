"""``run.json``: what the run in a folder is, and who may write to it."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any
from uuid import uuid4

from envgen.core.canonical import content_hash, pretty
from envgen.core.errors import ResumeError, StoreError

RUN_FILE = "run.json"
_FORMAT = 1


def identify(folder: Path, wanted: dict[str, Any]) -> dict[str, Any]:
    """The folder's run; a new one is made if there is none.

    Raises:
        ResumeError: if the folder's run has another config or dataset than ``wanted``.
    """
    path = folder / RUN_FILE
    if not path.exists():
        identity = {"format_version": _FORMAT, "run_id": uuid4().hex, **wanted}
        partial = folder / f".{RUN_FILE}.partial"
        try:
            partial.write_text(pretty(identity))
            partial.replace(path)
        except OSError as error:
            raise StoreError(f"can't write {str(path)!r}: {error}") from error
        return identity
    found = load(folder)
    for what, hint in (
        ("config", "use another folder, or the same config to resume"),
        ("dataset_hash", "use another folder, or the dataset the run was started on"),
    ):
        if content_hash(found[what]) != content_hash(wanted[what]):
            raise ResumeError(
                f"the run in {str(folder)!r} has another {what.split('_')[0]}"
                + (f" ({_differences(found[what], wanted[what])})" if what == "config" else ""),
                hint,
            )
    return found


def _differences(old: dict[str, Any], new: dict[str, Any]) -> str:
    names = sorted(key for key in {*old, *new} if old.get(key) != new.get(key))
    return ", ".join(f"{name}: {old.get(name)!r} -> {new.get(name)!r}" for name in names)[:500]


def load(folder: Path) -> dict[str, Any]:
    """The content of ``run.json``.

    Raises:
        StoreError: if it is corrupt or of a newer format.
    """
    path = folder / RUN_FILE
    try:
        identity = json.loads(path.read_text())
        version = identity["format_version"]
        if not isinstance(version, int) or version > _FORMAT:
            raise StoreError(f"{path} is of run format {version}", "upgrade envgen")
        if not all(isinstance(identity[x], str) for x in ("run_id", "dataset_hash")):
            raise ValueError("fields of a wrong type")
        identity["config"] = dict(identity["config"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path} is corrupt: {error!r}") from error
    result: dict[str, Any] = identity
    return result


def lock_folder(folder: Path) -> int:
    """Hold the run folder until the returned handle is closed or this process ends.

    Raises:
        StoreError: if another process holds it.
    """
    handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(handle)
        raise StoreError(f"another process is running in {str(folder)!r}") from error
    return handle
