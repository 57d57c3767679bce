"""``OUT.partial``: the finished parts of an interrupted run, taken over by the same command."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from pydantic import JsonValue

from envgen.core.canonical import pretty
from envgen.core.errors import ResumeError
from envgen.core.types import Record
from envgen.store.folders import disk_errors
from envgen.store.run_folder import lock_folder

_held: dict[Path, int] = {}
"""Folders that this process holds, and by which handle: until its end, or until they are removed."""


def partial_folder(out: Path, config: Record | JsonValue) -> Path:
    """The folder beside ``out`` for what is finished; it is removed with the run's end.

    Args:
        out: where the run's outcome will be.
        config: all that the parts depend on.

    Raises:
        ResumeError: if the folder holds parts of another configuration, or somebody else could have written
            them: they are believed.
        StoreError: if it can't be written, or another process works in it.
    """
    folder = out.with_name(out.name + ".partial")
    with disk_errors(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        info = folder.lstat()
        if info.st_uid != os.geteuid() or stat.S_IMODE(info.st_mode) & 0o022:
            raise ResumeError(
                f"{str(folder)!r} is not private to this user", "remove it, or choose another --out"
            )
        _hold(folder)
        stamp, text = folder / "config.json", pretty(config)
        if not stamp.exists():
            stamp.write_text(text)
    if stamp.read_text() != text:
        raise ResumeError(
            f"{str(folder)!r} holds an interrupted run of another configuration",
            "remove it to start over, or choose another --out",
        )
    return folder


def _hold(folder: Path) -> None:
    """Lock the folder against other processes; this one may lock it again after an interruption."""
    key = folder.resolve()
    if (handle := _held.pop(key, None)) is not None:
        lock = folder / ".lock"
        if lock.exists() and os.path.samestat(os.fstat(handle), lock.stat()):
            _held[key] = handle
            return
        os.close(handle)
    _held[key] = lock_folder(folder)
