"""One program in a container: its streams over the engine's socket, and its end."""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any

from envgen.core.errors import SandboxError, SandboxTimeoutError
from envgen.sandboxes.base import ExecResult
from envgen.sandboxes.patience import Patience

_HEADER = struct.Struct(">BxxxI")
_CHUNK = 1 << 18
_IDLE_S = 0.5
"""After so long without output the engine is asked whether the program still runs."""


def close_stream(stream: Any) -> None:
    """Close a socket of the SDK and the response it keeps, in the order that raises nothing."""
    raw, response = getattr(stream, "_sock", None), getattr(stream, "_response", None)
    for part in (response, stream, raw):
        if part is not None:
            part.close()


def early_bytes(stream: Any, sock: socket.socket) -> bytes:
    """The output that came in one packet with the answer's headers.

    The HTTP client has read it into its own buffer, so the socket has it no more: without this, a program
    that writes at once seems to write nothing, now and then, on a busy machine.
    """
    response = getattr(stream, "_response", None)
    reader = getattr(getattr(getattr(response, "raw", None), "_fp", None), "fp", None)
    if reader is None:
        return b""
    waits = sock.gettimeout()
    sock.settimeout(0)  # an empty buffer would make it wait for the next packet
    try:
        return bytes(reader.peek())
    finally:
        sock.settimeout(waits)


def signalled(code: int) -> int:
    """A shell's 128 + n for a program killed by signal n becomes -n."""
    return 128 - code if 128 < code <= 192 else code


class DockerExec:
    """An exec that has been started, with a socket that carries its three streams."""

    def __init__(
        self,
        api: Any,
        container: str,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: str,
        user: int,
    ) -> None:
        self._api = api
        self._id = api.exec_create(
            container,
            list(argv),
            stdin=True,
            environment=dict(env),
            workdir=cwd,
            user=f"{user}:{user}",
        )["Id"]
        self._stream = api.exec_start(self._id, socket=True)
        self.sock: socket.socket = getattr(self._stream, "_sock", self._stream)
        self._buffer = early_bytes(self._stream, self.sock)

    def run(
        self, stdin: bytes, timeout_s: float, keep: int, cpu_s: Callable[[], float] | None = None
    ) -> ExecResult:
        """Feed it, read it to its end or its time, and close it.

        ``cpu_s`` says what the container has taken on the processor; without it, time is the clock's.
        """
        started = time.monotonic()
        before_s = cpu_s() if cpu_s is not None else 0.0
        patience = Patience(timeout_s)
        deadline = started + timeout_s
        kept: dict[int, bytearray] = {1: bytearray(), 2: bytearray()}
        truncated = timed_out = False
        feeder = threading.Thread(target=self._feed, args=(stdin,), daemon=True)
        feeder.start()
        try:
            while not timed_out:
                try:
                    piece = self.piece(deadline)
                except SandboxTimeoutError:
                    used_s = cpu_s() - before_s if cpu_s is not None else timeout_s
                    more = patience.more_s(time.monotonic() - started, used_s)
                    deadline, timed_out = time.monotonic() + more, not more
                    continue
                if piece is None:
                    break
                kind, data = piece
                room = keep - len(kept[kind])
                kept[kind].extend(data[:room])
                truncated = truncated or len(data) > room
        finally:
            self.close()
            feeder.join(1.0)
        return ExecResult(
            exit_code=-9 if timed_out else self.exit_code(),
            stdout=bytes(kept[1]),
            stderr=bytes(kept[2]),
            wall_s=time.monotonic() - started,
            timed_out=timed_out,
            truncated=truncated,
        )

    def _feed(self, data: bytes) -> None:
        try:
            self.sock.sendall(data)
            self.sock.shutdown(socket.SHUT_WR)
        except OSError:
            return  # it reads no more

    def piece(self, deadline: float | None) -> tuple[int, bytes] | None:
        """The next piece of output as (1 or 2, bytes); None at the end.

        Raises SandboxTimeoutError, and may be called again then: it never stops inside of a piece.
        """
        if deadline is not None and time.monotonic() >= deadline:
            raise SandboxTimeoutError("the time is up")
        head = self._take(_HEADER.size, deadline, whole=True)
        if head is None:
            return None
        kind, self._left = _HEADER.unpack(head)
        # The rest of a piece is read without the deadline: if it were left here, the next call would read the
        # middle of the output as a header, and mix up the streams from there on.
        data = b""
        while len(data) < self._left:
            part = self._take(self._left - len(data), None, whole=False)
            if part is None:
                return None
            data += part
        return (2 if kind == 2 else 1), data

    def _take(self, size: int, deadline: float | None, whole: bool) -> bytes | None:
        while not self._buffer or (whole and len(self._buffer) < size):
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise SandboxTimeoutError("the time is up")
            self.sock.settimeout(_IDLE_S if left is None else min(left, _IDLE_S))
            try:
                part = self.sock.recv(_CHUNK)
            except TimeoutError:
                if self._ended():
                    return None
                continue
            except (ConnectionResetError, OSError):
                part = b""
            if not part:
                return None
            self._buffer += part
        data, self._buffer = self._buffer[:size], self._buffer[size:]
        return data

    def _ended(self) -> bool:
        """Whether the program is gone, though something it left behind holds its streams."""
        return not self._api.exec_inspect(self._id)["Running"]

    def exit_code(self, wait_s: float = 5.0) -> int:
        """Its exit code, which the engine may know a moment after the streams have ended."""
        deadline = time.monotonic() + wait_s
        while time.monotonic() < deadline:
            code = self._api.exec_inspect(self._id)["ExitCode"]
            if code is not None:
                return int(code)
            time.sleep(0.01)
        raise SandboxError("docker: the engine does not say how the program ended")

    def close(self) -> None:
        """Close the socket."""
        close_stream(self._stream)


