"""Other rows for a task without a constraint IR: drawn from its database alone, and judged by what runs.

Three kinds: values shuffled within columns; a cell as good as another row's (a tie); and a cell at the edge,
where one step more or less makes the verifier change its mind about gold's answer. The schema decides what
may be: rows that break a key, a reference or a CHECK are drawn again.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from pathlib import Path
from random import Random
from typing import NamedTuple

from envgen.core.errors import DatasetError
from envgen.store.sqlite_files import build, open_database, snapshot, tables_of

SHUFFLED, TIED, EDGES = 6, 8, 8
"""Databases of each kind; of edges, pairs."""
TRIES = 80
"""Cells that are changed in search of edges."""
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
Table = list[list[object]]


class OtherRows(NamedTuple):
    """A database like the task's own."""

    what: str
    """What is other, in words."""
    path: Path


class _CellAt(NamedTuple):
    table: str
    row: int
    column: int


class OtherRowsDrawer:
    """Draws databases like one, into a folder.

    Args:
        database: the task's own.
        folder: where new files go.
        rand: draws.
    """

    def __init__(self, database: Path, folder: Path, rand: Random) -> None:
        self._snapshot = snapshot(database)
        with open_database(database) as db:
            self._names = {
                table.name: [column[0] for column in table.columns] for table in tables_of(db)
            }
            keys = {
                (table.name, i)
                for table in tables_of(db)
                for i, column in enumerate(table.columns)
                if column[3]
            }
        self._cells = [
            _CellAt(name, row, column)
            for name, rows in self._snapshot.tables.items()
            for row in range(len(rows) if len(rows) > 1 else 0)
            for column in range(len(self._names[name]))
            if (name, column) not in keys
        ]
        self._folder, self._rand, self._made = folder, rand, 0

    def shuffled(self) -> Iterator[OtherRows]:
        """Databases of which some columns, but for keys, are shuffled."""
        columns = sorted({(cell.table, cell.column) for cell in self._cells})
        for _ in range(SHUFFLED if columns else 0):
            tables = {name: [list(row) for row in rows] for name, rows in self._tables.items()}
            for name, column in columns:
                if self._rand.random() < 0.5:
                    values = [row[column] for row in tables[name]]
                    self._rand.shuffle(values)
                    for row, value in zip(tables[name], values, strict=True):
                        row[column] = value
            yield from self._stored(tables, "shuffled columns")

    def tied(self) -> Iterator[OtherRows]:
        """Databases of which one number or text is that of another row."""
        for _ in range(TIED if self._cells else 0):
            cell = self._rand.choice(self._cells)
            other = self._rand.choice(self._tables[cell.table])[cell.column]
            yield from self._stored(self._with(cell, other), self._words(cell, other))

    def edges(self, accepted: Callable[[Path], bool]) -> Iterator[OtherRows]:
        """Databases on both sides of where ``accepted`` turns; a number turns it by one."""
        found = 0
        for _ in range(TRIES if self._cells else 0):
            cell = self._rand.choice(self._cells)
            value = self._tables[cell.table][cell.row][cell.column]
            other = self._another(cell, value)
            made = list(self._stored(self._with(cell, other), self._words(cell, other)))
            if other == value or not made or accepted(made[0].path):
                continue
            yield from self._narrowed(cell, value, other, made[0], accepted)
            found += 1
            if found == EDGES:
                return

    def _narrowed(
        self, cell: _CellAt, right: object, wrong: object, made: OtherRows,
        accepted: Callable[[Path], bool],
    ) -> Iterator[OtherRows]:  # fmt: skip
        sides = {False: made}
        while type(right) is int and type(wrong) is int and abs(right - wrong) > 1:
            middle = (right + wrong) // 2
            between = list(self._stored(self._with(cell, middle), self._words(cell, middle)))
            if not between:
                break
            held = accepted(between[0].path)
            sides[held] = between[0]
            right, wrong = (middle, wrong) if held else (right, middle)
        yield from sides.values()

    def _another(self, cell: _CellAt, value: object) -> object:
        """Another value for a cell: one of its column, or a step beside one."""
        other = self._rand.choice(self._tables[cell.table])[cell.column]
        step = self._rand.choice((-1, 0, 1))
        if type(other) is int:
            return other + step
        if isinstance(other, str) and _DAY.fullmatch(other):
            try:
                return (date.fromisoformat(other) + timedelta(days=step)).isoformat()
            except (ValueError, OverflowError):
                return other
        return other

    @property
    def _tables(self) -> dict[str, Table]:
        return self._snapshot.tables

    def _words(self, cell: _CellAt, value: object) -> str:
        name = self._names[cell.table][cell.column]
        was = self._tables[cell.table][cell.row][cell.column]
        return f"{cell.table}.{name} of row {cell.row + 1} is {value!r}, not {was!r}"[:200]

    def _with(self, cell: _CellAt, value: object) -> dict[str, Table]:
        rows = list(self._tables[cell.table])
        rows[cell.row] = [*rows[cell.row]]
        rows[cell.row][cell.column] = value
        return {**self._tables, cell.table: rows}

    def _stored(self, tables: dict[str, Table], what: str) -> Iterator[OtherRows]:
        """The database of these rows, if its schema lets them be."""
        self._made += 1
        path = self._folder / f"other-{self._made}.sqlite"
        try:
            build(self._snapshot.statements, tables, path)
            with open_database(path) as db:
                faults = db.execute("PRAGMA foreign_key_check").fetchone()
                sound = db.execute("PRAGMA quick_check(1)").fetchone() == ("ok",)
        except (sqlite3.Error, DatasetError, OverflowError):  # the last: no 64-bit number
            return
        if sound and faults is None:
            yield OtherRows(what, path)
