from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hostile import descendants
from tool_samples import SOURCE, TOOLS, make_database, spec

from envgen.core.errors import (
    EnvError,
    SandboxError,
    SandboxUnavailableError,
    ToolsDiedError,
)
from envgen.sandboxes.tools import ToolHost, ToolReply, ToolSession, WorkerToolHost, tool_host

ISOLATED = pytest.param("bubblewrap", marks=pytest.mark.bwrap)
LOCAL = ["process", ISOLATED]
WORKERS = [*LOCAL, pytest.param("docker", marks=pytest.mark.docker)]
ALL = ["inline", *WORKERS]
HERE = ["inline", *LOCAL]
"""For what this process or the worker's program decides, which are the same beside a container."""


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_database(tmp_path_factory.mktemp("tools") / "items.sqlite")


@pytest.fixture(scope="module")
def hosts(database: Path) -> Iterator[dict[str, ToolHost]]:
    started: dict[str, ToolHost] = {}
    yield started
    for host in started.values():
        host.close()


@pytest.fixture
def host(request: pytest.FixtureRequest, hosts: dict[str, ToolHost], database: Path) -> ToolHost:
    backend = request.param
    if backend not in hosts:
        hosts[backend] = tool_host(
            SOURCE, TOOLS, database, backend=backend, trusted=True, timeout_s=1.0
        )
    return hosts[backend]


@pytest.fixture
def session(host: ToolHost) -> Iterator[ToolSession]:
    opened = host.open()
    yield opened
    opened.close()


def over(backends: Sequence[object]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("host", backends, indirect=True)


@over(ALL)
def test_calls_answer_values_and_documented_errors(session: ToolSession) -> None:
    assert session.call("get", {"id": 1}) == ToolReply({"id": 1, "name": "ada"}, None, "")
    assert session.call("get", {"id": 9}) == ToolReply(None, "not_found", "no item 9")
    assert not session.changed


@over(ALL)
def test_a_mutating_call_changes_this_session_only(
    host: ToolHost, session: ToolSession, tmp_path: Path
) -> None:
    assert session.call("rename", {"id": 1, "name": "eve"}).value is True
    assert session.changed
    assert session.call("get", {"id": 1}).value == {"id": 1, "name": "eve"}
    other = host.open()
    assert other.call("get", {"id": 1}).value == {"id": 1, "name": "ada"}
    session.snapshot(tmp_path / "after.sqlite")
    other.snapshot(tmp_path / "before.sqlite")
    other.close()
    assert _names(tmp_path / "after.sqlite") == ["eve", "bob"]
    assert _names(tmp_path / "before.sqlite") == ["ada", "bob"]


def _names(path: Path) -> list[str]:
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    names = [name for (name,) in db.execute("SELECT name FROM items ORDER BY id")]
    db.close()
    return names


@over(ALL)
def test_a_documented_error_rolls_the_call_back(session: ToolSession) -> None:
    reply = session.call("rename", {"id": 1, "name": "taken"})
    assert reply == ToolReply(None, "taken", "that name is taken")
    assert not session.changed
    assert session.call("get", {"id": 1}).value == {"id": 1, "name": "ada"}


@over(HERE)
@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        ("rename", {"id": 1, "name": "boom"}, "boom"),
        ("rename", {"id": 1}, "TypeError"),
        ("sly", {}, "not declared to mutate"),
        ("nothing", {}, "unknown tool"),
        ("run", {"code": "raise SystemExit(0)"}, "SystemExit"),
        ("run", {"code": "def f(): f()\nf()"}, "RecursionError"),
        ("run", {"code": "result = float('nan')"}, "JSON"),
        ("run", {"code": "result = object()"}, "JSON"),
        ("run", {"code": "result = []\nresult.append(result)"}, "JSON"),
        (
            "run",
            {"code": "class E(Exception):\n def __str__(s): raise ValueError\nraise E"},
            "no text",
        ),
    ],
)
def test_any_other_failure_is_the_environments(
    session: ToolSession, name: str, arguments: dict[str, object], text: str
) -> None:
    with pytest.raises(EnvError, match=text):
        session.call(name, arguments)  # type: ignore[arg-type]  # plain literals
    if name != "nothing":
        with pytest.raises(EnvError, match="closed"):
            session.call("get", {"id": 1})


