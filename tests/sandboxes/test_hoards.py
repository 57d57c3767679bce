"""Memory that no process owns: a program that hoards it is ended, and its sandbox goes on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from envgen.sandboxes import cgroups, runtime
from envgen.sandboxes.base import Sandbox, SandboxSpec, create

MEMFDS = """
import os, time
held = [os.memfd_create(str(i)) for i in range(40)]
for file in held:
    for _ in range(15):
        os.write(file, bytes(4 << 20))
"""
FILES = "cat /dev/zero > /work/full; cat /dev/zero > /tmp/full; cat /dev/zero > /dev/shm/full; true"


@pytest.fixture(
    params=[
        pytest.param("bubblewrap", marks=pytest.mark.bwrap),
        pytest.param("docker", marks=pytest.mark.docker),
    ]
)
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    if request.param == "bubblewrap" and (reason := cgroups.unavailable()):
        pytest.skip(reason)
    spec = SandboxSpec(memory_bytes=96 << 20, disk_bytes=96 << 20, cpu=20)
    with create(spec, request.param) as created:
        yield created


@pytest.mark.parametrize("hoard", [MEMFDS, FILES], ids=["memfd", "files"])
def test_a_hoard_ends_its_program_and_not_the_sandbox(sandbox: Sandbox, hoard: str) -> None:
    words: list[Any] = ["sh", "-c", FILES]
    if hoard is MEMFDS:
        words = [runtime.python(), *runtime.python_flags(), "-c", MEMFDS]
    sandbox.exec(words, timeout_s=60)
    freed = sandbox.exec(["sh", "-c", "rm -f /work/full /tmp/full /dev/shm/full"], timeout_s=30)
    # full memory may leave no room for rm, nor for what starts it: the agent's own loss
    assert freed.exit_code in (0, -9, 126)
    if freed.exit_code == 0:
        assert sandbox.exec(["echo", "alive"], timeout_s=30).text == "alive\n"
