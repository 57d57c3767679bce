"""What of this machine a sandboxed Python needs, and the uids sandboxes run under."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

PROGRAMS = Path(__file__).resolve().parent / "programs"
INSIDE = "/run/envgen"
"""Where the programs and the scratch folder stand inside a sandbox."""

_UID_FIRST, _UID_COUNT = 0x7000_0000, 0x0F00_0000


@cache
def python() -> str:
    """The interpreter without a virtual environment around it, links resolved."""
    base = getattr(sys, "_base_executable", "") or sys.executable
    return os.path.realpath(base)


def python_flags() -> list[str]:
    """Flags of a bare interpreter: no site, no user site, no script folder, no bytecode."""
    return ["-s", "-S", "-P", "-B"]


def clean_env(hash_seed: int = 0) -> dict[str, str]:
    """The whole environment of a sandboxed program."""
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "HOME": "/tmp",
        "PYTHONHASHSEED": str(hash_seed),
    }


def sandbox_uid() -> int | None:
    """A uid of its own for a new sandbox, or None when this process can't change its uid.

    RLIMIT_NPROC counts processes per uid and does not bind root, so no two sandboxes share one.
    """
    if os.geteuid() != 0:
        return None
    low, high = _UID_FIRST, _UID_FIRST + _UID_COUNT
    try:
        ranges = [
            (int(first), int(first) + int(count))
            for first, _, count in map(
                str.split, Path("/proc/self/uid_map").read_text().splitlines()
            )
        ]
    except OSError:
        ranges = []
    if not any(first <= low and high <= end for first, end in ranges):
        low, high = 20_000, 60_000
    return random.SystemRandom().randrange(low, high)


def folders(paths: Iterable[str]) -> list[str]:
    """Bwrap arguments that make the parents of ``paths`` with ordinary permissions.

    bwrap by itself makes them 0700, which shuts out a program that has changed its uid.
    """
    parents = {str(parent) for path in paths for parent in Path(path).parents} - {"/"}
    return [word for path in sorted(parents) for word in ("--perms", "0755", "--dir", path)]


@cache
def system_mounts(whole_usr: bool) -> tuple[str, ...]:
    """Bwrap arguments that show the system's libraries (or all of /usr) and the interpreter."""
    arguments: list[str] = []
    names = ["bin", "sbin", "lib", "lib32", "lib64", "libx32"]
    shown = ["/usr"] if whole_usr else [f"/usr/{name}" for name in names if name.startswith("lib")]
    for path in filter(os.path.isdir, shown):
        arguments += ["--ro-bind", path, path]
    for name in names:
        path = f"/{name}"
        if os.path.islink(path):
            arguments += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path) and (whole_usr or name.startswith("lib")):
            arguments += ["--ro-bind", path, path]
    prefix = str(Path(python()).parent.parent)
    if not any(f"{prefix}/".startswith(f"{path}/") for path in shown):
        if prefix == "/usr":  # only its libraries are shown: add the interpreter and its modules
            arguments += ["--ro-bind", python(), python()]
        else:
            arguments += ["--ro-bind", prefix, prefix]
        arguments = [*folders([python(), prefix]), *arguments]
    if os.path.isdir("/nix/store"):
        arguments += ["--ro-bind", "/nix/store", "/nix/store"]
    if os.path.exists("/etc/ld.so.cache"):
        arguments += ["--ro-bind", "/etc/ld.so.cache", "/etc/ld.so.cache"]
    return tuple(arguments)
