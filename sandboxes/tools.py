"""Run the tools of an environment: one zygote per environment, one forked worker per episode.

Trusted ones may run in this very process instead: the fastest way, and no isolation at all.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from pydantic import JsonValue

from envgen.core.errors import (
    EnvError,
    SandboxError,
    SandboxTimeoutError,
    ToolFaultError,
    ToolsDiedError,
    ToolTimeoutError,
    WorkerDiedError,
)
from envgen.core.types import ToolSpec
from envgen.sandboxes.frames import fault, odd, require_reply
from envgen.sandboxes.programs import toolbox, wire
from envgen.sandboxes.zygote import Isolation, WorkerBackend, Zygote, choose

MAX_DATABASE = 256 << 20


class ToolReply(NamedTuple):
    """The reply of a tool."""

    value: JsonValue
    error: str | None
    """Code of a documented error, else None."""
    message: str


class ToolSession(Protocol):
    """One episode's tools on its own database. One thread at a time."""

    changed: bool
    """Whether a mutating call has succeeded."""

    @property
    def cpu_s(self) -> float:
        """Seconds that its calls have taken on the processor, as this machine's kernel counts them."""

    def call(self, name: str, arguments: dict[str, JsonValue]) -> ToolReply:
        """Call a tool. All that goes wrong but a documented error closes the session.

        Raises ToolFaultError for an undocumented exception or a reply that is no JSON, ToolTimeoutError
        for a call past its limit, ToolsDiedError for a worker that has died (these are EnvErrors).
        """

    def snapshot(self, path: Path) -> None:
        """Write the database as it is now to ``path``."""

    def close(self) -> None:
        """End the episode; nothing of it keeps running."""


class ToolHost(Protocol):
    """The tools of one environment, ready for episodes. Thread-safe."""

    isolated: bool
    """Whether the tools can't reach this machine."""

    def open(self, database: Path | None = None, *, alone: bool = False) -> ToolSession:
        """Start an episode, on another database of the same schema if one is given.

        ``alone`` gives it a sandbox of its own, whatever the others have.
        """

    def close(self) -> None:
        """End every episode and the zygote."""


def tool_host(
    source: str,
    tools: Sequence[ToolSpec],
    database: Path,
    *,
    backend: WorkerBackend = "auto",
    trusted: bool = False,
    timeout_s: float = 10.0,
    isolate: Isolation = "environment",
) -> ToolHost:
    """Load a tools.py on a database; ``timeout_s`` bounds each call, on the processor and waiting.

    Episodes of one environment share a sandbox, unless ``isolate`` gives each its own (about 60 ms).
    ``inline`` runs trusted tools in this very process, ``process`` in a plain one. Raises EnvError
    when the tools or the database don't load, SandboxUnavailableError when no backend fits.
    """
    chosen = choose(backend, trusted, isolate)
    if chosen == "inline":
        return InlineToolHost(source, tools, database)
    alone = isolate == "episode"
    return WorkerToolHost(source, tools, database, backend=chosen, timeout_s=timeout_s, alone=alone)


class WorkerToolHost:
    """Tools in a zygote, which is started again when it is lost."""

    def __init__(
        self,
        source: str,
        tools: Sequence[ToolSpec],
        database: Path,
        *,
        backend: str,
        timeout_s: float,
        alone: bool = False,
    ) -> None:
        """``alone`` gives each episode a sandbox of its own."""
        self.alone = alone
        self.isolated = backend != "process"
        self.backend = backend
        self.database = Path(database)
        self.mutates = {tool.name: tool.mutates for tool in tools}
        self.timeout_s = timeout_s
        self._source = source
        self._lock = threading.Lock()
        self._zygote: Zygote | None = self._start()

    def _start(self) -> Zygote:
        config = {"tools": self.mutates}
        with ExitStack() as stack:
            try:
                data = stack.enter_context(open(self.database, "rb"))
            except OSError as error:
                raise EnvError(f"can't read {self.database}: {error}") from error
            code = stack.enter_context(tempfile.TemporaryFile())
            code.write(self._source.encode(errors="surrogatepass"))
            code.seek(0)
            files = [data.fileno(), code.fileno()]
            try:
                return Zygote("tools", backend=self.backend, config=config, files=files)
            except ValueError as error:
                raise EnvError(f"the environment does not load: {error}") from error

    def _alive(self) -> Zygote:
        with self._lock:
            if self._zygote is None:
                raise EnvError("the tool host is closed")
            if not self._zygote.alive:
                self._zygote.close()
                self._zygote = self._start()
            return self._zygote

    def open(self, database: Path | None = None, *, alone: bool = False) -> WorkerToolSession:
        """Start an episode; a lost zygote is started again."""
        if self.alone or alone:
            return self._open_alone(database)
        for attempt in (1, 2):
            zygote = self._alive()
            try:
                return WorkerToolSession(self, zygote, database, owns_zygote=False)
            except WorkerDiedError as error:
                zygote.close()
                if attempt == 2:
                    raise EnvError(f"the worker can't be started: {error}") from error
        raise AssertionError("unreachable")

    def _open_alone(self, database: Path | None) -> WorkerToolSession:
        self._alive()  # refuses when closed
        zygote = self._start()
        try:
            return WorkerToolSession(self, zygote, database, owns_zygote=True)
        except WorkerDiedError as error:
            zygote.close()
            raise EnvError(f"the worker can't be started: {error}") from error
        except BaseException:
            zygote.close()
            raise

    def close(self) -> None:
        """End every episode and the zygote."""
        with self._lock:
            zygote, self._zygote = self._zygote, None
        if zygote is not None:
            zygote.close()


