"""A backend that declares every guarantee and breaks the one that ENVGEN_LIE names."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from envgen.core.errors import SandboxError
from envgen.sandboxes.base import WORK, ExecResult, Guarantee, SandboxSpec
from envgen.sandboxes.shell import ShellSandbox

DEATH_S = 1.0
GUARANTEES = frozenset(Guarantee)


def unavailable() -> str:
    return ""


def unsupported(spec: SandboxSpec) -> str:
    return ""


class Orphan:
    """A program that nobody will end."""

    def __init__(self, argv: Sequence[str]) -> None:
        self.process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout

    def wait(self, timeout_s: float | None = None) -> int:
        return self.process.wait(timeout_s)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.stdin.close()
        self.stdout.close()


class Liar(ShellSandbox):
    """A plain process behind big words."""

    lie = ""

    def exec(
        self,
        argv: Sequence[str],
        stdin: bytes = b"",
        timeout_s: float | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str = WORK,
    ) -> ExecResult:
        if self.lie == Guarantee.ENVIRONMENT:
            env = {**os.environ, **(env or {})}
        if self.lie == Guarantee.WALL_TIME and timeout_s is not None:
            timeout_s = max(60.0, timeout_s)
        return super().exec(argv, stdin, timeout_s, env, cwd)

    def spawn(
        self, argv: Sequence[str], env: Mapping[str, str] | None = None, cwd: str = WORK
    ) -> Any:
        if self.lie in (Guarantee.CLOSE, Guarantee.PARENT_DEATH) and argv[0] != "cat":
            return Orphan(argv)
        return super().spawn(argv, env, cwd)

    def read_file(self, path: str, max_bytes: int = 64 << 20) -> bytes:
        if self.lie == Guarantee.FILE_PATHS:
            try:
                return (Path(self._work) / path).read_bytes()
            except (OSError, ValueError) as error:
                raise SandboxError(str(error)) from error
        return super().read_file(path, max_bytes)


def start(spec: SandboxSpec) -> Liar:
    lie = os.environ["ENVGEN_LIE"]
    changes: dict[str, dict[str, int]] = {
        Guarantee.MEMORY: {"memory_bytes": 8 << 30},
        Guarantee.CPU_TIME: {"cpu": 1000},
        Guarantee.OUTPUT: {"output_bytes": 1 << 30},
    }
    sandbox = Liar(spec.model_copy(update=changes.get(lie, {})), "process")
    sandbox.lie = lie
    return sandbox


assert sys.platform == "linux"
