"""Files that workspaces share: what is the same in the ``env`` of several lies once on the disk.

``pool/xx/<sha256>-<mode>`` is another name (a hard link) of such a file. Commits of one repository need
nearly the same packages, so a second workspace adds little more than its tree. Sandboxes see ``env``
read-only once it is built, and nothing of the pool; an install fills an ``env`` of its own before
anything in it is shared.
"""

from __future__ import annotations

import contextlib
import errno
import filecmp
import hashlib
import os
import stat
from pathlib import Path

from envgen.core.environ import cache_folder
from envgen.sandboxes.workspace import store

_FLAGS = slice(4, 8)
"""Where a compiled Python module says what it is checked against: 0 is its source's time (PEP 552)."""


def place(cache_root: Path | None = None) -> Path:
    """The pool of one cache."""
    return (cache_root or cache_folder()) / "pool"


def share(env: Path, pool: Path) -> None:
    """Put the pool's file in the place of each that is the same; what the pool lacks, it gets from here."""
    paths = [path for path in store.below(env) if _is_regular(path)]
    timed = {stem for path in paths if (stem := _timed_source(path))}
    for path in paths:
        # a module whose time another file remembers must keep it, and names of one file share times
        if path.endswith(".pyc") or os.path.splitext(path)[0] not in timed:
            _share(path, pool)


def sweep(pool: Path) -> None:
    """Remove what no workspace holds any more."""
    for path in pool.glob("*/*"):
        # whoever links it meanwhile keeps what it has
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_nlink == 1:
                path.unlink()


def _share(path: str, pool: Path) -> None:
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    known = pool / digest[:2] / f"{digest[2:]}-{stat.S_IMODE(os.stat(path).st_mode):o}"
    known.parent.mkdir(parents=True, exist_ok=True)
    spare = f"{path}.envgen-pool"
    try:
        os.link(known, spare)
        if filecmp.cmp(spare, path, shallow=False):
            os.replace(spare, path)
            return
        os.unlink(spare)
        known.unlink()  # somebody has damaged it
    except FileNotFoundError:
        pass
    except OSError as error:
        # as many names as the file system allows, another user's file: it stays as it is
        if error.errno not in (errno.EMLINK, errno.EPERM, errno.EXDEV):
            raise
        return
    with contextlib.suppress(FileExistsError, FileNotFoundError):
        os.link(path, known)


def _is_regular(path: str) -> bool:
    info = os.lstat(path)
    return stat.S_ISREG(info.st_mode) and info.st_size > 0


def _timed_source(path: str) -> str:
    """The source, without its ending, whose time a compiled module holds; empty: there is none."""
    if not path.endswith(".pyc"):
        return ""
    with open(path, "rb") as file:
        if any(file.read(8)[_FLAGS]):
            return ""
    folder, name = os.path.split(path)
    return os.path.join(os.path.dirname(folder), name.partition(".")[0])
