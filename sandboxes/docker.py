"""The docker backend: one container per sandbox, through a local Docker Engine.

The container's first process reads its standard input and ends with it. That stream is held open
by this process alone, so the container goes when this process goes, however it ends. Containers
that are still left, because the engine itself was down, are removed at the next start by label.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import math
import os
import socket
import sys
import tarfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from envgen.core.errors import SandboxError, SandboxUnavailableError, install_hint
from envgen.sandboxes import cgroups, docker_seccomp, runtime
from envgen.sandboxes.base import WORK, ExecResult, Guarantee, Sandbox, SandboxSpec
from envgen.sandboxes.docker_exec import DockerExec, DockerProcess, close_stream, signalled

GUARANTEES = frozenset(Guarantee)
DEATH_S = 5.0
"""Within this many seconds of its parent's death a sandbox is gone."""
HOST_IMAGE = "envgen-host:1"
"""An empty image: this machine's libraries and interpreter are mounted into it, read-only."""
LABEL = "envgen.owner"
NOBODY = 65534
_ANSWER_S = 30.0
SH = "/bin/sh"
"""By its path: a program's ``PATH`` could name another."""
FIRST = [
    SH,
    "-c",
    """trap 'jobs >/dev/null 2>&1; woken=1' CHLD
while :; do
    if read -r word; then
        { [ "$word" != end ] || while kill -9 -1; do jobs; done; jobs; } >/dev/null 2>&1
        echo
    elif [ -n "$woken" ]; then
        woken=
    else
        break
    fi
done""",
]
"""The first process: it collects dead children, answers each line, and ends with its input.

At ``end`` it first kills all others, until none is left. It never forks, which it can't while ``pids``
are used up: its builtin ``jobs`` collects, and killing goes on as long as there is anything to kill. A
child's end interrupts the builtin ``read``, which then fails as it does at the end of the input.
"""
_KILLABLE = "echo 1000 >/proc/self/oom_score_adj || exit 126; "
"""Programs are killed for the container's memory before its first process is, so that the sandbox stays."""
_RUN = f'{_KILLABLE}exec "$@"'
_END = """while kill -9 -1 2>/dev/null; do
    live=
    for entry in /proc/[0-9]*; do
        case $entry in /proc/1|/proc/$$) continue ;; esac
        [ -r $entry/status ] || continue
        while read -r key value _; do
            [ "$key" = State: ] && [ "$value" != Z ] && live=1
        done <$entry/status
    done 2>/dev/null
    [ -n "$live" ] || break
done"""
"""End every process but this shell and the first, and wait until they are dead (-1 means all others)."""
_RUN_ALONE = f'{_KILLABLE}"$@"; code=$?; {_END}; exit $code'
_OOM_KILLS = """cd /sys/fs/cgroup
for file in memory.events memory/memory.oom_control; do
    [ -r $file ] && while read -r key value; do [ $key = oom_kill ] && echo $value; done < $file
done
true"""
_SPAWN = f'{_KILLABLE}echo $$; exec "$@"'
_FOLDERS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32", "usr")
_local = threading.local()


def client() -> Any:
    """This thread's connection to the engine. Raises SandboxUnavailableError."""
    if getattr(_local, "pid", None) == os.getpid():
        return _local.client
    try:
        import docker
    except ImportError:
        raise SandboxUnavailableError(
            "the docker package is not installed", install_hint("docker")
        ) from None
    try:
        _knock()
        _local.client = docker.from_env(timeout=60)
        _local.client.ping()
    except (docker.errors.DockerException, OSError) as error:
        raise SandboxUnavailableError(
            f"no Docker Engine answers: {error}", "start it, or use backend='bubblewrap'"
        ) from error
    _local.pid = os.getpid()
    atexit.register(_local.client.close)
    return _local.client


def _knock() -> None:
    """Try the engine's socket first: the SDK leaves one open that it can't connect."""
    url = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    if url.startswith("unix://"):
        with socket.socket(socket.AF_UNIX) as probe:
            probe.connect(url.removeprefix("unix://"))


@contextlib.contextmanager
def engine_errors(doing: str) -> Iterator[None]:
    """Turn the engine's errors into SandboxError."""
    import docker
    import requests

    try:
        yield
    except (docker.errors.DockerException, requests.RequestException, OSError) as error:
        raise SandboxError(f"docker: {doing}: {error}") from error


