from __future__ import annotations

import os
from pathlib import Path

import pytest

from envgen.sandboxes import cgroups, runtime
from envgen.sandboxes.base import SandboxSpec, create

FOUR_HUNGRY = """
import os, time
for _ in range(4):
    if os.fork() == 0:
        hoard = bytearray(60 << 20)
        time.sleep(2)
        os._exit(0)
print([os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(4)])
"""


@pytest.fixture(autouse=True)
def _writable() -> None:
    if reason := cgroups.unavailable():
        pytest.skip(reason)


@pytest.mark.bwrap
def test_total_memory_is_limited_and_told() -> None:
    with create(SandboxSpec(memory_bytes=128 << 20), "bubblewrap") as sandbox:
        words = [runtime.python(), *runtime.python_flags(), "-c", FOUR_HUNGRY]
        result = sandbox.exec(words, timeout_s=30)
        assert "-9" in result.text
        assert result.oom
        assert not sandbox.exec(["true"]).oom


@pytest.mark.bwrap
def test_groups_go_with_their_sandbox() -> None:
    def mine() -> set[Path]:
        pattern = f"envgen-{os.getpid()}-*"
        return {folder for base in cgroups._bases() for folder in base.glob(pattern)}

    before = mine()
    with create(SandboxSpec(), "bubblewrap"):
        assert len(mine() - before) == len(cgroups._bases())
    assert mine() == before


def test_stale_groups_are_swept() -> None:
    base = cgroups._bases()[0]
    stale = base / "envgen-999999999-stale"
    stale.mkdir()
    cgroups._sweep(base)
    assert not stale.exists()


def test_a_group_that_cannot_be_made_is_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(cgroups, "_bases", lambda: (tmp_path / "missing",))
    assert cgroups.make(1 << 20, 8) is None
