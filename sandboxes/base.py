"""The contract of a sandbox: specification, result, protocol, and each backend's promises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import IO, Literal, Protocol

from pydantic import Field

from envgen.core.errors import SandboxUnavailableError
from envgen.core.limits import Label, Line
from envgen.core.types import Record

WORK = "/work"
"""The writable folder of a sandbox and the default working directory."""


class Guarantee(StrEnum):
    """A promise that a backend may declare; ``check_sandbox`` tests each declared one."""

    MEMORY = "memory"
    """A program can't get more memory than ``memory_bytes``."""
    PROCESSES = "processes"
    """There are never more than ``pids`` processes; a fork bomb ends with the timeout."""
    CPU_TIME = "cpu_time"
    """A process is ended after ``cpu`` seconds of CPU."""
    WALL_TIME = "wall_time"
    """An exec ends at its timeout, and everything it started with it. What took less than that on the
    processor, since others were in its way, goes on until it has (``patience.py``)."""
    OUTPUT = "output"
    """Output is cut at ``output_bytes`` while it streams; the rest is dropped."""
    DISK = "disk"
    """A program can't write more than ``disk_bytes`` to a writable folder."""
    NETWORK = "network"
    """With ``network="none"`` nothing outside can be reached, nor anything on this machine; with
    ``internet`` neither what listens on this machine's 127.0.0.1 nor its abstract sockets."""
    HOST_FILES = "host_files"
    """Files of this machine can't be read or written, but for system libraries and mounts."""
    ENVIRONMENT = "environment"
    """No environment variable of this process is seen."""
    FILE_PATHS = "file_paths"
    """``read_file`` and ``write_file`` refuse paths that leave the sandbox by ``..`` or a link."""
    CLOSE = "close"
    """Nothing survives ``close``."""
    PARENT_DEATH = "parent_death"
    """Nothing survives this process, even one that is killed with SIGKILL."""


class Mount(Record):
    """A file or folder of this machine that is shown in the sandbox."""

    source: Path
    target: Label
    writable: bool = False


class SandboxSpec(Record):
    """The specification of a sandbox: its contents and its limits."""

    image: str | None = None
    """A container image (docker only)."""
    root: Path | None = None
    """A folder to use as the root file system, read-only (bubblewrap only)."""
    network: Literal["none", "internet"] = "none"
    """``internet``: what is not this machine's nor, in bubblewrap, of a private network (``gateway.py``)."""
    reach: tuple[Line, ...] = ()
    """Hosts (``name`` or ``name:port``) that ``internet`` opens wherever they are (bubblewrap only)."""
    cpu: float = Field(default=60.0, gt=0)
    """Seconds of CPU that one process may burn."""
    memory_bytes: int = Field(default=1 << 30, ge=1 << 24)
    address_bytes: int | None = Field(default=None, ge=1 << 24)
    """Address space one process may reserve; None: ``memory_bytes``. Java and node reserve far more
    than they use. Counts only where a control group limits the memory itself."""
    pids: int = Field(default=128, ge=8)
    disk_bytes: int = Field(default=256 << 20, ge=1 << 16)
    """Size of each writable folder: ``/work`` and ``/tmp``."""
    output_bytes: int = Field(default=1 << 20, ge=1)
    """Bytes kept of stdout, and of stderr."""
    wall_s: float = Field(default=120.0, gt=0)
    """Seconds one exec may take unless it is told otherwise."""
    mounts: tuple[Mount, ...] = ()
    user: int | None = None
    """The uid inside; by default one of its own for each sandbox."""
    needs: frozenset[Guarantee] | None = None
    """Guarantees without which the sandbox must not start. None: all, or none with ``trust``."""


class ExecResult(Record):
    """How a program ended. A program that fails is a result, never an error."""

    exit_code: int
    """As a shell tells it: 127 not found, 126 not executable; negative: killed by that signal."""
    stdout: bytes = b""
    stderr: bytes = b""
    wall_s: float = 0.0
    timed_out: bool = False
    oom: bool = False
    """Killed for its memory. Known only where a memory cgroup can be used."""
    truncated: bool = False
    """Some output was dropped."""

    @property
    def text(self) -> str:
        """Stdout as text; what is no UTF-8 is replaced."""
        return self.stdout.decode(errors="replace")


