"""Kernel doors that no network namespace shuts: vsock would reach the hypervisor; no filter sees io_uring."""

from __future__ import annotations

import errno
import platform

import pytest

from envgen.sandboxes import runtime
from envgen.sandboxes.base import SandboxSpec, create

PROBE = """
import ctypes, os, socket, threading
opened = []
for family in range(64):
    for make in (socket.socket, socket.socketpair):
        try: make(family, socket.SOCK_STREAM); opened.append(family)
        except OSError: pass
print(sorted(set(opened) - {1, 2, 10, 16}))
libc = ctypes.CDLL(None, use_errno=True)
def call(*words):
    ctypes.set_errno(0)
    return [libc.syscall(*map(ctypes.c_long, words)), ctypes.get_errno()]
print(call(425, 8, 0), call(UNSHARE, 0x1000_0000), call(CLONE, 0x1000_0011, 0, 0, 0, 0), call(435, 0, 0))
a, b = socket.socketpair(); a.send(b"x"); print(b.recv(1), socket.socket(), socket.AF_INET in opened)
made = threading.Thread(target=print, args=("thread",)); made.start(); made.join()
print("process", os.system("exit 3") >> 8)
"""
NUMBERS = {"x86_64": ("272", "56"), "aarch64": ("97", "220")}


@pytest.mark.parametrize(
    "backend",
    [
        pytest.param("bubblewrap", marks=pytest.mark.bwrap),
        pytest.param("docker", marks=pytest.mark.docker),
    ],
)
def test_only_known_families_and_no_hidden_calls(backend: str) -> None:
    unshare, clone = NUMBERS[platform.machine()]
    probe = PROBE.replace("UNSHARE", unshare).replace("CLONE", clone)
    with create(SandboxSpec(), backend) as sandbox:
        words = [runtime.python(), *runtime.python_flags(), "-c", probe]
        result = sandbox.exec(words, timeout_s=60)
    families, calls, *works = result.text.splitlines()
    assert families == "[]", result
    refused = [[-1, errno.EPERM]] * 3 + [[-1, errno.ENOSYS]]
    assert calls == " ".join(map(str, refused)), result
    assert works[0].startswith("b'x'")
    assert works[0].endswith("True")
    assert works[1:] == ["thread", "process 3"]