class DockerProcess:
    """A long-lived program in a container, with pipes."""

    def __init__(self, run: DockerExec, kill: Callable[[int], None]) -> None:
        self._run, self._kill = run, kill
        line = b""
        while not line.endswith(b"\n"):
            piece = run.piece(time.monotonic() + 30)
            if piece is None:
                raise SandboxError(f"docker: the program did not start: {line!r}")
            if piece[0] != 1:
                continue  # the engine may send stderr first
            line += piece[1]
            if b"\n" in line:
                break
        number, _, rest = line.partition(b"\n")
        if not number.isdigit():
            raise SandboxError(f"docker: the program did not start: {line!r}")
        self._pid = int(number)
        read, self._write = os.pipe()
        self.stdout: IO[bytes] = os.fdopen(read, "rb", buffering=0)
        self.stdin: IO[bytes] = os.fdopen(os.dup(run.sock.fileno()), "wb", buffering=0)
        self._pump = threading.Thread(target=self._copy, args=(rest,), daemon=True)
        self._pump.start()

    def _copy(self, first: bytes) -> None:
        with os.fdopen(self._write, "wb", buffering=0) as out:
            try:
                out.write(first)
                while (piece := self._run.piece(None)) is not None:
                    if piece[0] == 1:
                        out.write(piece[1])
            except OSError:
                return  # nobody reads any more

    @property
    def running(self) -> bool:
        """Whether its output is still open."""
        return self._pump.is_alive()

    def wait(self, timeout_s: float | None = None) -> int:
        """Its exit code. Raises SandboxTimeoutError."""
        self._pump.join(timeout_s)
        if self._pump.is_alive():
            raise SandboxTimeoutError(f"still running after {timeout_s:g} s")
        return signalled(self._run.exit_code())

    def kill(self) -> None:
        """End it and its process group."""
        try:
            self._kill(self._pid)
        finally:
            self.release()

    def release(self) -> None:
        """Close the pipes."""
        self._pump.join(1.0)
        self.stdin.close()
        self.stdout.close()
        self._run.close()
