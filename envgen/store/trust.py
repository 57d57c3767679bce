"""The datasets whose code this machine trusts, by content hash.

``package``: the hash is listed in the installed package. ``local``: this machine compiled it from a domain
in the package, and its hash was noted in a registry file that only the user can write. Else ``foreign``,
wherever it lies: what a person packed, a model wrote or a stranger sent.
"""

from __future__ import annotations

import logging
import os
import re
import stat
from pathlib import Path

from envgen.core.types import SourceKind
from envgen.store.package_datasets import PACKAGE_DATASETS

logger = logging.getLogger(__name__)

_LINE = re.compile(r"[0-9a-f]{64}")


def registry_path() -> Path:
    """The file with the hashes of what this machine compiled."""
    base = os.environ.get("XDG_STATE_HOME") or ""
    root = Path(base) if Path(base).is_absolute() else Path.home() / ".local" / "state"
    return root / "envgen" / "trusted-datasets"


def cache_folder() -> Path:
    """Where materialised variant databases are kept; safe to delete at any time."""
    base = os.environ.get("XDG_CACHE_HOME") or ""
    root = Path(base) if Path(base).is_absolute() else Path.home() / ".cache"
    return root / "envgen"


def source_kind(content_hash: str) -> SourceKind:
    """Who vouches for the code of the dataset with this (recomputed) content hash."""
    if content_hash in PACKAGE_DATASETS:
        return SourceKind.PACKAGE
    return SourceKind.LOCAL if is_registered(content_hash) else SourceKind.FOREIGN


def is_registered(digest: str) -> bool:
    """Whether this machine compiled what has this hash."""
    return digest in _registered()


def register(content_hash: str) -> None:
    """Note that this machine compiled what has this hash, from a domain in the package.

    A state folder that can't be written costs the trust, not the dataset: a warning is logged.
    """
    path = registry_path()
    try:
        if content_hash in _registered():
            return
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
        handle = os.open(path, flags, 0o600)
        try:
            os.write(handle, f"{content_hash}\n".encode())
        finally:
            os.close(handle)
    except OSError as error:
        logger.warning("can't note %s as generated here (%s); it counts as foreign", path, error)


def _registered() -> frozenset[str]:
    path = registry_path()
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return frozenset()
    with open(handle, encoding="ascii", errors="replace") as file:
        info = os.fstat(file.fileno())
        if info.st_uid != os.getuid() or stat.S_IMODE(info.st_mode) & 0o022:
            logger.warning("%s is not private to this user and is ignored; chmod 600 it", path)
            return frozenset()
        return frozenset(line.strip() for line in file if _LINE.fullmatch(line.strip()))
