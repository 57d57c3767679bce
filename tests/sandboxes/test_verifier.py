from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import JsonValue
from tool_samples import make_database

from envgen.core.errors import SandboxError, SandboxUnavailableError
from envgen.sandboxes.verifier import (
    AHEAD,
    Judged,
    VerifierHost,
    VerifierInput,
    VerifierReply,
    WorkerVerifierHost,
    verifier_host,
)

WORKERS = [
    "process",
    pytest.param("bubblewrap", marks=pytest.mark.bwrap),
    pytest.param("docker", marks=pytest.mark.docker),
]
over_local = pytest.mark.parametrize("host", ["inline", *WORKERS[:2]], indirect=True)
over_local_workers = pytest.mark.parametrize("worker", WORKERS[:2], indirect=True)
"""For what this process or the worker's program decides, which are the same beside a container."""
COUNT = """
import sqlite3

def names(path):
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    return [name for (name,) in db.execute("SELECT name FROM items ORDER BY id")]

def verify(answer, initial, final):
    broken = []
    if names(initial) != answer["initial"]:
        broken.append("initial")
    if names(final) != answer["final"]:
        broken.append("final")
    return broken
"""
RUN = """
def verify(answer, initial, final):
    space = {"initial": initial, "final": final}
    exec(answer, space)
    return space["result"]
"""


@pytest.fixture(scope="module", params=["inline", *WORKERS])
def host(request: pytest.FixtureRequest) -> Iterator[VerifierHost]:
    started = verifier_host(backend=request.param, trusted=True)
    yield started
    started.close()


@pytest.fixture(scope="module", params=WORKERS)
def worker(request: pytest.FixtureRequest) -> Iterator[VerifierHost]:
    """A host that survives what a verifier does to its process."""
    started = verifier_host(backend=request.param, trusted=True)
    yield started
    started.close()


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return make_database(tmp_path / "initial.sqlite")


def judge(host: VerifierHost, source: str, database: Path, *answers: object) -> list[VerifierReply]:
    inputs = [VerifierInput(answer, database, database) for answer in answers]  # type: ignore[arg-type]  # JSON literals
    return host.verify_many(source, inputs, timeout_s=1.0)


def test_verdicts_on_two_databases(host: VerifierHost, database: Path, tmp_path: Path) -> None:
    final = make_database(tmp_path / "final.sqlite", ("zoe",))
    answers = [
        {"initial": ["ada", "bob"], "final": ["zoe"]},
        {"initial": ["ada"], "final": ["zoe"]},
        {"initial": [], "final": []},
    ]
    replies = host.verify_many(COUNT, [VerifierInput(a, database, final) for a in answers])  # type: ignore[arg-type]  # JSON literals
    assert [reply.broken for reply in replies] == [(), ("initial",), ("initial", "final")]
    assert host.verify_many(COUNT, []) == []


def test_a_database_that_changed_is_read_again(host: VerifierHost, database: Path) -> None:
    answer = {"initial": ["ada", "bob"], "final": ["ada", "bob"]}
    assert judge(host, COUNT, database, answer)[0].broken == ()
    make_database(database, ("new",))
    assert judge(host, COUNT, database, answer)[0].broken == ("initial", "final")


@over_local
@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("raise ValueError('why')", "ValueError: why"),
        ("raise SystemExit(0)", "SystemExit"),
        ("result = None", "list of str"),
        ("result = True", "list of str"),
        ("result = ('a',)", "list of str"),
        ("result = [1]", "list of str"),
        ("def f(): f()\nf()", "RecursionError"),
    ],
)
def test_a_broken_verifier_is_a_fault_and_never_a_verdict(
    host: VerifierHost, database: Path, code: str, text: str
) -> None:
    (reply,) = judge(host, RUN, database, code)
    assert reply.broken is None
    assert reply.fault is not None
    assert text in reply.fault


