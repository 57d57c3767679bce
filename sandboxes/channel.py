"""The host's end of a worker's socket: frames with a limit of time, and no trust in what comes.

Time is the worker's: a reply may take ``timeout_s`` seconds on the processor, and one that only waits is cut
off after ``WAITS`` times as long (``patience.py``). The kernel says who the worker is (the credentials of its
greeting) and how long it was on the processor; its own word counts for neither.
"""

from __future__ import annotations

import errno
import resource
import socket
import struct
import time
from collections.abc import Callable
from typing import Any

from envgen.core.errors import SandboxTimeoutError, WorkerDiedError
from envgen.sandboxes.frames import fault, odd
from envgen.sandboxes.patience import Patience
from envgen.sandboxes.programs.wire import GREETING, HEADER, decode, pack

_CHUNK = 65_536
_CREDENTIALS = struct.Struct("3i")
MAX_REPLY = 16 * 1024 * 1024
WAITS = 6.0
"""A reply may wait for so many times as long as it may take on the processor."""
GREETING_S = 30.0
"""A new worker that has not greeted within so long never will."""


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
    """Requests and replies over one socket. One thread at a time.

    Args:
        sock: our end.
        timeout_s: for each reply.
        greeted: whether the worker greets first; make the channel before the worker is asked for.

    Attributes:
        cpu_s: what the worker had taken on the processor when it last replied, as the kernel says; 0 where
            the kernel does not say (another system, no greeting).
        greeting: whether a greeting is still to come.
    """

    def __init__(self, sock: socket.socket, timeout_s: float, greeted: bool = False) -> None:
        self.sock = sock
        self._buffer = b""
        self.timeout_s = timeout_s
        self.cpu_s = 0.0
        self.greeting = greeted
        self._clock: int | None = None
        sock.settimeout(None)
        self.set_timeout(timeout_s)
        if greeted and hasattr(socket, "SO_PASSCRED"):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)

    def set_timeout(self, timeout_s: float) -> None:
        """Allow each reply ``timeout_s`` seconds from now on."""
        self.timeout_s = timeout_s = max(timeout_s, 0.001)
        self._look_after(socket.SO_RCVTIMEO, timeout_s)
        self._look_after(socket.SO_SNDTIMEO, timeout_s)

    def _look_after(self, which: int, seconds: float) -> None:
        value = struct.pack("ll", int(seconds), int(seconds % 1 * 1e6))
        self.sock.setsockopt(socket.SOL_SOCKET, which, value)

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
        if self.greeting:
            first = self._frame()
            if first != GREETING:
                raise WorkerDiedError(f"no worker came up: {first!r:.300}")
            self.greeting = False
        reply = self._frame()
        self._read_clock()
        return reply

    def _frame(self) -> Any:
        (size,) = HEADER.unpack(self.take(4))
        if size > MAX_REPLY:
            raise ValueError(f"a reply of {size} bytes is too large")
        text = self.take(size).decode()
        value = decode(text)
        if odd(text) and (found := fault(value)):
            raise ValueError(found)
        return value

    def _read_clock(self) -> float:
        """Seconds that the worker has been on the processor, in all."""
        if self._clock is not None:
            try:
                self.cpu_s = time.clock_gettime(self._clock)
            except OSError:  # it has ended: what it took last is what is known
                self._clock = None
        return self.cpu_s

    def take(self, size: int, sink: Callable[[bytes], object] | None = None) -> bytes:
        """Exactly ``size`` raw bytes; given a ``sink``, they go there and nothing is returned."""
        buffer = self._buffer
        if len(buffer) >= size and sink is None:
            self._buffer = buffer[size:]
            return buffer[:size]
        parts, left, began, before = [], size, 0.0, self.cpu_s
        patience = self._patience()
        while True:
            part, self._buffer = buffer[:left], buffer[left:]
            left -= len(part)
            parts.append(part) if sink is None else sink(part)
            if not left:
                return b"".join(parts)
            if began:
                self._check(time.monotonic() - began, before, patience)
            buffer = self._some()
            began = began or time.monotonic()

    def _some(self) -> bytes:
        """The next bytes, however long they take within the limits."""
        began, before = time.monotonic(), self.cpu_s
        patience: Patience | None = None
        try:
            while True:
                try:
                    part = self._receive()
                except BlockingIOError:
                    patience = patience or self._patience()
                    next_s = self._check(time.monotonic() - began, before, patience)
                    self._look_after(socket.SO_RCVTIMEO, next_s)
                    continue
                except ConnectionResetError:
                    part = b""
                if not part:
                    raise WorkerDiedError("worker ended without an answer")
                return part
        finally:
            if patience is not None:
                self._look_after(socket.SO_RCVTIMEO, self.timeout_s)

    def _receive(self) -> bytes:
        """Some bytes; with the first ones the kernel says who sent them."""
        if not self.greeting or self._clock is not None or not hasattr(socket, "SO_PASSCRED"):
            return self.sock.recv(_CHUNK)
        part, notes, _, _ = self.sock.recvmsg(_CHUNK, socket.CMSG_SPACE(_CREDENTIALS.size))
        for level, kind, content in notes:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
                if pid := _CREDENTIALS.unpack(content)[0]:  # 0: it can't be seen from here
                    self._clock = (~pid << 3) | 2  # CPUCLOCK_SCHED of that process
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 0)
        return part

    def _check(self, waited_s: float, before_s: float, patience: Patience) -> float:
        """Seconds after which to look again. Raises when the worker is past its time.

        Args:
            waited_s: since the wait began.
            before_s: what the worker had taken on the processor then.
            patience: of this wait.
        """
        if self.greeting and self._clock is None:
            if waited_s >= max(GREETING_S, self.timeout_s):
                raise WorkerDiedError(f"no worker came up within {waited_s:.0f} s")
            return max(0.05, max(GREETING_S, self.timeout_s) - waited_s)
        used_s = self._read_clock() - before_s
        next_s = patience.more_s(waited_s, used_s)
        if not next_s:
            raise SandboxTimeoutError(f"no answer within {self.timeout_s:g} s")
        return next_s

    def _patience(self) -> Patience:
        return Patience(self.timeout_s, WAITS * self.timeout_s)

    def close(self) -> None:
        """Close the socket."""
        self.sock.close()
