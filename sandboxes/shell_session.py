"""A shell that keeps its state between commands: one bash in a sandbox, talked to over pipes."""

from __future__ import annotations

import base64
import os
import secrets
import select
import time
from collections.abc import Mapping
from typing import NamedTuple

from envgen.core.errors import SandboxError, SandboxTimeoutError
from envgen.sandboxes.base import WORK, Process, Sandbox
from envgen.sandboxes.patience import Patience

_CHUNK = 1 << 16
_GRACE_S = 3.0
_START = b"exec 9>&1 2>&1\n"
_STOP = r"""
kids() {
  local parent=$1 p line rest
  for p in /proc/[0-9]*; do
    read -r line 2>/dev/null < "$p/stat" || continue
    rest=${line##*) }; rest=${rest#* }
    if [ "${rest%% *}" = "$parent" ]; then kids "${p#/proc/}"; echo "${p#/proc/}"; fi
  done
}
kill -9 $(kids "$0") 2>/dev/null
true
"""
"""Kill all that descends from a process, but not the process."""


class ShellResult(NamedTuple):
    """How a command ended.

    Attributes:
        output: what it wrote to stdout and stderr, the middle cut out where it was too long.
        exit_code: None where the command did not end by itself.
        timed_out: it was stopped after its time; what the shell had started was killed.
        restarted: the shell ended with it: the next command gets a new one, without its variables.
    """

    output: bytes
    exit_code: int | None
    timed_out: bool = False
    restarted: bool = False


class ShellSession:
    """One bash whose folder, variables and background processes last from command to command.

    Args:
        sandbox: where it runs; it must outlive the session.
        cwd: where it starts.
        env: its variables at first.
        output_bytes: kept of a command's output, its head and its tail.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        *,
        cwd: str = WORK,
        env: Mapping[str, str] | None = None,
        output_bytes: int = 1 << 17,
    ) -> None:
        self._sandbox, self._cwd, self._env = sandbox, cwd, dict(env or {})
        self._keep = output_bytes
        self._process: Process | None = None
        self._pid = ""

    def run(self, command: str, timeout_s: float) -> ShellResult:
        """Run a command line and wait for its end, or until its time is up (``patience.py``).

        Its stdin is empty.

        Raises:
            SandboxError: if the sandbox is dead.
        """
        process = self._process or self._start()
        mark = f"\x01{secrets.token_hex(12)}"
        coded = base64.b64encode(command.encode("utf-8", "surrogateescape")).decode()
        line = (
            f"eval \"$(base64 -d <<< '{coded}')\" < /dev/null\n"
            f"printf '%s %d\\n' $'\\x01'{mark[1:]} $? >&9\n"
        )
        if not self._send(line.encode()):
            self.close()
            return ShellResult(b"", None, restarted=True)
        reader = _OutputReader(process, mark.encode(), self._keep)
        began, before_s = time.monotonic(), self._sandbox.cpu_s
        patience, more = Patience(timeout_s), timeout_s
        while more:
            if reader.read(time.monotonic() + more):
                return self._result(reader, timed_out=False)
            used_s = self._sandbox.cpu_s - before_s
            more = patience.more_s(time.monotonic() - began, used_s)
        self._stop_children()
        if reader.read(time.monotonic() + _GRACE_S):
            return self._result(reader, timed_out=True)
        self.close()
        return ShellResult(reader.output(), None, timed_out=True, restarted=True)

    def close(self) -> None:
        """End the shell and what it started. May be called again."""
        process, self._process = self._process, None
        if process is not None:
            try:
                process.kill()
            except SandboxTimeoutError as error:
                raise SandboxError("the shell does not end") from error

    def _start(self) -> Process:
        process = self._sandbox.spawn(["bash", "--noprofile", "--norc"], self._env, self._cwd)
        self._process = process
        self._send(_START)
        started = self.run("echo $$", 30.0)
        if self._process is None or started.exit_code != 0:
            raise SandboxError(f"bash does not start: {started.output[-300:]!r}")
        self._pid = started.output.decode(errors="replace").strip()
        return process

    def _send(self, line: bytes) -> bool:
        """Write a line; False if nobody reads any more."""
        assert self._process is not None
        try:
            left = memoryview(line)
            while left:
                left = left[self._process.stdin.write(left) or 0 :]
            self._process.stdin.flush()
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    def _stop_children(self) -> None:
        """Kill what the shell has started. Raises SandboxError if the sandbox can't, and so has ended."""
        self._sandbox.exec(["bash", "-c", _STOP, self._pid], timeout_s=_GRACE_S * 3)
        if self._process is None or self._process.stdout.closed:
            raise SandboxError("the sandbox has ended")

    def _result(self, reader: _OutputReader, *, timed_out: bool) -> ShellResult:
        if reader.exit_code is None:  # the output ended: so did the shell
            self.close()
            return ShellResult(reader.output(), None, timed_out, restarted=True)
        return ShellResult(reader.output(), None if timed_out else reader.exit_code, timed_out)


class _OutputReader:
    """Reads a command's output up to the line with its mark."""

    def __init__(self, process: Process, mark: bytes, keep: int) -> None:
        self._file = process.stdout.fileno()
        self._poll = select.poll()
        self._poll.register(self._file, select.POLLIN | select.POLLHUP)
        self._mark, self._keep = mark, keep
        self._head, self._tail = bytearray(), bytearray()
        self._cut = 0
        self.exit_code: int | None = None

    def read(self, deadline: float) -> bool:
        """Read on; whether the mark or the output's end was reached in time."""
        while True:
            left = deadline - time.monotonic()
            if left <= 0 or not self._poll.poll(left * 1000):
                return False
            part = os.read(self._file, _CHUNK)
            if not part:
                return True
            self._tail += part
            if self._take_mark():
                return True
            self._shorten()

    def _take_mark(self) -> bool:
        at = self._tail.rfind(self._mark)
        end = self._tail.find(b"\n", at)
        if at < 0 or end < 0:
            return False
        try:
            self.exit_code = int(self._tail[at + len(self._mark) : end])
        except ValueError:  # the command wrote the mark itself, which it can't know: go on
            return False
        del self._tail[at : end + 1]
        return True

    def _shorten(self) -> None:
        """Move the beginning to the head, then drop from the middle."""
        half = self._keep // 2
        if len(self._tail) <= self._keep:
            return
        room = max(0, half - len(self._head))
        self._head += self._tail[:room]
        drop = len(self._tail) - half
        self._cut += max(0, drop - room)
        del self._tail[:drop]

    def output(self) -> bytes:
        """Return the output, without the mark."""
        self._shorten()
        cut = f"\n... [{self._cut} bytes cut] ...\n".encode() if self._cut else b""
        return bytes(self._head) + cut + bytes(self._tail)
