"""The host's end of a worker's socket: frames with a deadline, and no trust in what comes."""

from __future__ import annotations

import errno
import resource
import socket
import struct
import time
from collections.abc import Callable
from typing import Any

from envgen.core.errors import SandboxTimeoutError, WorkerDiedError
from envgen.sandboxes.programs.wire import HEADER, decode, pack

_CHUNK = 65_536
MAX_REPLY = 16 * 1024 * 1024


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """A connected pair; raises this process's soft limit of open files when it is reached."""
    try:
        return socket.socketpair()
    except OSError as error:
        if error.errno != errno.EMFILE:
            raise
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = max(4096, 4 * soft)
        more = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
        if more <= soft:
            raise
        resource.setrlimit(resource.RLIMIT_NOFILE, (more, hard))
        return socket.socketpair()


class Channel:
    """Requests and replies over one socket. One thread at a time."""

    def __init__(self, sock: socket.socket, timeout_s: float) -> None:
        self.sock = sock
        self._buffer = b""
        self.timeout_s = timeout_s
        sock.settimeout(None)
        self.set_timeout(timeout_s)

    def set_timeout(self, timeout_s: float) -> None:
        """Allow each reply ``timeout_s`` seconds from now on."""
        self.timeout_s = timeout_s = max(timeout_s, 0.001)
        value = struct.pack("ll", int(timeout_s), int(timeout_s % 1 * 1e6))
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, value)

    def send(self, value: Any) -> None:
        """Send one value. Raises WorkerDiedError or SandboxTimeoutError."""
        self.write(pack(value))

    def write(self, frame: bytes) -> None:
        """Send a packed value. Raises WorkerDiedError or SandboxTimeoutError."""
        try:
            self.sock.sendall(frame)
        except BlockingIOError:
            raise SandboxTimeoutError(f"worker read nothing for {self.timeout_s:g} s") from None
        except (BrokenPipeError, ConnectionResetError):
            if not self._buffer and not self._pending():
                raise WorkerDiedError("worker ended without an answer") from None

    def _pending(self) -> bool:
        try:
            self._buffer = self.sock.recv(_CHUNK, socket.MSG_DONTWAIT)
        except OSError:
            return False
        return bool(self._buffer)

    def recv(self) -> Any:
        """The next reply. Raises WorkerDiedError, SandboxTimeoutError; ValueError on nonsense."""
        (size,) = HEADER.unpack(self.take(4))
        if size > MAX_REPLY:
            raise ValueError(f"a reply of {size} bytes is too large")
        return decode(self.take(size).decode())

    def take(self, size: int, sink: Callable[[bytes], object] | None = None) -> bytes:
        """Exactly ``size`` raw bytes; given a ``sink``, they go there and nothing is returned."""
        buffer = self._buffer
        if len(buffer) >= size and sink is None:
            self._buffer = buffer[size:]
            return buffer[:size]
        parts, left, deadline = [], size, 0.0
        while True:
            part, self._buffer = buffer[:left], buffer[left:]
            left -= len(part)
            parts.append(part) if sink is None else sink(part)
            if not left:
                return b"".join(parts)
            if deadline and time.monotonic() > deadline:
                raise SandboxTimeoutError(f"no whole answer within {self.timeout_s:g} s")
            buffer = self._some()
            deadline = deadline or time.monotonic() + self.timeout_s

    def _some(self) -> bytes:
        try:
            part = self.sock.recv(_CHUNK)
        except BlockingIOError:
            raise SandboxTimeoutError(f"no answer within {self.timeout_s:g} s") from None
        except ConnectionResetError:
            part = b""
        if not part:
            raise WorkerDiedError("worker ended without an answer")
        return part

    def close(self) -> None:
        """Close the socket."""
        self.sock.close()
