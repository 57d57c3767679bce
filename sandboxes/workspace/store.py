"""The store of built workspaces: a folder each, made whole or not at all.

``code/<key>/`` holds ``workspace.json``, ``tree.tar`` and ``env/``. A folder is built beside its
place under a lock and moved there when it is whole; what a killed build left is removed by the next.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from envgen.core.canonical import content_hash
from envgen.core.code_types import Recipe
from envgen.core.environ import cache_folder
from envgen.core.errors import WorkspaceError
from envgen.sandboxes.workspace.layers import Layer

RECORD = "workspace.json"
_FORMAT = 1
_POLL_S = 0.2
_MAX_PATH = 4096
"""Bytes of the longest path that the kernel takes."""


def code_folder(cache_root: Path | None = None) -> Path:
    """The folder of all built workspaces."""
    return (cache_root or cache_folder()) / "code"


def key(layer: Layer, recipe: Recipe, tree: Path) -> str:
    """Name of the workspace that these three make: the hash of what they hold."""
    parts = {
        "format": _FORMAT,
        "layer": layer.identity,
        "recipe": recipe.model_dump(mode="json", exclude={"author", "test_s", "options", "runner"}),
        "tree": _digest(tree),
    }
    return content_hash(parts)[:24]


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise WorkspaceError(
            f"can't read the tree {path}: {error}", "make it with base_tree"
        ) from error


@contextlib.contextmanager
def locked(place: Path, timeout_s: float) -> Iterator[None]:
    """Hold the lock of one workspace, which the kernel drops with this process.

    Raises WorkspaceError when another process has it for longer than ``timeout_s``.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + timeout_s
    with open(os.open(f"{place}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)) as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise WorkspaceError(
                        f"another process has been building {place.name} for {timeout_s:.0f} s",
                        "end it, or wait longer",
                    ) from None
                time.sleep(_POLL_S)
        yield


@contextlib.contextmanager
def building(place: Path, *, replace: bool = False) -> Iterator[Path]:
    """A folder that becomes ``place`` when the block ends well and is removed when it does not.

    The caller holds the lock. What is at ``place`` already is in the way unless it is replaced.
    """
    with _part(place) as folder:
        yield folder
        if replace:
            remove(place)
        folder.replace(place)


class Claim:
    """Keeps a workspace from being discarded until it is closed, or this process ends."""

    def __init__(self, place: Path) -> None:
        """Claim a workspace.

        Raises:
            WorkspaceError: if it is not there.
        """
        self._file: int | None = None
        if place.parent.is_dir():
            self._file = os.open(f"{place}.used", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._file, fcntl.LOCK_SH)
        if not (place / RECORD).exists():
            self.close()
            raise WorkspaceError(f"{place} is no workspace, or none any more", "build it again")

    def close(self) -> None:
        """Give it up; harmless a second time."""
        if self._file is not None:
            os.close(self._file)
        self._file = None


@contextlib.contextmanager
def judging(place: Path, *, alone: bool) -> Iterator[None]:
    """Hold a judgement in a workspace; those that are alone wait for all others, and others for them."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with open(os.open(f"{place}.exam", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)) as file:
        fcntl.flock(file, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield


def discard(place: Path) -> bool:
    """Remove a workspace unless somebody has a claim on it; whether it is gone."""
    with contextlib.ExitStack() as stack:
        if place.parent.is_dir():
            file = os.open(f"{place}.used", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            stack.callback(os.close, file)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        remove(place)
    return True


@contextlib.contextmanager
def scratch(place: Path) -> Iterator[Path]:
    """A folder for the length of the block. The caller holds the lock of ``place``, which goes too."""
    try:
        with _part(place) as folder:
            yield folder
    finally:
        Path(f"{place}.lock").unlink(missing_ok=True)


@contextlib.contextmanager
def _part(place: Path) -> Iterator[Path]:
    """The folder that a build of ``place`` fills, empty at first; gone at the end."""
    folder = place.with_name(f".{place.name}.part")
    remove(folder)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        remove(folder)


def remove(folder: Path) -> None:
    """Delete a folder, also one with folders that may not be entered, or nest too deep for Python."""
    if not folder.exists():
        return
    try:
        shutil.rmtree(folder)
    except (OSError, RecursionError):
        for words in (["chmod", "-R", "u+rwX"], ["rm", "-rf"]):
            subprocess.run([*words, "--", str(folder)], stderr=subprocess.DEVNULL, check=False)
        if folder.exists():
            raise WorkspaceError(f"can't remove {folder}", "remove it by hand") from None


def below(folder: Path) -> Iterator[str]:
    """Paths of everything below a folder, folders before what is in them; what can't be read is left out.

    No link is followed, and folders may nest as deep as they like.
    """
    queue = [os.fspath(folder)]
    while queue:
        with contextlib.suppress(OSError), os.scandir(queue.pop()) as entries:
            for entry in entries:
                if len(os.fsencode(entry.path)) >= _MAX_PATH:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    queue.append(entry.path)
                yield entry.path


def size(folder: Path) -> int:
    """Bytes that a folder takes on the disk; a file with several names counts once.

    ``du`` also sees what lies deeper than a path can name.
    """
    words = ["du", "-sk", "--", str(folder)]
    columns = subprocess.run(words, capture_output=True, check=False).stdout.split()
    return int(columns[0]) * 1024 if columns else 0
