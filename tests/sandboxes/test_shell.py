from __future__ import annotations

import os
import platform
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from envgen.core.errors import SandboxError, SandboxTimeoutError
from envgen.sandboxes import runtime, seccomp
from envgen.sandboxes.base import Mount, Sandbox, SandboxSpec, create

BACKENDS = [
    "process",
    pytest.param("bubblewrap", marks=pytest.mark.bwrap),
    pytest.param("docker", marks=pytest.mark.docker),
]


@pytest.fixture(scope="module", params=BACKENDS)
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    with create(SandboxSpec(), request.param, trust=True) as created:
        yield created


def python(program: str) -> list[str]:
    return [runtime.python(), *runtime.python_flags(), "-c", program]


@pytest.mark.parametrize("size", [0, 1, 65_536, 3_000_000])
def test_stdin_and_stdout_of_any_size(sandbox: Sandbox, size: int) -> None:
    data = os.urandom(size)
    result = sandbox.exec(["sh", "-c", "wc -c; echo done >&2"], stdin=data)
    assert (int(result.stdout), result.stderr) == (size, b"done\n")


def test_a_program_that_reads_nothing(sandbox: Sandbox) -> None:
    assert sandbox.exec(["true"], stdin=b"x" * 3_000_000).exit_code == 0


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (["sh", "-c", "exit 7"], 7),
        (["sh", "-c", "kill -9 $$"], -9),
        (["no-such-program"], 127),
        (["/etc"], 126),
    ],
)
def test_exit_codes(sandbox: Sandbox, argv: list[str], code: int) -> None:
    assert sandbox.exec(argv).exit_code == code


@pytest.mark.parametrize("argv", [[], "ls"])
def test_argv_is_a_list_of_words(sandbox: Sandbox, argv: list[str]) -> None:
    with pytest.raises(SandboxError, match="list of words"):
        sandbox.exec(argv)


def test_what_a_program_leaves_running_ends_with_it(sandbox: Sandbox) -> None:
    sandbox.exec(["sh", "-c", "(while :; do date +%s%N > beat; done) >/dev/null 2>&1 &"])
    first = sandbox.read_file("beat") if _exists(sandbox) else b""
    time.sleep(0.1)
    assert (sandbox.read_file("beat") if _exists(sandbox) else b"") == first


def _exists(sandbox: Sandbox) -> bool:
    return sandbox.exec(["test", "-f", "beat"]).exit_code == 0


def test_orphans_are_reaped_while_the_program_runs(sandbox: Sandbox) -> None:
    if sandbox.backend == "process" and os.geteuid():
        pytest.skip("process: the limit counts all processes of an ordinary user; root has none")
    script = (
        "for i in $(seq 500); do (true &); done; sleep .5; cat /proc/[0-9]*/stat | grep -c ' Z '"
    )
    assert int(sandbox.exec(["bash", "-c", script], timeout_s=60).stdout) < 3


def test_files(sandbox: Sandbox) -> None:
    data = os.urandom(2_000_000)
    sandbox.write_file("/work/deep/er/file", data)
    assert sandbox.read_file("deep/er/file") == data
    with pytest.raises(SandboxError, match="larger than"):
        sandbox.read_file("deep/er/file", max_bytes=1000)
    with pytest.raises(SandboxError):
        sandbox.read_file("deep/er")
    with pytest.raises(SandboxError):
        sandbox.read_file("missing")


def test_spawned_programs_talk(sandbox: Sandbox) -> None:
    processes = [
        sandbox.spawn(python("while True: print(int(input()) * 2, flush=True)")) for _ in "ab"
    ]
    for number in range(20):
        for process in processes:
            process.stdin.write(b"%d\n" % number)
            assert process.stdout.read(10) == b"%d\n" % (2 * number)
    assert sandbox.exec(["echo", "beside"]).text == "beside\n"
    with pytest.raises(SandboxTimeoutError):
        processes[0].wait(0.05)
    for process in processes:
        process.kill()
    done = sandbox.spawn(["sh", "-c", "read line; exit 5"])
    done.stdin.write(b"\n")
    assert done.wait(10) == 5
    done.kill()


