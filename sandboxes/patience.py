"""Time limits that don't count waiting for the processor, so that a busy machine fails no work."""

from __future__ import annotations

import os

PATIENCE = 100.0
"""Seconds of waiting that are forgiven for each on the processor, while others want it, too."""
_SHORTEST_S, _LONGEST_S = 0.05, 5.0
_LAG_S = 4.0
"""The kernel counts stalls every two seconds only."""


class Patience:
    """How much longer one piece of work may take, asked again and again once its time is up.

    Its time is up ``limit_s`` after the start at the earliest. Work that has had less processor time than
    that goes on, since others were in its way: as long as some process of this machine had to wait for a
    processor, and not if it hardly used one and only waits. What was before the first question is not
    known and counts as such, once.

    Args:
        limit_s: how long it may take.
        wait_s: how long it may wait, where that is more than ``limit_s``.
    """

    def __init__(self, limit_s: float, wait_s: float = 0.0) -> None:
        self._limit_s, self._wait_s = limit_s, max(limit_s, wait_s)
        self._before_s: float | None = None

    def more_s(self, waited_s: float, used_s: float) -> float:
        """How many seconds longer to wait; 0 when its time is up.

        Args:
            waited_s: time since its start.
            used_s: processor time since then.
        """
        if waited_s < self._limit_s:
            return self._limit_s - waited_s
        now_s = stalled_s()
        if self._before_s is None:
            self._before_s = now_s
        most_s = PATIENCE * used_s
        if now_s is not None and self._before_s is not None:
            most_s = min(most_s, self._limit_s + now_s - self._before_s + _LAG_S)
        left_s = min(self._limit_s - used_s, self._wait_s + most_s - waited_s)
        return min(max(left_s, _SHORTEST_S), _LONGEST_S) if left_s > 0 else 0.0


def stalled_s() -> float | None:
    """Seconds in which some process of this machine waited for a processor; None where nobody counts them.

    Linux's pressure stall information: https://docs.kernel.org/accounting/psi.html.
    """
    try:
        with open("/proc/pressure/cpu", "rb") as handle:
            return int(handle.readline().rpartition(b"total=")[2]) / 1e6
    except (OSError, ValueError):
        return None


def tree_cpu_s(root: int) -> float:
    """Processor seconds of a process and its descendants, including those that have ended."""
    parents: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else []:
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as handle:
                fields = handle.read().rpartition(b")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(fields[1]), []).append(int(name))
        ticks[int(name)] = sum(map(int, fields[11:15]))
    total, queue = 0, [root]
    while queue:
        pid = queue.pop()
        total += ticks.get(pid, 0)
        queue += parents.get(pid, [])
    return total / os.sysconf("SC_CLK_TCK")
