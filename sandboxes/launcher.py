"""One thread that starts every sandbox process of this process.

A child's parent-death signal fires when the *thread* that made it ends, so children must be made by
a thread that lives as long as the process does. A forked process gets a launcher of its own.
"""

from __future__ import annotations

import os
import queue
import subprocess
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import IO

Stream = int | IO[bytes]
_Job = tuple["Future[subprocess.Popen[bytes]]", list[str], dict[str, object]]


class Launcher:
    """A daemon thread with a queue of processes to start."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="envgen-launcher", daemon=True).start()

    def _run(self) -> None:
        while True:
            future, argv, options = self.jobs.get()
            try:
                process = subprocess.Popen(argv, **options)  # type: ignore[call-overload]  # options are built below
            except (OSError, ValueError) as error:
                future.set_exception(error)
            else:
                future.set_result(process)
            del future, argv, options


_launcher: Launcher | None = None
_lock = threading.Lock()


def _forget() -> None:
    global _launcher, _lock
    _launcher, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forget)


def launch(
    argv: Sequence[str],
    *,
    env: dict[str, str],
    stdin: Stream = subprocess.DEVNULL,
    stdout: Stream = subprocess.DEVNULL,
    stderr: Stream = subprocess.DEVNULL,
    pass_fds: Sequence[int] = (),
    cwd: str = "/",
    new_session: bool = True,
) -> subprocess.Popen[bytes]:
    """Start a process from the launcher thread; its environment is ``env`` and nothing else."""
    global _launcher
    with _lock:
        if _launcher is None:
            _launcher = Launcher()
    future: Future[subprocess.Popen[bytes]] = Future()
    options: dict[str, object] = {
        "env": env,
        "stdin": stdin,
        "stdout": stdout,
        "stderr": stderr,
        "pass_fds": tuple(pass_fds),
        "cwd": cwd,
        "close_fds": True,
        "start_new_session": new_session,
    }
    _launcher.jobs.put((future, list(argv), options))
    return future.result()
