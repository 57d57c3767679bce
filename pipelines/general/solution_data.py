"""How a solution reads rows: which tools give which columns, and the loader functions around them.

Nothing here knows a row; it plans with signatures only. A ``Loader`` wraps one list, range or page tool
and gives rows as dicts (columns that the tool leaves out are fetched by key); a ``Lookup`` gives the row
of one key. ``Data.scan`` says how to run over the rows of a relation, given what is known of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from envgen.core.errors import PipelineError
from envgen.core.ir import Access, Relation
from envgen.pipelines.general.emit import (
    Block,
    Doc,
    call,
    glued,
)
from envgen.pipelines.general.names import Names

BIG = "100 * 100 * 100 * 100 * 100"
_KEYED = ("info", "inverse")


@dataclass(frozen=True)
class Pin:
    """What is known of a column: one value, or (``many``) a list of possible values."""

    value: Doc
    many: bool = False
    solid: bool = True
    """False where the value may name no row."""


@dataclass(frozen=True)
class Scan:
    """``for`` clauses over ``var`` at last; ``pinned`` columns need no further test."""

    var: str
    loops: tuple[Doc, ...]
    rows: Doc
    """What the last clause runs over."""
    source: Source
    pinned: frozenset[str]


@dataclass
class Lookup:
    """``hotels_row(key)``: the row of a key, from the tools that take the key."""

    relation: Relation
    name: str
    columns: dict[str, None] = field(default_factory=dict)
    may_miss: bool = False
    """Whether some key may name no row; its row then holds None everywhere."""

    def want(self, column: str) -> None:
        """Make sure that the rows hold ``column``."""
        self.columns.setdefault(column)


@dataclass
class Index:
    """``hotels_index()[key]``: rows by key, from all rows; ``only`` if the tool gives no keys."""

    relation: Relation
    name: str
    loader: Loader
    loops: tuple[Doc, ...]
    only: bool

    def want(self, column: str) -> None:
        """Make sure that the rows hold ``column``."""
        self.loader.want(column)


@dataclass
class Loader:
    """``hotels_by_city(city)``: the rows that one tool lists for its arguments."""

    access: Access
    relation: Relation
    name: str
    arguments: tuple[str, ...]
    columns: dict[str, None] = field(default_factory=dict)
    may_miss: bool = False
    """Whether some argument may name no row; there are no rows then."""

    def want(self, column: str) -> None:
        """Make sure that the rows hold ``column``."""
        self.columns.setdefault(column)


Source = Loader | Lookup | Index


class Data:
    """The tools of a problem as a source of rows. Functions come into being as they are asked for."""

    def __init__(
        self, relations: Sequence[Relation], access: Sequence[Access], names: Names
    ) -> None:
        self.schema = {relation.name: relation for relation in relations}
        self.access = [item for item in access if item.mode != "write"]
        self.names = names
        self.loaders: dict[str, Loader] = {}
        self.lookups: dict[str, Lookup] = {}
        self.indexes: dict[str, Index] = {}
        self.uses_big = False

    # --- names of fields -------------------------------------------------------------------

    def field(self, relation: str, column: str) -> str:
        """The key of ``column`` in row dicts: a word that the tools use."""
        tools = [item for item in self.access if item.relation == relation]
        if column == self.schema[relation].key or any(column in t.returned_columns for t in tools):
            return column
        for item in tools:
            for argument, target in item.args.items():
                if target == column:
                    return argument
        return column

    # --- one row by its key ----------------------------------------------------------------

    def by_key(self, relation: str) -> dict[str, Access]:
        """Column -> the tool that gives it for a key."""
        found: dict[str, Access] = {}
        for item in self.access:
            if item.relation == relation and item.mode in _KEYED:
                if list(item.args.values()) == [self.schema[relation].key]:
                    for column in item.returned_columns:
                        found.setdefault(column, item)
        return found

    def row(self, relation: str, column: str) -> Source:
        """What gives ``column`` of the row of a key."""
        if column in self.by_key(relation) or column == self.schema[relation].key:
            lookup = self._lookup(relation)
            lookup.want(column)
            return lookup
        if relation not in self.indexes:
            self.indexes[relation] = self._index(relation, column)
        self.indexes[relation].want(column)
        return self.indexes[relation]

    def _lookup(self, relation: str) -> Lookup:
        if relation not in self.lookups:
            name = self.names.new(f"{relation}_row")
            self.lookups[relation] = Lookup(self.schema[relation], name)
        return self.lookups[relation]

    def _index(self, relation: str, column: str) -> Index:
        key = self.schema[relation].key
        name = self.names.new(f"{relation}_index")
        try:
            scan = self.scan(relation, {key, column}, {}, "row")
            only = False
        except PipelineError:  # a table of one row, such as settings, needs no key
            scan = self.scan(relation, {column}, {}, "row")
            only = True
        assert isinstance(scan.source, Loader)
        return Index(self.schema[relation], name, scan.source, scan.loops, only)

    def get(self, source: Source, key: str, column: str, *, solid: bool) -> str:
        """The expression of ``column`` in the row of ``key``; None if a key that isn't ``solid`` has none."""
        name = self.field(source.relation.name, column)
        if isinstance(source, Lookup):
            source.may_miss = source.may_miss or not solid
            return f'{source.name}({key})["{name}"]'
        assert isinstance(source, Index)
        if source.only:
            return f'{source.name}()[0]["{name}"]'
        if solid:
            return f'{source.name}()[{key}]["{name}"]'
        return f'{source.name}().get({key}, {{}}).get("{name}")'

    # --- many rows -------------------------------------------------------------------------

    def scan(
        self,
        relation: str,
        needs: set[str],
        pins: Mapping[str, Pin],
        var: str,
        taken: frozenset[str] = frozenset(),
        depth: int = 0,
    ) -> Scan:
        """How to run variable ``var`` over all rows of ``relation`` that agree with ``pins``.

        Loop variables avoid the names in ``taken``.

        Raises:
            PipelineError: if the tools don't reach the rows, or not the columns in ``needs``.
        """
        key = self.schema[relation].key
        if key in pins and not pins[key].many and needs - {key} <= set(self.by_key(relation)):
            lookup = self._lookup(relation)
            for column in sorted(needs):
                lookup.want(column)
            row = Block(f"[{lookup.name}(", (pins[key].value,), "", ")]")
            if not pins[key].solid:
                lookup.may_miss = True
                for column in list(self.by_key(relation))[:1]:
                    lookup.want(column)  # else nothing would tell that the row is missing
                name = self.field(relation, key)
                test = f'if row["{name}"] is not None'
                row = Block("[", ("row", glued("for row in ", row), test), " ", "]")
            return Scan(var, (_loop(var, row),), row, lookup, frozenset({key}))
        plans = [
            plan
            for item in self.access
            if item.relation == relation and item.mode not in _KEYED
            if (plan := self._plan(item, needs, pins, taken | {var}, depth)) is not None
        ]
        if not plans:
            wanted = ", ".join(sorted(needs))
            raise PipelineError(f"no tools lead to {wanted} of the rows of {relation!r}")
        best = min(plans, key=lambda plan: plan[0])
        return self._take(best[1], needs, pins, var, best[2], taken)

    def _plan(
        self,
        item: Access,
        needs: set[str],
        pins: Mapping[str, Pin],
        taken: frozenset[str],
        depth: int,
    ) -> tuple[tuple[int, int, str], Access, dict[str, Scan]] | None:
        relation = self.schema[item.relation]
        bounds = bounds_of(item)
        loops: dict[str, Scan] = {}
        for argument, column in item.args.items():
            if argument in bounds:
                if relation.column(column).type not in ("int", "minutes"):
                    if not relation.column(column).type.startswith("decimal:"):
                        return None
                continue
            if column in pins:
                continue
            target = relation.column(column).type.removeprefix("entity:")
            if target not in self.schema or depth > 3:
                return None
            inner = self.names.free(argument, taken)
            taken |= {inner}
            try:
                key = self.schema[target].key
                loops[argument] = self.scan(target, {key}, {}, inner, taken, depth + 1)
            except PipelineError:
                return None
        given = set(item.returned_columns) | {c for a, c in item.args.items() if a not in bounds}
        missing = needs - given
        if missing and not (relation.key in given and missing <= set(self.by_key(item.relation))):
            return None
        return (len(loops), len(missing), item.tool), item, loops

    def _take(
        self,
        item: Access,
        needs: set[str],
        pins: Mapping[str, Pin],
        var: str,
        loops: dict[str, Scan],
        taken: frozenset[str],
    ) -> Scan:
        bounds = bounds_of(item)
        loader = self._loader(item)
        for column in sorted(needs):
            loader.want(column)
        clauses: list[Doc] = []
        values: list[Doc] = []
        pinned = set()
        for argument, column in item.args.items():
            if argument in bounds:
                self.uses_big = True
                continue
            if argument in loops:
                scan = loops[argument]
                clauses += scan.loops
                relation = scan.source.relation
                values.append(f'{scan.var}["{self.field(relation.name, relation.key)}"]')
                continue
            pinned.add(column)
            loader.may_miss = loader.may_miss or not pins[column].solid
            if pins[column].many:
                inner = self.names.free(argument, taken | {var})
                taken |= {inner}
                clauses.append(_loop(inner, pins[column].value))
                values.append(inner)
            else:
                values.append(pins[column].value)
        rows = call(f"{loader.name}(", values)
        return Scan(var, (*clauses, _loop(var, rows)), rows, loader, frozenset(pinned))

    def _loader(self, item: Access) -> Loader:
        if item.tool not in self.loaders:
            arguments = tuple(a for a in item.args if a not in bounds_of(item))
            name = (
                f"{item.relation}_by_{'_and_'.join(arguments)}"
                if arguments
                else f"all_{item.relation}"
            )
            self.loaders[item.tool] = Loader(
                item, self.schema[item.relation], self.names.new(name), arguments
            )
        return self.loaders[item.tool]


def _loop(var: str, rows: Doc) -> Doc:
    return glued(f"for {var} in ", rows)


def bounds_of(item: Access) -> set[str]:
    """Arguments of a range tool that bound their column."""
    if item.mode != "range":
        return set()
    return {argument for argument in item.args if argument.startswith(("min_", "max_"))}
