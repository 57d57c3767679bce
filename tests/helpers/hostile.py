"""Datasets whose code means harm, for the whole command line to meet."""

from __future__ import annotations

from pathlib import Path

from tiny_dataset import TOOLS_SOURCE, tiny_environments, tiny_tasks

from envgen.store.dataset import Dataset
from envgen.store.writer import DatasetWriter

TOOLS = {
    "loops": "    while True: pass",
    "sleeps": "    import time; time.sleep(3600)",
    "prints": "    while True: print('x' * 1_000_000)",
    "writes to stdout's file": "    import os\n    while True: os.write(1, b'x' * 1_000_000)",
    "returns a lot": "    return ['x' * 1_000_000] * 1_000",
    "returns nothing JSON knows": "    return {1, 2}",
    "returns itself": "    a = []; a.append(a); return a",
    "exits": "    import os; os._exit(0)",
    "raises SystemExit": "    raise SystemExit(0)",
    "raises KeyboardInterrupt": "    raise KeyboardInterrupt",
    "raises what it can't": "    raise type('E', (BaseException,), {'__str__': lambda s: 1 / 0})",
    "crashes": "    import ctypes; ctypes.string_at(0)",
    "kills its parent": "    import os, signal\n    os.kill(os.getppid(), signal.SIGKILL); return []",
    "kills everybody": "    import os, signal\n    os.kill(-1, signal.SIGKILL); return []",
    "allocates": "    a = []\n    while True: a.append(bytearray(64 << 20))",
    "recurses": "    return list_hotels(db, city=city)",
    "fills the disk": "    f = open('/tmp/x', 'wb')\n    while True: f.write(b'x' * (1 << 20)); f.flush()",
    "opens files": "    import os; a = []\n    while True: a.append(os.open('/', os.O_RDONLY))",
    "bombs": "    import os\n    while True:\n        try: os.fork()\n        except OSError: pass",
    "drops tables": "    db.execute('DROP TABLE hotels'); return []",
}
"""What ``list_hotels`` does instead of listing hotels, by name."""

VERIFIERS = {
    "hangs": "    while True: pass",
    "sleeps": "    import time; time.sleep(3600)",
    "crashes": "    return [1 / 0]",
    "dies": "    import os; os._exit(0)",
    "raises SystemExit": "    raise SystemExit(0)",
    "prints": "    while True: print('x' * 1_000_000)",
    "returns None": "    return None",
    "returns True": "    return True",
    "returns a text": "    return 'fine'",
    "returns numbers": "    return [1]",
    "returns a generator": "    yield from ()",
    "returns a lying list": "    return type('L', (list,), {'__iter__': lambda s: iter(())})(['a', 1])",
    "allocates": "    a = []\n    while True: a.append(bytearray(64 << 20))",
    "bombs": "    import os\n    while True:\n        try: os.fork()\n        except OSError: pass",
}
"""What ``verify`` does instead of verifying, by name."""


def evil_tools(body: str) -> str:
    """The tiny dataset's tools with another ``list_hotels``."""
    head, _, rest = TOOLS_SOURCE.partition('    """The hotels of a city, by name."""')
    return head + body + "\n" + rest[rest.index("\n\n\ndef get_hotel") :]


def write_hostile(
    folder: Path, *, tools: str | None = None, verifier: str | None = None
) -> Dataset:
    """A foreign dataset: task ``tiny-cheapest`` meets the hostile code, ``tiny-count`` doesn't."""
    hotels, quiz = tiny_environments()
    if tools is not None:
        hotels = hotels.model_copy(update={"tools_source": evil_tools(tools)})
    with DatasetWriter(folder, name="hostile", seed=7) as writer:
        writer.add_environment(hotels)
        writer.add_environment(quiz)
        for task in tiny_tasks():
            if task.spec.id == "tiny-cheapest" and verifier is not None:
                source = f"def verify(answer, initial, final):\n{verifier}\n"
                task = task.model_copy(update={"verifier": source})
            if task.spec.id in ("tiny-cheapest", "tiny-count"):
                writer.add_task(task)
        writer.finish()
    return Dataset.open(folder)


def descendants(pid: int) -> set[int]:
    """All living processes below ``pid``."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            state, parent = stat.rpartition(")")[2].split()[:2]
            if state != "Z":
                parents[int(entry.name)] = int(parent)
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        one = waiting.pop()
        children = {child for child, parent in parents.items() if parent == one} - found
        found |= children
        waiting += children
    return found


def alive(pids: set[int]) -> set[int]:
    """Those of ``pids`` that still run."""
    living = set()
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state != "Z":
            living.add(pid)
    return living
