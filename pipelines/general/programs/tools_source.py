"""From ``Access`` to the functions of ``tools.py``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from envgen.core import ir
from envgen.core.ir import Access, Column, Relation
from envgen.pipelines.general.programs.emit import (
    Block,
    Doc,
    flat,
    identifier,
    join_lines,
    python_literal,
    quoted,
    statement,
    wrap,
)
from envgen.pipelines.general.programs.python_text import python_lines
from envgen.pipelines.general.programs.sql import SqlScope, sql
from envgen.pipelines.general.words.tool_specs import (
    Argument,
    arguments_of,
    checked,
    errors_of,
    tool_specs,
)

__all__ = ["tool_specs", "tools_source"]


def tools_source(relations: Sequence[Relation], access: Sequence[Access]) -> str:
    """The file ``tools.py``: one plain function per access, standard library only.

    Raises:
        PipelineError: as ``tool_specs``.
    """
    schema = {relation.name: relation for relation in relations}
    functions = [_function(item, schema) for item in access]
    body = "\n".join(functions)
    helpers = [text for name, text in _HELPERS.items() if f"{name}(" in body]
    return join_lines([_HEAD, *helpers, *functions])


_HEAD = '''"""Tools of this environment. Each takes the database and named arguments."""

import sqlite3


class ToolError(Exception):
    """A documented error: a code and a message."""

    def __init__(self, code, message):
        super().__init__(code, message)
        self.code = code
        self.message = message'''

_HELPERS = {
    "check": '''
def check(name, value, kind):
    """Refuse an argument of another type; True is no int."""
    if type(value) is not kind:
        raise ToolError("bad_argument", f"{name} must be of type {kind.__name__}")
    if kind is int and not -(2**63) <= value < 2**63:
        raise ToolError("bad_argument", f"{name} is too large")
    if kind is str and any("\\ud800" <= char <= "\\udfff" for char in value):
        raise ToolError("bad_argument", f"{name} is no valid text")''',
    "check_date": '''
def check_date(name, value):
    """Refuse what is no date YYYY-MM-DD (or date and time YYYY-MM-DDTHH:MM)."""
    digits = "".join("0" if char in "0123456789" else char for char in str(value))
    if digits not in ("0000-00-00", "0000-00-00T00:00"):
        raise ToolError("bad_argument", f"{name} must be a date such as 2025-01-31")''',
    "check_columns": '''
def check_columns(name, value, known):
    """Refuse all but a list of known facts."""
    if type(value) is not list or not value or any(item not in known for item in value):
        raise ToolError("bad_argument", f"{name} must be a list of some of: {', '.join(known)}")''',
    "find": '''
def find(db, query, name, value):
    """The first row of a query for a key, or the error not_found."""
    row = db.execute(query, (value,)).fetchone()
    if row is None:
        raise ToolError("not_found", f"there is no {name} {value!r}")
    return row''',
    "truth": '''
def truth(value):
    """A stored 0 or 1 as a bool; unknown stays None."""
    return None if value is None else bool(value)''',
}
_PYTHON_TYPES = {"bool": "bool", "int": "int", "minutes": "int"}


def _function(access: Access, schema: dict[str, Relation]) -> str:
    checked(access, schema)
    arguments = arguments_of(access, schema)
    names = [f"{argument.name}: {_python_type(argument.column)}" for argument in arguments]
    if access.projection is not None:
        names.insert(0, f"{access.projection}: list")
    if access.mode == "page":
        names.append("page: int")
    gives = "list" if access.mode in ("list", "range") else "dict"
    if access.mode == "inverse" and len(access.returned_columns) == 1:
        gives = _python_type(schema[access.relation].column(access.returned_columns[0]))
    star = ["*"] if names else []
    head = f"{access.tool}({', '.join(['db: sqlite3.Connection', *star, *names])})"
    lines = [*python_lines(head, 0, "def ", f" -> {gives}:"), *_docstring(access, arguments)]
    lines += _checks(access, arguments)
    body = {"inverse": _inverse, "info": _info, "page": _page, "write": _write}.get(
        access.mode, _list
    )
    return "\n".join([*lines, *body(access, arguments, schema)])


def _python_type(column: Column) -> str:
    if column.type.startswith("decimal:"):
        return "int"
    return _PYTHON_TYPES.get(column.type, "str")


def _docstring(access: Access, arguments: list[Argument]) -> list[str]:
    conditions = [f"{error.code}: {error.when}" for error in errors_of(access, arguments)]
    errors = [quoted(error, block=True) for error in conditions]
    lines = wrap(quoted(access.description, block=True), 90)
    if not errors:
        lines[-1] += '"""'
        return ['    """' + lines[0], *(f"    {line}" for line in lines[1:])]
    text = ['    """' + lines[0], *(f"    {line}" for line in lines[1:]), "", "    Errors:"]
    for error in errors:
        head, *rest = wrap(error, 88)
        text += [f"        {head}", *(f"            {line}" for line in rest)]
    return [*text, '    """']


