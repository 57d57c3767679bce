"""Zygote role: the tools of one environment on its database."""

from __future__ import annotations

import mmap
import os
from importlib import import_module
from typing import Any

toolbox = import_module("toolbox")
wire = import_module("wire")

STATE: dict[str, Any] = {}


def _database(file: int) -> Any:
    """The database in a file. Mapping it saves a copy, and a fault per page, of a large one."""
    if not os.fstat(file).st_size:
        raise ValueError("the database file is empty")
    flags = mmap.MAP_PRIVATE | getattr(mmap, "MAP_POPULATE", 0)
    with mmap.mmap(file, 0, flags=flags, prot=mmap.PROT_READ) as content:
        return toolbox.open_database(content)


def prepare(config: dict[str, Any], files: list[int]) -> None:
    """Load the database from ``files[0]`` and tools.py from ``files[1]``."""
    STATE["db"] = _database(files[0])
    with open(files[1], "rb", closefd=False) as handle:
        source = handle.read().decode()
    STATE["box"] = toolbox.ToolFunctions(source, config["tools"])


def serve(pipe: Any, request: dict[str, Any], files: list[int]) -> None:
    """Answer calls ``[name, arguments]`` and ``"snapshot"``; ``files[0]`` is another database."""
    box, db = STATE["box"], STATE["db"]
    if files:
        db = _database(files[0])
        os.close(files[0])
    while True:
        order = pipe.recv()
        if order == "snapshot":
            content = toolbox.image(db)
            pipe.send([toolbox.VALUE, len(content)])
            pipe.write(content)
            continue
        reply = box.call(db, order[0], order[1])
        try:
            frame = wire.pack(reply)
        except (TypeError, ValueError, RecursionError, MemoryError) as error:
            frame = wire.pack([toolbox.FAULT, f"{order[0]}: returned no JSON: {error}"])
        pipe.write(frame)
