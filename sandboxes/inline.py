"""Trusted tools in this very process: the fastest way, and no isolation at all."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from pydantic import JsonValue

from envgen.core.errors import EnvError, SandboxError
from envgen.core.types import ToolSpec
from envgen.sandboxes.programs import toolbox, wire
from envgen.sandboxes.tools import ToolReply


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

    def open(self, database: Path | None = None) -> InlineToolSession:
        """Start an episode on its own copy of the database."""
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
        self._mutates = host.mutates
        self._call = host.toolbox.call
        self._db: toolbox.Database | None = db

    def call(self, name: str, arguments: dict[str, JsonValue]) -> ToolReply:
        """Call a tool; its value goes through JSON, so that no object is shared with it."""
        if self._db is None:
            raise EnvError("the session is closed")
        if name not in self._mutates:
            raise EnvError(f"there is no tool {name!r}")
        kind, *rest = self._call(self._db, name, arguments)
        if kind == toolbox.VALUE:
            try:
                value = wire.decode(wire.encode(rest[0]))
            except (TypeError, ValueError, RecursionError) as error:
                self.close()
                raise EnvError(f"{name}: returned no JSON: {error}") from error
            self.changed = self.changed or self._mutates[name]
            return ToolReply(value, None, "")
        if kind == toolbox.ERROR:
            return ToolReply(None, rest[0], rest[1])
        self.close()
        raise EnvError(f"the environment failed: {rest[0]}")

    def snapshot(self, path: Path) -> None:
        """Write the database as it is now to ``path``. Raises SandboxError when it can't be written."""
        if self._db is None:
            raise EnvError("the session is closed")
        try:
            Path(path).write_bytes(toolbox.image(self._db))
        except OSError as error:
            raise SandboxError(f"can't write {path}: {error}") from error

    def close(self) -> None:
        """Drop the database."""
        if self._db is not None:
            toolbox.dispose(self._db)
            self._db = None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise EnvError(f"can't read {path}: {error}") from error
