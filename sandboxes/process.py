"""The process backend: a plain process with limits. It isolates nothing and is for trusted code."""

from __future__ import annotations

import sys

from envgen.sandboxes.base import Guarantee, Sandbox, SandboxSpec
from envgen.sandboxes.shell import ShellSandbox

DEATH_S = 1.0
"""Within this many seconds of its parent's death a sandbox is gone."""
GUARANTEES = frozenset(
    {
        Guarantee.CPU_TIME,
        Guarantee.WALL_TIME,
        Guarantee.OUTPUT,
        Guarantee.ENVIRONMENT,
        Guarantee.FILE_PATHS,
        Guarantee.CLOSE,
        Guarantee.PARENT_DEATH,
    }
    if sys.platform == "linux"
    else {Guarantee.CPU_TIME, Guarantee.OUTPUT, Guarantee.ENVIRONMENT, Guarantee.FILE_PATHS}
)


def unavailable() -> str:
    """Never a reason: every POSIX system has processes."""
    return ""


def unsupported(spec: SandboxSpec) -> str:
    """List the parts of ``spec`` that this backend can't provide."""
    if spec.image is not None or spec.root is not None:
        return "runs on this machine's files, not in an image or another root"
    if spec.mounts:
        return "can't mount"
    return ""


def start(spec: SandboxSpec) -> Sandbox:
    """Start a sandbox. Use ``envgen.sandboxes.base.create``, which checks the spec first."""
    return ShellSandbox(spec, "process")
