"""The functions around the tools in a generated solution, from what ``Data`` was asked for."""

from __future__ import annotations

from collections.abc import Mapping

from envgen.core.ir import Relation
from envgen.pipelines.general.emit import (
    Block,
    Doc,
    call,
    if_line,
    layout_text,
    line_of,
    python_literal,
)
from envgen.pipelines.general.solution_data import (
    BIG,
    Data,
    Index,
    Loader,
    Lookup,
    Source,
    bounds_of,
)


def data_source(data: Data) -> list[str]:
    """Caches and functions of everything that was asked for, in an order that reads well."""
    return _Writer(data).source()


class _Writer:
    def __init__(self, data: Data) -> None:
        self.data, self.names = data, data.names

    def source(self) -> list[str]:
        """All parts."""
        loaders = [self._loader_source(loader) for loader in self.data.loaders.values()]
        indexes = [self._index_source(index) for index in self.data.indexes.values()]
        lookups = [self._lookup_source(lookup) for lookup in self.data.lookups.values()]
        made: list[Source] = [
            *self.data.lookups.values(), *self.data.loaders.values(), *self.data.indexes.values(),
        ]  # fmt: skip
        caches = [f"{item.name.upper()} = {{}}" for item in made]
        big = [f"LARGE = {BIG}"] if self.data.uses_big else []
        return ["\n".join([*big, *caches]), *lookups, *loaders, *indexes]

    def _lookup_source(self, lookup: Lookup) -> str:
        relation = lookup.relation
        key = self.names.local(relation.key)
        cache = lookup.name.upper()
        lines = [
            f"def {lookup.name}({key}):",
            f'    """The row of {relation.name} with this {relation.key}."""',
            f"    if {key} not in {cache}:",
        ]
        columns = [c for c in lookup.columns if c != relation.key]
        fetched = self._fetch(lines, relation, columns, key, 8)
        own = key
        replies = [text.partition("[")[0] for text in fetched.values() if text.endswith('"]')]
        if lookup.may_miss and replies:
            own = f'None if "error" in {replies[0]} else {key}'
            fetched = {n: t.replace('["', '.get("').replace('"]', '")') for n, t in fetched.items()}
        cells = {self.data.field(relation.name, relation.key): own} | fetched
        lines.append(_assign(f"{cache}[{key}] = ", cells, 8))
        return "\n".join([*lines, f"    return {cache}[{key}]"])

    def _fetch(
        self, lines: list[str], relation: Relation, columns: list[str], key: str, indent: int
    ) -> dict[str, str]:
        """Calls that read ``columns`` by key go to ``lines``; gives field -> expression."""
        givers = self.data.by_key(relation.name)
        cells = {}
        for item in {givers[column].tool: givers[column] for column in columns}.values():
            wanted = [column for column in columns if givers[column] is item]
            argument = next(iter(item.args))
            if item.mode == "inverse" and len(item.returned_columns) == 1:
                cells[self.data.field(relation.name, wanted[0])] = f"{item.tool}({argument}={key})"
                continue
            reply = "facts" if len(wanted) == len(columns) else f"{wanted[0]}_facts"
            parts = [f"{argument}={key}"]
            if item.projection is not None:
                parts.insert(0, f"{item.projection}={python_literal(list(wanted))}")
            lines.append(" " * indent + layout_text(call(f"{reply} = {item.tool}(", parts), indent))
            cells |= {self.data.field(relation.name, c): f'{reply}["{c}"]' for c in wanted}
        return cells

    def _loader_source(self, loader: Loader) -> str:
        item, cache = loader.access, loader.name.upper()
        names = {argument: self.names.local(argument) for argument in loader.arguments}
        key = ", ".join(names.values()) or "0"
        key = f"({key})" if len(names) > 1 else key
        about = " and ".join(argument.replace("_", " ") for argument in names)
        what = f"Rows of {item.relation} by {about}" if about else f"All rows of {item.relation}"
        lines = [
            f"def {loader.name}({', '.join(names.values())}):",
            f'    """{what}."""',
            f"    if {key} not in {cache}:",
            "        rows = []",
        ]
        parts = [f"{a}={'LARGE' if a.startswith('max_') else '0'}" if a in bounds_of(item)
                 else f"{a}={names[a]}" for a in item.args]  # fmt: skip
        indent = 8
        if item.mode == "page":
            lines += ["        page, pages = 1, 1", "        while page <= pages:"]
            lines.append(f"            reply = {item.tool}({', '.join([*parts, 'page=page'])})")
            if loader.may_miss:
                lines += ['            if "error" in reply:', "                break"]
            lines += ['            pages = reply["pages"]', "            page += 1"]
            lines.append('            for item in reply["items"]:')
            indent = 12
        else:
            reading = call(f"{item.tool}(", parts)
            if loader.may_miss:
                lines += [line_of("reply = ", reading, 8), '        if "error" in reply:']
                lines += ["            reply = []", "        for item in reply:"]
            else:
                lines.append(if_line(reading, 8, "for item in"))
        lines += self._loader_row(loader, names, indent + 4)
        return "\n".join([*lines, f"        {cache}[{key}] = rows", f"    return {cache}[{key}]"])

    def _loader_row(self, loader: Loader, names: dict[str, str], indent: int) -> list[str]:
        item, relation = loader.access, loader.relation
        bare = len(item.returned_columns) == 1
        given = {c: names[a] for a, c in item.args.items() if a in names}
        given |= {c: "item" if bare else f'item["{c}"]' for c in item.returned_columns}
        columns = dict.fromkeys(
            [*([relation.key] if relation.key in given else []), *loader.columns]
        )
        cells = {self.data.field(relation.name, c): given[c] for c in columns if c in given}
        lines: list[str] = []
        missing = [c for c in columns if c not in given]
        if missing:
            cells |= self._fetch(lines, relation, missing, given[relation.key], indent)
        lines.append(_append(cells, indent))
        return lines

    def _index_source(self, index: Index) -> str:
        cache = index.name.upper()
        rows: Doc = Block("[", ("row", *index.loops), " ", "]")
        head = [f"def {index.name}():"]
        if index.only:
            head.append(f'    """The one row of {index.relation.name}."""')
            key = "0"
        else:
            head.append(f'    """The rows of {index.relation.name} by {index.relation.key}."""')
            key = f'row["{self.data.field(index.relation.name, index.relation.key)}"]'
            rows = Block("{", (f"{key}: row", *index.loops), " ", "}")
        lines = [
            f"    if 0 not in {cache}:",
            line_of(f"{cache}[0] = ", rows, 8),
        ]
        return "\n".join([*head, *lines, f"    return {cache}[0]"])


def _assign(head: str, cells: Mapping[str, str], indent: int) -> str:
    pairs = [f'"{name}": {text}' for name, text in cells.items()]
    return " " * indent + layout_text(call(head + "{", pairs, "}"), indent)


def _append(cells: Mapping[str, str], indent: int) -> str:
    pairs = [f'"{name}": {text}' for name, text in cells.items()]
    return " " * indent + layout_text(call("rows.append({", pairs, "})"), indent)
