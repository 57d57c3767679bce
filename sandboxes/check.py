"""The conformance list of sandboxes, as code: every declared guarantee is attacked.

    check_sandbox("bubblewrap")

raises ContractError with the first broken promise. Linux only, since it looks for survivors in
/proc.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from envgen.core.errors import ContractError, SandboxError, SandboxUnavailableError
from envgen.sandboxes import runtime
from envgen.sandboxes.base import (
    Guarantee,
    Sandbox,
    SandboxSpec,
    backend_module,
    create,
    guarantees,
)

_SECRET = "ENVGEN_CHECK_SECRET"
_MB = 1 << 20

_MEMORY = "x = bytearray(300 << 20); print('got it')"
_PROCESSES = """
import os, time
n = 0
try:
    while n < 400:
        if os.fork() == 0:
            time.sleep(20); os._exit(0)
        n += 1
except OSError:
    pass
print(n)
"""
_CPU = "import time\nwhile time.process_time() < 4: pass\nprint('burnt')"
_FAMILY = """
import os, time
for _ in range(2):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for fd in (0, 1, 2): os.close(fd)
            time.sleep(300)
        os._exit(0)
print("ready", flush=True)
time.sleep(SECONDS)
"""
_OUTPUT = """
import sys
for _ in range(64):
    sys.stdout.write("x" * (1 << 20)); sys.stderr.write("y" * (1 << 20))
"""
_DISK = """
import ctypes, os
for folder in ("/work", "/tmp", "/dev/shm", "/dev", "/var/tmp", "/run", "/"):
    total = 0
    try:
        for n in range(8):
            with open(f"{folder}/fill{n}", "wb", buffering=0) as f:
                for _ in range(8):
                    total += f.write(b"x" * (1 << 20))
    except OSError:
        pass
    for n in range(8):
        try: os.remove(f"{folder}/fill{n}")
        except OSError: pass
    print(total)
libc, total = ctypes.CDLL(None), 0
if libc.unshare(0x10020000) == 0 and libc.mount(b"none", b"/tmp", b"tmpfs", 0, b"size=1g") == 0:
    total = 1 << 30
print(total)
"""
_NETWORK = """
import os, socket, sys
from urllib.parse import urlsplit
proxy = urlsplit(os.environ.get("http_proxy", ""))
def attempt(family, address):
    s = socket.socket(family, socket.SOCK_STREAM); s.settimeout(1)
    try: s.connect(address); print("reached", address)
    except OSError: pass
    finally: s.close()
def ask(host):
    with socket.create_connection((proxy.hostname, proxy.port), 5) as s:
        s.sendall(f"CONNECT {host}:{sys.argv[1]} HTTP/1.1\\r\\n\\r\\n".encode())
        if s.recv(99).split()[1] == b"200": print("the proxy reached", host)
for host in sys.argv[2:]:
    attempt(socket.AF_INET, (host, int(sys.argv[1])))
    if proxy.hostname: ask(host)
attempt(socket.AF_UNIX, chr(0) + "envgen-check-" + sys.argv[1])
"""
_FILES = """
import os, sys
path = sys.argv[1]
for prefix in ("", "/proc/1/root", "/proc/self/root", "/proc/1/cwd", "/.."):
    try: print("read", open(prefix + path).read())
    except OSError: pass
for target in (path, "/usr/envgen-probe", "/etc/envgen-probe", sys.prefix + "/envgen-probe"):
    try: open(target, "a").write("x"); print("wrote", target)
    except OSError: pass
"""
_ENVIRON = """
import os
print(dict(os.environ))
for name in os.listdir("/proc"):
    if name.isdigit():
        try: print(open(f"/proc/{name}/environ").read())
        except OSError: pass
