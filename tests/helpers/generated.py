"""Emitted code, run in this very process (it is our own), and answers to try on it."""

from __future__ import annotations

import copy
import datetime
import itertools
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

from envgen.core.ir import Choice, Intervals, IntRange, Problem, Query, Slot
from envgen.pipelines.general.programs.tools_source import tool_specs, tools_source
from envgen.pipelines.general.programs.verifier_source import verifier_source
from envgen.pipelines.general.semantics.layout import fill_layout
from envgen.pipelines.general.semantics.tables import Tables, read_sqlite, write_sqlite

HOSTILE: tuple[Any, ...] = (
    None, True, 0, 1, -1, 10**30, 1.5, "", "x", "\ud800", "a\0b", [], {}, [[]], {"": None}, ["x", "x"],
    {"start": 0, "end": 1}, {"start": "a", "end": None}, [True], [1, 1], {"$slot": "x"},
)  # fmt: skip


@cache
def load(source: str) -> dict[str, Any]:
    """The names of a generated module (one without state)."""
    names: dict[str, Any] = {}
    exec(compile(source, "<generated>", "exec"), names)
    return names


def verifier(p: Problem) -> Callable[[Any, str, str], list[str]]:
    """``verify`` of the emitted verifier."""
    verify: Callable[[Any, str, str], list[str]] = load(verifier_source(p))["verify"]
    return verify


def database(p: Problem, tables: Tables, path: Path) -> Path:
    """A new SQLite file with ``tables``."""
    write_sqlite(p.relations, tables, path)
    return path


class Tools:
    """The emitted tools on a copy of a database; replies as a restricted solution gets them."""

    def __init__(self, p: Problem, initial: Path, final: Path) -> None:
        shutil.copy(initial, final)
        self.problem = p
        self.path = final
        self.names = load(tools_source(p.relations, p.access))
        self.specs = {spec.name: spec for spec in tool_specs(p.relations, p.access)}
        self.db = sqlite3.connect(final, isolation_level=None)
        self.db.execute("PRAGMA synchronous = OFF")
        self.db.execute("PRAGMA journal_mode = MEMORY")
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def call(self, tool: str, arguments: dict[str, Any]) -> Any:
        """The tool's value, or {"error": code, "message": text}."""
        self.calls.append((tool, arguments))
        self.db.execute("SAVEPOINT call")
        try:
            return self.names[tool](self.db, **arguments)
        except self.names["ToolError"] as error:
            self.db.execute("ROLLBACK TO call")
            return {"error": error.code, "message": error.message}
        finally:
            self.db.execute("RELEASE call")

    def proxies(self) -> dict[str, Callable[..., Any]]:
        """Bare-name functions, positional or named, as a solution sees them."""

        def proxy(name: str) -> Callable[..., Any]:
            order = [*self.specs[name].parameters["properties"]]  # type: ignore[misc]  # our own schema

            def run(*values: Any, **named: Any) -> Any:
                return copy.deepcopy(
                    self.call(name, {**dict(zip(order, values, strict=False)), **named})
                )

            return run

        return {name: proxy(name) for name in self.specs}

    def close(self) -> None:
        """Close the database."""
        self.db.close()


def slot_values(slot: Slot, tables: Tables) -> list[Any]:
    """Some values of a slot's type; sets and sequences one by one."""
    domain = slot.domain
    if isinstance(domain, Choice):
        return list(domain.values)
    if isinstance(domain, IntRange):
        return list(range(domain.low, domain.high + 1, domain.step))
    if isinstance(domain, Intervals):
        last = domain.high - domain.length
        starts = range(domain.low, last + 1, domain.step)
        return [{"start": s, "end": s + domain.length} for s in starts]
    assert isinstance(domain, Query)
    return sorted(tables[domain.relation])


def draw(slot: Slot, tables: Tables, rng: random.Random) -> Any:
    """A random value of a slot, of its type."""
    values = slot_values(slot, tables)
    if slot.kind == "set":
        size = rng.randint(0, min(len(values), slot.length or len(values)))
        return rng.sample(values, size)
    if slot.kind == "sequence":
        return [rng.choice(values) for _ in range(slot.length or 1)]
    if slot.key_domain is not None:
        return {key: rng.choice(values) for key in sorted(tables[slot.key_domain.relation])}
    return rng.choice(values)