def test_a_closed_sandbox_says_so(sandbox: Sandbox) -> None:
    other = create(SandboxSpec(), sandbox.backend, trust=True)
    other.close()
    with pytest.raises(SandboxError):
        other.exec(["true"])


def test_another_thread_can_abort_what_an_exec_waits_for(sandbox: Sandbox) -> None:
    started = time.monotonic()
    with create(SandboxSpec(), sandbox.backend, trust=True) as other:
        timer = threading.Timer(0.5, other.abort)
        timer.start()
        with pytest.raises(SandboxError):
            other.exec(["sh", "-c", "sleep 60 & sleep 60"])
        timer.join()
        with pytest.raises(SandboxError):
            other.exec(["true"])
    other.abort()  # it is gone: nothing is left to do
    assert time.monotonic() - started < 20


@pytest.mark.slow
def test_ten_gigabytes_of_output(sandbox: Sandbox) -> None:
    before = _resident_mb()
    result = sandbox.exec(["sh", "-c", "yes | head -c 10000000000"], timeout_s=3)
    assert len(result.stdout) == sandbox.spec.output_bytes
    assert result.truncated
    assert _resident_mb() < before + 200


def _resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


@pytest.mark.bwrap
def test_a_root_folder_without_python(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    tmp_path.chmod(0o755)
    source = tmp_path / "hello.c"
    source.write_text('#include <stdio.h>\nint main() { puts("hello"); return 7; }\n')
    compile_words = ["gcc", "-static", "-o", str(tmp_path / "bin" / "hello"), str(source)]
    try:
        subprocess.run(compile_words, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no C compiler that links statically")
    with create(SandboxSpec(root=tmp_path), "bubblewrap") as sandbox:
        result = sandbox.exec(["hello"])
        assert (result.exit_code, result.text) == (7, "hello\n")
        assert sandbox.exec(["sh"]).exit_code == 127
        sandbox.write_file("x", b"y")
        assert sandbox.read_file("x") == b"y"


@pytest.mark.parametrize("backend", BACKENDS[1:])
def test_mounts(backend: str, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "file").write_text("shown")
    (tmp_path / "file").chmod(0o644)
    (tmp_path / "out").mkdir()
    (tmp_path / "out").chmod(0o777)
    mounts = (
        Mount(source=tmp_path, target="/data/in"),
        Mount(source=tmp_path / "out", target="/data/out", writable=True),
    )
    with create(SandboxSpec(mounts=mounts), backend) as sandbox:
        assert sandbox.exec(["cat", "/data/in/file"]).text == "shown"
        assert sandbox.exec(["sh", "-c", "echo x > /data/in/file"]).exit_code != 0
        assert sandbox.exec(["sh", "-c", "echo x > /data/out/made"]).exit_code == 0
    assert (tmp_path / "out" / "made").read_text() == "x\n"


@pytest.mark.bwrap
@pytest.mark.parametrize("call", ["unshare(0x10000000)", "setns(0, 0)", "syscall(425, 1, 0)"])
def test_the_filter_refuses_doors_into_the_kernel(call: str) -> None:
    program = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
    program += f"print(libc.{call}, ctypes.get_errno())"
    with create(SandboxSpec(), "bubblewrap") as sandbox:
        assert sandbox.exec(python(program)).text == "-1 1\n"
        threads = (
            "import threading\nt = threading.Thread(target=print, args=(7,))\nt.start(); t.join()"
        )
        assert sandbox.exec(python(threads)).text == "7\n"


def test_the_filter_is_well_formed(monkeypatch: pytest.MonkeyPatch) -> None:
    for machine in ("x86_64", "aarch64"):
        monkeypatch.setattr(platform, "machine", lambda name=machine: name)
        content = seccomp.program(memory_is_limited=False)
        assert content is not None
        steps = list(struct.iter_unpack("=HBBI", content))
        assert steps[-1] == (0x06, 0, 0, 0x7FFF0000)
        for place, (code, if_true, if_false, _) in enumerate(steps):
            if code & 0x07 == 0x05:
                assert place + 1 + max(if_true, if_false) < len(steps)
    monkeypatch.setattr(platform, "machine", lambda: "z80")
    assert seccomp.program(memory_is_limited=True) is None
