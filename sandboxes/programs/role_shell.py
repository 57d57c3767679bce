"""Zygote role: run programs and handle files for a sandbox. Standard library only.

Each request is served by a forked supervisor. It is the subreaper of the program it starts, so
whatever the program leaves behind becomes its child and can be found and killed.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import select
import signal
import socket
import stat
import time
from importlib import import_module
from typing import Any

toolbox = import_module("toolbox")
PR_SET_CHILD_SUBREAPER = 36
STATE: dict[str, Any] = {}


def prepare(config: dict[str, Any], files: list[int]) -> None:
    """Keep the configuration, and the doors of the control group that programs are to enter.

    Where the configuration says ``listen``, the first file is the socket that wants a listener on that
    address of this network namespace.
    """
    STATE.update(config)
    if "listen" in config:
        with socket.socket(fileno=os.dup(files[0])) as wants, socket.socket() as listener:
            listener.bind(tuple(config["listen"]))
            listener.listen()
            socket.send_fds(wants, [b"."], [listener.fileno()])
        files = files[1:]
    STATE["doors"] = [os.dup(file) for file in files]
    if os.uname().sysname == "Linux":
        STATE["prctl"] = ctypes.CDLL(None).prctl


def become_user() -> None:
    """Enter the control group and change to the uid of the program, and so lose every capability."""
    for door in STATE["doors"]:
        os.write(door, b"0")
    uid = STATE.get("worker_uid")
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)


def serve(pipe: Any, request: dict[str, Any], files: list[int]) -> None:
    """Serve one request: ``exec``, ``read`` or ``write``."""
    kind = request["kind"]
    if kind == "exec":
        supervise(pipe, request, files)
        return
    become_user()
    os.umask(0o022)
    try:
        if kind == "read":
            content = read_file(request["path"], request["max_bytes"])
            pipe.send([toolbox.VALUE, len(content)])
            pipe.write(content)
        else:
            write_file(request["path"], pipe.take(request["size"]))
            pipe.send([toolbox.VALUE, None])
    except (OSError, ValueError) as error:
        pipe.send([toolbox.FAULT, str(error)])


def supervise(pipe: Any, request: dict[str, Any], files: list[int]) -> None:
    """Run a program; answer ``[VALUE, exit_code]`` when it and all it started have ended.

    ``exit_code`` is None when the host asked for the end by sending anything, or is gone.
    """
    if "prctl" in STATE:
        STATE["prctl"](PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    child = os.fork()
    if child == 0:
        os.close(pipe.file)
        become_program(request, files)
    for file in files:
        os.close(file)
    code = wait_for(pipe, child)
    end_descendants()
    pipe.send([toolbox.VALUE, code])


def wait_for(pipe: Any, child: int) -> int | None:
    """The exit code of ``child``; None when the host asked for its end, or is gone.

    Orphans below the program are children of this process: each is reaped as it ends, or dead processes
    would fill the sandbox's limit until nothing can be forked.
    """
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(woken, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    poll = select.poll()
    poll.register(woken, select.POLLIN)
    poll.register(pipe.file, select.POLLIN)
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == child:
            return os.waitstatus_to_exitcode(status)
        if pid:
            continue
        if pipe.file in (file for file, _ in poll.poll()):
            if "prctl" not in STATE:  # without /proc nobody finds it later
                os.killpg(child, signal.SIGKILL)
            return None
        try:
            os.read(woken, 4096)
        except BlockingIOError:
            pass


def descendants() -> list[int]:
    """Every process below this one, from /proc."""
    parents: dict[int, list[int]] = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else []:
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as handle:
                rest = handle.read().rpartition(b")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(rest[1]), []).append(int(name))
    found, queue = [], [os.getpid()]
    while queue:
        children = parents.get(queue.pop(), [])
        found += children
        queue += children
    return found


def end_descendants() -> None:
    """Stop, then kill everything below this process, until nothing is left."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        below = descendants()
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in below:
                try:
                    os.kill(pid, number)
                except OSError:
                    pass
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.002)


def become_program(request: dict[str, Any], files: list[int]) -> None:
    """Turn this process into the program. Never returns."""
    code = 126
    try:
        os.setsid()
        for target, file in enumerate(files):
            os.dup2(file, target)
        become_user()
        os.umask(0o022)
        for signum in (signal.SIGPIPE, signal.SIGINT):
            signal.signal(signum, signal.SIG_DFL)
        limits(STATE)
        os.chdir(request["cwd"])
        os.closerange(3, 4096)
        os.execvpe(request["argv"][0], request["argv"], request["env"])
    except OSError as error:
        code = 127 if error.errno == errno.ENOENT else 126
        os.write(2, f"{request['argv'][0]}: {error.strerror}\n".encode(errors="replace"))
    except (ValueError, TypeError) as error:
        os.write(2, f"{error}\n".encode(errors="replace"))
    finally:
        os._exit(code)


def limits(config: dict[str, Any]) -> None:
    """Set the limits of the program."""
    wanted = [
        (resource.RLIMIT_AS, config["address_bytes"]),
        (resource.RLIMIT_CPU, config["cpu_s"]),
        (resource.RLIMIT_FSIZE, config["disk_bytes"]),
        (resource.RLIMIT_NOFILE, 4096),
    ]
    if config["pids"]:
        wanted.append((resource.RLIMIT_NPROC, config["pids"]))
    for kind, value in wanted:
        hard = resource.getrlimit(kind)[1]
        if hard != resource.RLIM_INFINITY:
            value = min(value, hard)
        resource.setrlimit(kind, (value, value))


def _parts(path: str) -> list[str]:
    work = STATE["work"]
    if path.startswith("/"):
        if not path.startswith(work + "/"):
            raise ValueError(f"{path!r} is outside {work}")
        path = path[len(work) + 1 :]
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if not parts or ".." in parts or "\0" in path:
        raise ValueError(f"{path!r} is not a path below {work}")
    return parts


def _walk(parts: list[str], make: bool) -> int:
    """A handle of the folder that holds the last part; a link on the way is refused."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    folder = os.open(STATE["work"], os.O_RDONLY | os.O_DIRECTORY)
    for part in parts[:-1]:
        try:
            if make:
                try:
                    os.mkdir(part, 0o755, dir_fd=folder)
                except FileExistsError:
                    pass
            below = os.open(part, flags, dir_fd=folder)
        finally:
            os.close(folder)
        folder = below
    return folder


def read_file(path: str, max_bytes: int) -> bytes:
    """The content of a regular file below the work folder."""
    parts = _parts(path)
    folder = _walk(parts, make=False)
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    with os.fdopen(os.open(parts[-1], flags, dir_fd=folder), "rb") as handle:
        info = os.fstat(handle.fileno())
        if not stat.S_ISREG(info.st_mode):
            raise ValueError(f"{path!r} is not a regular file")
        content = handle.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise ValueError(f"{path!r} is larger than {max_bytes} bytes")
    return content


def write_file(path: str, content: bytes) -> None:
    """Write a regular file below the work folder."""
    parts = _parts(path)
    folder = _walk(parts, make=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
    with os.fdopen(os.open(parts[-1], flags, 0o644, dir_fd=folder), "wb") as handle:
        if not stat.S_ISREG(os.fstat(handle.fileno()).st_mode):
            raise ValueError(f"{path!r} is not a regular file")
        handle.truncate(0)
        handle.write(content)
