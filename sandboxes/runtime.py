"""The parts of this machine that a sandboxed Python needs, and the uids that sandboxes run under."""

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
    arguments: list[str] = folders(["/etc/ld.so.cache"])
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


def root_mounts(root: Path) -> list[str]:
    """Bwrap arguments that show another root file system, read-only, one top folder at a time.

    This machine's interpreter and libraries are added below ``/run/envgen`` for the programs.
    """
    arguments: list[str] = []
    for path in sorted(Path(root).iterdir()):
        target = f"/{path.name}"
        if path.name in ("proc", "dev", "sys", "tmp", "run", "work"):
            continue
        if path.is_symlink():
            arguments += ["--symlink", os.readlink(path), target]
        elif path.is_dir():
            arguments += ["--ro-bind", str(path), target]
    prefix = str(Path(python()).parent.parent)
    shown = {f"{INSIDE}/python": prefix} | {
        f"{INSIDE}/lib{i}": d for i, d in enumerate(libraries())
    }
    arguments += folders(shown)
    for target, source in shown.items():
        arguments += ["--ro-bind", source, target]
    return arguments


@cache
def libraries() -> tuple[str, ...]:
    """Folders of the shared libraries that this interpreter has loaded, the loader's among them."""
    import sqlite3  # noqa: F401  # its libraries are needed inside

    paths = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines()}
    system = {path for path in paths if ".so" in path and "/site-packages/" not in path}
    prefix = str(Path(python()).parent.parent)
    return tuple(
        sorted({os.path.dirname(p) for p in system if not p.startswith(f"{prefix}/lib/python")})
    )


def loader() -> str:
    """The dynamic loader of this machine."""
    paths = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines()}
    return next(path for path in sorted(paths) if os.path.basename(path).startswith("ld-"))


def python_in_root() -> tuple[list[str], dict[str, str]]:
    """The command and environment that run this machine's interpreter in another root."""
    inside = [f"{INSIDE}/lib{number}" for number in range(len(libraries()))]
    place = libraries().index(os.path.dirname(loader()))
    name = f"{INSIDE}/python/bin/{os.path.basename(python())}"
    words = [
        f"{inside[place]}/{os.path.basename(loader())}",
        "--library-path",
        ":".join(inside),
        name,
    ]
    return words, {"PYTHONHOME": f"{INSIDE}/python"}
