"""The base of building and opening workspaces: their parts, sandbox and failures."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Literal

from envgen.core.code_types import DEPENDENCIES, REPOSITORY, Recipe
from envgen.core.errors import SandboxError, WorkspaceError
from envgen.core.limits import Count, Seconds
from envgen.core.types import Record
from envgen.sandboxes import base, runtime
from envgen.sandboxes.base import ExecResult, Mount, Sandbox, SandboxSpec
from envgen.sandboxes.folders import PrivateFolder
from envgen.sandboxes.workspace.layers import Layer, host_mounts

logger = logging.getLogger(__name__)

TREE = "/tree.tar"
"""Where a sandbox finds the frozen tree."""
ADDRESS_BYTES = 1 << 40
_TAIL = 2000


class WorkspaceLimits(Record):
    """The limits of a workspace's sandbox. None: those of its recipe."""

    memory_bytes: Count | None = None
    disk_bytes: Count | None = None
    wall_s: Seconds | None = None
    pids: Count = 1024
    output_bytes: Count = 4 << 20


def environment(recipe: Recipe) -> dict[str, str]:
    """Variables of every command in a workspace."""
    fixed = {
        "PATH": f"{DEPENDENCIES}/bin:{runtime.clean_env()['PATH']}",
        "HOME": base.WORK,
        "USER": "dev",
        "LOGNAME": "dev",
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "CI": "1",
    }
    return fixed | recipe.variables


def choose_backend(wanted: str, layer: Layer) -> str:
    """``bubblewrap`` or ``docker``. Raises WorkspaceError when the layer can't be used with it."""
    able = {"bubblewrap": layer.is_host or layer.root, "docker": layer.is_host or layer.image}
    names = ("bubblewrap", "docker") if wanted == "auto" else (wanted,)
    reasons = []
    for name in names:
        if name not in able:
            raise WorkspaceError(f"unknown backend of workspaces {name!r}", "bubblewrap or docker")
        if not able[name]:
            reasons.append(f"layer {layer.name!r} was not made for {name}")
        elif reason := str(base.backend_module(name).unavailable()):
            reasons.append(f"{name}: {reason}")
        else:
            return name
    hint = f"make the layer for it: envgen images bootstrap {layer.name} --for {wanted}"
    raise WorkspaceError("; ".join(reasons), hint)


OWN = {**runtime.clean_env(), "HOME": base.WORK}
"""Variables of envgen's own commands: neither a recipe's nor programs that an install has put in ``/env``."""


class Halt:
    """Ends the workspaces of a piece of work from another thread, whatever runs in them.

    Made within another's ``covering``, it is a part of that: the whole ends its workspaces, too.
    """

    def __init__(self) -> None:
        self._whole = _HALT.get()
        self._lock = threading.Lock()
        self._boxes: weakref.WeakSet[Box] = weakref.WeakSet()
        self.is_set = False

    @contextlib.contextmanager
    def covering(self) -> Iterator[None]:
        """Within it, this thread's workspaces end when it is set."""
        token = _HALT.set(self)
        try:
            yield
        finally:
            _HALT.reset(token)

    def add(self, box: Box) -> None:
        """Cover a sandbox. Raises SandboxError when it is set already."""
        if self._whole:
            self._whole.add(box)
        with self._lock:
            if self.is_set:
                raise SandboxError("the work was stopped")
            self._boxes.add(box)

    def set(self) -> None:
        """Kill what runs in the sandboxes; whoever waits for it gets SandboxError."""
        with self._lock:
            self.is_set = True
            for box in tuple(self._boxes):
                try:
                    box.sandbox.abort()
                except SandboxError as error:  # the others must end, too
                    logger.warning("%s", error)


_HALT: ContextVar[Halt | None] = ContextVar("halt", default=None)


