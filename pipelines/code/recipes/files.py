"""The files of a repository, in a folder or in a tar, as recipes read them."""

from __future__ import annotations

import fnmatch
import json
import os
import tarfile
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from envgen.core import toml
from envgen.core.errors import WorkspaceError

_MAX_BYTES = 4 << 20


class _Place(NamedTuple):
    offset: int
    size: int


class TreeFiles:
    """Names and texts of the files of one repository; ``.git`` is left out."""

    def __init__(self, tree: Path) -> None:
        self._tree = tree
        if not tree.exists():
            raise WorkspaceError(f"no such tree: {tree}", "make it with base_tree")

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Every file, relative to the repository, sorted."""
        if self._tree.is_dir():
            return tuple(sorted(_walk(self._tree)))
        return tuple(sorted(name for name in self._places if not name.startswith(".git/")))

    @cached_property
    def _places(self) -> dict[str, _Place | None]:
        """Where each file's content is in the tar; None for links."""
        with tarfile.open(self._tree) as archive:
            return {
                entry.name.partition("/")[2]: _Place(entry.offset_data, entry.size)
                if entry.isreg()
                else None
                for entry in archive
                if not entry.isdir()
            }

    def __contains__(self, name: object) -> bool:
        return name in self._known

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(self.names)

    def matching(self, *patterns: str) -> list[str]:
        """Files whose path matches one of the shell patterns (``*`` crosses folders)."""
        return [name for name in self.names if any(fnmatch.fnmatch(name, p) for p in patterns)]

    def text(self, name: str) -> str:
        """A file's text; empty when it is not there, is a link or is very large."""
        if name not in self:
            return ""
        return self._bytes(name).decode(errors="replace")

    def _bytes(self, name: str) -> bytes:
        if self._tree.is_dir():
            path = self._tree / name
            if path.is_symlink() or path.stat().st_size > _MAX_BYTES:
                return b""
            return path.read_bytes()
        place = self._places[name]
        if place is None or place.size > _MAX_BYTES:
            return b""
        with self._tree.open("rb") as tar:
            tar.seek(place.offset)
            return tar.read(place.size)

    def toml(self, name: str) -> dict[str, Any]:
        """A TOML file; empty when it is not there or is broken."""
        try:
            return toml.loads(self.text(name))
        except ValueError:
            return {}

    def json(self, name: str) -> dict[str, Any]:
        """A JSON object; empty when it is not there or is something else."""
        try:
            found = json.loads(self.text(name).lstrip("\ufeff") or "{}")
        except (ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    @cached_property
    def tags(self) -> tuple[str, ...]:
        """The tags that ``base_tree`` has made again: one at most."""
        if self._tree.is_dir():
            folder = self._tree / ".git" / "refs" / "tags"
            return tuple(
                sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())
            )
        start = ".git/refs/tags/"
        return tuple(sorted(n[len(start) :] for n in self._places if n.startswith(start)))


def _walk(folder: Path) -> list[str]:
    found = []
    for base, names, files in os.walk(folder):
        if ".git" in names:
            names.remove(".git")
        found += [os.path.relpath(os.path.join(base, name), folder) for name in files]
    return found
