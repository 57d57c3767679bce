from __future__ import annotations

import io
import os
import re
import shutil
import socket
import subprocess
import tarfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from envgen.core.errors import SandboxError, SandboxUnavailableError
from envgen.sandboxes import cgroups, docker, runtime
from envgen.sandboxes.base import SandboxSpec, create
from envgen.sandboxes.docker_exec import DockerExec, signalled

pytestmark = pytest.mark.docker
IMAGE = "envgen-test-shell:1"


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    """An image with a shell, cat, mkdir and their libraries, and nothing else."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        paths = {f"/bin/{name}": shutil.which(name) or "" for name in ("sh", "cat", "mkdir")}
        for source in list(paths.values()):
            listed = subprocess.run(["ldd", source], capture_output=True, text=True, check=True)
            paths |= {path: path for path in re.findall(r"/\S+", listed.stdout)}
        for target, source in paths.items():
            entry = archive.gettarinfo(source, target.lstrip("/"))
            with open(source, "rb") as content:
                entry.type, entry.linkname = tarfile.REGTYPE, ""
                entry.size = len(data := content.read())
                archive.addfile(entry, io.BytesIO(data))
    name, _, tag = IMAGE.partition(":")
    docker.client().api.import_image_from_data(buffer.getvalue(), repository=name, tag=tag)
    yield IMAGE
    docker.client().api.remove_image(IMAGE, force=True)


def test_an_image_of_ones_own(image: str) -> None:
    with create(SandboxSpec(image=image), "docker") as sandbox:
        assert sandbox.exec(["sh", "-c", "echo $((6 * 7)); exit 4"]).exit_code == 4
        sandbox.write_file("a/b", b"content")
        assert sandbox.read_file("/work/a/b") == b"content"
        assert sandbox.exec(["sh", "-c", "cat a/b"]).text == "content"
        assert sandbox.exec(["python3"]).exit_code == 127
        assert sandbox.exec(["sh", "-c", "echo x > /bin/new"]).exit_code != 0


_FULL = """import os, time
try:
    while True:
        if not os.fork():
            time.sleep(60)
except OSError:
    print("full", flush=True)