class WorkerToolSession:
    """An episode in a forked worker."""

    def __init__(
        self, host: WorkerToolHost, zygote: Zygote, database: Path | None, *, owns_zygote: bool
    ) -> None:
        self.changed = False
        self._mutates = host.mutates
        self._database = database or host.database
        self._zygote = zygote
        self._owns_zygote = owns_zygote
        self._open = True
        if database is None:
            self._number, self._channel = zygote.fork(host.timeout_s)
        else:
            try:
                with open(database, "rb") as handle:
                    files = [handle.fileno()]
                    self._number, self._channel = zygote.fork(host.timeout_s, files=files)
            except OSError as error:
                raise EnvError(f"can't read {database}: {error}") from error

    @property
    def cpu_s(self) -> float:
        """Seconds on the processor; what its first call finds was used to start it, too."""
        return self._channel.cpu_s

    def call(self, name: str, arguments: dict[str, JsonValue]) -> ToolReply:
        """Call a tool. Any failure but a documented error closes the session."""
        if name not in self._mutates:
            raise EnvError(f"unknown tool {name!r}")
        reply = self._ask(name, [name, arguments])
        if reply[0] == 0:
            self.changed = self.changed or self._mutates[name]
            return ToolReply(reply[1], None, "")
        return ToolReply(None, reply[1], reply[2])

    def _ask(self, name: str, request: object) -> list[Any]:
        if not self._open or self._zygote.closed:
            self.close()
            raise ToolsDiedError("the session is closed")
        try:
            self._channel.send(request)
            reply = require_reply(self._channel.recv())
            if reply[0] == 2:
                raise ToolFaultError(f"the environment failed: {reply[1]}")
            return reply
        except SandboxTimeoutError as error:
            self.close()
            raise ToolTimeoutError(f"{name}: {error}") from error
        except WorkerDiedError as error:
            self._zygote.blame(self._channel)
            self.close()
            raise ToolsDiedError(f"{name}: {error}") from error
        except (ValueError, TypeError, LookupError, RecursionError) as error:
            self.close()
            raise ToolFaultError(f"{name}: the worker answered nonsense: {error}") from error
        except BaseException:  # the stream may stand anywhere in a frame: it can't be used again
            self.close()
            raise

    def snapshot(self, path: Path) -> None:
        """Write the database as it is now to ``path``. Raises SandboxError when it can't be written."""
        if not self._open:
            raise ToolsDiedError("the session is closed")
        try:
            if self.changed:
                self._fetch(path)
            else:
                shutil.copyfile(self._database, path)
        except OSError as error:
            self.close()
            Path(path).unlink(missing_ok=True)
            raise SandboxError(f"can't write {path}: {error}") from error

    def _fetch(self, path: Path) -> None:
        kind, size, *_ = self._ask("snapshot", "snapshot")
        size = size if kind == 0 else -1
        if type(size) is not int or not 0 <= size <= MAX_DATABASE:
            self.close()
            raise ToolFaultError(f"snapshot: a database of {size} bytes")
        try:
            with open(path, "wb") as target:
                self._channel.take(size, sink=target.write)
        except SandboxError as error:
            self.close()
            raise ToolsDiedError(f"snapshot: {error}") from error
        except BaseException:  # the stream stands inside the database: it can't be used again
            self.close()
            raise

    def close(self) -> None:
        """Kill the worker."""
        if self._open:
            self._open = False
            self._channel.close()
            self._zygote.kill(self._number)
            if self._owns_zygote:
                self._zygote.close()


class InlineToolHost:
    """Tools exec'ed once in this process; each session has a database in memory of its own."""

    isolated = False

    def __init__(self, source: str, tools: Sequence[ToolSpec], database: Path) -> None:
        self.mutates = {tool.name: tool.mutates for tool in tools}
        self._content = _read(Path(database))
        try:
            self.toolbox = toolbox.ToolFunctions(source, self.mutates)
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
            raise EnvError(f"unknown tool {name!r}")
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


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise EnvError(f"can't read {path}: {error}") from error
