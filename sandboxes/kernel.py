"""A stateful Jupyter kernel in a sandbox of its own: the code interpreter's tool.

What runs in it is the agent's; all that comes out of it is its word, taken for text and nothing more
(``programs/kernel.py`` says who is who inside).
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import secrets
import selectors
import threading
import time
from collections.abc import Iterator
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from envgen.core.errors import SandboxError, SandboxUnavailableError, ToolsDiedError, install_hint
from envgen.core.types import Record
from envgen.sandboxes import runtime
from envgen.sandboxes.base import Mount, Process, Sandbox, SandboxSpec, create
from envgen.sandboxes.folders import PrivateFolder
from envgen.sandboxes.patience import Patience
from envgen.sandboxes.zygote import WorkerBackend

logger = logging.getLogger(__name__)

KERNEL = ("ipykernel", "jupyter_client", "matplotlib_inline")
LIBRARIES = ("numpy", "sympy", "scipy", "pandas", "matplotlib")
"""What code may import besides the standard library."""
PRELOAD = ("numpy", "sympy")
"""Imported before the first call; the others when they are asked for."""
_SHOWN, _PROGRAMS = "/opt/envgen-libraries", "/opt/envgen-programs"
_START_S = 60.0
_LADDER_S = 12.0
"""After a cell's time: interrupt, SIGINT, kill, and a new kernel."""
_MAX_LINE = 4 << 20
_PROGRAM = "kernel.py"


class CellResult(Record):
    """What running a cell gave."""

    status: Literal["ok", "error", "timeout", "lost"]
    """error: it raised. timeout: it was interrupted. lost: the kernel is a new one, without any variable."""
    output: str = Field(default="", max_length=1 << 17)
    """What was printed and shown, in order, with tracebacks; the middle of much is left out."""
    images: int = Field(default=0, ge=0, le=1 << 20)
    """Pictures shown."""


class _Reply(CellResult):
    id: str = Field(max_length=64)


class Kernel:
    """A Jupyter kernel in its own sandbox. A context manager; one thread at a time.

    Args:
        backend: of the sandbox; ``auto``: the first one that isolates here.
        trusted: the code that runs is the caller's own, so that no isolation is needed.
        memory_bytes: of the kernel and all that it starts.
        disk_bytes: of ``/work``, where it runs, and of ``/tmp``.
        preload: modules imported before the first cell.

    Raises:
        SandboxUnavailableError: if it can't be isolated here, or ipykernel is not installed.
        SandboxError: if it does not start.
    """

    def __init__(
        self,
        backend: WorkerBackend = "auto",
        *,
        trusted: bool = False,
        memory_bytes: int = 2 << 30,
        disk_bytes: int = 256 << 20,
        preload: tuple[str, ...] = PRELOAD,
    ) -> None:
        mounts = (*library_mounts(), Mount(source=runtime.PROGRAMS, target=_PROGRAMS))
        chosen = "process" if backend == "inline" else backend
        self._preload = preload
        spec = SandboxSpec(
            cpu=86_400.0,
            memory_bytes=memory_bytes,
            address_bytes=4 * memory_bytes,
            pids=128,
            disk_bytes=disk_bytes,
            mounts=() if chosen == "process" else mounts,
        )
        self.sandbox: Sandbox = create(spec, chosen, trust=trusted)
        self._plain = PrivateFolder() if self.sandbox.backend == "process" else None
        self._count = 0
        self._process: Process | None = None
        self._rest = b""
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Kernel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def cpu_s(self) -> float:
        """Seconds on the processor that everything in it has taken; never raises."""
        return self.sandbox.cpu_s

    def run(self, code: str, limit_s: float = 120.0) -> CellResult:
        """Run a cell; whatever it does is a result.

        Args:
            code: Python, as a notebook's cell.
            limit_s: seconds after which it is interrupted; a machine too busy to run it gives it more.

        Raises:
            ToolsDiedError: if its sandbox died.
        """
        assert self._process is not None
        name = secrets.token_hex(8)
        request = {"id": name, "code": code, "limit_s": limit_s}
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            while True:
                reply = self._reply(limit_s + _LADDER_S)
                if isinstance(reply, _Reply) and reply.id == name:
                    return CellResult(**reply.model_dump(exclude={"id"}))
        except (OSError, EOFError, TimeoutError, ValueError) as error:
            # The code killed or silenced what it runs in. It gets another one: that is no fault of ours.
            logger.debug("a kernel was lost: %s", error)
        try:
            self._process.kill()
            self._start()
        except SandboxError as error:
            raise ToolsDiedError(f"the kernel's sandbox died: {error}") from error
        return CellResult(status="lost")

    def forget(self) -> None:
        """Drop all variables, quickly; only for code that is trusted to leave nothing else behind."""
        self.run("%reset -f", 10.0)

    def _start(self) -> None:
        self._count += 1
        folder, libraries, programs = f"/tmp/kernel-{self._count}", _SHOWN, _PROGRAMS
        if self._plain is not None:
            folder = str(self._plain.shown(str(self._count)))
            libraries, programs = _packages_folder(), str(runtime.PROGRAMS)
        start = f"import os,sys,runpy;os.makedirs({folder!r},exist_ok=True);sys.argv=sys.argv[1:];"
        start += "runpy.run_path(sys.argv[0],run_name='__main__')"
        words = [runtime.python(), *runtime.python_flags(), "-c", start, f"{programs}/{_PROGRAM}"]
        threads = dict.fromkeys(
            ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"),
            "1",
        )
        self._process = self.sandbox.spawn([*words, libraries, folder, *self._preload], env=threads)
        self._rest = b""
        try:
            if json.loads(self._line(_START_S)) != {"ready": True}:
                raise ValueError("no greeting")
        except (OSError, EOFError, TimeoutError, ValueError) as error:
            raise SandboxError(
                f"the kernel did not start: {type(error).__name__}: {error}"
            ) from error

    def _reply(self, limit_s: float) -> _Reply | None:
        """The next line from inside; None for one that is no reply."""
        line = self._line(limit_s)
        try:
            return _Reply.model_validate_json(line)
        except ValidationError:
            return None

    def _line(self, limit_s: float) -> bytes:
        """A line of the client's, however long it takes on a busy machine."""
        assert self._process is not None
        began, used_s = time.monotonic(), self.sandbox.cpu_s
        patience = Patience(limit_s)
        until = began + limit_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                if len(self._rest) > _MAX_LINE:
                    raise ValueError("a line without an end")
                if not selector.select(max(0.0, until - time.monotonic())):
                    waited_s = time.monotonic() - began
                    more_s = patience.more_s(waited_s, self.sandbox.cpu_s - used_s)
                    if not more_s:
                        raise TimeoutError(f"no answer in {waited_s:.0f} s")
                    until = time.monotonic() + more_s
                    continue
                part = os.read(self._process.stdout.fileno(), 1 << 18)
                if not part:
                    raise EOFError("it ended")
                self._rest += part
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def close(self) -> None:
        """End it with everything that it started."""
        self.sandbox.close()
        if self._plain is not None:
            self._plain.remove()


