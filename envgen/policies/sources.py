"""Find rows through tools: which calls list everything that a submission's leaf may be.

Leaves of a submit schema, tool parameters and tool returns carry ``x-source`` (``hotels.name``); a leaf
may carry ``x-where`` (column -> JSON pointer to an earlier leaf). ``Reader.rows`` finds tools whose
returns carry a source, fills their parameters (from ``x-where``, from enums, from the parameter's own
source, recursively) and gives all rows there are.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pydantic import JsonValue

from envgen.core.errors import PolicyError
from envgen.core.types import PublicTask, ToolSpec
from envgen.policies.programs import Call, Program, gather, is_error

WIDE = 10**9
"""Stands for "no bound" in ``min_*`` / ``max_*`` arguments without a declared range."""
_MAX_COMBINATIONS = 2_000


class SourceRow(NamedTuple):
    """One value of a source and the fields that came with it."""

    value: JsonValue
    fields: Mapping[str, JsonValue]


def leaves_with(schema: Mapping[str, Any], source: str) -> Iterator[tuple[str | int, ...]]:
    """Paths in ``schema`` to leaves of ``source``; ``-1`` stands for any array element."""
    if schema.get("x-source") == source:
        yield ()
    for name, part in schema.get("properties", {}).items():
        for path in leaves_with(part, source):
            yield (name, *path)
    items = schema.get("items")
    if isinstance(items, Mapping):
        for path in leaves_with(items, source):
            yield (-1, *path)
    for key in ("anyOf", "oneOf"):
        for part in schema.get(key, ()):
            yield from leaves_with(part, source)


def _sources(schema: Mapping[str, Any]) -> Iterator[str]:
    if "x-source" in schema:
        yield schema["x-source"]
    parts = [*schema.get("properties", {}).values(), schema.get("items")]
    for part in parts:
        if isinstance(part, Mapping):
            yield from _sources(part)


def collect(value: JsonValue, path: tuple[str | int, ...]) -> Iterator[SourceRow]:
    """The rows at ``path`` of a tool's result; fields are those of the innermost object."""
    yield from _collect(value, path, {})


def _collect(
    value: JsonValue, path: tuple[str | int, ...], fields: Mapping[str, JsonValue]
) -> Iterator[SourceRow]:
    if not path:
        if not isinstance(value, list | dict) and value is not None:
            yield SourceRow(value, fields)
    elif path[0] == -1:
        for item in value if isinstance(value, list) else ():
            yield from _collect(item, path[1:], {})
    elif isinstance(value, dict) and path[0] in value:
        yield from _collect(value[str(path[0])], path[1:], value)


def parameters(tool: ToolSpec) -> dict[str, Mapping[str, Any]]:
    """The required parameters of a tool with their schemas."""
    properties: Any = tool.parameters.get("properties", {})
    required: Any = tool.parameters.get("required", [])
    return {name: properties[name] for name in required if name in properties}


@dataclass(frozen=True)
class Where:
    """Which rows are wanted: ``column = value``, where the value is one of ``source``, if that is known."""

    values: Mapping[str, JsonValue] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)

    def bind(self, tool: ToolSpec) -> dict[str, str]:
        """Parameter of ``tool`` -> the column it filters by: the same name, else the same source."""
        needed = parameters(tool)
        bound = {name: name for name in needed if name in self.values}
        for column, source in self.sources.items():
            alike = [name for name in needed if needed[name].get("x-source") == source]
            if column not in bound and len(alike) == 1 and alike[0] not in bound:
                bound[alike[0]] = column
        return bound


