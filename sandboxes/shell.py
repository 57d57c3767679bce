"""A sandbox made of a zygote that runs programs: the bubblewrap and process backends share it."""

from __future__ import annotations

import contextlib
import math
import os
import selectors
import socket
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from typing import IO, Any

from envgen.core.errors import SandboxError, SandboxTimeoutError, WorkerDiedError
from envgen.sandboxes import gateway, runtime
from envgen.sandboxes.base import WORK, ExecResult, SandboxSpec
from envgen.sandboxes.bwrap import Layout
from envgen.sandboxes.channel import Channel, socket_pair
from envgen.sandboxes.folders import PrivateFolder
from envgen.sandboxes.frames import require_reply
from envgen.sandboxes.patience import Patience, tree_cpu_s
from envgen.sandboxes.zygote import Zygote

_CHUNK = 1 << 18
_GRACE_S = 10.0


class ShellSandbox:
    """Runs programs through supervisors that a zygote inside forks."""

    def __init__(self, spec: SandboxSpec, backend: str) -> None:
        self.spec, self.backend = spec, backend
        self._runs: weakref.WeakSet[_Program] = weakref.WeakSet()
        self._folder: PrivateFolder | None = None
        self._work = WORK
        self._aborted = False
        self._cpu_s = 0.0
        self._lock = threading.Lock()
        if backend == "process":
            self._folder = PrivateFolder()
            self._work = str(self._folder.shown("work"))
        uid = spec.user if spec.user is not None else runtime.sandbox_uid()
        config = {
            "work": self._work,
            "worker_uid": uid if backend == "bubblewrap" else None,
            "memory_bytes": spec.memory_bytes,
            "address_bytes": spec.address_bytes or spec.memory_bytes,
            "total_bytes": spec.memory_bytes,
            "disk_bytes": spec.disk_bytes,
            "cpu_s": math.ceil(spec.cpu),
            "pids": spec.pids,
            "files": 4096,
            "confine": False,
        }
        layout = Layout(
            tmp_bytes=spec.disk_bytes,
            work_bytes=spec.disk_bytes,
            whole_usr=True,
            root=spec.root,
            certificates=spec.network == "internet",
            mounts=spec.mounts,
            kill=True,
        )
        self._gateway: gateway.Gateway | None = None
        try:
            if backend == "bubblewrap" and spec.network == "internet":
                self._start_with_gateway(config, layout)
            else:
                self._zygote = Zygote("shell", backend=backend, config=config, layout=layout)
        except ValueError as error:
            raise SandboxError(f"the sandbox did not start: {error}") from error

    def _start_with_gateway(self, config: dict[str, Any], layout: Layout) -> None:
        """Start the zygote, and serve the listener that it opens in its network namespace."""
        reach = gateway.hosts(self.spec.reach)
        near, far = socket_pair()
        with near, far:
            self._zygote = Zygote(
                "shell",
                backend=self.backend,
                config={**config, "listen": gateway.ADDRESS},
                layout=layout,
                files=[far.fileno()],
            )
            _, files, _, _ = socket.recv_fds(near, 1, 1)
        self._gateway = gateway.Gateway(socket.socket(fileno=files[0]), reach)
        weakref.finalize(self, self._gateway.close)

    def __enter__(self) -> ShellSandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def cpu_s(self) -> float:
        """Seconds on the processor: its control group's, or those of all processes below its first."""
        if self._zygote.alive:
            group = self._zygote.group
            counted = None if group is None else group.cpu_s()
            self._cpu_s = tree_cpu_s(self._zygote.pid) if counted is None else counted
        return self._cpu_s

    def exec(
        self,
        argv: Sequence[str],
        stdin: bytes = b"",
        timeout_s: float | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str = WORK,
    ) -> ExecResult:
        """Run a program to its end; what it leaves running ends with it."""
        limit = self.spec.wall_s if timeout_s is None else timeout_s
        started = time.monotonic()
        kills = self._oom_kills()
        with _Program(self, argv, env, cwd) as run:
            run.pump(stdin, limit, self.spec.output_bytes)
        if self._aborted:
            raise SandboxError("the sandbox was aborted")
        code = run.exit_code
        return ExecResult(
            exit_code=-9 if code is None else code,
            stdout=bytes(run.kept[0]),
            stderr=bytes(run.kept[1]),
            wall_s=time.monotonic() - started,
            timed_out=run.timed_out,
            oom=self._oom_kills() > kills,
            truncated=run.truncated,
        )

    def _oom_kills(self) -> int:
        return 0 if self._zygote.group is None else self._zygote.group.oom_kills()

    def spawn(
        self, argv: Sequence[str], env: Mapping[str, str] | None = None, cwd: str = WORK
    ) -> ShellProcess:
        """Start a long-lived program."""
        return ShellProcess(_Program(self, argv, env, cwd))

    def read_file(self, path: str, max_bytes: int = 64 << 20) -> bytes:
        """A file below the work folder."""
        request = {"kind": "read", "path": self._inside(path), "max_bytes": max_bytes}
        return self._file(request, b"")

    def write_file(self, path: str, content: bytes) -> None:
        """Write a file below the work folder."""
        request = {"kind": "write", "path": self._inside(path), "size": len(content)}
        self._file(request, content)

    def _inside(self, path: str) -> str:
        """``/work`` is the work folder in every backend."""
        path = os.fspath(path)
        if self._work != WORK and (path == WORK or path.startswith(f"{WORK}/")):
            return self._work + path[len(WORK) :]
        return path

    def _file(self, request: dict[str, Any], content: bytes) -> bytes:
        number, channel = self._zygote.fork(_GRACE_S, request)
        try:
            try:
                channel.sock.sendall(content)
            except (BrokenPipeError, ConnectionResetError):
                pass  # refused before it was read: the reply says why
            kind, value = require_reply(channel.recv())
            if kind != 0:
                raise SandboxError(value)
            if request["kind"] != "read":
                return b""
            if type(value) is not int or not 0 <= value <= request["max_bytes"]:
                raise ValueError(f"a file of {value!r:.40} bytes")
            return channel.take(value)
        except (ValueError, TypeError) as error:
            raise SandboxError(f"the sandbox answered nonsense: {error}") from error
        finally:
            channel.close()
            self._zygote.kill(number)

    def start(
        self, argv: Sequence[str], env: Mapping[str, str] | None, cwd: str, files: Sequence[int]
    ) -> tuple[int, Channel]:
        """Fork a supervisor with a program under it; ``files`` become its stdio."""
        if isinstance(argv, str) or not argv:
            raise SandboxError("argv must be a list of words", 'e.g. ["sh", "-c", "ls"]')
        inside = {"PATH": runtime.clean_env()["PATH"], "LANG": "C.UTF-8", "HOME": self._work}
        inside |= dict(env or {})
        if self._gateway is not None:
            inside |= self._gateway.variables(inside)
        request = {
            "kind": "exec",
            "argv": list(argv),
            "env": inside,
            "cwd": self._inside(cwd),
        }
        return self._zygote.fork(_GRACE_S, request, files)

    def track(self, run: _Program) -> None:
        """Remember a program that has been started."""
        with self._lock:
            self._runs.add(run)

    def kill(self, number: int) -> None:
        """Kill a supervisor. Its programs are no one's then, so the sandbox is closed too."""
        self._zygote.kill(number)
        self.close()

    def abort(self) -> None:
        """Kill everything in it, from any thread."""
        self._aborted = True
        self._zygote.process.kill()
        with self._lock:
            runs = tuple(self._runs)
        for run in runs:
            run.abort()

    @property
    def alive(self) -> bool:
        """Whether the sandbox can still be used."""
        return self._zygote.alive

    def close(self) -> None:
        """End everything in it. Supervisors end what they started when their channel ends."""
        for run in tuple(self._runs):
            run.close()
        self._zygote.close()
        if self._gateway is not None:
            self._gateway.close()
        if self._folder is not None:
            self._folder.remove()


