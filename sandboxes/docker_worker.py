"""A zygote in a container. Its control socket is a file that both sides see (a local engine only)."""

from __future__ import annotations

import contextlib
import socket
import sys
from pathlib import Path
from typing import Any

from envgen.core.errors import SandboxError, SandboxUnavailableError
from envgen.sandboxes import docker, runtime
from envgen.sandboxes.base import SandboxSpec

_FIRST = '"$@" </dev/null & while read -r _; do :; done'
"""The container ends with its input, whatever the zygote is doing then."""
START_S = 30.0


class DockerWorker:
    """The container of one zygote, seen as a process."""

    stderr = None

    def __init__(self, container: str, stdin: Any, control: socket.socket) -> None:
        self.container, self._stdin, self._control = container, stdin, control
        self._gone = False

    def poll(self) -> int | None:
        """None while the zygote has its end of the control socket open."""
        try:
            data = self._control.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None
        except OSError:
            return 1
        return None if data else 1

    def kill(self) -> None:
        """Kill and remove the container."""
        if not self._gone:
            self._gone = True
            with contextlib.suppress(SandboxError):
                docker.remove(self.container, self._stdin)

    def wait(self) -> int:
        """It was removed by ``kill``."""
        return 0


def start(
    seen: Path, scratch: Path | None, settings: dict[str, Any], hash_seed: int
) -> tuple[DockerWorker, socket.socket]:
    """Start a container with the zygote in it; ``seen`` gets the socket."""
    if sys.platform != "linux":
        raise SandboxUnavailableError(
            "workers in docker need Linux", "trusted code may run with backend='process'"
        )
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(seen / "socket"))
        (seen / "socket").chmod(0o666)
        listener.listen(1)
        listener.settimeout(START_S)
        binds = [
            f"{runtime.PROGRAMS}:{runtime.INSIDE}/programs:ro",
            f"{seen}:{runtime.INSIDE}/control:ro",
        ]
        if scratch is not None:
            binds.append(f"{scratch}:{runtime.INSIDE}/scratch:ro")
        spec = SandboxSpec(
            cpu=10**8,
            memory_bytes=settings["total_bytes"],
            pids=settings["pids"] + 16,
            disk_bytes=settings["disk_bytes"],
        )
        inner = [runtime.python(), *runtime.python_flags(), f"{runtime.INSIDE}/programs/zygote.py"]
        words = [docker.SH, "-c", _FIRST, "sh", *inner, f"{runtime.INSIDE}/control/socket"]
        docker.reap()
        user = runtime.sandbox_uid() or docker.NOBODY
        container, stdin = docker.make(spec, words, binds, user, runtime.clean_env(hash_seed))
        try:
            control, _ = listener.accept()
        except TimeoutError:
            docker.remove(container, stdin)
            raise SandboxError(f"docker: the worker did not start: {_log(container)}") from None
        except BaseException:
            docker.remove(container, stdin)
            raise
    return DockerWorker(container, stdin, control), control


def _log(container: str) -> str:
    with contextlib.suppress(SandboxError), docker.engine_errors("logs"):
        return str(docker.client().api.logs(container, tail=5).decode(errors="replace"))
    return "no message"