@pytest.mark.bwrap
def test_the_databases_are_read_only(database: Path) -> None:
    host = verifier_host(backend="bubblewrap")
    write = "import sqlite3\nsqlite3.connect(initial).execute('DELETE FROM items')"
    assert "readonly" in str(judge(host, RUN, database, write)[0].fault)
    assert "Error" in str(judge(host, RUN, database, "open(final, 'r+b')")[0].fault)
    assert "Error" in str(judge(host, RUN, database, "open(final + 'x', 'w')")[0].fault)
    host.close()


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("def verify(", "SyntaxError"),
        ("x = 1", "KeyError"),
        ("raise RuntimeError('at load')", "at load"),
        ("(" * 5000, "does not compile"),
        ("def verify(a, i, f): return []\x00", "does not compile"),
    ],
)
def test_a_verifier_that_does_not_load(
    host: VerifierHost, database: Path, source: str, text: str
) -> None:
    for reply in judge(host, source, database, 1, 2):
        assert reply.broken is None
        assert text in str(reply.fault)


@pytest.mark.parametrize(
    "deadly", ["import os\nos._exit(0)", "while True: pass", "import os\nos.kill(os.getpid(), 11)"]
)
def test_one_deadly_input_spoils_no_other(
    worker: VerifierHost, database: Path, deadly: str
) -> None:
    answers = ["result = []", deadly, "result = ['r1']", "result = []"]
    started = time.monotonic()
    replies = judge(worker, RUN, database, *answers)
    assert [reply.broken for reply in replies] == [(), None, ("r1",), ()]
    assert all((reply.broken is None) != (reply.fault is None) for reply in replies)
    assert time.monotonic() - started < 60  # 2 s on the processor, which others want, too


def test_an_innocent_input_after_a_leak_is_judged_alone(
    worker: VerifierHost, database: Path
) -> None:
    limit = "import resource\nresource.setrlimit(resource.RLIMIT_AS, (1 << 20,) * 2)\nresult = []"
    replies = judge(worker, RUN, database, limit, "x = bytearray(30 << 20)\nresult = ['fine']")
    assert [reply.broken for reply in replies] == [(), ("fine",)]


@over_local
def test_inputs_share_no_globals(host: VerifierHost, database: Path) -> None:
    source = (
        "seen = []\ndef verify(a, i, f):\n    seen.append(1)\n    return ['x'] * (len(seen) - 1)"
    )
    assert [reply.broken for reply in judge(host, source, database, 1, 2, 3)] == [(), (), ()]


def test_a_lost_zygote_is_started_again(worker: VerifierHost, database: Path) -> None:
    worker._zygote.process.kill()  # type: ignore[attr-defined]  # the worker host
    worker._zygote.process.wait()  # type: ignore[attr-defined]  # the worker host
    assert judge(worker, RUN, database, "result = []")[0].broken == ()


@pytest.mark.bwrap
def test_a_verifier_sees_only_its_databases(database: Path) -> None:
    host = verifier_host(backend="bubblewrap")
    code = (
        "import os\nresult = sorted(os.listdir('/')) + sorted(os.listdir(os.path.dirname(initial)))"
    )
    (reply,) = judge(host, RUN, database, code)
    assert reply.broken is not None
    assert not {"work", "home", "opt", "srv", "var"} & set(reply.broken)
    assert "database-0.sqlite" in reply.broken
    host.close()


@over_local
def test_a_missing_database_is_an_error(host: VerifierHost, database: Path) -> None:
    gone = database.with_name("gone.sqlite")
    with pytest.raises(SandboxError, match=r"gone\.sqlite"):
        host.verify_many(RUN, [VerifierInput("result = []", database, gone)])


@over_local
def test_an_answer_shares_no_object_with_the_verifier(host: VerifierHost, database: Path) -> None:
    answer: JsonValue = {"seats": [1]}
    source = "def verify(a, i, f):\n    a['seats'].append(2)\n    return []"
    assert judge(host, source, database, answer)[0].broken == ()
    assert answer == {"seats": [1]}


def test_closing_inline_refuses_what_comes_after(database: Path) -> None:
    host = verifier_host(backend="inline", trusted=True)
    host.close()
    with pytest.raises(SandboxError, match="closed"):
        judge(host, RUN, database, "result = []")