class Box:
    """A sandbox on a layer, and the private folder with its small files."""

    def __init__(
        self,
        layer: Layer,
        backend: str,
        recipe: Recipe,
        *,
        limits: WorkspaceLimits | None = None,
        mounts: Sequence[Mount] = (),
        network: Literal["none", "internet"] = "none",
        reach: Sequence[str] = (),
        image: str | None = None,
        user: int | None = None,
    ) -> None:
        limits = limits or WorkspaceLimits()
        self._folder: PrivateFolder | None = None
        self.variables = environment(recipe)
        user = user if user is not None else default_user(backend)
        shown = [*mounts]
        if layer.is_host:
            shown += host_mounts()
        if layer.is_host or backend == "bubblewrap":
            shown += self._accounts(user)
        if layer.is_host and recipe.language == "python":
            shown += self._nothing(packages_of_host([mount.target for mount in mounts]))
        # a recipe may come from anywhere, and its folders are memory, too
        memory = limits.memory_bytes or min(recipe.memory_bytes, machine_memory() * 3 // 4)
        disk = limits.disk_bytes or min(recipe.disk_bytes, machine_memory() // 2)
        spec = SandboxSpec(
            root=layer.root if backend == "bubblewrap" else None,
            image=image or layer.image if backend == "docker" else None,
            network=network,
            reach=tuple(reach),
            cpu=(limits.wall_s or recipe.test_s) * 4,
            memory_bytes=memory,
            address_bytes=max(ADDRESS_BYTES, memory),
            pids=limits.pids,
            disk_bytes=disk,
            output_bytes=limits.output_bytes,
            wall_s=limits.wall_s or recipe.test_s,
            mounts=tuple(shown),
            # bubblewrap that is not started by root can't change its uid, nor need to
            user=user if backend == "docker" or os.geteuid() == 0 else None,
        )
        try:
            self.sandbox: Sandbox = base.create(spec, backend)
        except BaseException:
            self._remove_folder()
            raise
        if halt := _HALT.get():
            try:
                halt.add(self)
            except SandboxError:
                self.close()
                raise

    def _accounts(self, user: int) -> list[Mount]:
        """The files by which programs look up users and this machine's name."""
        self._folder = PrivateFolder()
        etc = self._folder.shown("etc")
        files = {
            "passwd": f"root:x:0:0::/root:/bin/sh\ndev:x:{user}:{user}::{base.WORK}:/bin/bash\n",
            "group": f"root:x:0:\ndev:x:{user}:\n",
            "hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
            "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
        }
        for name, content in files.items():
            (etc / name).write_text(content)
            (etc / name).chmod(0o644)
        return [Mount(source=etc / name, target=f"/etc/{name}") for name in files]

    def _nothing(self, places: Sequence[str]) -> list[Mount]:
        """An empty folder in place of each."""
        assert self._folder is not None
        empty = self._folder.shown("nothing")
        return [Mount(source=empty, target=place) for place in places]

    def shell(
        self,
        command: str,
        timeout_s: float | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        cwd: str = REPOSITORY,
    ) -> ExecResult:
        """Run a bash command line to its end; what it leaves running ends with it."""
        words = ["bash", "-c", command]
        return self.sandbox.exec(words, stdin, timeout_s, {**self.variables, **(env or {})}, cwd)

    def own(
        self, command: str, timeout_s: float, stdin: bytes = b"", cwd: str = REPOSITORY
    ) -> ExecResult:
        """Run a command line of envgen's, with the layer's programs only."""
        return self.sandbox.exec(["bash", "-c", command], stdin, timeout_s, OWN, cwd)

    def unpack(self, timeout_s: float = 600.0) -> None:
        """Lay the frozen tree out at ``REPOSITORY``. Raises WorkspaceError."""
        command = f"tar -xf {TREE} -C {base.WORK} --no-same-owner"
        must(self.own(command, timeout_s, cwd=base.WORK), "unpack the tree", command)

    def close(self) -> None:
        """End everything in it. May be called again."""
        try:
            self.sandbox.close()
        finally:
            self._remove_folder()

    def _remove_folder(self) -> None:
        if self._folder is not None:
            self._folder.remove()
            self._folder = None

    def __enter__(self) -> Box:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def packages_of_host(shown: Sequence[str]) -> list[str]:
    """Where this machine's interpreters keep packages: a later release of the project would be the answer.

    Args:
        shown: further folders that a sandbox sees, such as an interpreter's.
    """
    own = str(Path(runtime.python()).parent.parent)
    roots = dict.fromkeys(["/usr", "/usr/local", own, *shown])
    kinds = ("site-packages", "dist-packages")
    found = [Path(root).glob(f"lib*/python*/{kind}") for root in roots for kind in kinds]
    return sorted({str(path) for paths in found for path in paths if not path.is_symlink()})


def machine_memory() -> int:
    """Bytes of this machine's memory."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def default_user(backend: str) -> int:
    """The uid inside a sandbox."""
    if backend == "docker" or os.geteuid() != 0:
        return 65534
    return runtime.sandbox_uid() or 65534


def must(result: ExecResult, what: str, command: str) -> ExecResult:
    """The result of a command that has to succeed. Raises WorkspaceError with its last lines."""
    if result.exit_code == 0 and not result.timed_out:
        return result
    how = f"exit code {result.exit_code}"
    if result.timed_out:
        how = f"stopped after {result.wall_s:.0f} s"
    elif result.oom:
        how = "killed: it used more memory than memory_bytes"
    output = (result.stdout + b"\n" + result.stderr).decode(errors="replace").strip()
    raise WorkspaceError(
        f"can't {what}: {command!r}: {how}\n{output[-_TAIL:]}",
        "run the command in an open workspace, or correct the recipe",
    )


def tree_mount(path: Path) -> Mount:
    """The frozen tree, as sandboxes see it."""
    return Mount(source=path, target=TREE)
