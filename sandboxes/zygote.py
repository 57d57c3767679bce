"""The host's side of a zygote: start it in a sandbox, ask it for workers, end it for good."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from envgen.core.errors import (
    SandboxError,
    SandboxTimeoutError,
    SandboxUnavailableError,
    WorkerDiedError,
)
from envgen.sandboxes import bwrap, cgroups, runtime, worker_filter
from envgen.sandboxes.channel import Channel, socket_pair
from envgen.sandboxes.folders import PrivateFolder
from envgen.sandboxes.frames import require_reply
from envgen.sandboxes.launcher import launch
from envgen.sandboxes.programs.wire import pack

if TYPE_CHECKING:
    from envgen.sandboxes.docker_worker import DockerWorker

WorkerBackend = Literal["auto", "bubblewrap", "docker", "process", "inline"]
Isolation = Literal["environment", "episode"]
"""What has a sandbox of its own: all episodes of an environment, or each."""
START_TIMEOUT_S = 30.0
_SEND_TIMEOUT_S = 5.0
_OWN_PROCESSES = 16
"""bwrap's two processes, the zygote and supervisors, beside the programs' own."""
DEFAULTS: dict[str, Any] = {
    "memory_bytes": 512 << 20,
    "disk_bytes": 64 << 20,
    "pids": 4096,
    "cpu_s": 600,
    "total_bytes": 16 << 30,
    "files": 256,
    "confine": True,
}


_SAY_SO = "say --trust (in Python trust=True) if you wrote or read the code"


def choose(backend: WorkerBackend, trusted: bool, isolate: Isolation = "environment") -> str:
    """The backend to run workers with. Raises SandboxUnavailableError with a hint."""
    chosen = _choose(backend, trusted)
    if isolate == "episode" and chosen in ("process", "inline"):
        raise SandboxUnavailableError(
            f"isolate='episode' requires a sandbox for each episode; backend {chosen!r} has none",
            "use backend='bubblewrap' or 'docker', or leave isolate='environment'",
        )
    return chosen


def _choose(backend: WorkerBackend, trusted: bool) -> str:
    if backend == "auto":
        reason = bwrap.unavailable()
        if not reason:
            return "bubblewrap"
        if trusted:
            return "process"
        raise SandboxUnavailableError(
            f"this code is not trusted and no isolating sandbox works here: {reason}",
            f"install bubblewrap (apt install bubblewrap), use backend='docker', or {_SAY_SO}",
        )
    if backend in ("process", "inline") and not trusted:
        raise SandboxUnavailableError(
            f"backend {backend!r} isolates nothing and this code is not trusted",
            f"use backend='bubblewrap', or {_SAY_SO}",
        )
    if backend == "bubblewrap" and (reason := bwrap.unavailable()):
        raise SandboxUnavailableError(reason, "apt install bubblewrap, or use backend='docker'")
    if backend == "docker":
        from envgen.sandboxes import docker

        if reason := docker.unavailable():
            raise SandboxUnavailableError(reason, "start Docker, or use backend='bubblewrap'")
    return backend


class Zygote:
    """A process that has loaded one role and forks a worker whenever it is asked to."""

    def __init__(
        self,
        role: str,
        *,
        backend: str,
        config: Mapping[str, Any] = {},
        files: Sequence[int] = (),
        layout: bwrap.Layout | None = None,
        hash_seed: int = 0,
    ) -> None:
        """Start it and wait until it has loaded ``files``.

        One that is confined, since it loads what nobody has read, is in its control group itself. Any other
        stays outside, and its programs enter: whatever uses up the group's memory, it is not the zygote
        that is killed for it.

        Raises SandboxError when the sandbox fails, ValueError when the role refuses its files.
        """
        self._lock = threading.Lock()
        self._next = 0
        self.closed = False
        self.group: cgroups.ControlGroup | None = None
        self.backend = backend
        self.process: subprocess.Popen[bytes] | DockerWorker
        settings = DEFAULTS | dict(config)
        settings |= {"role": f"role_{role}", "filename": f"{role}.py"}
        self._greeted = bool(settings["confine"])
        if self._greeted and (rules := worker_filter.program()):
            settings |= {"filter": rules.hex(), "own_pid": worker_filter.OWN_PID}
        self._owner = os.getpid()
        self._folder: PrivateFolder | None = None
        layout = layout or bwrap.Layout()
        try:
            if backend == "docker":
                self._start_container(settings, layout, hash_seed)
            else:
                self._start_process(settings, layout, hash_seed)
        except OSError as error:
            raise SandboxUnavailableError(f"can't start a worker: {error}") from error
        self._finalizer = weakref.finalize(
            self, _end, self._owner, self.process, self._socket, self.group, self._folder
        )
        try:
            self._load(settings, files)
        except BaseException:
            self.close()
            raise

    def _start_container(
        self, settings: dict[str, Any], layout: bwrap.Layout, hash_seed: int
    ) -> None:
        from envgen.sandboxes import docker_worker

        self._folder = PrivateFolder()
        try:
            self.process, self._socket = docker_worker.start(
                self._folder.shown("control"), layout.scratch, settings, hash_seed
            )
        except BaseException:
            self._folder.remove()
            raise

    def _start_process(
        self, settings: dict[str, Any], layout: bwrap.Layout, hash_seed: int
    ) -> None:
        env = runtime.clean_env(hash_seed)
        words, programs = [runtime.python()], str(runtime.PROGRAMS)
        if self.backend == "bubblewrap":
            programs = f"{runtime.INSIDE}/programs"
            if layout.root is not None:
                words, more = runtime.python_in_root()
                env |= more
            if not layout.kill:
                settings["uid"] = runtime.sandbox_uid()
        else:
            settings |= {"die_with_parent": os.uname().sysname == "Linux", "pids": 0}
        near, far = socket_pair()
        words += [*runtime.python_flags(), f"{programs}/zygote.py", str(far.fileno())]
        try:
            with far:
                if self.backend == "bubblewrap":
                    self.process = self._start_bubblewrap(words, env, settings, layout, far)
                else:
                    self.process = _launch(words, env, [far.fileno()])
        except OSError:
            near.close()
            if self.group is not None:
                self.group.close(0)
            raise
        self._socket = near

    def _start_bubblewrap(
        self,
        words: list[str],
        env: dict[str, str],
        settings: dict[str, Any],
        layout: bwrap.Layout,
        far: socket.socket,
    ) -> subprocess.Popen[bytes]:
        self.group = cgroups.make(settings["total_bytes"], settings["pids"] + _OWN_PROCESSES)
        if self.group is None and "address_bytes" in settings:
            settings["address_bytes"] = settings["memory_bytes"]
        with bwrap.system_call_filter(self.group is not None) as filters:
            words = bwrap.command(words, layout, filters)
            if self.group is not None and settings["confine"]:
                words = self.group.join_command(words)
            return _launch(words, env, [far.fileno(), *filters])

    def _load(self, settings: dict[str, Any], files: Sequence[int]) -> None:
        try:
            with contextlib.ExitStack() as stack:
                if self.group is not None and not settings["confine"]:
                    doors = [stack.enter_context(file).fileno() for file in self.group.doors()]
                    files = [*files, *doors]
                socket.send_fds(self._socket, [pack(settings)], list(files))
            channel = Channel(self._socket, START_TIMEOUT_S)
            reply = channel.recv()
            channel.set_timeout(_SEND_TIMEOUT_S)
        except WorkerDiedError:
            raise SandboxError(f"the sandbox did not start: {self._complaint()}") from None
        except SandboxTimeoutError:
            raise ValueError(f"loading took more than {START_TIMEOUT_S:g} s") from None
        except OSError as error:
            raise SandboxError(
                f"the sandbox did not start: {error}; {self._complaint()}"
            ) from error
        if require_reply(reply)[0] != 0:
            raise ValueError(reply[1])

    def _complaint(self) -> str:
        self.process.kill()
        if self.process.stderr is None:
            return "no message"
        return self.process.stderr.read(4096).decode(errors="replace").strip() or "no message"

    def fork(
        self, timeout_s: float, request: Mapping[str, Any] = {}, files: Sequence[int] = ()
    ) -> tuple[int, Channel]:
        """A new worker: its number and its channel. Raises WorkerDiedError if the zygote is gone."""
        near, far = socket_pair()
        channel = Channel(near, timeout_s, greeted=self._greeted)
        with far:
            with self._lock:
                number = self._next = self._next + 1
                message = {"op": "fork", "id": number, **request}
                try:
                    self._send(message, [far.fileno(), *files])
                except (OSError, WorkerDiedError) as error:
                    near.close()
                    raise WorkerDiedError(f"the zygote is gone: {error}") from error
        return number, channel

    def blame(self, channel: Channel) -> None:
        """End the zygote, too, if it never made the worker of a channel: then it makes no other."""
        if channel.greeting:
            self.close()

    def kill(self, number: int) -> None:
        """End a worker, whatever it is doing."""
        with self._lock:
            try:
                self._send({"op": "kill", "id": number}, [])
            except (OSError, WorkerDiedError):
                return  # the zygote is gone, and its workers with it

    def tell(self, message: Mapping[str, Any]) -> None:
        """Send the zygote itself a message. Raises WorkerDiedError if it is gone."""
        with self._lock:
            try:
                self._send(message, [])
            except OSError as error:
                raise WorkerDiedError(f"the zygote is gone: {error}") from error

    def _send(self, message: Mapping[str, Any], files: Sequence[int]) -> None:
        if self.closed or self._owner != os.getpid():
            raise WorkerDiedError("the zygote is closed, or another process's")
        frame = pack(message)
        try:
            sent = socket.send_fds(self._socket, [frame], list(files))
            if sent < len(frame):
                self._socket.sendall(frame[sent:])
        except OSError:  # gone, or it reads no more and may have half a frame
            self.close()
            raise

    @property
    def pid(self) -> int:
        """Of the process that was started here; 0 for a container's."""
        return getattr(self.process, "pid", 0)

    @property
    def alive(self) -> bool:
        """Whether its process still runs, and is this process's."""
        return self._owner == os.getpid() and self._finalizer.alive and self.process.poll() is None

    def close(self) -> None:
        """End the zygote and every worker it made."""
        self.closed = True
        self._finalizer()


def _launch(words: list[str], env: dict[str, str], files: list[int]) -> subprocess.Popen[bytes]:
    return launch(words, env=env, stderr=subprocess.PIPE, pass_fds=files)


def _end(
    owner: int,
    process: subprocess.Popen[bytes] | DockerWorker,
    control: socket.socket,
    group: cgroups.ControlGroup | None,
    folder: PrivateFolder | None,
) -> None:
    control.close()
    if process.stderr is not None:
        process.stderr.close()
    if owner != os.getpid():
        return  # a fork of the owner has lost its copy
    process.kill()
    process.wait()
    if group is not None:
        group.close()
    if folder is not None:
        folder.remove()
