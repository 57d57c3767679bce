"""Limits of time that do not count waiting for a turn: a machine that is busy spoils nobody's work."""

from __future__ import annotations

import os

PATIENCE = 100.0
"""Seconds of waiting that are forgiven for each on the processor."""
_SHORTEST_S, _LONGEST_S = 0.05, 5.0


def more_s(limit_s: float, waited_s: float, used_s: float, wait_s: float = 0.0) -> float:
    """How long to wait on for what may take ``limit_s`` seconds; 0 when its time is up.

    It is up ``limit_s`` after the start at the earliest. What took less than that on the processor goes on,
    since others were in its way, unless it hardly wanted the processor: then it only waits.

    Args:
        limit_s: that it may take.
        waited_s: since its start.
        used_s: on the processor, since then.
        wait_s: that it may wait, where that is more than ``limit_s``.
    """
    if waited_s < limit_s:
        return limit_s - waited_s
    left_s = min(limit_s - used_s, max(limit_s, wait_s) + PATIENCE * used_s - waited_s)
    return min(max(left_s, _SHORTEST_S), _LONGEST_S) if left_s > 0 else 0.0


def tree_cpu_s(root: int) -> float:
    """Seconds that a process and all below it, those that have ended included, took on the processor."""
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
