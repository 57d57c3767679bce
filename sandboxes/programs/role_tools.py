"""Zygote role: the tools of one environment on its database."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

toolbox = import_module("toolbox")
wire = import_module("wire")

STATE: dict[str, Any] = {}


def _content(file: int) -> bytes:
    with open(file, "rb", closefd=False) as handle:
        return handle.read()


def prepare(config: dict[str, Any], files: list[int]) -> None:
    """Load the database from ``files[0]`` and tools.py from ``files[1]``."""
    content = _content(files[0])
    STATE["db"] = toolbox.open_database(content)
    STATE["box"] = toolbox.Toolbox(_content(files[1]).decode(), config["tools"])


def serve(pipe: Any, request: dict[str, Any], files: list[int]) -> None:
    """Answer calls ``[name, arguments]`` and ``"snapshot"``; ``files[0]`` is another database."""
    box, db = STATE["box"], STATE["db"]
    if files:
        db = toolbox.open_database(_content(files[0]))
        os.close(files[0])
    while True:
        order = pipe.recv()
        if order == "snapshot":
            content = toolbox.image(db)
            pipe.send([toolbox.VALUE, len(content)])
            pipe.sock.sendall(content)
            continue
        reply = box.call(db, order[0], order[1])
        try:
            frame = wire.pack(reply)
        except (TypeError, ValueError, RecursionError, MemoryError) as error:
            frame = wire.pack([toolbox.FAULT, f"{order[0]}: returned no JSON: {error}"])
        pipe.sock.sendall(frame)