class SpareKernels:
    """Kernels started ahead, so that an episode's first call need not wait for one.

    Args:
        backend, trusted: of the kernels.
        spares: how many are kept ready.
    """

    def __init__(
        self, backend: WorkerBackend = "auto", *, trusted: bool = False, spares: int = 1
    ) -> None:
        self._backend, self._trusted = backend, trusted
        self._lock = threading.Condition()
        self._ready: list[Kernel] = []
        self._wanted, self._closed = spares, False
        self._coming = 0

    @property
    def ready(self) -> int:
        """How many are ready."""
        return len(self._ready)

    def take(self) -> Kernel:
        """A fresh kernel; another one is started behind it."""
        with self._lock:
            kernel = self._ready.pop() if self._ready else None
        if kernel is None:
            kernel = self._make()
        self._refill()
        return kernel

    def _make(self) -> Kernel:
        return Kernel(self._backend, trusted=self._trusted)

    def _refill(self) -> None:
        with self._lock:
            if self._closed or len(self._ready) + self._coming >= self._wanted:
                return
            self._coming += 1
        threading.Thread(target=self._one_more, name="spare-kernel", daemon=True).start()

    def _one_more(self) -> None:
        try:
            kernel = self._make()
        except SandboxError as error:  # whoever takes one meets it, too, and says so
            logger.debug("no spare kernel: %s", error)
            kernel = None
        with self._lock:
            self._coming -= 1
            if kernel is not None and not self._closed:
                self._ready.append(kernel)
                kernel = None
            self._lock.notify_all()
        if kernel is not None:
            kernel.close()

    def close(self) -> None:
        """End the spare ones."""
        with self._lock:
            self._closed = True
            self._lock.wait_for(lambda: not self._coming, _START_S)
            ready, self._ready = self._ready, []
        for kernel in ready:
            kernel.close()


@cache
def library_mounts() -> tuple[Mount, ...]:
    """What of this Python's packages a kernel sees: its own, ``LIBRARIES``, and what these need.

    Not the rest: among it are answers of shipped tasks.

    Raises:
        SandboxUnavailableError: if the kernel's are not installed.
    """
    for name in KERNEL:
        if importlib.util.find_spec(name) is None:
            raise SandboxUnavailableError(f"{name} is not installed", install_hint("interpreter"))
    return package_mounts([*KERNEL, *LIBRARIES], _SHOWN)


def package_mounts(names: list[str], folder: str) -> tuple[Mount, ...]:
    """Packages of this Python, and what these need, to be seen in a folder of a sandbox."""
    found: dict[str, Path] = {}
    for distribution in _closure(names):
        for file in distribution.files or ():
            first = file.parts[0]
            if first not in ("..", "__pycache__") and not first.startswith("__editable__"):
                found[first] = Path(str(distribution.locate_file(first)))
    return tuple(
        Mount(source=path, target=f"{folder}/{name}") for name, path in sorted(found.items())
    )


def _packages_folder() -> str:
    spec = importlib.util.find_spec("ipykernel")
    assert spec is not None
    assert spec.origin is not None
    return str(Path(spec.origin).parent.parent)


def _closure(names: list[str]) -> Iterator[metadata.Distribution]:
    from packaging.requirements import Requirement

    seen: set[str] = set()
    todo = list(names)
    while todo:
        name = todo.pop().replace("_", "-").lower()
        if name in seen:
            continue
        seen.add(name)
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # of another system or an extra of theirs
        yield distribution
        for line in distribution.requires or ():
            wanted = Requirement(line)
            if wanted.marker is None or wanted.marker.evaluate({"extra": ""}):
                todo.append(wanted.name)
