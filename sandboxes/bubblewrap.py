"""The bubblewrap backend: Linux namespaces without a daemon (the default on Linux)."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from envgen.sandboxes import runtime

BASE = (
    "--die-with-parent",
    "--new-session",
    "--unshare-pid",
    "--unshare-ipc",
    "--unshare-uts",
    "--unshare-net",
    "--unshare-cgroup-try",
)


def privileges() -> list[str]:
    """Bwrap arguments about users and capabilities.

    Started by root, no user namespace is made; the program changes to a uid of its own first thing
    and loses the two capabilities it needs for that. Started by a user, bwrap makes a namespace in
    which the program is nobody.
    """
    if os.geteuid() == 0:
        return ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    return ["--unshare-user", "--uid", "65534", "--gid", "65534"]


def worker_command(inner: Sequence[str], scratch: Path | None, tmp_bytes: int) -> list[str]:
    """The command that runs ``inner`` where only libraries, programs and ``scratch`` are seen."""
    command = [bwrap(), *BASE, *privileges(), *runtime.system_mounts(False)]
    command += runtime.folders([f"{runtime.INSIDE}/programs"])
    command += ["--proc", "/proc", "--dev", "/dev", "--remount-ro", "/dev"]
    command += ["--ro-bind", str(runtime.PROGRAMS), f"{runtime.INSIDE}/programs"]
    if scratch is not None:
        command += ["--ro-bind", str(scratch), f"{runtime.INSIDE}/scratch"]
    command += ["--perms", "1777", "--size", str(tmp_bytes), "--tmpfs", "/tmp"]
    return [*command, "--remount-ro", "/", "--chdir", "/tmp", "--", *inner]


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
    command = worker_command(inner, None, 1 << 20)
    try:
        done = subprocess.run(
            command, env=runtime.clean_env(), capture_output=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bwrap does not run here: {error}"
    if done.returncode:
        return f"bwrap does not run here: {done.stderr.decode(errors='replace').strip()[-300:]}"
    return ""