TRANSACTIONS = [
    "db.commit()",
    "db.rollback()",
    "db.executescript('SELECT 1')",
    "db.close()",
    "with db: pass",
    "db.execute('BEGIN')",
    "db.execute('COMMIT')",
    "db.execute('ROLLBACK')",
    "db.execute('SAVEPOINT mine')",
    "db.execute('RELEASE mine')",
    "db.cursor().execute('BEGIN IMMEDIATE')",
    "db.cursor().executescript('COMMIT')",
    "db.execute('PRAGMA user_version = 3')",
    "db.execute('ATTACH DATABASE \":memory:\" AS other')",
    "db.execute('CREATE TABLE mine (x)')",
    "db.execute('DROP TABLE items')",
    "db.isolation_level = 'DEFERRED'",
    "db.set_authorizer(None)",
    "db.deserialize(b'')",
]


@over(["inline", ISOLATED])
@pytest.mark.parametrize("tool", ["run", "run_mutating"])
@pytest.mark.parametrize("code", TRANSACTIONS)
def test_transactions_belong_to_the_host(session: ToolSession, tool: str, code: str) -> None:
    with pytest.raises(EnvError):
        session.call(tool, {"code": code})


@over(WORKERS)
@pytest.mark.parametrize(
    "code",
    [
        "while True: pass",
        "import time\ntime.sleep(60)",
        "import os\nos._exit(0)",
        "import os\nos.kill(os.getpid(), 11)",
        "result = 'x' * (40 << 20)",
        "x = bytearray(4 << 30)",
        "for _ in range(10_240): print('x' * (1 << 20))",
        "import os\nos.write(os.open('/proc/self/fd/0', 1), b'junk')\nwhile True: pass",
    ],
)
def test_a_hostile_call_ends_in_bounded_time(
    host: ToolHost, session: ToolSession, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "sleep" in code:  # who only waits is cut off after that many times the limit
        monkeypatch.setattr("envgen.sandboxes.channel.WAITS", 1.5)
    started = time.monotonic()
    with pytest.raises(EnvError):
        session.call("run", {"code": code})
    assert time.monotonic() - started < 60  # 1 s on the processor, which others want, too
    fresh = host.open()
    assert fresh.call("get", {"id": 1}).error is None
    fresh.close()


@pytest.mark.bwrap
@over([ISOLATED])
@pytest.mark.parametrize(
    "code",
    [
        "import os\nos.fork()",
        "import threading\nthreading.Thread(target=print).start()",
        "import subprocess\nsubprocess.run(['true'])",
        "import socket\nsocket.create_connection(('127.0.0.1', 80), 1)",
        "open('/etc/passwd')",
        "import os\nos.listdir('/work')",
        "import os\nos.listdir('/home')",
        "open('/usr/probe', 'w')",
        "open('/probe', 'w')",
        "for n in range(64): open(f'/tmp/{n}', 'wb').write(b'x' * (8 << 20))",
        "import os\nos.setuid(0)",
        "import os\nos.kill(1, 9)\nraise SystemExit",
    ],
)
def test_a_tool_cannot_leave_its_sandbox(session: ToolSession, code: str) -> None:
    with pytest.raises(EnvError):
        session.call("run", {"code": code})


@pytest.mark.bwrap
@over([ISOLATED])
def test_a_tool_sees_no_environment_variable_and_runs_as_nobody(
    session: ToolSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENVGEN_PROBE", "seen")
    seen = session.call(
        "run", {"code": "import os\nresult = [dict(os.environ), os.getuid()]"}
    ).value
    assert isinstance(seen, list)
    assert seen[1] != 0
    assert "ENVGEN_PROBE" not in seen[0]  # type: ignore[operator]  # a dict


@over(WORKERS)
def test_prints_do_not_reach_the_protocol(session: ToolSession) -> None:
    code = "import os, sys\nprint('hello')\nsys.stderr.write('x')\nos.write(1, b'raw')\nresult = 7"
    assert session.call("run", {"code": code}).value == 7
    assert session.call("get", {"id": 2}).value == {"id": 2, "name": "bob"}


@over(ALL)
def test_a_session_may_run_on_another_database(host: ToolHost, tmp_path: Path) -> None:
    session = host.open(make_database(tmp_path / "variant.sqlite", ("zoe",)))
    assert session.call("get", {"id": 1}).value == {"id": 1, "name": "zoe"}
    session.snapshot(tmp_path / "copy.sqlite")
    assert _names(tmp_path / "copy.sqlite") == ["zoe"]
    session.close()


@over(HERE)
def test_a_snapshot_that_cannot_be_written(session: ToolSession, tmp_path: Path) -> None:
    session.call("rename", {"id": 1, "name": "eve"})
    with pytest.raises(SandboxError, match="can't write"):
        session.snapshot(tmp_path / "missing" / "file.sqlite")


@over(HERE)
def test_a_database_that_is_none_is_the_environments_fault(host: ToolHost, tmp_path: Path) -> None:
    (tmp_path / "junk.sqlite").write_bytes(b"junk" * 1000)
    for path in (tmp_path / "junk.sqlite", tmp_path / "missing.sqlite"):
        with pytest.raises(EnvError):
            host.open(path).call("get", {"id": 1})


@pytest.mark.parametrize("backend", HERE)
@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("def get(db", "SyntaxError"),
        ("raise SystemExit(3)", "SystemExit"),
        ("import nothing_there", "nothing_there"),
        ("x = 1", "is missing get"),
    ],
)
def test_tools_that_do_not_load(backend: str, source: str, text: str, database: Path) -> None:
    with pytest.raises(EnvError, match=text):
        tool_host(source, [spec("get", "id")], database, backend=backend, trusted=True)  # type: ignore[arg-type]  # a name from the list


