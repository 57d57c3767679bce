"""``run.json``: what the run in a folder is, and who may write to it."""

from __future__ import annotations

import fcntl
import os
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any
from uuid import uuid4

from pydantic import ConfigDict, Field, StringConstraints

from envgen.core.canonical import content_hash, pretty
from envgen.core.errors import ResumeError, StoreError
from envgen.core.limits import Label, Object
from envgen.core.types import Record

RUN_FILE = "run.json"
_FORMAT = 1
_MAX_BYTES = 16 << 20


class RunIdentity(Record):
    """The content of ``run.json``."""

    model_config = ConfigDict(extra="ignore")  # of a newer format there may be more

    format_version: Annotated[int, Field(ge=1, le=1_000_000)]
    run_id: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
    config: Object
    dataset_hash: Label


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
        with path.open("rb") as file:
            identity = RunIdentity.model_validate_json(file.read(_MAX_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        raise StoreError(f"{path} is corrupt: {error!r}") from error
    if identity.format_version > _FORMAT:
        raise StoreError(f"{path} is of run format {identity.format_version}", "upgrade envgen")
    return identity.model_dump()


def lock_folder(folder: Path) -> int:
    """Hold a folder until the returned handle is closed or this process ends.

    Raises:
        StoreError: if another process holds it; it says which one.
    """
    handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        held = os.pread(handle, 200, 0).decode("ascii", "replace").strip()
        os.close(handle)
        raise StoreError(
            f"another process is running in {str(folder)!r}" + f": {held}" * bool(held),
            "wait until it has ended, end it, or choose another folder",
        ) from error
    os.ftruncate(handle, 0)
    os.pwrite(handle, f"process {os.getpid()}, since {datetime.now():%H:%M:%S}\n".encode(), 0)
    return handle