def _checks(access: Access, arguments: list[Argument]) -> list[str]:
    lines = []
    if access.projection is not None:
        known = python_literal(list(access.returned_columns))
        lines += python_lines(
            f'check_columns("{access.projection}", {access.projection}, {known})', 4
        )
    for argument in arguments:
        name = argument.name
        lines.append(f'    check("{name}", {name}, {_python_type(argument.column)})')
        if argument.column.type in ("date", "datetime"):
            lines.append(f'    check_date("{name}", {name})')
    if access.mode not in ("inverse", "info"):
        for argument in arguments:
            if argument.source is not None:
                table, key = map(identifier, argument.source.split("."))
                query = python_literal(f"SELECT 1 FROM {table} WHERE {key} = ?")
                lines += python_lines(f'find(db, {query}, "{_noun(argument)}", {argument.name})', 4)
    return lines


def _noun(argument: Argument) -> str:
    name = argument.name.removesuffix("_id")
    if argument.source is not None and name in ("id", "name", "key"):
        name = argument.source.partition(".")[0].removesuffix("s")
    return name.replace("_", " ")


def _select(access: Access, arguments: list[Argument]) -> list[Doc]:
    columns = Block(
        "SELECT ", tuple(identifier(c) for c in access.returned_columns), ", ", lead=False
    )
    lines: list[Doc] = [columns, f"FROM {identifier(access.relation)}"]
    if arguments:
        tests = tuple(_test(access, argument) for argument in arguments)
        lines.append(Block("WHERE ", tests, " AND "))
    return lines


def _test(access: Access, argument: Argument) -> str:
    symbol = "="
    if access.mode == "range" and argument.name.startswith(("min_", "max_")):
        symbol = ">=" if argument.name.startswith("min_") else "<="
    return f"{identifier(argument.column.name)} {symbol} :{argument.name}"


def _given(names: Iterable[str], *more: str) -> str:
    pairs = [*(f'"{name}": {name}' for name in names), *more]
    return f"{{{', '.join(pairs)}}}"


def _row(access: Access, schema: dict[str, Relation]) -> str:
    columns = [schema[access.relation].column(name) for name in access.returned_columns]
    cells = [
        f"truth(row[{i}])" if column.type == "bool" else f"row[{i}]"
        for i, column in enumerate(columns)
    ]
    if len(cells) == 1 and access.mode != "info":
        return cells[0]
    pairs = [f'"{c.name}": {cell}' for c, cell in zip(columns, cells, strict=True)]
    return f"{{{', '.join(pairs)}}}"


def _list(access: Access, arguments: list[Argument], schema: dict[str, Relation]) -> list[str]:
    key = identifier(schema[access.relation].key)
    query = Block("", (*_select(access, arguments), f"ORDER BY {key}"), " ")
    lines = _execute("rows", query, [argument.name for argument in arguments])
    return [*lines, *python_lines(f"[{_row(access, schema)} for row in rows]", 4, "return ")]


def _execute(target: str, query: Doc, names: list[str], fetch: str = "") -> list[str]:
    given = f", {_given(names)}" if names else ""
    return statement(query, f"{target} = db.execute(", f"{given}){fetch}")


def _page(access: Access, arguments: list[Argument], schema: dict[str, Relation]) -> list[str]:
    key = identifier(schema[access.relation].key)
    count = Block("", ("SELECT COUNT(*)", *_select(access, arguments)[1:]), " ")
    size = access.page_size
    query = Block(
        "", (*_select(access, arguments), f"ORDER BY {key}", f"LIMIT {size} OFFSET :skip"), " "
    )
    names = [argument.name for argument in arguments]
    given = _given(names, f'"skip": (page - 1) * {size}')
    items = f"[{_row(access, schema)} for row in rows]"
    return [
        '    check("page", page, int)',
        *_execute("total", count, names, ".fetchone()[0]"),
        f"    pages = max(1, -(-total // {size}))",
        "    if not 1 <= page <= pages:",
        '        raise ToolError("bad_argument", f"page must be between 1 and {pages}")',
        *statement(query, "rows = db.execute(", f", {given})"),
        *python_lines(f'{{"items": {items}, "page": page, "pages": pages}}', 4, "return "),
    ]


