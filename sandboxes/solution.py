"""Run solutions: a restricted program that reaches its tools through the host, and nothing else."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, NamedTuple, Protocol

from pydantic import JsonValue

from envgen.core.errors import SandboxError, SandboxTimeoutError, WorkerDiedError
from envgen.core.types import ToolSpec
from envgen.sandboxes.channel import Channel
from envgen.sandboxes.frames import called, require_reply
from envgen.sandboxes.programs.params import split
from envgen.sandboxes.zygote import WorkerBackend, Zygote, choose

MEMORY_BYTES = 256 << 20

ToolCaller = Callable[[str, dict[str, JsonValue]], JsonValue]


class SolutionRun(NamedTuple):
    """The result of a solution: its answer, or why there is none."""

    answer: JsonValue
    num_calls: int
    wall_s: float
    fault: str | None


class SolutionRunner(Protocol):
    """Runs solutions."""

    def run(
        self,
        source: str,
        call: ToolCaller,
        tools: Sequence[ToolSpec],
        *,
        max_calls: int = 20_000,
        cpu_s: float = 5.0,
    ) -> SolutionRun:
        """Run ``solve()``. Its tool calls are answered by ``call``, whose exceptions pass through."""


class SolutionHost(SolutionRunner, Protocol):
    """Runs solutions, each in a fresh fork. Thread-safe."""

    def series(self) -> SolutionSeries:
        """A runner for many re-seeds of one solution; the caller closes it."""

    def close(self) -> None:
        """End everything."""


def solution_host(
    *, hash_seed: int = 0, backend: WorkerBackend = "auto", trusted: bool = False
) -> SolutionHost:
    """A host for solutions; sets and hashes are ordered by ``hash_seed``."""
    if backend == "inline":
        backend = "process"
    return WorkerSolutionHost(choose(backend, trusted), hash_seed)


def parameter_order(tool: ToolSpec) -> list[str]:
    """The order in which positional arguments fill a tool's parameters: required ones first."""
    properties = tool.parameters.get("properties")
    required = tool.parameters.get("required")
    names = list(properties) if isinstance(properties, dict) else []
    first = [str(name) for name in required] if isinstance(required, list) else []
    return first + [name for name in names if name not in first]


class WorkerSolutionHost:
    """Solutions in a zygote that holds neither tools nor database."""

    def __init__(self, backend: str, hash_seed: int) -> None:
        self.backend, self.hash_seed = backend, hash_seed
        self._lock = threading.Lock()
        self._closed = False
        self._zygote = self._start()

    def _start(self) -> Zygote:
        config = {"memory_bytes": MEMORY_BYTES, "disk_bytes": 1 << 20}
        return Zygote("solution", backend=self.backend, config=config, hash_seed=self.hash_seed)

    def run(
        self,
        source: str,
        call: ToolCaller,
        tools: Sequence[ToolSpec],
        *,
        max_calls: int = 20_000,
        cpu_s: float = 5.0,
    ) -> SolutionRun:
        """Run ``solve()`` in a fresh fork."""
        with closing(self.worker(tools, cpu_s)) as worker:
            return worker.run(source, call, max_calls)

    def series(self) -> SolutionSeries:
        """A runner for many re-seeds of one solution; the caller closes it."""
        return SolutionSeries(self)

    def worker(self, tools: Sequence[ToolSpec], cpu_s: float, runs: int = 1) -> SolutionWorker:
        """A fresh fork for so many runs; the caller closes it."""
        orders: dict[str, Any] = {tool.name: parameter_order(tool) for tool in tools}
        run_cpu_s = max(1, round(cpu_s))
        request = {"tools": orders, "cpu_s": runs * run_cpu_s, "run_cpu_s": run_cpu_s}
        return SolutionWorker(*self._fork(request, 2 * cpu_s + 5), orders, cpu_s)

    def _fork(self, request: dict[str, Any], timeout_s: float) -> tuple[Zygote, int, Channel]:
        for attempt in (1, 2):
            with self._lock:
                if self._closed:
                    raise SandboxError("the solution host is closed")
                if not self._zygote.alive:
                    self._zygote.close()
                    self._zygote = self._start()
                zygote = self._zygote
            try:
                return zygote, *zygote.fork(timeout_s, request)
            except WorkerDiedError:
                zygote.close()
                if attempt == 2:
                    raise
        raise AssertionError("unreachable")

    def close(self) -> None:
        """End the zygote."""
        with self._lock:
            self._closed = True
            self._zygote.close()


class SolutionWorker:
    """A forked process that runs solutions until one fails. One thread at a time."""

    def __init__(
        self, zygote: Zygote, number: int, channel: Channel, orders: dict[str, Any], cpu_s: float
    ) -> None:
        self._zygote, self._number, self._channel = zygote, number, channel
        self._orders, self._cpu_s = orders, cpu_s

    def run(self, source: str, call: ToolCaller, max_calls: int) -> SolutionRun:
        """Run ``solve()``; after a fault or an exception of ``call`` the worker is of no more use."""
        started = time.perf_counter()
        calls = 0
        answer: JsonValue = None
        fault: str | None = None
        try:
            self._channel.send(source)
            while True:
                reply = self._channel.recv()
                wanted = called(reply)
                if wanted is None:
                    break
                if calls >= max_calls:
                    fault = f"more than {max_calls} tool calls"
                    break
                name, arguments = wanted
                if name not in self._orders:
                    raise ValueError(f"a call of {name!r}")
                calls += 1
                self._channel.send(call(name, arguments))
            if fault is None:
                kind, value = require_reply(reply)
                answer, fault = (value, None) if kind == 0 else (None, value[:4000])
        except (SandboxTimeoutError, WorkerDiedError) as error:
            limits = f"{self._cpu_s:g} s of CPU and {MEMORY_BYTES >> 20} MB"
            fault = f"{error} (the limits are {limits})"
        except (ValueError, TypeError, LookupError, RecursionError) as error:
            fault = f"the worker answered nonsense: {error}"
        return SolutionRun(answer, calls, time.perf_counter() - started, fault)

    def close(self) -> None:
        """Kill the process."""
        self._channel.close()
        self._zygote.kill(self._number)


class SolutionSeries:
    """Runs re-seeds of one solution after one another in one fork. One thread at a time.

    They are the same program but for their ``PARAMS`` line, so none needs to be kept from another; each
    has a namespace and CPU time of its own. Another program, a fault, or ``RUNS`` runs begin a new fork.
    """

    RUNS = 64

    def __init__(self, host: WorkerSolutionHost) -> None:
        self._host = host
        self._worker: SolutionWorker | None = None
        self._left = 0
        self._known: tuple[object, ...] = ()

    def run(
        self,
        source: str,
        call: ToolCaller,
        tools: Sequence[ToolSpec],
        *,
        max_calls: int = 20_000,
        cpu_s: float = 5.0,
    ) -> SolutionRun:
        """Run ``solve()``, where its last re-seed ran if that went well."""
        parts = split(source)
        wanted = (source if parts is None else parts.program, tuple(tools), cpu_s)
        if self._worker is None or not self._left or wanted != self._known:
            self.close()
            self._worker = self._host.worker(tools, cpu_s, self.RUNS)
            self._left, self._known = self.RUNS, wanted
        self._left -= 1
        done = None
        try:
            done = self._worker.run(source, call, max_calls)
        finally:
            if done is None or done.fault is not None:
                self.close()
        return done

    def close(self) -> None:
        """End the fork, if there is one."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.close()
