"""Time limits that don't count waiting for the processor, so that a busy machine fails no work."""

from __future__ import annotations

import os

PATIENCE = 100.0
"""Seconds of waiting that are forgiven for each on the processor."""
_SHORTEST_S, _LONGEST_S = 0.05, 5.0


def more_s(limit_s: float, waited_s: float, used_s: float, wait_s: float = 0.0) -> float:
    """How many seconds longer to wait for work that may take ``limit_s``; 0 when its time is up.

    Its time is up ``limit_s`` after the start at the earliest. Work that has had less processor time than
    that goes on, since others were in its way, unless it hardly used the processor and only waits.

    Args:
        limit_s: how long it may take.
        waited_s: time since its start.
        used_s: processor time since then.
        wait_s: how long it may wait, where that is more than ``limit_s``.
    """
    if waited_s < limit_s:
        return limit_s - waited_s
    left_s = min(limit_s - used_s, max(limit_s, wait_s) + PATIENCE * used_s - waited_s)
    return min(max(left_s, _SHORTEST_S), _LONGEST_S) if left_s > 0 else 0.0


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
