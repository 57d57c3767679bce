"""Zygote role: verifiers. Any source; compiled once, run in a forked worker per batch."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

recall = import_module("recall")
toolbox = import_module("toolbox")

KEEP = 64
CODES: dict[str, Any] = {}


def prepare(config: dict[str, Any], files: list[int]) -> None:
    """Import what verifiers use, so that no worker has to."""
    import_module("sqlite3")
    import_module("datetime")


def add_source(key: str, source: str) -> None:
    """Compile a source and keep it under ``key``; what does not compile is kept as its error."""
    while len(CODES) >= KEEP:
        CODES.pop(next(iter(CODES)))
    CODES[key] = toolbox.compiled_verifier(source)


def serve(pipe: Any, request: dict[str, Any], files: list[int]) -> None:
    """Judge ``[answer, initial, final]`` one by one, each in a fresh namespace of source ``key``.

    Where the request counts ``probes``, tell versions of a source apart instead (``recall.serve``). Where it
    is ``bounded``, a query is broken off after ``recall.STEPS``.
    """
    if "probes" in request:
        recall.serve(pipe, request["probes"])
    if request.get("bounded"):
        sys.modules["sqlite3"] = recall.stand_in(recall.bounded)
    code = CODES[request["key"]]
    while True:
        pipe.send(toolbox.verdict(code, *pipe.recv()))
