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
import secrets
import stat
from pathlib import Path

from envgen.core.environ import cache_folder
from envgen.sandboxes.workspace import store

_FLAGS = slice(4, 8)
"""Where a compiled Python module says what it is checked against: 0 is its source's time (PEP 552)."""
_NOT_SHARED = frozenset(
    {errno.EMLINK, errno.EPERM, errno.EACCES, errno.EXDEV, errno.EEXIST, errno.ENOENT}
)
"""The file system has no more names for a file, or another user owns it, or another build was faster: the
file stays as it is."""


def place(cache_root: Path | None = None) -> Path:
    """The folder of a cache's pool."""
    return (cache_root or cache_folder()) / "pool"


def share(env: Path, pool: Path) -> None:
    """Replace each file by the pool's equal one; the pool takes in what it lacks."""
    paths = [path for path in store.below(env) if _is_regular(path)]
    timed = {stem for path in paths if (stem := _timed_source(path))}
    for path in paths:
        # a module whose time another file remembers must keep it, and names of one file share times
        if path.endswith(".pyc") or os.path.splitext(path)[0] not in timed:
            _share(path, pool)


def sweep(pool: Path) -> None:
    """Delete the files that no workspace links to."""
    for path in pool.glob("*/*"):
        # whoever links it meanwhile keeps what it has
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_nlink == 1:
                path.unlink()


def _share(path: str, pool: Path) -> None:
    try:
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        known = pool / digest[:2] / f"{digest[2:]}-{stat.S_IMODE(os.stat(path).st_mode):o}"
        known.parent.mkdir(parents=True, exist_ok=True)
        if not _replaced(path, known):
            os.link(path, known)
    except OSError as error:
        if error.errno not in _NOT_SHARED:
            raise


def _replaced(path: str, known: Path) -> bool:
    """Put the pool's file in place of an equal one; False: the pool has none, or had a damaged one."""
    # the pool names the spare: what an install calls its files is a stranger's word
    spare = known.with_name(f".{secrets.token_hex(8)}")
    try:
        os.link(known, spare)
        if not filecmp.cmp(spare, path, shallow=False):
            known.unlink()
            return False
        # to rename one name of a file to another does nothing and leaves both
        if not os.path.samefile(spare, path):
            os.replace(spare, path)
        return True
    except FileNotFoundError:
        return False
    finally:
        spare.unlink(missing_ok=True)


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
