"""Private temporary folders that don't outlive their process for long, even if it is killed.

Each holds a lock that the kernel drops with the process; the next process that makes a folder
removes those whose lock is free.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import threading
from functools import cache
from pathlib import Path

_PREFIX = "envgen-box-"
_LOCK = "lock"
_lock = threading.Lock()


class PrivateFolder:
    """A folder that only this user can enter."""

    def __init__(self) -> None:
        with _lock:
            sweep_once(os.getpid())
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        self._file = _locked(self.path / _LOCK)

    def shown(self, name: str) -> Path:
        """A new folder in it that a sandbox may read once it is mounted there."""
        folder = self.path / name
        folder.mkdir()
        folder.chmod(0o755)
        return folder

    def remove(self) -> None:
        """Delete it with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._file is not None:
            os.close(self._file)
            self._file = None


def overwrite(path: Path, content: bytes) -> None:
    """Give a scratch file this content, in place: making or emptying one costs many times as much."""
    with open(os.open(path, os.O_RDWR | os.O_CREAT, 0o644), "r+b") as file:
        file.write(content)
        file.truncate()


@cache
def sweep_once(pid: int) -> int:
    """Remove what killed processes have left, once per process; how many folders that were."""
    removed = 0
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if folder.stat().st_uid == os.geteuid() and (file := _locked(folder / _LOCK, False)):
                shutil.rmtree(folder, ignore_errors=True)
                os.close(file)
                removed += 1
    return removed


def _locked(path: Path, make: bool = True) -> int | None:
    """An open file with the lock on it; None when another process has the lock."""
    file = os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if make else 0), 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        return None
    return file