@cache
def _probe() -> str:
    try:
        client()
    except SandboxUnavailableError as error:
        return str(error)
    return ""


def unavailable() -> str:
    """Why this backend can't be used here, found by asking the engine; empty when it can."""
    return _probe()


def unsupported(spec: SandboxSpec) -> str:
    """List the parts of ``spec`` that this backend can't provide."""
    if spec.root is not None:
        return "takes an image, not a root folder"
    if spec.image is None and sys.platform != "linux":
        return "needs an image on this system"
    if named := [str(m.source) for m in spec.mounts if ":" in f"{m.source}{m.target}"]:
        return f"can't show a path with a colon: {named[0]!r}"  # it would end the name
    return ""


def start(spec: SandboxSpec) -> Sandbox:
    """Start a sandbox. Use ``envgen.sandboxes.base.create``, which checks the spec first."""
    return DockerSandbox(spec)


def owner() -> str:
    """This process, told from any other that had or will have its number."""
    return f"{socket.gethostname()}:{os.getpid()}:{_started(os.getpid())}"


def _started(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return "0"


def reap() -> int:
    """Remove the containers whose process is gone; how many there were."""
    removed = 0
    with engine_errors("reap"):
        for container in client().api.containers(all=True, filters={"label": LABEL}):
            host, pid, begun = container["Labels"][LABEL].split(":")
            if host != socket.gethostname() or begun == "0" or _started(int(pid)) == begun:
                continue
            with contextlib.suppress(SandboxError), engine_errors("reap"):
                client().api.remove_container(container["Id"], force=True)
                removed += 1
    return removed


def host_image() -> str:
    """The empty image for this machine's own files, made on first use."""
    import docker

    with engine_errors("make an empty image"):
        try:
            client().api.inspect_image(HOST_IMAGE)
        except docker.errors.ImageNotFound:
            buffer = io.BytesIO()
            with tarfile.open(fileobj=buffer, mode="w") as archive:
                for name in (*_FOLDERS, "etc", "tmp", "work", "proc", "dev", "sys", "run"):
                    entry = tarfile.TarInfo(name)
                    if os.path.islink(f"/{name}"):
                        entry.type, entry.linkname = tarfile.SYMTYPE, os.readlink(f"/{name}")
                    else:
                        entry.type = tarfile.DIRTYPE
                        entry.mode = 0o1777 if name in ("tmp", "work") else 0o755
                    archive.addfile(entry)
            repository, _, tag = HOST_IMAGE.partition(":")
            client().api.import_image_from_data(buffer.getvalue(), repository=repository, tag=tag)
    return HOST_IMAGE


def host_binds() -> list[str]:
    """Binds that show this machine's system folders and interpreter in the empty image."""
    folders = [f"/{name}" for name in _FOLDERS]
    shown = [path for path in folders if os.path.isdir(path) and not os.path.islink(path)]
    prefix = str(Path(runtime.python()).parent.parent)
    if not any(f"{prefix}/".startswith(f"{path}/") for path in shown):
        shown.append(prefix)
    if os.path.exists("/etc/ld.so.cache"):
        shown.append("/etc/ld.so.cache")
    return [f"{path}:{path}:ro" for path in shown]


def make(
    spec: SandboxSpec,
    command: Sequence[str],
    binds: Sequence[str],
    user: int,
    env: Mapping[str, str],
) -> tuple[str, Any]:
    """Create and start a container; its id and the socket of its standard input."""
    import docker

    image = spec.image
    binds = list(binds)
    if image is None:
        image, binds = host_image(), host_binds() + binds
    for mount in spec.mounts:
        binds.append(f"{mount.source}:{mount.target}:{'rw' if mount.writable else 'ro'}")
    api = client().api
    with engine_errors(f"start a container of {image}"):
        container = api.create_container(
            image,
            list(command),
            environment=dict(env),
            entrypoint=[],
            host_config=_host_config(spec, binds, user),
            hostname="sandbox",
            labels={LABEL: owner()},
            stdin_open=True,
            user=f"{user}:{user}",
            working_dir="/",
        )["Id"]
        try:
            stdin = api.attach_socket(container, {"stdin": 1, "stdout": 1, "stream": 1})
            api.start(container)
        except BaseException:
            with contextlib.suppress(docker.errors.DockerException):
                api.remove_container(container, force=True)
            raise
    return container, stdin


def _host_config(spec: SandboxSpec, binds: Sequence[str], user: int) -> Any:
    import docker

    size = f"size={spec.disk_bytes},mode=1777,uid={user},gid={user},exec"
    cpu = math.ceil(spec.cpu)
    limits = [("cpu", cpu), ("core", 0), ("fsize", spec.disk_bytes), ("nofile", 4096)]
    return client().api.create_host_config(
        auto_remove=True,
        binds=list(binds),
        cap_drop=["ALL"],
        security_opt=["no-new-privileges", f"seccomp={docker_seccomp.profile()}"],
        network_mode="bridge" if spec.network == "internet" else "none",
        mem_limit=spec.memory_bytes,
        memswap_limit=spec.memory_bytes,
        pids_limit=spec.pids,
        read_only=True,
        shm_size=min(spec.disk_bytes, 64 << 20),
        tmpfs=dict.fromkeys((WORK, "/tmp", "/var/tmp"), size),
        ulimits=[docker.types.Ulimit(name=n, soft=v, hard=v) for n, v in limits],
    )


def remove(container: str, stdin: Any) -> None:
    """Kill a container and wait until it is gone."""
    import docker

    close_stream(stdin)
    with engine_errors("remove a container"):
        for act in (client().api.kill, client().api.wait):
            with contextlib.suppress(docker.errors.NotFound):
                try:
                    act(container)
                except docker.errors.APIError as error:
                    if error.status_code != 409:  # it is going already
                        raise


class DockerSandbox:
    """A container that programs are exec'ed in."""

    backend = "docker"

    def __init__(self, spec: SandboxSpec) -> None:
        self.spec = spec
        self.user = spec.user if spec.user is not None else NOBODY
        reap()
        self._oom_kills = 0
        self._cpu_s = 0.0
        self._spawned: list[DockerProcess] = []
        self._aborted = False
        self._container: str | None = None
        self._container, self._stdin = make(spec, FIRST, [], self.user, runtime.clean_env())

    def __enter__(self) -> DockerSandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def container(self) -> str:
        """The container's id. Raises SandboxError when it is closed."""
        if self._container is None:
            raise SandboxError("the sandbox is closed")
        return self._container

    def _exec(
        self, argv: Sequence[str], env: Mapping[str, str] | None, cwd: str, script: str
    ) -> DockerExec:
        if isinstance(argv, str) or not argv:
            raise SandboxError("argv must be a list of words", 'e.g. ["sh", "-c", "ls"]')
        words = [SH, "-c", script, "sh", *argv]
        inside = {"HOME": WORK, "LANG": "C.UTF-8", **(env or {})}
        return DockerExec(client().api, self.container, words, inside, cwd, self.user)

    @property
    def cpu_s(self) -> float:
        """Seconds on the processor, as its control group counts them."""
        with contextlib.suppress(SandboxError, KeyError):
            used = self._group.cpu_s()
            self._cpu_s = max(self._cpu_s, self._told_cpu_s() if used is None else used)
        return self._cpu_s

    @cached_property
    def _group(self) -> cgroups.ControlGroup:
        with engine_errors("inspect"):
            state = client().api.inspect_container(self.container)["State"]
        return cgroups.of_container(self.container, state["Pid"])

    def _told_cpu_s(self) -> float:
        """Ask the engine, where the group is not this machine's. Older engines take a second."""
        with engine_errors("stats"):
            stats = client().api.stats(self.container, stream=False, one_shot=True)
        return float(stats["cpu_stats"]["cpu_usage"]["total_usage"]) / 1e9

    def exec(
        self,
        argv: Sequence[str],
        stdin: bytes = b"",
        timeout_s: float | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str = WORK,
    ) -> ExecResult:
        """Run a program to its end; what it leaves running ends with it.

        A timeout ends every program of the sandbox. While a spawned program runs, what an exec
        leaves running lives until the sandbox is closed: the two can't be told apart.
        """
        limit = self.spec.wall_s if timeout_s is None else timeout_s
        script = _RUN if any(process.running for process in self._spawned) else _RUN_ALONE
        with engine_errors("exec"):
            run = self._exec(argv, env, cwd, script)
            result = run.run(stdin, limit, self.spec.output_bytes, lambda: self.cpu_s)
            if self._aborted:
                raise SandboxError("the sandbox was aborted")
            if result.timed_out:
                self.end_all()
            elif script is _RUN_ALONE:
                self._collect()
            code = signalled(result.exit_code)
            oom = code == -9 and not result.timed_out and self._out_of_memory()
        return result.model_copy(update={"exit_code": code, "oom": oom})

    def _out_of_memory(self) -> bool:
        """Whether the container's control group has killed a process since the last time."""
        words = [SH, "-c", _OOM_KILLS]
        result = DockerExec(client().api, self.container, words, {}, "/", self.user).run(
            b"", 10.0, 4096
        )
        if result.exit_code:  # no memory is left to start a shell in
            return True
        before, self._oom_kills = self._oom_kills, int(result.stdout or b"0")
        return self._oom_kills > before

    def end_all(self) -> None:
        """Have the first process kill every other and collect them.

        No exec could be relied on for it: it needs free ``pids`` and a share of the processors.
        """
        self._tell_first(b"end\n")

    def _collect(self) -> None:
        """Have the first process collect the dead, which would count among the next program's ``pids``."""
        self._tell_first(b"\n")

    def _tell_first(self, line: bytes) -> None:
        raw = getattr(self._stdin, "_sock", self._stdin)
        raw.sendall(line)
        raw.settimeout(_ANSWER_S)
        try:
            answer = raw.recv(4096)
        except TimeoutError:
            raise SandboxError("docker: the container's first process does not answer") from None
        if not answer:
            raise SandboxError("docker: the container has died")

    def spawn(
        self, argv: Sequence[str], env: Mapping[str, str] | None = None, cwd: str = WORK
    ) -> DockerProcess:
        """Start a long-lived program."""
        with engine_errors("spawn"):
            process = DockerProcess(self._exec(argv, env, cwd, _SPAWN), self._kill_group)
        self._spawned.append(process)
        return process

    def _kill_group(self, pid: int) -> None:
        words = [SH, "-c", f"kill -9 -{pid} || kill -9 {pid}"]
        DockerExec(client().api, self.container, words, {}, "/", self.user).run(b"", 10.0, 1024)

    def read_file(self, path: str, max_bytes: int = 64 << 20) -> bytes:
        """A file below the work folder."""
        script = '[ -f "$0" ] || { echo "$0: no regular file" >&2; exit 1; }; exec cat "$0"'
        return self._file(path, script, b"", max_bytes)

    def write_file(self, path: str, content: bytes) -> None:
        """Write a file below the work folder."""
        script = 'mkdir -p "${0%/*}" && exec cat > "$0"'
        self._file(path, script, content, 1024)

    def _file(self, path: str, script: str, content: bytes, keep: int) -> bytes:
        pure = PurePosixPath(WORK) / os.fspath(path)
        if ".." in pure.parts or pure.parts[:2] != ("/", WORK[1:]) or "\0" in str(pure):
            raise SandboxError(f"{path!r} is not a path below {WORK}")
        chain = [str(pure), *map(str, list(pure.parents)[:-2])]
        guard = 'for p in "$@"; do [ -L "$p" ] && { echo "$p: a link" >&2; exit 1; }; done; '
        words = [SH, "-c", guard + script, *([chain[0], *chain])]
        with engine_errors("file"):
            result = DockerExec(client().api, self.container, words, {}, WORK, self.user).run(
                content, 60.0, keep
            )
        if result.exit_code or result.timed_out:
            raise SandboxError(result.stderr.decode(errors="replace").strip() or "failed")
        if result.truncated:
            raise SandboxError(f"{path!r} is larger than {keep} bytes")
        return result.stdout

    def abort(self) -> None:
        """Kill everything in it, from any thread."""
        import docker

        self._aborted = True
        container = self._container
        if container is None:
            return
        with engine_errors("abort"):
            try:
                client().api.kill(container)
            except docker.errors.APIError as error:
                if error.status_code not in (404, 409):  # it is gone, or going
                    raise

    def close(self) -> None:
        """Kill and remove the container."""
        container, self._container = self._container, None
        if container is not None:
            try:
                remove(container, self._stdin)
            finally:
                for process in self._spawned:
                    process.release()