def test_closing_removes_the_scratch_folder(database: Path) -> None:
    host = verifier_host(backend="process", trusted=True)
    judge(host, RUN, database, "result = []")
    folder = host._folder.path  # type: ignore[attr-defined]  # the worker host
    host.close()
    assert not folder.exists()
    with pytest.raises(SandboxError, match="closed"):
        judge(host, RUN, database, "result = []")


def test_untrusted_verifiers_need_isolation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("envgen.sandboxes.bwrap.unavailable", lambda: "it is gone")
    with pytest.raises(SandboxUnavailableError):
        verifier_host()
    with pytest.raises(SandboxUnavailableError):
        verifier_host(backend="inline")


@over_local_workers
def test_a_full_disk_is_an_error_and_leaves_the_host_usable(
    worker: VerifierHost, database: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    final = make_database(tmp_path / "final.sqlite")
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copyfile", full)
        with pytest.raises(SandboxError, match="No space"):
            worker.verify_many(RUN, [VerifierInput("result = []", database, final)])
    assert judge(worker, RUN, database, "result = []")[0].broken == ()


def test_databases_may_be_bytes(host: VerifierHost, database: Path, tmp_path: Path) -> None:
    long = make_database(tmp_path / "long.sqlite", tuple(f"item {i:04}" for i in range(2000)))
    names: list[JsonValue] = [f"item {i:04}" for i in range(2000)]
    zoe: list[JsonValue] = ["zoe"]
    short = make_database(tmp_path / "short.sqlite", ("zoe",))
    inputs = [
        VerifierInput({"initial": names, "final": zoe}, long.read_bytes(), short.read_bytes()),
        VerifierInput({"initial": zoe, "final": names}, short.read_bytes(), long.read_bytes()),
        VerifierInput({"initial": zoe, "final": zoe}, short.read_bytes(), short),
        VerifierInput({"initial": names, "final": names}, short.read_bytes(), short),
    ]
    for _ in range(2):  # more than may wait in the worker, so that files are used again
        replies = host.verify_many(COUNT, inputs * AHEAD)
        verdicts = [reply.broken for reply in replies]
        assert verdicts == [(), (), (), ("initial", "final")] * AHEAD
    if isinstance(host, WorkerVerifierHost):
        assert len(list(host._scratch.glob("bytes-*"))) <= 2 * AHEAD


def test_long_answers_and_long_replies_do_not_wait_for_each_other(
    host: VerifierHost, database: Path
) -> None:
    """More of both than sockets hold: a worker that must write first is read from first."""
    loud = "def verify(answer, initial, final):\n    return [answer, 'x' * 1_000_000]\n"
    answers = [letter * 400_000 for letter in "abcdefgh"]
    started = time.monotonic()
    replies = host.verify_many(loud, [VerifierInput(one, database, database) for one in answers])
    assert [reply.broken and reply.broken[0] for reply in replies] == answers
    assert time.monotonic() - started < 9  # of the 10 s that one answer may take


@over_local_workers
@pytest.mark.parametrize("ahead", [1, AHEAD])
def test_what_cannot_be_sent_is_its_own_fault_only(
    worker: VerifierHost, database: Path, ahead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("envgen.sandboxes.verifier.AHEAD", ahead)
    unsendable = float("nan")
    replies = judge(worker, RUN, database, "result = []", unsendable, "result = ['c']", unsendable)
    assert [reply.broken for reply in replies] == [(), None, ("c",), None]
    assert all("JSON" in str(reply.fault) for reply in (replies[1], replies[3]))


@pytest.mark.bwrap
def test_bytes_are_read_only_inside(database: Path) -> None:
    body = "open(initial, 'r+b')\nresult = []"
    host = verifier_host(backend="bubblewrap")
    content = database.read_bytes()
    reply = host.verify_many(RUN, [VerifierInput(body, content, content)])[0]
    host.close()
    assert "Read-only file system" in str(reply.fault) or "Permission denied" in str(reply.fault)


def test_copies_of_databases_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("envgen.sandboxes.verifier.WorkerVerifierHost.DATABASES", 4)
    monkeypatch.setattr("envgen.sandboxes.verifier.WorkerVerifierHost.AT_LEAST", 2)
    host = verifier_host(backend="process", trusted=True)
    scratch: Path = host._scratch  # type: ignore[attr-defined]  # the worker host
    for number in range(8):
        path = make_database(tmp_path / f"{number}.sqlite", (str(number),))
        answer = {"initial": [str(number)], "final": [str(number)]}
        assert judge(host, COUNT, path, answer)[0].broken == ()
    assert len(list(scratch.iterdir())) == 4
    monkeypatch.setattr("envgen.sandboxes.verifier.WorkerVerifierHost.ROOM_BYTES", 1)
    judge(host, RUN, path, "result = []")
    assert len(list(scratch.iterdir())) == 2
    host.close()


LONG = """
import sqlite3
from contextlib import closing

RULES = {"long": "SELECT MIN(LENGTH(name)) >= :least FROM items", "few": "SELECT COUNT(*) <= 2 FROM items"}

def verify(answer, initial, final):
    with closing(sqlite3.connect(f"file:{initial}?mode=ro&immutable=1", uri=True)) as db:
        db.execute("ATTACH ? AS final", (f"file:{final}?mode=ro&immutable=1",))
        return [rule for rule, query in RULES.items() if not db.execute(query, answer).fetchone()[0]]
"""
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT COUNT(*) + :least FROM n"


def long(old: str = "", new: str = "") -> str:
    assert old in LONG
    return LONG.replace(old, new)


@over_local_workers
def test_versions_of_a_verifier_are_told_apart(
    worker: WorkerVerifierHost, database: Path, tmp_path: Path
) -> None:
    other = make_database(tmp_path / "final.sqlite", ("zoe", "an"))
    inputs = [
        VerifierInput({"least": least}, initial, final)
        for least in (2, 3, 4, 3.5)
        for initial, final in ((database, other), (other, database), (database, database))
    ]
    replies = worker.verify_many(LONG, inputs)
    assert {reply.broken for reply in replies} == {(), ("long",)}
    judged = list(zip(inputs, (reply.broken for reply in replies), strict=True))
    versions = {
        long(): False,
        long("return [", "return [  "): False,
        long("MIN(", "MAX("): False,  # of names as long as each other in one database, no other
        long(">=", ">"): True,
        long("FROM items\",", "FROM final.items\","): True,
        long("<= 2", "<= 1"): True,
        long("<= 2", "<= 3"): False,
        long('"few"', '"many"'): False,
        "def verify(": True,
        long('db.execute("ATTACH', '("ATTACH'): False,
        long(RULE := "SELECT MIN(LENGTH(name)) >= :least FROM items", ENDLESS): True,
        LONG.replace(RULE, "SELECT 1"): True,
    }  # fmt: skip
    one_by_one = {
        source: [reply.broken for reply in worker.verify_many(source, inputs, 60, bounded=True)]
        != [verdict for _, verdict in judged]
        for source in versions
    }
    versions |= one_by_one  # the slow reference
    apart = worker.told_apart([LONG, *versions], judged)
    assert dict(zip(versions, apart, strict=True)) == versions
    assert {True, False} == set(one_by_one.values())


def test_what_ends_the_worker_is_not_known_and_neither_is_what_comes_after(
    worker: WorkerVerifierHost, database: Path
) -> None:
    judged: list[Judged] = [(VerifierInput({"least": 3}, database, database), ())]
    other, endless = (
        long(">=", ">"),
        long("        return", "        while True: pass\n        return"),
    )
    apart = worker.told_apart([LONG, other, endless, other], judged, timeout_s=1.0)
    assert apart == [True, None, None]


@over_local_workers
def test_nothing_is_known_where_the_verdicts_are_not_found_again(
    worker: WorkerVerifierHost, database: Path
) -> None:
    judged: list[Judged] = [(VerifierInput({"least": 3}, database, database), ("long",))]
    assert worker.told_apart([LONG, LONG], judged) == [None]
