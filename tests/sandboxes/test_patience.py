"""A busy machine fails no work; who only waits gets no more than his time."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from envgen.sandboxes import patience as module
from envgen.sandboxes import runtime
from envgen.sandboxes.base import SandboxSpec, create
from envgen.sandboxes.patience import Patience, stalled_s

SLEEPER = "import time\nwhile True:\n    time.sleep(0.002)\n    sum(range(500))\n"


def waited(
    monkeypatch: pytest.MonkeyPatch, used: float, stalled: float | None, limit_s: float = 10.0
) -> float:
    """How long work lasts that takes a share of a processor while others wait for one."""
    clock = 0.0
    monkeypatch.setattr(
        module, "stalled_s", lambda: None if stalled is None else 1e6 + stalled * clock
    )
    patience, more = Patience(limit_s), limit_s
    while more and clock < 1e5:
        clock += more
        more = patience.more_s(clock, used * clock)
    return clock


def test_others_in_the_way_are_forgiven(monkeypatch: pytest.MonkeyPatch) -> None:
    assert waited(monkeypatch, used=0.05, stalled=1.0) == pytest.approx(200, abs=6)
    assert waited(monkeypatch, used=0.05, stalled=None) == pytest.approx(200, abs=6)


def test_who_only_waits_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    assert waited(monkeypatch, used=0.05, stalled=0.0) < 30
    assert waited(monkeypatch, used=0.0, stalled=1.0) < 11
    assert waited(monkeypatch, used=0.0, stalled=None) < 11


def test_who_had_the_processor_has_had_his_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert waited(monkeypatch, used=1.0, stalled=1.0) == 10
    assert waited(monkeypatch, used=0.5, stalled=1.0) == pytest.approx(20, abs=6)


@pytest.mark.skipif(stalled_s() is None, reason="this kernel counts no stalls")
def test_the_kernel_counts_what_waits_for_a_processor() -> None:
    before = stalled_s()
    busy = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in range(1 + (os.cpu_count() or 1))
    ]
    time.sleep(3)
    for one in busy:
        one.kill()
        one.wait()
    after = stalled_s()
    assert before is not None
    assert after is not None
    assert 0.5 < after - before < 6  # the kernel sums up every other second


@pytest.mark.bwrap
def test_a_sleeper_in_a_sandbox_buys_little() -> None:
    """Some percent of a processor bought 100 times the time."""
    with create(SandboxSpec(), "bubblewrap") as sandbox:
        before, began = stalled_s(), time.monotonic()
        result = sandbox.exec([runtime.python(), "-c", SLEEPER], timeout_s=1.0)
        lasted = time.monotonic() - began
    others = 1e9 if before is None else (stalled_s() or 0) - before
    assert result.timed_out
    assert lasted < 1 + 1 + 4 + others + 7