def _one_row(access: Access, arguments: list[Argument], schema: dict[str, Relation]) -> list[str]:
    lines: list[Doc] = [*_select(access, arguments)]
    by_key = [argument.column.name for argument in arguments] == [schema[access.relation].key]
    if not by_key:
        lines += [f"ORDER BY {identifier(schema[access.relation].key)}", "LIMIT 1"]
    names = [argument.name for argument in arguments]
    shown = " and ".join("{" + name + "!r}" for name in names)
    noun = "row" if len(names) > 1 else _noun(arguments[0])
    return [
        *_execute("row", Block("", tuple(lines), " "), names, ".fetchone()"),
        "    if row is None:",
        f'        raise ToolError("not_found", f"there is no {noun} {shown}")',
    ]


def _inverse(access: Access, arguments: list[Argument], schema: dict[str, Relation]) -> list[str]:
    return [*_one_row(access, arguments, schema), *python_lines(_row(access, schema), 4, "return ")]


def _info(access: Access, arguments: list[Argument], schema: dict[str, Relation]) -> list[str]:
    return [
        *_one_row(access, arguments, schema),
        *python_lines(_row(access, schema), 4, "facts = "),
        f"    return {{name: facts[name] for name in {access.projection}}}",
    ]


def _write(access: Access, arguments: list[Argument], schema: dict[str, Relation]) -> list[str]:
    scope = SqlScope(schema)
    lines = [f"    given = {_given(argument.name for argument in arguments)}"]
    for pre in access.pre:
        test = Block("SELECT ", (sql(pre.expr, scope, truth=True).doc,), "")
        lines += statement(test, "allowed = db.execute(", ", given).fetchone()[0]")
        lines += ["    if not allowed:"]
        error = f"ToolError({python_literal(pre.code)}, {python_literal(pre.text)})"
        lines += python_lines(error, 8, "raise ")
    values = _values(access, scope)
    if values:
        named = tuple(Block("", (doc,), "", f" AS {name}") for name, doc in values.items())
        select = Block("SELECT ", named, ", ", lead=False)
        lines += statement(select, "row = db.execute(", ", given).fetchone()")
        pairs = [f'"{name}": row[{i}]' for i, name in enumerate(values)]
        lines += python_lines(f"given.update({{{', '.join(pairs)}}})", 4)
    for i, effect in enumerate(access.effects):
        lines += _effect(i, effect, schema, scope, values)
    return [*lines, '    return {"ok": True}']


def _values(access: Access, scope: SqlScope) -> dict[str, Doc]:
    """Computed values by name: all are read before the first effect changes anything."""
    values: dict[str, Doc] = {}
    for i, effect in enumerate(access.effects):
        for name, expr in (("key", effect.key), *effect.set.items()):
            if not isinstance(expr, ir.Const | ir.Arg):
                values[f"{name}_{i + 1}"] = sql(expr, scope).doc
    return values


def _effect(
    i: int, effect: ir.Write, schema: dict[str, Relation], scope: SqlScope, values: dict[str, Doc]
) -> list[str]:
    relation = schema[effect.relation]

    def cell(name: str, expr: ir.Node) -> str:
        computed = f"{name}_{i + 1}"
        return f":{computed}" if computed in values else flat(sql(expr, scope).doc)

    table, key = identifier(effect.relation), identifier(relation.key)
    where = f"WHERE {key} = {cell('key', effect.key)}"
    cells = {name: cell(name, expr) for name, expr in effect.set.items()}
    if effect.kind == "delete":
        query = Block("", (f"DELETE FROM {table}", where), " ")
        return statement(query, "db.execute(", ", given)")
    if effect.kind == "update":
        sets = tuple(f"{identifier(name)} = {text}" for name, text in cells.items())
        query = Block("", (f"UPDATE {table}", Block("SET ", sets, ", ", lead=False), where), " ")
        return statement(query, "db.execute(", ", given)")
    taken = Block("", (f"SELECT 1 FROM {table}", where), " ")
    names = (key, *(identifier(name) for name in cells))
    texts = (cell("key", effect.key), *cells.values())
    query = Block("", (Block(f"INSERT INTO {table} (", names, ", ", ")", False),
                       Block("VALUES (", texts, ", ", ")", False)), " ")  # fmt: skip
    noun = effect.relation.removesuffix("s").replace("_", " ")
    return [
        *statement(taken, "taken = db.execute(", ", given).fetchone()"),
        "    if taken:",
        f'        raise ToolError("already_exists", "this {noun} exists already")',
        *statement(query, "db.execute(", ", given)"),
    ]
