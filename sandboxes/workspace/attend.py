"""Run a command of a build while watching what it does to the disk."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from envgen.core.code_types import REPOSITORY
from envgen.core.errors import SandboxTimeoutError
from envgen.sandboxes.base import ExecResult, Process
from envgen.sandboxes.workspace.parts import OWN, Box

LOOK_S = 1.0
"""How often the disk is looked at."""
_SAID = "/tmp/.said"  # /work may be full
_KEEP = 64 << 10
_GRACE_S = 30.0


def attend(
    box: Box,
    command: str,
    timeout_s: float,
    problem: Callable[[], str],
    variables: Mapping[str, str] | None = None,
) -> tuple[ExecResult, str]:
    """Run ``command`` to its end, its timeout or the first ``problem``, which is returned too.

    The result's stdout is the end of what the command said on both streams. ``variables`` are the
    box's unless they are given.
    """
    words = ["bash", "-c", f"exec > {_SAID} 2>&1 < /dev/null; {command}"]
    began = time.monotonic()
    process = box.sandbox.spawn(words, variables or box.variables, REPOSITORY)
    try:
        code, reason = _wait(process, began + timeout_s, problem)
    finally:
        process.kill()
    wall_s = time.monotonic() - began
    last = ["tail", "-c", str(_KEEP), _SAID]
    output = box.sandbox.exec(last, timeout_s=_GRACE_S, env=OWN).stdout
    timed_out = code is None and not reason
    code = -9 if code is None else code
    return ExecResult(exit_code=code, stdout=output, wall_s=wall_s, timed_out=timed_out), reason


def _wait(process: Process, deadline: float, problem: Callable[[], str]) -> tuple[int | None, str]:
    while True:
        left = deadline - time.monotonic()
        try:
            code = process.wait(max(0.01, min(LOOK_S, left)))
        except SandboxTimeoutError:
            if reason := problem():
                return None, reason
            if left <= 0:
                return None, ""
        else:
            return code, problem()