class Reader:
    """Reads rows of one task's environment through its tools; each distinct call is made once."""

    def __init__(self, task: PublicTask) -> None:
        self._tools = tuple(tool for tool in task.tools if not tool.mutates)
        self._results: dict[str, JsonValue] = {}

    def rows(
        self, source: str, where: Where | None = None, busy: tuple[str, ...] = ()
    ) -> Program[list[SourceRow]]:
        """All rows of ``source`` whose columns are as ``where`` says, without repeats, in tool order.

        Raises:
            PolicyError: when no tool lists them.
        """
        where = where or Where()
        for tool, path in self._listings(source, where, busy):
            domains = yield from self._domains(tool, where, (*busy, source))
            if domains is None:
                continue
            names = list(domains)
            combos = itertools.islice(itertools.product(*domains.values()), _MAX_COMBINATIONS)
            found = yield from gather(
                [self._listed(tool, path, dict(zip(names, combo, strict=True))) for combo in combos]
            )
            rows = {_key(row.value): row for part in found for row in reversed(part)}
            in_order = {_key(row.value): rows[_key(row.value)] for part in found for row in part}
            return [row for row in in_order.values() if _fits(row, where.values)]
        raise PolicyError(
            f"no tool lists {source!r} (where {sorted(where.values)!r})",
            "the task's tools must return what its submit schema asks for",
        )

    def values(self, source: str, where: Where | None = None) -> Program[list[JsonValue]]:
        """What a leaf of ``source`` may be: the keys that tools list, or a column's distinct values.

        Raises:
            PolicyError: when no tool tells.
        """
        relation = source.partition(".")[0]
        keys = {found for tool in self._tools for found in _sources(tool.returns)}
        if source not in keys:
            for key in sorted(key for key in keys if key.startswith(f"{relation}.")):
                rows = yield from self.rows(key, where)
                facts = yield from self.column(key, rows, source.partition(".")[2])
                found = {_key(fact): fact for fact in facts if fact is not None}
                return list(found.values())
        rows = yield from self.rows(source, where)
        return [row.value for row in rows]

    def column(self, source: str, rows: list[SourceRow], column: str) -> Program[list[JsonValue]]:
        """``column`` of each row: from what was listed with it, else from a tool about one row.

        Columns that no tool tells are None.
        """
        if all(column in row.fields for row in rows):
            return [row.fields[column] for row in rows]
        teller = self._teller(source, column)
        if teller is None:
            return [row.fields.get(column) for row in rows]
        tool, key = teller
        calls = [self._about(tool, key, row.value, column) for row in rows]
        results = yield from gather(calls)
        return [_column_of(value, column) for value in results]

    def _about(self, tool: ToolSpec, key: str, value: JsonValue, column: str) -> Program[JsonValue]:
        arguments: dict[str, JsonValue] = {key: value}
        for name, part in parameters(tool).items():
            if part.get("type") == "array":
                arguments[name] = [column]
        return (yield from self._call(tool, arguments))

    def _teller(self, source: str, column: str) -> tuple[ToolSpec, str] | None:
        for tool in self._tools:
            needed = parameters(tool)
            keys = [name for name, part in needed.items() if part.get("x-source") == source]
            others = [part for name, part in needed.items() if name not in keys]
            if len(keys) != 1 or any(part.get("type") != "array" for part in others):
                continue
            returns: Any = tool.returns
            if column in returns.get("properties", {}) or returns.get("x-column") == column:
                return tool, keys[0]
        return None

    def _call(self, tool: ToolSpec, arguments: dict[str, JsonValue]) -> Program[JsonValue]:
        key = tool.name + json.dumps(arguments, sort_keys=True)
        if key not in self._results:
            self._results[key] = (yield [Call(tool.name, arguments)])[0]
        return self._results[key]

    def _listed(
        self, tool: ToolSpec, path: tuple[str | int, ...], arguments: dict[str, JsonValue]
    ) -> Program[list[SourceRow]]:
        """Rows of one listing, all pages of it."""
        rows: list[SourceRow] = []
        for page in itertools.count(1):
            paged = "page" in parameters(tool)
            if paged:
                arguments = {**arguments, "page": page}
            value = yield from self._call(tool, arguments)
            if is_error(value):
                break
            rows += collect(value, path)
            pages = value.get("pages") if isinstance(value, dict) else None
            if not paged or not isinstance(pages, int) or page >= pages:
                break
        return rows

    def _listings(
        self, source: str, where: Where, busy: tuple[str, ...]
    ) -> list[tuple[ToolSpec, tuple[str | int, ...]]]:
        """Tools that return ``source``, best first: lists before single values, few unknowns first."""
        found = []
        for tool in self._tools:
            needed = parameters(tool)
            asked = {part.get("x-source") for part in needed.values()}
            if source in asked or asked & set(busy):
                continue
            bound = where.bind(tool)
            for path in itertools.islice(leaves_with(tool.returns, source), 1):
                available = {*_columns(tool, path), *bound.values()}
                unknown = [name for name in needed if name not in bound and not _ranges(name)]
                missing = [column for column in where.values if column not in available]
                filters = [name for name in needed if _ranges(name)]
                rank = (len(missing), -1 not in path, len(unknown), len(filters))
                found.append((rank, tool.name, tool, path))
        return [(tool, path) for rank, _, tool, path in sorted(found) if rank[0] == 0]

    def _domains(
        self, tool: ToolSpec, where: Where, busy: tuple[str, ...]
    ) -> Program[dict[str, list[JsonValue]] | None]:
        """What to fill each parameter with so that the tool tells all; None when that is unknown."""
        domains: dict[str, list[JsonValue]] = {}
        bound = where.bind(tool)
        for name, part in parameters(tool).items():
            if name in bound:
                domains[name] = [where.values[bound[name]]]
            elif name == "page":
                continue
            elif _ranges(name):
                domains[name] = [_widest(name, part)]
            elif "enum" in part:
                domains[name] = list(part["enum"])
            elif "x-source" in part and part["x-source"] not in busy:
                try:
                    rows = yield from self.rows(part["x-source"], None, busy)
                except PolicyError:
                    return None
                domains[name] = [row.value for row in rows]
            elif part.get("type") == "boolean":
                domains[name] = [False, True]
            elif part.get("type") == "array" and "enum" in part.get("items", {}):
                domains[name] = [list(part["items"]["enum"])]
            elif part.get("type") == "integer" and {"minimum", "maximum"} <= set(part):
                whole = range(part["minimum"], part["maximum"] + 1)
                domains[name] = [value for value in itertools.islice(whole, _MAX_COMBINATIONS)]
            else:
                return None
        return domains


def _ranges(name: str) -> bool:
    return name == "page" or name.startswith(("min_", "max_"))


def _widest(name: str, schema: Mapping[str, Any]) -> JsonValue:
    """The bound that keeps every row."""
    low = name.startswith("min_")
    if schema.get("type") == "string":
        day = "0001-01-01" if low else "9999-12-31"
        timed = "THH:MM" in schema.get("description", "")
        return f"{day}T{'00:00' if low else '23:59'}" if timed else day
    return int(schema.get("minimum", -WIDE) if low else schema.get("maximum", WIDE))


def _columns(tool: ToolSpec, path: tuple[str | int, ...]) -> list[str]:
    """Columns that come with the leaf at ``path`` of what ``tool`` returns."""
    part: Any = tool.returns
    for step in path[:-1] if path and path[-1] != -1 else path:
        part = part.get("items", {}) if step == -1 else part.get("properties", {}).get(step, {})
    return list(part.get("properties", {}))


def _fits(row: SourceRow, where: Mapping[str, JsonValue]) -> bool:
    return all(row.fields.get(column, value) == value for column, value in where.items())


def _key(value: JsonValue) -> str:
    return json.dumps(value, sort_keys=True)


def _column_of(value: JsonValue, column: str) -> JsonValue:
    if is_error(value):
        return None
    return value.get(column) if isinstance(value, dict) else value
