"""How a solution reads rows: through which tools, and the functions around them.

Nothing here knows a row; it plans with signatures only. A row is read lazily: ``Reads.scan`` runs over
what a tool lists, ``Reads.column`` asks for one column of a key where an expression needs it, and every
function remembers what it was told.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from envgen.core.errors import PipelineError
from envgen.core.ir import Access, Problem
from envgen.pipelines.general.programs.emit import python_literal
from envgen.pipelines.general.programs.python_text import Names, python_lines

LARGE = "LARGE = 100 * 100 * 100 * 100 * 100"
REMEMBERED = '''def remembered(load):
    """``load``, asked once for each key."""
    told = {}
    return lambda *key: told[key] if key in told else told.setdefault(key, load(*key))'''
LISTED = '''def listed(reply):
    """The rows of a reply, none if it is an error."""
    return [] if "error" in reply else reply'''
ALL_PAGES = '''def all_pages(load):
    """The rows of all pages, none if the first one is an error."""
    rows, page, pages = [], 1, 1
    while page <= pages:
        reply = load(page)
        rows.extend(reply.get("items", []))
        page, pages = page + 1, reply.get("pages", 0)
    return rows'''
_KEYED = ("info", "inverse")


@dataclass(frozen=True)
class Pin:
    """What is known of a column: one value, or (``many``) a list of possible values."""

    value: str
    many: bool = False
    known: bool = True
    """False where the value may be None: there are no rows then."""
    solid: bool = True
    """False where the value may name no row."""

    def loops(self, var: str) -> list[str]:
        """Clauses that run over the values that are there."""
        loop = f"for {var} in {self.value if self.many else f'[{self.value}]'}"
        return [loop] if self.known else [loop, f"if {var} is not None"]


@dataclass(frozen=True)
class Scan:
    """``for`` clauses over the rows of a relation, what their columns are, and which pins they keep."""

    loops: tuple[str, ...]
    columns: Mapping[str, str]
    given: frozenset[str]
    """Columns that are arguments of the tool: never None."""
    pinned: frozenset[str]


@dataclass
class _Function:
    """A function of the solution that remembers what it was told: around a tool, or an index of rows."""

    name: str
    write: Callable[[_Function], tuple[list[str], str]]
    """Gives its arguments and what it remembers, once all ``columns`` are known."""
    columns: dict[str, None] = field(default_factory=dict)
    may_miss: bool = False
    """Whether some argument may name no row."""
    only: bool = False
    """Whether an index is of a table of one row, such as settings, that needs no key."""


class _Way(NamedTuple):
    """A tool that lists rows: its cost, loops around it, and the columns that its arguments give."""

    cost: tuple[int, int, str]
    access: Access
    loops: list[str]
    given: dict[str, str]
    pinned: frozenset[str]


class Reads:
    """The tools of a problem as a source of rows. Functions come into being as they are asked for."""

    def __init__(self, p: Problem, names: Names) -> None:
        self.schema = {relation.name: relation for relation in p.relations}
        self.access = [item for item in p.access if item.mode != "write"]
        self.names = names
        self._functions: dict[str, _Function] = {}

    # --- one row by its key ----------------------------------------------------------------

    def by_key(self, relation: str) -> dict[str, Access]:
        """Column -> the tool that gives it for a key; one that returns objects, if there is one."""
        key = self.schema[relation].key
        tools = [a for a in self.access if a.relation == relation and a.mode in _KEYED]
        found: dict[str, Access] = {}
        for item in sorted(tools, key=_returns_value):
            if list(item.args.values()) == [key]:
                for column in item.returned_columns:
                    found.setdefault(column, item)
        return found

    def column(self, relation: str, key: str, column: str, *, solid: bool) -> tuple[str, bool]:
        """The expression of ``column`` in the row of ``key``, and whether it is None if there is no row.

        Raises:
            PipelineError: if no tool gives it, or none that tells a missing row.
        """
        givers = self.by_key(relation)
        if column == self.schema[relation].key and solid:
            return key, False
        if column == self.schema[relation].key and givers:
            return f"({key} if {self.exists(relation, key)} else None)", True
        if column not in givers or self._all_at_once(relation, column):
            return self._indexed(relation, key, column, solid)
        lookup = self._lookup(givers[column])
        lookup.columns.setdefault(column)
        if _returns_value(givers[column]):
            if not solid:
                raise PipelineError(
                    f"no tool tells whether a row of {relation!r} has {column!r}: "
                    f"{givers[column].tool} gives that column alone, so no error can be told from it",
                    "let the tool give a second column, or another tool list the rows",
                )
            return f"{lookup.name}({key})", False
        if solid:
            return f'{lookup.name}({key})["{column}"]', False
        return f'{lookup.name}({key}).get("{column}")', True

    def now(self, relation: str, key: str, column: str) -> str:
        """The expression of ``column`` as it is when asked, not as it was at the start.

        Raises:
            PipelineError: if no tool gives it for a key.
        """
        item = self.by_key(relation).get(column)
        if item is None:
            raise PipelineError(
                f"no tool tells {column!r} of one row of {relation!r} between calls",
                "let a tool give it for the key",
            )
        asked = _asked(item, [column], key)
        return asked if _returns_value(item) else f'{asked}["{column}"]'

    def exists(self, relation: str, key: str) -> str:
        """The test whether a row of ``relation`` has this key.

        Raises:
            PipelineError: if no tool tells.
        """
        for column, item in self.by_key(relation).items():
            if not _returns_value(item):
                lookup = self._lookup(item)
                if not lookup.columns:
                    lookup.columns.setdefault(column)
                return f'"error" not in {lookup.name}({key})'
        return f"{key} in {self._index(relation, self.schema[relation].key).name}()"

    def _all_at_once(self, relation: str, column: str) -> bool:
        """Whether one call lists the column of all rows."""
        wanted = {column, self.schema[relation].key}
        return any(
            item.relation == relation
            and item.mode == "list"
            and not item.args
            and wanted <= set(item.returned_columns)
            for item in self.access
        )

    def _function(
        self, key: str, wish: str, write: Callable[[_Function], tuple[list[str], str]]
    ) -> _Function:
        if key not in self._functions:
            self._functions[key] = _Function(self.names.new(wish), write)
        return self._functions[key]

    def _lookup(self, item: Access) -> _Function:
        def write(function: _Function) -> tuple[list[str], str]:
            return ["key"], _asked(item, list(function.columns), "key")

        return self._function(f"tool {item.tool}", item.relation, write)

    def _indexed(self, relation: str, key: str, column: str, solid: bool) -> tuple[str, bool]:
        index = self._index(relation, column)
        name = self._field(relation, column)
        if index.only:
            return f'{index.name}()[0]["{name}"]', False
        if solid:
            return f'{index.name}()[{key}]["{name}"]', False
        return f'{index.name}().get({key}, {{}}).get("{name}")', True

    def _index(self, relation: str, column: str) -> _Function:
        """``hotels_index()[key]``: rows by key, from all rows."""
        known = f"index {relation}" in self._functions
        index = self._function(
            f"index {relation}",
            f"{relation}_index",
            lambda index: ([], self._rows(index, relation)),
        )
        if not known:
            try:
                self.scan(relation, {self.schema[relation].key, column}, {}, "row")
            except PipelineError:
                self.scan(relation, {column}, {}, "row")
                index.only = True
        index.columns.setdefault(column)
        return index

    def _rows(self, index: _Function, relation: str) -> str:
        key = self.schema[relation].key
        scan = self.scan(relation, {*index.columns, *([] if index.only else [key])}, {}, "row")
        cells = []
        for column in index.columns:
            text = scan.columns.get(column)
            if text is None:
                text, _ = self.column(relation, scan.columns[key], column, solid=True)
            cells.append(f'"{self._field(relation, column)}": {text}')
        row, loops = f"{{{', '.join(cells)}}}", " ".join(scan.loops)
        return f"[{row} {loops}]" if index.only else f"{{{scan.columns[key]}: {row} {loops}}}"

    def _field(self, relation: str, column: str) -> str:
        """The key of ``column`` in a row of an index: a word that the tools use."""
        tools = [item for item in self.access if item.relation == relation]
        if column == self.schema[relation].key or any(column in t.returned_columns for t in tools):
            return column
        arguments = [a for item in tools for a, target in item.args.items() if target == column]
        return arguments[0] if arguments else column

    # --- many rows -------------------------------------------------------------------------

    def scan(
        self,
        relation: str,
        needs: Iterable[str],
        pins: Mapping[str, Pin],
        var: str,
        taken: Iterable[str] = (),
        depth: int = 0,
    ) -> Scan:
        """How to run variable ``var`` over all rows of ``relation`` that agree with ``pins``.

        Columns of ``needs`` that ``Scan.columns`` lacks are there by the key. Loop variables avoid the
        names in ``taken``.

        Raises:
            PipelineError: if the tools don't reach the rows, or not the columns in ``needs``.
        """
        key, needs, taken = self.schema[relation].key, set(needs), frozenset(taken) | {var}
        if key in pins and needs - {key} <= set(self.by_key(relation)):
            loops = pins[key].loops(var)
            if not pins[key].solid:
                loops.append(f"if {self.exists(relation, var)}")
            return Scan(tuple(loops), {key: var}, frozenset({key}), frozenset({key}))
        tools = [a for a in self.access if a.relation == relation and a.mode not in _KEYED]
        ways = [self._way(item, needs, pins, var, taken, depth) for item in tools]
        best = min((way for way in ways if way is not None), default=None, key=lambda way: way.cost)
        if best is None:
            wanted = ", ".join(sorted(needs))
            raise PipelineError(f"no tools lead to {wanted} of the rows of {relation!r}")
        loader = self._loader(best.access)
        loader.may_miss = loader.may_miss or any(not pins[c].solid for c in best.pinned)
        values = ", ".join(best.given.values())
        own = best.access.returned_columns
        texts = {c: var if len(own) == 1 else f'{var}["{c}"]' for c in own}
        run = (*best.loops, f"for {var} in {loader.name}({values})")
        return Scan(run, {**best.given, **texts}, frozenset(best.given) - set(own), best.pinned)

    def _way(
        self,
        item: Access,
        needs: set[str],
        pins: Mapping[str, Pin],
        var: str,
        taken: frozenset[str],
        depth: int,
    ) -> _Way | None:
        """How a tool lists the rows, with loops for the arguments that no pin gives; None if it can't."""
        relation, bounds = self.schema[item.relation], bounds_of(item)
        loops: list[str] = []
        given: dict[str, str] = {}
        for argument, column in item.args.items():
            kind, pin = relation.column(column).type, pins.get(column)
            if argument in bounds:
                if kind not in ("int", "minutes") and not kind.startswith("decimal:"):
                    return None
            elif pin is None:
                target = self.schema.get(kind.removeprefix("entity:"))
                if target is None or depth > 3:
                    return None
                name = self.names.local(argument.removesuffix("_id"), taken)
                taken |= {name}
                try:
                    scan = self.scan(target.name, {target.key}, {}, name, taken, depth + 1)
                except PipelineError:
                    return None
                loops += scan.loops
                given[column] = scan.columns[target.key]
            elif pin.many or not pin.known:
                name = self.names.local(argument, taken)
                taken |= {name}
                loops += pin.loops(name)
                given[column] = name
            else:
                given[column] = pin.value
        missing = needs - set(item.returned_columns) - set(given)
        if missing:
            known = relation.key in (*item.returned_columns, *given)
            if not known or not missing <= set(self.by_key(relation.name)):
                return None
        cost = (len(set(given) - set(pins)), len(missing), item.tool)
        return _Way(cost, item, loops, given, frozenset(given) & frozenset(pins))

    def _loader(self, item: Access) -> _Function:
        named = [a for a in item.args if a not in bounds_of(item)]

        def write(function: _Function) -> tuple[list[str], str]:
            names = {a: self.names.local(a) for a in named}
            parts = [f"{a}={names[a] if a in names else _bound(a)}" for a in item.args]
            if item.mode == "page":
                reply = f"lambda page: {item.tool}({', '.join([*parts, 'page=page'])})"
                return list(names.values()), f"all_pages({reply})"
            reply = f"{item.tool}({', '.join(parts)})"
            return list(names.values()), f"listed({reply})" if function.may_miss else reply

        wish = f"{item.relation}_by_{'_and_'.join(named)}" if named else f"all_{item.relation}"
        return self._function(f"tool {item.tool}", wish, write)

    # --- source ----------------------------------------------------------------------------

    def function(self, wish: str, argument: str, value: str) -> str:
        """The name, like ``wish``, of a function that remembers ``value``; one for equal texts."""
        return self._function(f"text {value}", wish, lambda _: ([argument], value)).name

    def source(self, body: str) -> list[str]:
        """The functions that ``body`` calls, and those that they call."""
        called: list[str] = []
        text = body
        while fresh := [
            function
            for function in self._functions.values()
            if function.name not in called and re.search(rf"\b{function.name}\b", text)
        ]:
            called += [function.name for function in fresh]
            text += "".join(function.write(function)[1] for function in fresh)
        lines = []
        for function in self._functions.values():  # only now is it known which columns each needs
            if function.name in called:
                arguments, value = function.write(function)
                head = f"lambda {', '.join(arguments)}" if arguments else "lambda"
                lines += python_lines(f"remembered({head}: {value})", 0, f"{function.name} = ")
        return ["\n".join(lines)]


def _asked(item: Access, columns: list[str], key: str) -> str:
    """The call of a tool that gives these columns for a key."""
    parts = [f"{next(iter(item.args))}={key}"]
    if item.projection is not None:
        parts.insert(0, f"{item.projection}={python_literal([*columns])}")
    return f"{item.tool}({', '.join(parts)})"


def _bound(argument: str) -> str:
    return "LARGE" if argument.startswith("max_") else "0"


def _returns_value(item: Access) -> bool:
    """Whether a tool gives a bare value, which can't be told from an error."""
    return item.mode == "inverse" and len(item.returned_columns) == 1


def bounds_of(item: Access) -> set[str]:
    """Arguments of a range tool that bound their column."""
    if item.mode != "range":
        return set()
    return {argument for argument in item.args if argument.startswith(("min_", "max_"))}