@pytest.mark.parametrize("backend", ["process", "inline"])
def test_untrusted_tools_need_isolation(backend: str, database: Path) -> None:
    with pytest.raises(SandboxUnavailableError, match="isolates nothing"):
        tool_host(SOURCE, TOOLS, database, backend=backend)  # type: ignore[arg-type]  # a name from the list


def test_auto_without_isolation(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("envgen.sandboxes.bwrap.unavailable", lambda: "it is gone")
    with pytest.raises(SandboxUnavailableError, match="it is gone"):
        tool_host(SOURCE, TOOLS, database)
    host = tool_host(SOURCE, TOOLS, database, trusted=True)
    assert not host.isolated
    host.close()


@over(WORKERS)
def test_a_lost_zygote_is_started_again(host: WorkerToolHost) -> None:
    lost = host.open()
    assert lost.call("get", {"id": 1}).error is None
    assert host._zygote is not None
    host._zygote.process.kill()
    with pytest.raises(EnvError):
        _call_for(5.0, lost)
    fresh = host.open()
    assert fresh.call("get", {"id": 1}).error is None
    fresh.close()


def _call_for(seconds: float, session: ToolSession) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        session.call("get", {"id": 1})
        time.sleep(0.01)


@over(WORKERS)
def test_sessions_in_threads(host: ToolHost) -> None:
    failures: list[object] = []

    def episode(number: int) -> None:
        session = host.open()
        session.call("rename", {"id": 1, "name": f"n{number}"})
        for _ in range(20):
            if session.call("get", {"id": 1}).value != {"id": 1, "name": f"n{number}"}:
                failures.append(number)
        session.close()

    threads = [threading.Thread(target=episode, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@over(LOCAL)
def test_an_interrupted_call_closes_the_session(session: ToolSession) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(KeyboardInterrupt):
            session.call("run", {"code": "import time\ntime.sleep(0.8)"})
    finally:
        signal.signal(signal.SIGALRM, before)
    with pytest.raises(EnvError, match="closed"):
        session.call("get", {"id": 1})


@pytest.mark.parametrize("backend", LOCAL)
def test_nothing_runs_after_close(backend: str, database: Path) -> None:
    host = tool_host(SOURCE, TOOLS, database, backend=backend, trusted=True)  # type: ignore[arg-type]  # a name from the list
    sessions = [host.open() for _ in range(5)]
    for session in sessions:
        session.call("get", {"id": 1})
    assert isinstance(host, WorkerToolHost)
    assert host._zygote is not None
    assert isinstance(host._zygote.process, subprocess.Popen)
    group = host._zygote.process.pid
    host.close()
    for session in sessions:
        with pytest.raises(EnvError, match="closed"):
            session.call("get", {"id": 1})
    deadline = time.monotonic() + 1
    while _group(group) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not _group(group)
    with pytest.raises(EnvError, match="closed"):
        host.open()


def _group(session: int) -> list[str]:
    """Processes of a session id."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(name)
    return found


def test_a_write_ahead_log_header_opens(tmp_path: Path) -> None:
    path = make_database(tmp_path / "wal.sqlite")
    db = sqlite3.connect(path)
    db.execute("PRAGMA journal_mode = WAL")
    db.close()
    session = tool_host(SOURCE, TOOLS, path, backend="inline", trusted=True).open()
    assert session.call("get", {"id": 1}).error is None
    session.close()


@pytest.mark.parametrize("backend", LOCAL)
def test_an_episode_may_have_a_sandbox_of_its_own(backend: str, database: Path) -> None:
    host = WorkerToolHost(SOURCE, TOOLS, database, backend=backend, timeout_s=5.0, alone=True)
    sessions = [host.open(), host.open()]
    others = [
        session.call("run", {"code": "import os\nresult = os.getppid(), os.getuid()"}).value
        for session in sessions
    ]
    if backend == "bubblewrap":
        assert others[0] != others[1] or os.geteuid() != 0
    for session in sessions:
        session.close()
        assert session._zygote.closed
    host.close()
    with pytest.raises(EnvError, match="closed"):
        host.open()


ATTACKS = {
    "stops the zygote": "import os, signal\nos.kill(os.getppid(), signal.SIGSTOP)",
    "stops everybody": "import os, signal\nos.kill(-1, signal.SIGSTOP)",
    "stops its thread": "import os, signal\nsignal.pidfd_send_signal(os.pidfd_open(os.getppid()), 19)",
    "lowers its limits": "import os, resource\nresource.prlimit(os.getppid(), resource.RLIMIT_CPU, (0, 0))",
    "has it signalled": "import fcntl, os\nfcntl.fcntl(0, 8, os.getppid())",
    "takes it off the processor": "import os\nos.sched_setaffinity(os.getppid(), {0})",
    "reads it": "import os\nopen(f'/proc/{os.getppid()}/mem', 'r+b')",
    "lists its files": "import os\nos.listdir(f'/proc/{os.getppid()}/fd')",
    "hoards what no limit counts": "import os\nos.memfd_create('x')",
}
"""What a worker tries on the zygote that all episodes, and all verdicts of a dataset, come from."""


@over(WORKERS)
@pytest.mark.parametrize("name", ATTACKS)
def test_a_worker_reaches_no_process_but_its_own(host: ToolHost, name: str) -> None:
    if isinstance(host, WorkerToolHost) and host.backend == "process" and "/proc" in ATTACKS[name]:
        pytest.skip("root sees every process, and this backend isolates nothing")
    attacker = host.open()
    with pytest.raises(EnvError, match="Error"):
        attacker.call("run", {"code": ATTACKS[name]})
    attacker.close()
    other = host.open()
    assert other.call("get", {"id": 1}).value == {"id": 1, "name": "ada"}
    other.close()


@over(LOCAL)
def test_a_zygote_that_makes_no_more_workers_is_started_again(
    host: WorkerToolHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("envgen.sandboxes.channel.GREETING_S", 0.5)
    first = host._alive()
    for pid in {first.pid, *descendants(first.pid)}:
        os.kill(pid, signal.SIGSTOP)
    stuck = host.open()
    with pytest.raises(ToolsDiedError, match="no worker came up"):
        stuck.call("get", {"id": 1})
    stuck.close()
    fresh = host.open()
    assert fresh.call("get", {"id": 1}).error is None
    assert host._zygote is not first
    fresh.close()
