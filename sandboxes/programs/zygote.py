"""The zygote: loads a role once, then forks a worker per request. Standard library only.

``python zygote.py FD|PATH``: the control socket is FD, or is connected to at PATH. Its first frame
is the configuration; each later one asks for a fork (with the worker's socket as a file descriptor)
or for a kill. Run as a program of its own, so that no thread and no lock of the host can be in it.
"""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import select
import signal
import socket
import struct
import sys
from importlib import import_module
from typing import Any

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

wire = import_module("wire")
toolbox = import_module("toolbox")

PRINT_LIMIT = 1 << 20


class Sink:
    """Where prints go: nowhere, and not without end."""

    encoding = "utf-8"
    closed = False

    def __init__(self) -> None:
        self.size = 0

    def write(self, text: str) -> int:
        """Count the text and drop it."""
        self.size += len(text)
        if self.size > PRINT_LIMIT:
            raise OSError("printed too much")
        return len(text)

    def flush(self) -> None:
        """Nothing to flush."""

    def isatty(self) -> bool:
        """Never a terminal."""
        return False


def limit(kind: int, value: int) -> None:
    """Lower a resource limit to ``value`` at most."""
    hard = resource.getrlimit(kind)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    try:
        resource.setrlimit(kind, (value, value))
    except (ValueError, OSError):  # macOS knows some limits and can't set them
        if sys.platform == "linux":
            raise


prctl: Any = ctypes.CDLL(None).prctl if sys.platform == "linux" else None
"""Found before any fork: a worker that looked for it would pay for every page it touched."""


def die_with_parent() -> None:
    """Get SIGKILL when the parent ends (Linux)."""
    prctl(1, signal.SIGKILL, 0, 0, 0)


def hide() -> None:
    """Let no process of the same uid read, write or trace this one and those it forks (Linux)."""
    if prctl(4, 0, 0, 0, 0):  # PR_SET_DUMPABLE
        raise OSError("can't be hidden")


class Filter:
    """The filter that a worker puts on itself, made ready before any fork."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.rules = bytes.fromhex(config["filter"])
        self.own = struct.pack("=I", config["own_pid"])
        self.content = ctypes.create_string_buffer(self.rules, len(self.rules))
        at = ctypes.addressof(self.content)
        self.head = ctypes.create_string_buffer(struct.pack("@HP", len(self.rules) // 8, at))
        self.at = ctypes.c_ulong(ctypes.addressof(self.head))

    def load(self) -> None:
        """Put it on this process, for good."""
        self.content.raw = self.rules.replace(self.own, struct.pack("=I", os.getpid()))
        if prctl(38, 1, 0, 0, 0) or prctl(22, 2, self.at, 0, 0):  # NO_NEW_PRIVS, SECCOMP
            raise OSError("the worker's filter does not load")


def settle(config: dict[str, Any]) -> None:
    """Drop privileges and set the limits of the zygote itself."""
    if config.get("die_with_parent"):  # no bubblewrap around us that would see to it
        die_with_parent()
    uid = config.get("uid")
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    if sys.platform == "linux":
        hide()
    limit(resource.RLIMIT_CORE, 0)
    limit(resource.RLIMIT_FSIZE, config["disk_bytes"])
    limit(resource.RLIMIT_NOFILE, config["files"])
    if config.get("pids"):
        limit(resource.RLIMIT_NPROC, config["pids"])
    null = os.open(os.devnull, os.O_RDWR)
    for target in (0, 1, 2):
        os.dup2(null, target)
    os.close(null)
    sys.stdout = sys.stderr = sys.__stdout__ = sys.__stderr__ = Sink()  # type: ignore[misc, assignment]  # a counting stand-in
    os.umask(0o077)


def confine(config: dict[str, Any], cpu_s: int, rules: Filter | None) -> None:
    """Set the limits of a worker that runs foreign Python: no process or thread of its own."""
    if config.get("memory_bytes"):
        limit(resource.RLIMIT_AS, config["memory_bytes"])
    limit(resource.RLIMIT_CPU, cpu_s)
    if config.get("pids"):
        limit(resource.RLIMIT_NPROC, 0)
    if rules is not None:
        rules.load()


def work(
    role: Any,
    config: dict[str, Any],
    rules: Filter | None,
    request: dict[str, Any],
    files: list[int],
) -> None:
    """Be the worker: serve one socket until it ends. Never returns."""
    try:
        pipe = wire.Pipe(files[0])
        try:
            if config["confine"]:
                if config.get("die_with_parent"):
                    die_with_parent()
                confine(config, int(request.get("cpu_s") or config["cpu_s"]), rules)
                pipe.send(wire.GREETING)
            role.serve(pipe, request, files[1:])
        except EOFError:
            pass
        except BaseException as error:  # the last stop of a worker: report, then end
            pipe.send([toolbox.FAULT, toolbox.explain(error, config["filename"])])
    finally:
        os._exit(0)


class ZygoteLoop:
    """The loop of the parent process."""

    def __init__(self, control: socket.socket, role: Any, config: dict[str, Any]) -> None:
        self.control, self.role, self.config = control, role, config
        self.rules = Filter(config) if config.get("filter") else None
        self.workers: dict[int, int] = {}
        self.pids: dict[int, int] = {}

    def run(self) -> None:
        """Serve until the host is gone."""
        poll = select.poll()
        poll.register(self.control, select.POLLIN)
        while True:
            ready = poll.poll(1000)
            self.reap()
            if not ready:
                continue
            request, files = wire.recv_with_files(self.control)
            if request["op"] == "fork":
                self.fork(request, files)
            elif request["op"] == "kill" and request["id"] in self.workers:
                os.kill(self.workers[request["id"]], signal.SIGKILL)
            elif request["op"] == "source":
                self.role.add_source(request["key"], request["source"])
            for file in files:
                os.close(file)

    def fork(self, request: dict[str, Any], files: list[int]) -> None:
        """Start a worker; if that fails, say so on its socket."""
        try:
            pid = os.fork()
        except OSError as error:
            reply = wire.pack([toolbox.FAULT, f"can't fork: {error}"])
            os.write(files[0], reply)
            return
        if pid == 0:
            self.control.close()
            work(self.role, self.config, self.rules, request, files)
        self.workers[request["id"]] = pid
        self.pids[pid] = request["id"]

    def reap(self) -> None:
        """Forget the workers that have ended."""
        while self.pids:
            pid, _ = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            number = self.pids.pop(pid, None)
            if number is not None:
                del self.workers[number]


def main() -> None:
    """Start from the configuration on the control socket."""
    if sys.argv[1].isdigit():
        control = socket.socket(fileno=int(sys.argv[1]))
    else:
        control = socket.socket(socket.AF_UNIX)
        control.connect(sys.argv[1])
    config, files = wire.recv_with_files(control)
    pipe = wire.Pipe(control.fileno())
    try:
        role = import_module(config["role"])
        settle(config)
        role.prepare(config, files)
    except BaseException as error:  # tools.py may raise anything; the host is told what
        pipe.send([toolbox.FAULT, toolbox.explain(error, config["filename"])])
        return
    for file in files:
        os.close(file)
    gc.collect()
    gc.freeze()
    pipe.send([toolbox.VALUE, None])
    try:
        ZygoteLoop(control, role, config).run()
    except (EOFError, ConnectionError):
        os._exit(0)


if __name__ == "__main__":
    main()
