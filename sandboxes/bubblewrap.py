"""The bubblewrap backend: Linux namespaces without a daemon (the default on Linux)."""

from __future__ import annotations

import os

from envgen.sandboxes.base import Guarantee, Sandbox, SandboxSpec
from envgen.sandboxes.bwrap import unavailable as unavailable
from envgen.sandboxes.shell import ShellSandbox

DEATH_S = 1.0
"""Within this many seconds of its parent's death a sandbox is gone."""
GUARANTEES = frozenset(Guarantee)


def unsupported(spec: SandboxSpec) -> str:
    """List the parts of ``spec`` that this backend can't provide."""
    if spec.image is not None:
        return "takes a root folder, not an image"
    if spec.user is not None and os.geteuid() != 0 and spec.user != 65534:
        return "only root can choose the uid"
    return ""


def start(spec: SandboxSpec) -> Sandbox:
    """Start a sandbox. Use ``envgen.sandboxes.base.create``, which checks the spec first."""
    return ShellSandbox(spec, "bubblewrap")