LAST
"""


def _fill(sandbox: docker.DockerSandbox, last: str) -> None:
    """Use up every process there may be, then do ``last``."""
    full = sandbox.spawn([runtime.python(), "-c", _FULL.replace("LAST", last)])
    assert full.stdout.readline() == b"full\n"


def test_the_first_process_answers_while_no_process_is_free() -> None:
    with docker.DockerSandbox(SandboxSpec(pids=32)) as sandbox:
        _fill(sandbox, "time.sleep(60)")
        sandbox._collect()
        sandbox.end_all()
        assert sandbox.exec(["sh", "-c", "true & echo here"]).text == "here\n"


def test_ending_collects_the_orphans_that_hold_every_process() -> None:
    """Their parent is gone: only the first process can collect them, and may not have to fork for it."""
    with docker.DockerSandbox(SandboxSpec(pids=32)) as sandbox:
        _fill(sandbox, "")
        sandbox._collect()
        sandbox.end_all()
        free = "n=0; while [ $n -lt 29 ]; do sleep 9 & n=$((n + 1)); done; echo $n"
        assert sandbox.exec(["sh", "-c", free]).text == "29\n"


def test_dead_children_are_collected_whenever_the_first_process_is_told_to() -> None:
    with docker.DockerSandbox(SandboxSpec(pids=32)) as sandbox:
        keep = sandbox.spawn(["cat"])  # beside it nothing is killed when an exec ends
        for _ in range(4):
            assert sandbox.exec(["sh", "-c", "(sleep 0.01 &) ; (sleep 0.01 &)"]).exit_code == 0
        time.sleep(0.5)
        sandbox._collect()
        stat = 'for f in /proc/[0-9]*/stat; do read -r _ _ state _ <"$f" && echo $state; done'
        assert "Z" not in sandbox.exec(["sh", "-c", stat]).text
        keep.kill()


def test_an_image_that_is_not_there() -> None:
    with pytest.raises(SandboxError, match="no-such-image"):
        create(SandboxSpec(image="no-such-image:0"), "docker")


def test_containers_of_dead_processes_are_reaped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        docker, "LABEL", f"{docker.LABEL}.{os.getpid()}"
    )  # other processes reap, too
    mine = create(SandboxSpec(), "docker")
    with monkeypatch.context() as patch:
        patch.setattr(docker, "owner", lambda: f"{socket.gethostname()}:999999999:123")
        orphan = docker.DockerSandbox(SandboxSpec())
    assert docker.reap() == 1
    with pytest.raises(SandboxError):
        orphan.exec(["true"])
    assert mine.exec(["true"]).exit_code == 0
    orphan.close()
    mine.close()


def test_a_container_that_dies_is_an_error_and_not_a_result() -> None:
    sandbox = docker.DockerSandbox(SandboxSpec())
    docker.client().api.kill(sandbox.container)
    with pytest.raises(SandboxError):
        sandbox.exec(["true"])
    sandbox.close()


def test_killed_for_memory_is_told() -> None:
    words = [runtime.python(), *runtime.python_flags(), "-c", "bytearray(300 << 20)"]
    with create(SandboxSpec(memory_bytes=128 << 20), "docker") as sandbox:
        result = sandbox.exec(words, timeout_s=30)
        assert (result.exit_code, result.oom) == (-9, True)


def test_no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere.sock")
    monkeypatch.setattr(docker, "_local", type("Empty", (), {})())
    with pytest.raises(SandboxUnavailableError, match="no Docker Engine") as caught:
        docker.client()
    assert "bubblewrap" in caught.value.hint


@pytest.mark.parametrize(("code", "expected"), [(0, 0), (1, 1), (128, 128), (137, -9), (255, 255)])
def test_signals_in_exit_codes(code: int, expected: int) -> None:
    assert signalled(code) == expected


def test_processor_time_is_the_control_groups_and_else_what_the_engine_says() -> None:
    """Engines before 23 wait for a second before they tell."""
    with (
        docker.DockerSandbox(SandboxSpec()) as sandbox,
        docker.DockerSandbox(SandboxSpec()) as idle,
    ):
        sandbox.exec([runtime.python(), "-c", "import time\nwhile time.process_time() < 1: pass"])
        assert (sandbox._group.cpu_s() or 0) == pytest.approx(sandbox._told_cpu_s(), abs=0.2)
        assert sandbox.cpu_s > 1 > idle.cpu_s + 0.5
        idle.__dict__["_group"] = cgroups.of_container(idle.container, os.getpid())
        assert idle._group.folders == ()
        before = idle.cpu_s
        idle.exec([runtime.python(), "-c", "import time\nwhile time.process_time() < 1: pass"])
        assert idle.cpu_s > before + 1


@contextmanager
def relay(path: Path, engine: str) -> Iterator[None]:
    """Pass connections on to the engine; what it answers goes out in one packet, 0.2 s later.

    So a busy machine delivers headers and the first output together.
    """
    opened = [socket.socket(socket.AF_UNIX)]
    opened[0].bind(str(path))
    opened[0].listen()

    def copy(source: socket.socket, sink: socket.socket, late: float) -> None:
        with suppress(OSError):
            while source.recv(1, socket.MSG_PEEK):
                time.sleep(late)
                sink.sendall(source.recv(1 << 16))
            sink.shutdown(socket.SHUT_WR)

    def accept() -> None:
        with suppress(OSError):
            while True:
                here, _ = opened[0].accept()
                there = socket.socket(socket.AF_UNIX)
                opened.extend((here, there))
                there.connect(engine)
                for ends in ((here, there, 0.0), (there, here, 0.2)):
                    threading.Thread(target=copy, args=ends, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield
    finally:
        for one in opened:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


def test_output_that_comes_with_the_headers_is_not_lost(tmp_path: Path) -> None:
    import docker as sdk

    with (
        relay(tmp_path / "late.sock", "/var/run/docker.sock"),
        create(SandboxSpec(), "docker") as sandbox,
        closing(sdk.APIClient(base_url=f"unix://{tmp_path}/late.sock", timeout=30)) as api,
    ):
        assert isinstance(sandbox, docker.DockerSandbox)
        run = DockerExec(api, sandbox.container, ["/bin/sh", "-c", "echo a"], {}, "/", 65534)
        result = run.run(b"", 20, 1_000)
    assert (result.exit_code, result.stdout) == (0, b"a\n")