def answers(
    p: Problem, tables: Tables, rng: random.Random, n: int, seeds: tuple[Any, ...] = ()
) -> Iterator[Any]:
    """``n`` answers: well-formed random ones, small steps from ``seeds``, and broken forms."""
    from envgen.pipelines.general.semantics.layout import match_layout

    good = [found for seed in seeds if (found := match_layout(p.layout, seed)) is not None]
    for i in range(n):
        kind = i % 4
        values = {slot.name: draw(slot, tables, rng) for slot in p.slots}
        if kind in (1, 2) and good:
            values = dict(rng.choice(good))
            for slot in rng.sample(p.slots, rng.randint(0, min(2, len(p.slots)))):
                values[slot.name] = draw(slot, tables, rng)
        if kind == 2 and rng.random() < 0.5:
            values[rng.choice(p.slots).name] = rng.choice(HOSTILE)
        answer = fill_layout(p.layout, copy.deepcopy(values))
        if kind == 3 and i % 8 == 3:
            answer = spoil(answer, rng)
        yield answer


def spoil(answer: Any, rng: random.Random) -> Any:
    """``answer`` with one part replaced, dropped or added."""
    if isinstance(answer, list) and answer and rng.random() < 0.8:
        answer = list(answer)
        at = rng.randrange(len(answer))
        way = rng.randrange(3)
        if way == 0:
            answer[at] = spoil(answer[at], rng)
        elif way == 1:
            del answer[at]
        else:
            answer.append(answer[at])
        return answer
    if isinstance(answer, dict) and answer and rng.random() < 0.8:
        answer = dict(answer)
        key = rng.choice(sorted(answer))
        way = rng.randrange(3)
        if way == 0:
            answer[key] = spoil(answer[key], rng)
        elif way == 1:
            del answer[key]
        else:
            answer[key + "x"] = answer[key]
        return answer
    return rng.choice(HOSTILE)


def read(p: Problem, path: Path) -> Tables:
    """All rows of a database."""
    return read_sqlite(p.relations, path)


def edit(p: Problem, path: Path, rng: random.Random) -> None:
    """One random change of a database: a cell, a row gone, or a row copied under a new key."""
    relation = rng.choice(p.relations)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA synchronous = OFF")
        keys = [key for (key,) in db.execute(f'SELECT "{relation.key}" FROM "{relation.name}"')]
        if not keys:
            return
        key, way = rng.choice(keys), rng.randrange(3)
        where = f'"{relation.key}" = ?'
        others = [c for c in relation.columns if c.name != relation.key]
        if way == 0 and others:
            column = rng.choice(others)
            values = [v for (v,) in db.execute(f'SELECT "{column.name}" FROM "{relation.name}"')]
            if column.nullable:
                values.append(None)
            value = rng.choice([*values, 0 if isinstance(values[0], int) else "other"])
            db.execute(
                f'UPDATE "{relation.name}" SET "{column.name}" = ? WHERE {where}', (value, key)
            )
        elif way == 1:
            db.execute(f'DELETE FROM "{relation.name}" WHERE {where}', (key,))
        else:
            names = ", ".join(f'"{c.name}"' for c in relation.columns)
            cells = ", ".join(
                "?" if c.name == relation.key else f'"{c.name}"' for c in relation.columns
            )
            db.execute(
                f'INSERT OR IGNORE INTO "{relation.name}" ({names}) '
                f'SELECT {cells} FROM "{relation.name}" WHERE {where}',
                (f"{key}-copy", key),
            )


def prelude() -> dict[str, Any]:
    """The pure functions that a solution may call besides builtins."""
    days = datetime.date.fromisoformat
    return {
        "days_between": lambda left, right: (days(right[:10]) - days(left[:10])).days,
        "combinations": itertools.combinations,
        "permutations": itertools.permutations,
        "product": itertools.product,
    }


def solve(p: Problem, source: str, initial: Path, final: Path) -> tuple[Any, Tools]:
    """The answer of a solution on a copy of a database, and the (closed) tools it used."""
    tools = Tools(p, initial, final)
    names: dict[str, Any] = {**tools.proxies(), **prelude()}
    try:
        exec(compile(source, "<solution>", "exec"), names)
        return names["solve"](), tools
    finally:
        tools.close()
