"""Sandboxes: tool calls per second, the start of an episode, and what an idle one costs.

``python -m benchmarks.sandboxes``. Isolated calls are made with this process and the worker on
one core.
"""

from __future__ import annotations

import os
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from envgen.core.types import ToolSpec
from envgen.sandboxes import bubblewrap
from envgen.sandboxes.tools import ToolHost, WorkerToolHost, tool_host

SOURCE = """
class ToolError(Exception):
    pass

def get_item(db, *, id):
    row = db.execute("SELECT name, price FROM items WHERE id = ?", (id,)).fetchone()
    if row is None:
        raise ToolError("not_found", "no such item")
    return {"id": id, "name": row[0][:20], "price": row[1]}
"""
TOOL = ToolSpec(
    name="get_item",
    description="One item.",
    parameters={
        "type": "object",
        "properties": {"id": {"type": "integer", "minimum": 1}},
        "required": ["id"],
        "additionalProperties": False,
    },
)


class Figure(NamedTuple):
    """One measured figure beside its target."""

    name: str
    value: float
    unit: str
    target: float | None
    at_least: bool
    method: str

    @property
    def met(self) -> bool:
        """Whether the target is reached, if there is one."""
        if self.target is None:
            return True
        return self.value >= self.target if self.at_least else self.value <= self.target

    def __str__(self) -> str:
        target, verdict = "no target", ""
        if self.target is not None:
            sign = ">=" if self.at_least else "<="
            target = f"{sign} {self.target:,g} {self.unit}"
            verdict = "met" if self.met else "MISSED"
        value = f"{self.value:>12,.2f} {self.unit:<9}"
        return f"{self.name:<34} {value} {target:<22} {verdict:<7} {self.method}"


def make_database(folder: Path, megabytes: int = 5) -> Path:
    """A database of about that size."""
    path = folder / f"bench-{megabytes}.sqlite"
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE items (id INTEGER PRIMARY KEY, name TEXT, price INTEGER)")
    rows = ((f"item {number} " + "x" * 900, number) for number in range(1000 * megabytes))
    db.executemany("INSERT INTO items (name, price) VALUES (?, ?)", rows)
    db.commit()
    db.close()
    return path


@contextmanager
def one_core() -> Iterator[None]:
    """Keep this process, and what it starts, on one core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def calls_per_second(host: ToolHost, seconds: float = 2.0) -> float:
    """Calls of one session, with schema validation and a call log: the best 1,000 in a row."""
    import fastjsonschema

    from envgen.core.types import CallRecord

    validate = fastjsonschema.compile(TOOL.parameters)
    log: list[CallRecord] = []
    session = host.open()
    session.call("get_item", {"id": 1})
    best = 0.0
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline:
        log.clear()
        started = time.perf_counter()
        for number in range(1, 1001):
            arguments = {"id": number}
            validate(arguments)
            reply = session.call("get_item", arguments)  # type: ignore[arg-type]  # plain JSON
            log.append(
                CallRecord.model_construct(
                    name="get_item",
                    arguments=arguments,
                    result=reply.value,
                    error=reply.error,
                    mutates=False,
                )
            )
        best = max(best, 1000 / (time.perf_counter() - started))
    session.close()
    return best


def first_calls_ms(host: ToolHost, n: int = 200, database: Path | None = None) -> float:
    """Median of opening an episode and making its first call."""
    times = []
    for _ in range(n):
        started = time.perf_counter()
        session = host.open(database)
        session.call("get_item", {"id": 7})
        times.append(time.perf_counter() - started)
        session.close()
    return statistics.median(times) * 1e3


def first_start_ms(database: Path, n: int = 9) -> float:
    """Median of a whole new host: sandbox, interpreter, tools, database, episode, first call."""
    times = []
    for _ in range(n):
        started = time.perf_counter()
        host = tool_host(SOURCE, [TOOL], database, backend="bubblewrap")
        session = host.open()
        session.call("get_item", {"id": 7})
        times.append(time.perf_counter() - started)
        session.close()
        host.close()
    return statistics.median(times) * 1e3


def idle_megabytes(host: WorkerToolHost, n: int = 1000) -> float:
    """Private memory of an open episode after one call: the mean over ``n`` open at once."""
    sessions = [host.open() for _ in range(n)]
    for session in sessions:
        session.call("get_item", {"id": 7})
    assert host._zygote is not None
    sizes = [_private_kb(pid) for pid in _below(host._zygote.process.pid)]
    for session in sessions:
        session.close()
    workers = sorted(sizes)[-n:]
    return sum(workers) / len(workers) / 1024


def _below(root: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(fields[1]), []).append(int(name))
    found, queue = [], [root]
    while queue:
        children = parents.get(queue.pop(), [])
        found += children
        queue += children
    return found


def _private_kb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private"))


def measure() -> list[Figure]:
    """All figures; the isolated ones only where bubblewrap works."""
    figures = []
    with tempfile.TemporaryDirectory() as folder:
        small, large = make_database(Path(folder), 1), make_database(Path(folder), 5)
        host = tool_host(SOURCE, [TOOL], small, backend="inline", trusted=True)
        rate = calls_per_second(host)
        method = "validation, call, log; indexed query, in this process"
        figures.append(Figure("tool calls, inline", rate, "calls/s", 50_000, True, method))
        if reason := bubblewrap.unavailable():
            print(f"isolated figures not measured: {reason}")
            return figures
        with one_core():
            host = tool_host(SOURCE, [TOOL], small, backend="bubblewrap")
            rate = calls_per_second(host)
            host.close()
        method = "the same in bubblewrap; this process and the worker on one core"
        figures.append(Figure("tool calls, isolated", rate, "calls/s", 10_000, True, method))
        host = tool_host(SOURCE, [TOOL], large, backend="bubblewrap")
        method = "median of 200, 5 MB database, fork of a warm zygote"
        figures.append(Figure("reset + first call", first_calls_ms(host), "ms", 3, False, method))
        method = "the same, the episode loads its own 5 MB database"
        value = first_calls_ms(host, database=large)
        figures.append(Figure("reset + first call, variant", value, "ms", None, False, method))
        method = "median of 9, 5 MB database: sandbox, interpreter, tools, episode, first call"
        figures.append(Figure("first start", first_start_ms(large), "ms", 150, False, method))
        assert isinstance(host, WorkerToolHost)
        method = "mean private memory, 1,000 open at once, one call made in each"
        value = idle_megabytes(host)
        figures.append(Figure("idle episode", value, "MB", 3, False, method))
        host.close()
    return figures


def main() -> int:
    """Print every figure; 1 if a target is missed."""
    figures = measure()
    for figure in figures:
        print(figure)
    return 0 if all(figure.met for figure in figures) else 1


if __name__ == "__main__":
    raise SystemExit(main())
