"""Control groups, version 1 or 2, where this process may make them: total memory, processes, processor time.

bubblewrap itself sets no such limits. Without them the per-process limits of ``setrlimit`` hold;
``docs/sandboxes.md`` says what that means for each guarantee.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO

_PREFIX = "envgen-"
_OVERHEAD = 48 << 20
"""Memory of the zygote itself."""


@dataclass(frozen=True)
class ControlGroup:
    """A control group of one sandbox: one folder (version 2) or one per controller (version 1)."""

    folders: tuple[Path, ...]

    def join_command(self, argv: Sequence[str]) -> list[str]:
        """The command that enters the group and then becomes ``argv``."""
        files = " ".join(f"'{folder}/cgroup.procs'" for folder in self.folders)
        script = f'for f in {files}; do echo $$ > "$f" || exit 125; done; exec "$@"'
        return ["/bin/sh", "-c", script, "sh", *argv]

    def doors(self) -> list[IO[bytes]]:
        """Open files; a process that writes ``0`` into each is in the group, whoever it has become."""
        return [open(folder / "cgroup.procs", "wb", buffering=0) for folder in self.folders]

    def oom_kills(self) -> int:
        """How many processes of the group were killed for the group's memory."""
        for folder in self.folders:
            for name in ("memory.events", "memory.oom_control"):
                with contextlib.suppress(OSError):
                    for line in (folder / name).read_text().splitlines():
                        if line.startswith("oom_kill "):
                            return int(line.split()[1])
        return 0

    def cpu_s(self) -> float | None:
        """Seconds that its processes took on the processor, in all; None where they are not counted."""
        for folder in self.folders:
            with contextlib.suppress(OSError):
                return int((folder / _USAGE_1).read_text()) / 1e9
            with contextlib.suppress(OSError):
                usage = (folder / "cpu.stat").read_text().split()
                return int(usage[usage.index("usage_usec") + 1]) / 1e6
        return None

    def close(self, wait_s: float = 1.0) -> None:
        """Remove the group once its processes are gone."""
        deadline = time.monotonic() + wait_s
        left = list(self.folders)
        while left:
            left = [folder for folder in left if not _remove(folder)]
            if not left or time.monotonic() > deadline:
                return  # the next process that makes a group removes it
            time.sleep(0.005)


def make(memory_bytes: int, pids: int) -> ControlGroup | None:
    """A group with these limits; None where none can be made."""
    bases = _bases()
    if not bases:
        return None
    name = f"{_PREFIX}{os.getpid()}-{secrets.token_hex(6)}"
    limits = {
        "memory.max": memory_bytes + _OVERHEAD,
        "memory.swap.max": 0,
        "memory.limit_in_bytes": memory_bytes + _OVERHEAD,
        "memory.memsw.limit_in_bytes": memory_bytes + _OVERHEAD,
        "pids.max": pids,
    }
    group = ControlGroup(tuple(base / name for base in bases))
    try:
        for folder in group.folders:
            folder.mkdir()
            for file, value in limits.items():
                if (folder / file).exists():
                    (folder / file).write_text(str(value))
    except OSError:
        group.close(0)
        return None
    return group


def of_container(container: str, pid: int) -> ControlGroup:
    """The groups in which a container's processor time is counted, found by its first process.

    Empty where the container is another machine's, as it is where Docker runs in a virtual one.
    """
    found = []
    for kind, controller in (("cgroup2", ""), ("cgroup", "cpuacct")):
        mount, own = _mount(kind, controller), _own(controller, pid)
        if mount is not None and own is not None and container in own:
            found.append(mount / own.lstrip("/"))
    return ControlGroup(tuple(found))


def unavailable() -> str:
    """Why no group can be made here; empty when one can."""
    return "" if _bases() else "no writable control group with memory and pids controllers"


@cache
def _bases() -> tuple[Path, ...]:
    """Folders under which groups are made, found by making one; stale groups are removed."""
    for bases in (_version_2(), _version_1()):
        if bases and all(map(_works, bases)):
            for base in bases:
                _sweep(base)
            return bases
    return ()


def _works(base: Path) -> bool:
    probe = base / f"{_PREFIX}{os.getpid()}-probe"
    try:
        probe.mkdir()
        limited = any((probe / name).exists() for name in _LIMIT_FILES)
        join = ControlGroup((probe,)).join_command(["true"])
        done = subprocess.run(join, stderr=subprocess.DEVNULL, check=False)
        ControlGroup((probe,)).close()
        return limited and done.returncode == 0
    except OSError:
        return False


_USAGE_1 = "cpuacct.usage"
_LIMIT_FILES = ("memory.max", "memory.limit_in_bytes", "pids.max", _USAGE_1)


def _version_2() -> tuple[Path, ...]:
    """The own group's parent where it passes the controllers on; the root passes to its own."""
    mount = _mount("cgroup2", "")
    own = _own("")
    if mount is None or own is None:
        return ()
    here = mount / own.lstrip("/")
    for base in (here, here.parent):
        try:
            passed = (base / "cgroup.subtree_control").read_text().split()
        except OSError:
            continue
        if {"memory", "pids"} <= set(passed) and base.is_relative_to(mount):
            return (base,)
    return ()


def _version_1() -> tuple[Path, ...]:
    bases = []
    for controller in ("memory", "pids", "cpuacct"):
        mount, own = _mount("cgroup", controller), _own(controller)
        if mount is not None and own is not None:
            bases.append(mount / own.lstrip("/"))
        elif controller != "cpuacct":
            return ()
    return tuple(bases)


def _mount(kind: str, controller: str) -> Path | None:
    """Where a hierarchy is mounted."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/mounts").read_text().splitlines():
            _, where, what, options, *_ = line.split()
            if what == kind and (not controller or controller in options.split(",")):
                return Path(where)
    return None


def _own(controller: str, pid: int | str = "self") -> str | None:
    """A process's group in a hierarchy."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controller in controllers.split(","):
                return path
    return None


def _remove(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _sweep(base: Path) -> None:
    """Remove groups whose maker is gone."""
    for folder in base.glob(f"{_PREFIX}*-*"):
        pid = folder.name.split("-")[1]
        if not os.path.exists(f"/proc/{pid}"):
            _remove(folder)
