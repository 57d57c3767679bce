from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tool_samples import SOURCE, TOOLS, make_database

from envgen.sandboxes.tools import WorkerToolHost, tool_host

PARENT = """
import sys, time
from pathlib import Path
from tool_samples import SOURCE, TOOLS
from envgen.sandboxes.tools import tool_host
from envgen.sandboxes.verifier import VerifierInput, verifier_host
database = Path(sys.argv[1])
host = tool_host(SOURCE, TOOLS, database, backend=sys.argv[2], trusted=True, timeout_s=60)
sessions = [host.open() for _ in range(3)]
for session in sessions:
    session.call("get", {"id": 1})
judge = verifier_host(backend=sys.argv[2], trusted=True)
judge.verify_many("def verify(a, b, c): return []", [VerifierInput(1, database, database)])
print(host._zygote.process.pid, judge._zygote.process.pid, flush=True)
sessions[0].call("run", {"code": "while True: pass"})
"""


@pytest.mark.slow
@pytest.mark.bwrap
def test_a_thousand_episodes_open_at_once(tmp_path: Path) -> None:
    database = make_database(tmp_path / "large.sqlite", padding=4800)
    host = tool_host(SOURCE, TOOLS, database, backend="bubblewrap", timeout_s=60)
    sessions = [host.open() for _ in range(1000)]
    for number, session in enumerate(sessions):
        session.call("rename", {"id": 1, "name": f"n{number}"})
    for number, session in enumerate(sessions):
        assert session.call("get", {"id": 1}).value == {"id": 1, "name": f"n{number}"}
    assert isinstance(host, WorkerToolHost)
    assert host._zygote is not None
    below = _below(host._zygote.process.pid)  # type: ignore[union-attr]  # a local process
    private = sorted(map(_private_kb, below))
    assert len(private) >= 1001
    assert private[len(private) // 2] < 3 * 1024
    for session in sessions:
        session.close()
    host.close()


def test_a_soft_limit_of_open_files_is_raised_when_it_is_reached(tmp_path: Path) -> None:
    database = make_database(tmp_path / "items.sqlite")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    host = tool_host(SOURCE, TOOLS, database, backend="process", trusted=True)
    try:
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 8, before[1])
        )
        sessions = [host.open() for _ in range(40)]
        assert all(session.call("get", {"id": 1}).error is None for session in sessions)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    for session in sessions:
        session.close()
    host.close()


@pytest.mark.parametrize(
    "backend", ["process", pytest.param("bubblewrap", marks=pytest.mark.bwrap)]
)
def test_sigkill_of_the_parent_leaves_nothing(backend: str, tmp_path: Path) -> None:
    database = make_database(tmp_path / "items.sqlite")
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-P", "-c", PARENT, str(database), backend]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=env) as parent:
        assert parent.stdout is not None
        roots = [int(word) for word in parent.stdout.readline().split()]
        family = [*roots, *(pid for root in roots for pid in _below(root))]
        parent.kill()
    assert len(roots) == 2
    assert len(family) >= 5
    deadline = time.monotonic() + 1.0
    while (alive := [pid for pid in family if _runs(pid)]) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not alive


FORK = """
import os, sys
from pathlib import Path
from tool_samples import SOURCE, TOOLS
from envgen.sandboxes.tools import tool_host
host = tool_host(SOURCE, TOOLS, Path(sys.argv[1]), backend=sys.argv[2], trusted=True)
session = host.open()
session.call("rename", {"id": 1, "name": "parent"})
child = os.fork()
if child == 0:
    own = host.open()
    own.call("rename", {"id": 1, "name": "child"})
    own.close()
    del own
    host.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print(session.call("get", {"id": 1}).value["name"], host.open().call("get", {"id": 1}).error)
"""


@pytest.mark.parametrize(
    "backend", ["process", pytest.param("bubblewrap", marks=pytest.mark.bwrap)]
)
def test_a_fork_of_the_host_process_gets_workers_of_its_own(backend: str, tmp_path: Path) -> None:
    database = make_database(tmp_path / "items.sqlite")
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-P", "-W", "ignore", "-c", FORK, str(database), backend]
    done = subprocess.run(command, capture_output=True, env=env, timeout=30, check=False)
    assert done.stdout == b"parent None\n", done.stderr.decode()


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


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