class Process(Protocol):
    """A long-lived program in a sandbox, with pipes."""

    stdin: IO[bytes]
    stdout: IO[bytes]

    def wait(self, timeout_s: float | None = None) -> int:
        """Its exit code. Raises SandboxTimeoutError."""

    def kill(self) -> None:
        """End it and everything it started."""


class Sandbox(Protocol):
    """A place where untrusted programs run. A context manager; one thread at a time."""

    backend: str
    spec: SandboxSpec

    @property
    def cpu_s(self) -> float:
        """Seconds on the processor that all programs in it have taken so far; never raises."""

    def exec(
        self,
        argv: Sequence[str],
        stdin: bytes = b"",
        timeout_s: float | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str = WORK,
    ) -> ExecResult:
        """Run a program to its end. Raises SandboxError only if the sandbox itself fails."""

    def spawn(
        self, argv: Sequence[str], env: Mapping[str, str] | None = None, cwd: str = WORK
    ) -> Process:
        """Start a long-lived program that is talked to over pipes."""

    def read_file(self, path: str, max_bytes: int = 64 << 20) -> bytes:
        """A file below the work folder. Raises SandboxError for links, ``..`` and missing files."""

    def write_file(self, path: str, content: bytes) -> None:
        """Write a file below the work folder, making its parents."""

    def abort(self) -> None:
        """Kill everything in it, from any thread: an ``exec`` under way raises SandboxError.

        Then only ``close`` is left to do.
        """

    def close(self) -> None:
        """End everything in it. May be called again."""

    def __enter__(self) -> Sandbox: ...

    def __exit__(self, *_: object) -> None: ...


BACKENDS = ("bubblewrap", "docker", "process")
_MODULES = {name: f"envgen.sandboxes.{name}" for name in BACKENDS}


def guarantees(backend: str) -> frozenset[Guarantee]:
    """The declaration of a backend."""
    declared: frozenset[Guarantee] = backend_module(backend).GUARANTEES
    return declared


def available() -> dict[str, str]:
    """Each backend and why it can't be used here; empty text: it was tried and works."""
    return {name: str(backend_module(name).unavailable()) for name in BACKENDS}


def create(spec: SandboxSpec, backend: str = "auto", *, trust: bool = False) -> Sandbox:
    """Start a sandbox; ``auto`` is the first backend that works here and can give what is needed.

    Raises SandboxUnavailableError when a needed guarantee is not declared, and for ``process``
    unless the caller trusts what will run.
    """
    names = BACKENDS if backend == "auto" else (backend,)
    refusals = []
    for name in names:
        reason = _refusal(spec, name, trust)
        if not reason:
            sandbox: Sandbox = backend_module(name).start(spec)
            return sandbox
        refusals.append(f"{name}: {reason}")
    hint = "install bubblewrap (apt install bubblewrap), or pass trust=True for code you trust"
    raise SandboxUnavailableError("; ".join(refusals), hint)


def backend_module(backend: str) -> ModuleType:
    """Module of a backend: one of envgen's by its name, any other by its dotted path.

    It has GUARANTEES, DEATH_S, ``unavailable()``, ``unsupported(spec)`` and ``start(spec)``.
    """
    name = _MODULES.get(backend, backend)
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        known = ", ".join(BACKENDS)
        raise SandboxUnavailableError(f"unknown backend {backend!r}; there are {known}") from None


def _refusal(spec: SandboxSpec, backend: str, trust: bool) -> str:
    module = backend_module(backend)
    if backend == "process" and not trust:
        return "isolates nothing, and this code is not trusted"
    needs = spec.needs
    if needs is None:
        needs = frozenset() if trust else frozenset(Guarantee)
    if missing := needs - module.GUARANTEES:
        return f"does not guarantee {', '.join(sorted(missing))}"
    if problem := module.unsupported(spec):
        return str(problem)
    return str(module.unavailable())
