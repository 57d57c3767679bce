"""The command line of bwrap: what a sandboxed program sees, what it may do, its system call filter."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from envgen.sandboxes import runtime, seccomp
from envgen.sandboxes.base import WORK, Mount

_BASE = (
    "--die-with-parent",
    "--new-session",
    "--unshare-pid",
    "--unshare-ipc",
    "--unshare-uts",
    "--unshare-net",
    "--unshare-cgroup-try",
    "--hostname",
    "sandbox",
)


@dataclass(frozen=True)
class Layout:
    """The mounts seen inside: by default libraries, the programs and a small ``/tmp``."""

    scratch: Path | None = None
    """Shown read-only; the host may put files in it at any time."""
    tmp_bytes: int = 64 << 20
    work_bytes: int = 0
    """Size of ``/work`` and ``/var/tmp``, which are there only if this is not 0."""
    whole_usr: bool = False
    """Show all of ``/usr``, not only its libraries."""
    root: Path | None = None
    certificates: bool = False
    """Show ``/etc/ssl``."""
    mounts: tuple[Mount, ...] = ()
    kill: bool = False
    """The program keeps root's right to kill, for workers that change their uid later."""


def privileges(kill: bool) -> list[str]:
    """Bwrap arguments about users and capabilities.

    Started by root, no user namespace is made; the program changes to a uid of its own first thing
    and so loses the capabilities it needs for that. Started by a user, bwrap makes a namespace in
    which the program is nobody.
    """
    if os.geteuid() != 0:
        return ["--unshare-user", "--uid", "65534", "--gid", "65534"]
    wanted = ["CAP_SETUID", "CAP_SETGID", *(["CAP_KILL"] if kill else [])]
    return ["--cap-drop", "ALL", *(word for name in wanted for word in ("--cap-add", name))]


@contextmanager
def system_call_filter(memory_is_limited: bool) -> Iterator[list[int]]:
    """An open file with the filter, to be passed on and named in ``command``; or none."""
    content = seccomp.program(memory_is_limited=memory_is_limited)
    with tempfile.TemporaryFile() as file:
        file.write(content or b"")
        file.seek(0)
        yield [file.fileno()] if content else []


def command(inner: Sequence[str], layout: Layout, filters: Sequence[int] = ()) -> list[str]:
    """The command that runs ``inner`` in ``layout`` under the filter in an open file."""
    words = [bwrap(), *_BASE, *privileges(layout.kill)]
    words += [word for file in filters for word in ("--seccomp", str(file))]
    if layout.root is None:
        words += runtime.system_mounts(layout.whole_usr)
    else:
        words += runtime.root_mounts(layout.root)
    programs = f"{runtime.INSIDE}/programs"
    words += [*runtime.folders([programs]), "--ro-bind", str(runtime.PROGRAMS), programs]
    words += ["--proc", "/proc", "--dev", "/dev", "--remount-ro", "/dev"]
    if layout.scratch is not None:
        words += ["--ro-bind", str(layout.scratch), f"{runtime.INSIDE}/scratch"]
    if layout.certificates:
        words += ["--ro-bind-try", "/etc/ssl", "/etc/ssl"]
    words += _tmpfs("/tmp", layout.tmp_bytes)
    if layout.work_bytes:
        words += _tmpfs(WORK, layout.work_bytes) + _tmpfs("/dev/shm", layout.work_bytes)
        if layout.root is None or (layout.root / "var/tmp").is_dir():
            words += _tmpfs("/var/tmp", layout.work_bytes)
    for mount in layout.mounts:
        bind = "--bind" if mount.writable else "--ro-bind"
        words += [*runtime.folders([mount.target]), bind, str(mount.source), mount.target]
    return [*words, "--remount-ro", "/", "--chdir", "/tmp", "--", *inner]


def _tmpfs(path: str, size: int) -> list[str]:
    return ["--perms", "1777", "--size", str(size), "--tmpfs", path]


@cache
def bwrap() -> str:
    """The path of bwrap, or its bare name."""
    return shutil.which("bwrap") or "bwrap"


@cache
def unavailable() -> str:
    """Why this backend can't be used here, found by trying; empty when it can."""
    if shutil.which("bwrap") is None:
        return "bwrap is not installed (apt install bubblewrap)"
    inner = [runtime.python(), *runtime.python_flags(), "-c", "import sqlite3"]
    try:
        with system_call_filter(False) as filters:
            done = subprocess.run(
                command(inner, Layout(tmp_bytes=1 << 20), filters),
                env=runtime.clean_env(),
                capture_output=True,
                timeout=20,
                check=False,
                pass_fds=filters,
            )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bwrap does not run here: {error}"
    if done.returncode:
        return f"bwrap does not run here: {done.stderr.decode(errors='replace').strip()[-300:]}"
    return ""