class _Program:
    """One program: its pipes, its supervisor, and how it ended."""

    def __init__(
        self, sandbox: ShellSandbox, argv: Sequence[str], env: Mapping[str, str] | None, cwd: str
    ) -> None:
        self.sandbox = sandbox
        pipes = [os.pipe() for _ in range(3)]
        theirs = [pipes[0][0], pipes[1][1], pipes[2][1]]
        ours = [pipes[0][1], pipes[1][0], pipes[2][0]]
        try:
            self.number, self.channel = sandbox.start(argv, env, cwd, theirs)
        except BaseException:
            for file in ours:
                os.close(file)
            raise
        finally:
            for file in theirs:
                os.close(file)
        modes = ("wb", "rb", "rb")
        self.stdin, self.stdout, self.stderr = (
            os.fdopen(file, mode, buffering=0) for file, mode in zip(ours, modes, strict=True)
        )
        sandbox.track(self)
        self.kept = (bytearray(), bytearray())
        self.exit_code: int | None = None
        self.ended = self.timed_out = self.truncated = self.closed = False

    def __enter__(self) -> _Program:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def pump(self, data: bytes, limit_s: float, keep: int) -> None:
        """Feed stdin and read both outputs until the program and all it started have ended."""
        left = memoryview(data)
        before_s = self.sandbox.cpu_s
        deadline = (began := time.monotonic()) + limit_s
        patience = Patience(limit_s)
        with selectors.DefaultSelector() as selector:
            for index, stream in enumerate((self.stdout, self.stderr)):
                selector.register(stream, selectors.EVENT_READ, index)
            selector.register(self.channel.sock, selectors.EVENT_READ, "end")
            if left:
                os.set_blocking(self.stdin.fileno(), False)
                selector.register(self.stdin, selectors.EVENT_WRITE, "stdin")
            else:
                self.stdin.close()
            while len(selector.get_map()):
                for key, _ in selector.select(max(0.0, deadline - time.monotonic())):
                    if key.data == "stdin":
                        left = self._feed(left)
                    elif key.data == "end":
                        self.finish()
                    elif self._read(key.data, keep):
                        continue
                    if key.data != "stdin" or not left:
                        selector.unregister(key.fileobj)
                        if key.data == "stdin":
                            self.stdin.close()
                if self.ended and self.stdin.closed is False and left:
                    selector.unregister(self.stdin)
                    self.stdin.close()
                if time.monotonic() >= deadline and len(selector.get_map()):
                    if self.timed_out or self.ended:
                        self.sandbox.kill(self.number)
                        return
                    used_s = self.sandbox.cpu_s - before_s
                    more = patience.more_s(time.monotonic() - began, used_s)
                    deadline = time.monotonic() + more if more else self._expire()

    def _expire(self) -> float:
        """The time is up: ask for the end; the time until when it must have come."""
        self.timed_out = True
        self.channel.send("kill")
        return time.monotonic() + _GRACE_S

    def _feed(self, left: memoryview) -> memoryview:
        try:
            return left[os.write(self.stdin.fileno(), left[:65_536]) :]
        except BlockingIOError:
            return left
        except OSError:  # it reads no more
            return left[len(left) :]

    def _read(self, index: int, keep: int) -> bool:
        part = os.read((self.stdout, self.stderr)[index].fileno(), _CHUNK)
        room = keep - len(self.kept[index])
        self.kept[index].extend(part[:room])
        self.truncated = self.truncated or len(part) > room
        return bool(part)

    def finish(self) -> None:
        """Take the supervisor's word for how it ended."""
        self.ended = True
        try:
            kind, value = require_reply(self.channel.recv())
            if kind == 0 and value is not None and type(value) is not int:
                raise ValueError(f"an exit code of {value!r:.40}")
        except WorkerDiedError:
            if not self.sandbox.alive:
                raise SandboxError("the sandbox died") from None
            return  # the program killed its own supervisor
        except (ValueError, TypeError) as error:
            raise SandboxError(f"the sandbox answered nonsense: {error}") from error
        if kind != 0:
            raise SandboxError(str(value))
        self.exit_code = value

    def abort(self) -> None:
        """Make whoever waits for it, and its supervisor, see the channel's end. From any thread."""
        with contextlib.suppress(OSError):  # closed: it has ended
            self.channel.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the pipes; whatever still runs is killed by the supervisor."""
        self.closed = True
        for stream in (self.stdin, self.stdout, self.stderr):
            stream.close()
        self.channel.close()


class ShellProcess:
    """A long-lived program in a sandbox, with pipes."""

    def __init__(self, run: _Program) -> None:
        self._run = run
        self.stdin: IO[bytes] = run.stdin
        self.stdout: IO[bytes] = run.stdout
        self.stderr: IO[bytes] = run.stderr

    def wait(self, timeout_s: float | None = None) -> int:
        """Its exit code. Raises SandboxTimeoutError."""
        if not self._run.ended:
            with selectors.DefaultSelector() as selector:
                selector.register(self._run.channel.sock, selectors.EVENT_READ)
                if not selector.select(timeout_s):
                    raise SandboxTimeoutError(f"still running after {timeout_s:g} s")
            self._run.finish()
        return -9 if self._run.exit_code is None else self._run.exit_code

    def kill(self) -> None:
        """End it and everything it started."""
        if not self._run.ended and not self._run.closed:
            self._run.channel.send("kill")
            self.wait(_GRACE_S)
        self._run.close()
