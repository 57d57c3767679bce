"""Zygote role: verifiers. Any source; compiled once, run in a forked worker per batch."""

from __future__ import annotations

import builtins
from importlib import import_module
from typing import Any

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
    try:
        CODES[key] = compile(source, "verifier.py", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError) as error:
        CODES[key] = f"does not compile: {toolbox.explain(error, 'verifier.py')}"


def _judge(code: Any, answer: Any, initial: str, final: str) -> list[Any]:
    if isinstance(code, str):
        return [toolbox.FAULT, code]
    space: dict[str, Any] = {"__name__": "verifier", "__builtins__": builtins}
    try:
        exec(code, space)
        broken = space["verify"](answer, initial, final)
    except BaseException as error:  # a verifier that raises is broken, whatever it raises
        return [toolbox.FAULT, toolbox.explain(error, "verifier.py")]
    if type(broken) is not list or not all(type(rule) is str for rule in broken):
        return [toolbox.FAULT, "verify() must return a list of str"]
    return [toolbox.VALUE, broken]


def serve(pipe: Any, request: dict[str, Any], files: list[int]) -> None:
    """Judge ``[answer, initial, final]`` one by one, each in a fresh namespace of source ``key``."""
    code = CODES[request["key"]]
    while True:
        pipe.send(_judge(code, *pipe.recv()))