"""


def check_sandbox(backend: str, only: Iterable[Guarantee] | None = None) -> frozenset[Guarantee]:
    """Test what a backend declares (or ``only`` some of it); what was tested is returned.

    Raises ContractError when a promise is broken, or when ``create`` lets a spec through that
    needs what is not declared.
    """
    declared = guarantees(backend)
    wanted = declared if only is None else frozenset(only)
    _check_refusals(backend, declared)
    _check_basics(backend)
    for guarantee in sorted(wanted):
        _CHECKS[guarantee](backend)
    return wanted


def _require(truth: bool, text: str) -> None:
    if not truth:
        raise ContractError(text)


def _make(backend: str, **fields: Any) -> Sandbox:
    return create(SandboxSpec(**fields), backend, trust=True)


def _python(program: str, *arguments: str) -> list[str]:
    return [runtime.python(), *runtime.python_flags(), "-c", program, *arguments]


def _check_refusals(backend: str, declared: frozenset[Guarantee]) -> None:
    for guarantee in frozenset(Guarantee) - declared:
        try:
            create(SandboxSpec(needs=frozenset({guarantee})), backend, trust=True).close()
        except SandboxUnavailableError:
            continue
        raise ContractError(f"{backend} started although {guarantee} is needed and not declared")


def _check_basics(backend: str) -> None:
    with _make(backend) as sandbox:
        result = sandbox.exec(["sh", "-c", "cat; echo oops >&2; exit 3"], stdin=b"hello")
        outcome = (result.exit_code, result.stdout, result.stderr)
        _require(outcome == (3, b"hello", b"oops\n"), f"exec: {outcome}")
        _require(not result.timed_out and not result.truncated, "exec: wrong flags")
        _require(sandbox.exec(["no-such-program"]).exit_code == 127, "a missing program is not 127")
        result = sandbox.exec(["sh", "-c", 'echo "$A"; pwd'], env={"A": "b c"}, cwd="/tmp")
        _require(result.text == "b c\n/tmp\n", f"env and cwd: {result.text!r}")
        data = bytes(range(256)) * 512
        sandbox.write_file("a/b.bin", data)
        _require(sandbox.read_file("a/b.bin") == data, "a file came back changed")
        sandbox.write_file("a/b.bin", b"short")
        _require(sandbox.exec(["cat", "a/b.bin"]).stdout == b"short", "a file is not overwritten")
        process = sandbox.spawn(["cat"])
        process.stdin.write(b"ping\n")
        _require(process.stdout.read(5) == b"ping\n", "a spawned program does not answer")
        process.kill()


def _memory(backend: str) -> None:
    with _make(backend, memory_bytes=128 * _MB) as sandbox:
        result = sandbox.exec(_python(_MEMORY), timeout_s=30)
    _require(
        result.exit_code != 0 and b"got it" not in result.stdout, "memory: 300 MB under 128 MB"
    )


def _processes(backend: str) -> None:
    with _make(backend, pids=32) as sandbox:
        result = sandbox.exec(_python(_PROCESSES), timeout_s=10)
        count = int(result.stdout or b"0")
        _require(0 < count <= 32, f"processes: {count} under a limit of 32")
        bomb = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"
        result = sandbox.exec(_python(bomb), timeout_s=1)
        _require(result.timed_out and result.wall_s < 10, "processes: a fork bomb was not ended")
        _require(sandbox.exec(["true"]).exit_code == 0, "processes: unusable after a fork bomb")


def _cpu_time(backend: str) -> None:
    with _make(backend, cpu=1) as sandbox:
        result = sandbox.exec(_python(_CPU), timeout_s=60)
    ended = result.exit_code != 0 and not result.timed_out and not result.stdout
    _require(ended, f"cpu_time: 4 s of CPU under 1 s: exit code {result.exit_code}")


def _wall_time(backend: str) -> None:
    token = secrets.token_hex(8)
    program = _FAMILY.replace("SECONDS", "6")
    with _make(backend) as sandbox:
        result = sandbox.exec(_python(program, token), timeout_s=0.7)
        _require(result.timed_out, "wall_time: the timeout was not kept")
        _require(result.wall_s < 4.5, f"wall_time: ended after {result.wall_s:.1f} s, not 0.7")
        _require_gone("wall_time", token, 1.0)
        _require(sandbox.exec(["true"]).exit_code == 0, "wall_time: unusable after a timeout")


def _output(backend: str) -> None:
    with _make(backend, output_bytes=100_000) as sandbox:
        result = sandbox.exec(_python(_OUTPUT), timeout_s=30)
    kept = len(result.stdout), len(result.stderr)
    _require(kept == (100_000, 100_000), f"output: {kept} bytes kept of 100000")
    _require(result.truncated and result.exit_code == 0, f"output: not marked, {result.exit_code}")


def _disk(backend: str) -> None:
    with _make(backend, disk_bytes=16 * _MB) as sandbox:
        result = sandbox.exec(_python(_DISK), timeout_s=30)
    totals = [int(line) for line in result.stdout.split()]
    _require(len(totals) == 8, f"disk: {result.stderr!r}")
    _require(max(totals) <= 16 * _MB, f"disk: {max(totals)} bytes under a limit of {16 * _MB}")
    _require(totals[0] > 0, "disk: the work folder can't be written")


def _network(backend: str) -> None:
    with socket.create_server(("0.0.0.0", 0)) as server, socket.socket(socket.AF_UNIX) as abstract:
        port = server.getsockname()[1]
        abstract.bind(f"\0envgen-check-{port}")
        abstract.listen()
        _reach_nothing(backend, "none", port, {"127.0.0.1", "8.8.8.8", *_addresses()})
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX) as abstract,
    ):
        port = server.getsockname()[1]
        abstract.bind(f"\0envgen-check-{port}")
        abstract.listen()
        _reach_nothing(backend, "internet", port, {"127.0.0.1", "localhost", *_addresses()})


def _reach_nothing(backend: str, network: str, port: int, hosts: set[str]) -> None:
    with _make(backend, network=network) as sandbox:
        result = sandbox.exec(_python(_NETWORK, str(port), *sorted(hosts)), timeout_s=20)
    _require(not result.stdout, f"network={network!r}: {result.text.strip()}")
    _require(result.exit_code == 0, f"network={network!r}: the probe failed: {result.stderr!r}")


def _addresses() -> set[str]:
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        return {probe.getsockname()[0]}
    return set()


def _host_files(backend: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        secret = Path(folder) / "secret"
        secret.write_text("the secret")
        secret.chmod(0o666)
        with _make(backend) as sandbox:
            result = sandbox.exec(_python(_FILES, str(secret)), timeout_s=20)
        for probe in ("/usr/envgen-probe", "/etc/envgen-probe", f"{sys.prefix}/envgen-probe"):
            with contextlib.suppress(OSError):
                os.remove(probe)
        _require(secret.read_text() == "the secret", "host_files: a file was written")
    _require(not result.stdout, f"host_files: {result.text.strip()}")
    _require(result.exit_code == 0, f"host_files: the probe failed: {result.stderr!r}")


def _environment(backend: str) -> None:
    token = secrets.token_hex(8)
    os.environ[_SECRET] = token
    try:
        with _make(backend) as sandbox:
            result = sandbox.exec(_python(_ENVIRON))
    finally:
        del os.environ[_SECRET]
    _require(result.exit_code == 0, f"environment: the probe failed: {result.stderr!r}")
    _require(token.encode() not in result.stdout, "environment: a variable of the host is seen")


def _file_paths(backend: str) -> None:
    links = "ln -s /etc/passwd file; ln -s /etc folder; ln -s .. up; mkdir real"
    bad = ["../etc/passwd", "/etc/passwd", "file", "folder/passwd", "real/../../etc/passwd",
           "up/etc/passwd", "/work/../etc/passwd", "", ".", "real", "a\0b"]  # fmt: skip
    with _make(backend) as sandbox:
        sandbox.exec(["sh", "-c", links])
        for path in bad:
            for act in (sandbox.read_file, lambda p: sandbox.write_file(p, b"x")):
                with contextlib.suppress(SandboxError):
                    act(path)
                    raise ContractError(f"file_paths: {path!r} was not refused")


def _close(backend: str) -> None:
    token = secrets.token_hex(8)
    sandbox = _make(backend)
    process = sandbox.spawn(_python(_FAMILY.replace("SECONDS", "300"), token))
    try:
        _require(process.stdout.read(6) == b"ready\n", "close: the probe did not start")
        sandbox.close()
        _require_gone("close", token, 1.0)
        sandbox.close()
    finally:
        with contextlib.suppress(SandboxError, OSError):
            process.kill()


def _parent_death(backend: str) -> None:
    token = secrets.token_hex(8)
    program = f"from envgen.sandboxes.check import _orphan; _orphan({backend!r}, {token!r})"
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, env=env
    ) as parent:
        assert parent.stdout is not None
        ready = parent.stdout.readline()
        parent.send_signal(signal.SIGKILL)
    _require(ready == b"ready\n", f"parent_death: the probe did not start: {ready!r}")
    _require_gone("parent_death", token, backend_module(backend).DEATH_S)


def _orphan(backend: str, token: str) -> None:
    """The process that is killed: its sandbox was made by a thread that has ended."""
    boxes: list[Sandbox] = []
    thread = threading.Thread(target=lambda: boxes.append(_make(backend)))
    thread.start()
    thread.join()
    process = boxes[0].spawn(_python(_FAMILY.replace("SECONDS", "300"), token))
    assert process.stdout.read(6) == b"ready\n"
    time.sleep(0.3)
    _require(bool(_alive(token)), "the probe is not seen in /proc")
    print("ready", flush=True)
    time.sleep(60)


def _alive(token: str) -> list[int]:
    """Processes of this machine with ``token`` in their command line."""
    return [pid for pid, line in _command_lines() if token.encode() in line and pid != os.getpid()]


def _command_lines() -> Iterator[tuple[int, bytes]]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                yield int(name), Path(f"/proc/{name}/cmdline").read_bytes()


def _require_gone(what: str, token: str, within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while alive := _alive(token):
        if time.monotonic() > deadline:
            for pid in alive:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            raise ContractError(f"{what}: {len(alive)} processes survived for {within_s:g} s")
        time.sleep(0.02)


_CHECKS: dict[Guarantee, Callable[[str], None]] = {
    Guarantee.MEMORY: _memory,
    Guarantee.PROCESSES: _processes,
    Guarantee.CPU_TIME: _cpu_time,
    Guarantee.WALL_TIME: _wall_time,
    Guarantee.OUTPUT: _output,
    Guarantee.DISK: _disk,
    Guarantee.NETWORK: _network,
    Guarantee.HOST_FILES: _host_files,
    Guarantee.ENVIRONMENT: _environment,
    Guarantee.FILE_PATHS: _file_paths,
    Guarantee.CLOSE: _close,
    Guarantee.PARENT_DEATH: _parent_death,
}
