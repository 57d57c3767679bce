"""Trusted tools and verifiers in this very process: the fastest way, and no isolation at all."""

from __future__ import annotations

import sqlite3
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from envgen.core.errors import EnvError, SandboxError, ToolFaultError, ToolsDiedError
from envgen.core.types import ToolSpec
from envgen.sandboxes.frames import fault, odd
from envgen.sandboxes.programs import toolbox, wire
from envgen.sandboxes.tools import ToolReply
from envgen.sandboxes.verifier import VerifierInput, VerifierReply, read_reply


class InlineToolHost:
    """Tools exec'ed once in this process; each session has a database in memory of its own."""

    isolated = False

    def __init__(self, source: str, tools: Sequence[ToolSpec], database: Path) -> None:
        self.mutates = {tool.name: tool.mutates for tool in tools}
        self._content = _read(Path(database))
        try:
            self.toolbox = toolbox.Toolbox(source, self.mutates)
        except (Exception, SystemExit) as error:  # tools.py may raise anything while it loads
            text = toolbox.explain(error, "tools.py")
            raise EnvError(f"the environment does not load: {text}") from error
        self.open().close()

    def open(self, database: Path | None = None, *, alone: bool = False) -> InlineToolSession:
        """Start an episode on its own copy of the database; there is nothing to be ``alone`` in."""
        content = self._content if database is None else _read(Path(database))
        try:
            return InlineToolSession(self, toolbox.open_database(content))
        except sqlite3.Error as error:
            raise EnvError(f"the database does not open: {error}") from error

    def close(self) -> None:
        """Nothing runs outside the sessions."""


class InlineToolSession:
    """An episode in this process."""

    def __init__(self, host: InlineToolHost, db: toolbox.Database) -> None:
        self.changed = False
        self.cpu_s = 0.0
        self._mutates = host.mutates
        self._call = host.toolbox.call
        self._db: toolbox.Database | None = db

    def call(self, name: str, arguments: dict[str, JsonValue]) -> ToolReply:
        """Call a tool; its value goes through JSON, so that no object is shared with it."""
        if self._db is None:
            raise ToolsDiedError("the session is closed")
        if name not in self._mutates:
            raise EnvError(f"there is no tool {name!r}")
        began = time.thread_time()
        try:
            kind, *rest = self._call(self._db, name, arguments)
        finally:
            self.cpu_s += time.thread_time() - began
        if kind == toolbox.VALUE:
            try:
                text = wire.encode(rest[0])
                value = wire.decode(text)
                if odd(text) and (found := fault(value)):
                    raise ValueError(found)
            except (TypeError, ValueError, RecursionError) as error:
                self.close()
                raise ToolFaultError(f"{name}: returned no JSON: {error}") from error
            self.changed = self.changed or self._mutates[name]
            return ToolReply(value, None, "")
        if kind == toolbox.ERROR:
            return ToolReply(None, rest[0], rest[1])
        self.close()
        raise ToolFaultError(f"the environment failed: {rest[0]}")

    def snapshot(self, path: Path) -> None:
        """Write the database as it is now to ``path``. Raises SandboxError when it can't be written."""
        if self._db is None:
            raise ToolsDiedError("the session is closed")
        try:
            Path(path).write_bytes(toolbox.image(self._db))
        except OSError as error:
            raise SandboxError(f"can't write {path}: {error}") from error

    def close(self) -> None:
        """Drop the database."""
        if self._db is not None:
            toolbox.dispose(self._db)
            self._db = None


class InlineVerifierHost:
    """Trusted verifiers in this process: nothing bounds their time."""

    SOURCES = 256
    """Sources kept compiled."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._codes: dict[str, Any] = {}
        self._closed = False

    def verify_many(
        self, source: str, inputs: Sequence[VerifierInput], timeout_s: float = 10
    ) -> list[VerifierReply]:
        """Judge all inputs, each in a fresh namespace; ``timeout_s`` is not kept."""
        if self._closed:
            raise SandboxError("the verifier host is closed")
        code = self._compiled(source)
        return [_judged(code, item) for item in inputs]

    def _compiled(self, source: str) -> Any:
        with self._lock:
            if source not in self._codes:
                while len(self._codes) >= self.SOURCES:
                    self._codes.pop(next(iter(self._codes)))
                self._codes[source] = toolbox.compiled_verifier(source)
            return self._codes[source]

    def close(self) -> None:
        """Refuse what comes after."""
        self._closed = True


def _judged(code: Any, item: VerifierInput) -> VerifierReply:
    """One verdict; the answer goes through JSON, as on the way to a worker."""
    try:
        answer = wire.decode(wire.encode(item.answer))
    except (TypeError, ValueError, RecursionError) as error:
        return VerifierReply(None, f"the answer is no JSON: {error}")
    with ExitStack() as stack:
        initial = _file(item.initial, stack)
        final = initial if item.final is item.initial else _file(item.final, stack)
        return read_reply(toolbox.verdict(code, answer, initial, final))


def _file(database: Path | bytes, stack: ExitStack) -> str:
    """The path of a database; bytes become a file for as long as ``stack`` lasts."""
    if isinstance(database, bytes):
        file = stack.enter_context(tempfile.NamedTemporaryFile(prefix="envgen-", suffix=".sqlite"))
        file.write(database)
        file.flush()
        return file.name
    if not database.is_file():
        raise SandboxError(f"can't hand {database} to the verifier: there is no such file")
    return str(database)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise EnvError(f"can't read {path}: {error}") from error
