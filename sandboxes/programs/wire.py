"""Frames between host and worker: a four-byte length, then JSON. Standard library only."""

from __future__ import annotations

import json
import os
import socket
import struct
from typing import Any

HEADER = struct.Struct("!I")
MAX_FRAME = 64 * 1024 * 1024
CHUNK = 65_536
GREETING = [0, "ready"]
"""A confined worker's first frame."""

encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


decode = json.JSONDecoder(parse_constant=_refuse).decode


def pack(value: Any) -> bytes:
    """One frame that holds ``value``."""
    body = encode(value).encode()
    if len(body) > MAX_FRAME:
        raise ValueError(f"a frame of {len(body)} bytes is too large")
    return HEADER.pack(len(body)) + body


class Pipe:
    """Frames over a blocking stream socket, given as a bare file descriptor.

    A fresh fork pays for every page it touches; a socket object alone would be a hundred of them.
    """

    def __init__(self, file: int) -> None:
        self.file = file
        self.buffer = b""

    def send(self, value: Any) -> None:
        """Send one value."""
        self.write(pack(value))

    def write(self, data: bytes) -> None:
        """Send raw bytes."""
        sent = os.write(self.file, data)
        if sent < len(data):
            view = memoryview(data)
            while sent < len(data):
                sent += os.write(self.file, view[sent:])

    def recv(self) -> Any:
        """The next value. Raises EOFError when the other end is gone."""
        (length,) = HEADER.unpack(self.take(4))
        if length > MAX_FRAME:
            raise ValueError(f"a frame of {length} bytes is too large")
        return decode(self.take(length).decode())

    def take(self, size: int) -> bytes:
        """Exactly ``size`` bytes."""
        buffer = self.buffer
        if len(buffer) < size:
            parts, have = [buffer], len(buffer)
            while have < size:
                part = os.read(self.file, max(CHUNK, min(size - have, 1 << 20)))
                if not part:
                    raise EOFError("the other end is gone")
                parts.append(part)
                have += len(part)
            buffer = b"".join(parts)
        self.buffer = buffer[size:]
        return buffer[:size]


def recv_with_files(sock: socket.socket, limit: int = 8) -> tuple[Any, list[int]]:
    """One frame and the file descriptors that came with it, read straight from ``sock``."""
    data, files, _, _ = socket.recv_fds(sock, 4, limit)
    if not data:
        raise EOFError("the other end is gone")
    while len(data) < 4:
        data += _some(sock, 4 - len(data))
    (left,) = HEADER.unpack(data)
    body = b""
    while len(body) < left:
        body += _some(sock, left - len(body))
    return decode(body.decode()), list(files)


def _some(sock: socket.socket, size: int) -> bytes:
    part = sock.recv(size)
    if not part:
        raise EOFError("the other end is gone")
    return part
