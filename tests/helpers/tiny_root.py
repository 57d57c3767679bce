"""A small root file system made of this machine's own programs: a layer that needs no network."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

PROGRAMS = (
    "bash", "sh", "cat", "cp", "mkdir", "mktemp", "rm", "ls", "tail", "head", "sleep", "touch", "chmod",
    "tar", "sed", "grep", "xargs", "tr", "id", "git", "env", "true", "whoami", "sort", "ln", "mv",
)  # fmt: skip


def make(root: Path) -> Path:
    """Fill ``root`` with the programs, what they load, and a small ``/etc``."""
    for folder in (
        "usr/bin",
        "usr/lib",
        "etc/ssl",
        "opt",
        "tmp",
        "work",
        "proc",
        "dev",
        "sys",
        "run",
    ):
        (root / folder).mkdir(parents=True)
    for link in ("bin", "lib", "lib64"):
        (root / link).symlink_to(f"usr/{link}")
    for name in PROGRAMS:
        found = shutil.which(name)
        assert found is not None, f"{name} is not installed"
        _copy(Path(found), root, root / "usr/bin" / name)
    for name in ("hosts", "resolv.conf", "hostname"):
        (root / "etc" / name).touch()
    (root / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\nnogroup:x:65534:\n")
    (root / "etc/nsswitch.conf").write_text("passwd: files\ngroup: files\n")
    apt = root / "usr/bin/apt-get"  # stands for Debian's: it only notes what it was asked for
    apt.write_text('#!/bin/sh\necho "$@" >> /var/apt-said\n')
    apt.chmod(0o755)
    status = root / "var/lib/dpkg/status"
    status.parent.mkdir(parents=True)
    status.write_text("Package: tiny\nStatus: install ok installed\nVersion: 1.0-1\n\n")
    return root


def _copy(program: Path, root: Path, target: Path) -> None:
    shutil.copy(program, target)
    for library in _libraries(program):
        place = root / "usr" / library.relative_to("/usr" if library.parts[1] == "usr" else "/")
        place.parent.mkdir(parents=True, exist_ok=True)
        if not place.exists():
            shutil.copy(library, place)


def _libraries(program: Path) -> Iterable[Path]:
    """Shared libraries and the loader, as the loader itself tells them."""
    listing = subprocess.run(
        ["ldd", str(program)], capture_output=True, text=True, check=True
    ).stdout
    return [Path(found) for found in re.findall(r"(/\S+) \(0x", listing)]
