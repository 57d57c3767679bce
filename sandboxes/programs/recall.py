"""Judge many versions of one verifier on the same submissions, and ask the databases nothing twice.

Versions differ in one place each. The queries of all others have been answered when the first version ran,
so a version costs what it changed. A stand-in for ``sqlite3`` sees to that: its connections remember what a
query found. Standard library only.
"""

from __future__ import annotations

import re
import sqlite3
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

toolbox = import_module("toolbox")

STEPS = 50_000_000
"""Steps of SQLite's machine after which a query is broken off: about a second, the same on every machine."""
PARAMETER = re.compile(r":([A-Za-z_]\w*)")

Found = list[tuple[Any, ...]]
Opened = tuple[Any, ...]
"""The addresses of a connection's databases."""


def bounded(*given: Any, **options: Any) -> sqlite3.Connection:
    """``sqlite3.connect``, for queries of ``STEPS`` at most."""
    connection: sqlite3.Connection = sqlite3.connect(*given, **options)
    connection.set_progress_handler(lambda: 1, STEPS)
    return connection


def stand_in(connect: Any) -> ModuleType:
    """A ``sqlite3`` that opens databases by ``connect``."""
    module = ModuleType("sqlite3")
    vars(module).update(vars(sqlite3))
    vars(module)["connect"] = connect
    return module


class Recalled:
    """What a query found, as a cursor gives it."""

    def __init__(self, found: Iterable[tuple[Any, ...]]) -> None:
        self._rows = iter(found)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return self._rows

    def fetchone(self) -> tuple[Any, ...] | None:
        """The next row."""
        return next(self._rows, None)

    def fetchall(self) -> Found:
        """The rows that are left."""
        return list(self._rows)


class Connection:
    """Reads one database, and those attached to it, by way of a memory."""

    def __init__(self, memory: Memory, address: str) -> None:
        self._memory, self._opened = memory, (address,)

    def execute(self, query: str, given: Mapping[str, Any] | Sequence[Any] = ()) -> Recalled:
        """Run a query, or recall what it found."""
        if query.startswith("ATTACH"):
            self._opened = (*self._opened, query, *given)
            return Recalled(())
        return Recalled(self._memory.rows(self._opened, query, given))

    def close(self) -> None:
        """Nothing: the memory's own connection stays open."""


class Memory:
    """What queries found in databases that nobody changes."""

    def __init__(self) -> None:
        self._open: dict[Opened, sqlite3.Connection] = {}
        self._names: dict[str, list[str]] = {}
        self._kept: dict[Opened, Found] = {}
        self._latest: dict[Opened, Found] = {}

    def module(self) -> ModuleType:
        """A ``sqlite3`` whose connections recall."""
        return stand_in(lambda address, uri: Connection(self, address))

    def keep(self) -> None:
        """Hold what was found since the last call for good."""
        self._kept.update(self._latest)
        self.forget()

    def forget(self) -> None:
        """Drop what was found since it was last kept."""
        self._latest.clear()

    def rows(self, opened: Opened, query: str, given: Mapping[str, Any] | Sequence[Any]) -> Found:
        """What ``query`` finds; known by the values that it names, each with its type: 1 is not 1.0."""
        if isinstance(given, Mapping):
            names = self._names.get(query)
            if names is None:
                names = self._names[query] = PARAMETER.findall(query)
            values = [given.get(name, self) for name in names]
        else:
            values = list(given)
        key = (opened, query, *values, *map(type, values))
        found = self._kept.get(key)
        if found is None:
            found = self._latest.get(key)
        if found is None:
            found = self._latest[key] = self._connection(opened).execute(query, given).fetchall()
        return found

    def _connection(self, opened: Opened) -> sqlite3.Connection:
        if opened not in self._open:
            address, *attached = opened
            connection = bounded(address, uri=True)
            for query, path in zip(attached[::2], attached[1::2], strict=True):
                connection.execute(query, (path,))
            self._open[opened] = connection
        return self._open[opened]


def serve(pipe: Any, n: int) -> None:
    """Read ``n`` probes ``[answer, initial, final, verdict]``, then judge sources one by one.

    The reply to a source says whether any of its verdicts differs from the probe's.

    A verdict is the sorted list of broken rules, or null for a fault. The first source is the one whose
    versions the others are. What told the last one apart is tried first on the next: they are neighbours.
    """
    memory = Memory()
    sys.modules["sqlite3"] = memory.module()
    probes = [pipe.recv() for _ in range(n)]
    first = True
    while True:
        code = toolbox.compiled_verifier(pipe.recv())
        killer = next((i for i, probe in enumerate(probes) if _differs(code, *probe)), None)
        if first:
            memory.keep()
            first = False
        elif killer is not None:
            probes.insert(0, probes.pop(killer))
        memory.forget()
        pipe.send([toolbox.VALUE, killer is not None])


def _differs(code: Any, answer: Any, initial: str, final: str, expected: Any) -> bool:
    kind, value = toolbox.verdict(code, answer, initial, final)
    return bool((sorted(value) if kind == toolbox.VALUE else None) != expected)
