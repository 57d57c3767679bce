"""How a solution reads rows: through which tools, and the functions around them.

Nothing here knows a row; it plans with signatures only. A row is read lazily: ``Reads.scan`` runs over
what a tool lists, ``Reads.column`` asks for one column of a key where an expression needs it, and every
function remembers what it was told.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from envgen.core.errors import PipelineError
from envgen.core.ir import Access, Problem, Relation
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
class _Wrapper:
    """A function around one tool; ``may_miss`` if some argument may name no row."""

    name: str
    access: Access
    columns: dict[str, None] = field(default_factory=dict)
    may_miss: bool = False


@dataclass
class _Index:
    """``hotels_index()[key]``: rows by key, from all rows; ``only`` if the tool gives no keys."""

    name: str
    relation: Relation
    columns: dict[str, None] = field(default_factory=dict)
    only: bool = False


@dataclass(frozen=True)
class _Way:
    """A tool that lists rows: its cost, loops around it, and the columns that its arguments give."""

    cost: tuple[int, int, str]
    access: Access
    loops: tuple[str, ...]
    given: Mapping[str, str]
    pinned: frozenset[str]


class Reads:
    """The tools of a problem as a source of rows. Functions come into being as they are asked for."""

    def __init__(self, p: Problem, names: Names) -> None:
        self.schema = {relation.name: relation for relation in p.relations}
        self.access = [item for item in p.access if item.mode != "write"]
        self.names = names
        self._loaders: dict[str, _Wrapper] = {}
        self._lookups: dict[str, _Wrapper] = {}
        self._indexes: dict[str, _Index] = {}
        self._functions: dict[str, str] = {}

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
        if column == self.schema[relation].key and (solid or givers):
            return (
                (key, False)
                if solid
                else (f"({key} if {self.exists(relation, key)} else None)", True)
            )
        if column not in givers or self._all_at_once(relation, column):
            return self._indexed(relation, key, column, solid)
        lookup = self._lookup(givers[column])
        lookup.columns.setdefault(column)
        if _returns_value(lookup.access):
            if not solid:
                raise PipelineError(f"no tool tells whether a row of {relation!r} has {column!r}")
            return f"{lookup.name}({key})", False
        if solid:
            return f'{lookup.name}({key})["{column}"]', False
        return f'{lookup.name}({key}).get("{column}")', True

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

    def _lookup(self, item: Access) -> _Wrapper:
        if item.tool not in self._lookups:
            name = self.names.new(item.relation)
            self._lookups[item.tool] = _Wrapper(name, item)
        return self._lookups[item.tool]

    def _indexed(self, relation: str, key: str, column: str, solid: bool) -> tuple[str, bool]:
        index = self._index(relation, column)
        name = self._field(relation, column)
        if index.only:
            return f'{index.name}()[0]["{name}"]', False
        if solid:
            return f'{index.name}()[{key}]["{name}"]', False
        return f'{index.name}().get({key}, {{}}).get("{name}")', True

    def _index(self, relation: str, column: str) -> _Index:
        if relation not in self._indexes:
            name, key = f"{relation}_index", self.schema[relation].key
            try:
                self.scan(relation, {key, column}, {}, "row")
                only = False
            except PipelineError:  # a table of one row, such as settings, needs no key
                self.scan(relation, {column}, {}, "row")
                only = True
            index = _Index(self.names.new(name), self.schema[relation], only=only)
            self._indexes[relation] = index
        self._indexes[relation].columns.setdefault(column)
        return self._indexes[relation]

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
            return self._keyed_scan(relation, pins[key], var)
        tools = [a for a in self.access if a.relation == relation and a.mode not in _KEYED]
        ways = [self._way(item, needs, pins, var, taken, depth) for item in tools]
        best = min((way for way in ways if way is not None), default=None, key=lambda way: way.cost)
        if best is None:
            wanted = ", ".join(sorted(needs))
            raise PipelineError(f"no tools lead to {wanted} of the rows of {relation!r}")
        loader = self._loader(best.access)
        loader.may_miss = loader.may_miss or any(not pins[c].solid for c in best.pinned)
        values = ", ".join(best.given.values())
        loops = (*best.loops, f"for {var} in {loader.name}({values})")
        own = best.access.returned_columns
        texts = {c: var if len(own) == 1 else f'{var}["{c}"]' for c in own}
        return Scan(loops, {**best.given, **texts}, frozenset(best.given) - set(own), best.pinned)

    def _keyed_scan(self, relation: str, pin: Pin, var: str) -> Scan:
        key = self.schema[relation].key
        loops = pin.loops(var)
        if not pin.solid:
            loops.append(f"if {self.exists(relation, var)}")
        return Scan(tuple(loops), {key: var}, frozenset({key}), frozenset({key}))

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
        return _Way(cost, item, tuple(loops), given, frozenset(given) & frozenset(pins))

    def _loader(self, item: Access) -> _Wrapper:
        if item.tool not in self._loaders:
            by = "_and_".join(a for a in item.args if a not in bounds_of(item))
            name = f"{item.relation}_by_{by}" if by else f"all_{item.relation}"
            self._loaders[item.tool] = _Wrapper(self.names.new(name), item)
        return self._loaders[item.tool]

    # --- source ----------------------------------------------------------------------------

    def function(self, wish: str, value: str) -> str:
        """The name, like ``wish``, of a function whose text is ``value``; one for equal texts."""
        if value not in self._functions:
            self._functions[value] = self.names.new(wish)
        return self._functions[value]

    def source(self, body: str) -> list[str]:
        """The functions that ``body`` calls, and those that they call."""
        indexes = {one.name: self._index_lines(one) for one in self._indexes.values()}
        found = {one.name: self._lookup_lines(one) for one in self._lookups.values()}
        found |= {one.name: self._loader_lines(one) for one in self._loaders.values()}
        found |= indexes
        found |= {n: python_lines(v, before=f"{n} = ") for v, n in self._functions.items()}
        called: set[str] = set()
        text = body
        while fresh := {name for name in found if re.search(rf"\b{name}\b", text)} - called:
            called |= fresh
            text += "".join(line for name in fresh for line in found[name])
        return ["\n".join(line for name, own in found.items() if name in called for line in own)]

    def _lookup_lines(self, lookup: _Wrapper) -> list[str]:
        item = lookup.access
        argument = next(iter(item.args))
        parts = [f"{argument}=key"]
        if item.projection is not None:
            parts.insert(0, f"{item.projection}={python_literal(list(lookup.columns))}")
        return _remembered(lookup.name, ["key"], f"{item.tool}({', '.join(parts)})")

    def _loader_lines(self, loader: _Wrapper) -> list[str]:
        item, bounds = loader.access, bounds_of(loader.access)
        names = {a: self.names.local(a) for a in item.args if a not in bounds}
        parts = [f"{a}={names[a]}" if a in names else f"{a}={_bound(a)}" for a in item.args]
        if item.mode == "page":
            reply = f"all_pages(lambda page: {item.tool}({', '.join([*parts, 'page=page'])}))"
        else:
            reply = f"{item.tool}({', '.join(parts)})"
            reply = f"listed({reply})" if loader.may_miss else reply
        return _remembered(loader.name, list(names.values()), reply)

    def _index_lines(self, index: _Index) -> list[str]:
        relation = index.relation
        needs = set(index.columns) | (set() if index.only else {relation.key})
        scan = self.scan(relation.name, needs, {}, "row")
        cells = []
        for column in index.columns:
            text = scan.columns.get(column)
            if text is None:
                text, _ = self.column(relation.name, scan.columns[relation.key], column, solid=True)
            cells.append(f'"{self._field(relation.name, column)}": {text}')
        row, loops = f"{{{', '.join(cells)}}}", " ".join(scan.loops)
        if index.only:
            return _remembered(index.name, [], f"[{row} {loops}]")
        return _remembered(index.name, [], f"{{{scan.columns[relation.key]}: {row} {loops}}}")


def _remembered(name: str, arguments: list[str], value: str) -> list[str]:
    head = f"lambda {', '.join(arguments)}" if arguments else "lambda"
    return python_lines(f"remembered({head}: {value})", before=f"{name} = ")


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
