"""The specs of tools, from their ``Access``, as an agent reads them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from keyword import iskeyword

from pydantic import JsonValue

from envgen.core import ir
from envgen.core.errors import PipelineError
from envgen.core.ir import Access, Column, Relation
from envgen.core.types import SUBMIT_TOOL, Schema, ToolErrorSpec, ToolSpec
from envgen.environments.checker import BUILTINS, PRELUDE
from envgen.pipelines.general.semantics.rewrite import conjuncts

_SCALES = {1: "tenths (40 means 4.0)", 2: "hundredths (450 means 4.50)", 3: "thousandths"}
HELPERS = frozenset(("check", "check_date", "check_columns", "find", "truth"))
"""Functions of a generated tools.py besides the tools."""
RESERVED = (
    HELPERS | BUILTINS | PRELUDE | {"ToolError", "db", "sqlite3", "solve", "type", SUBMIT_TOOL}
)
"""Names that generated tools and solutions use: no tool and no argument may hide one."""
LOCALS = frozenset("allowed facts given pages row rows skip taken total".split())
"""Variables of generated tools: no argument may hide them."""
_COMPUTED = re.compile(r"\w+_\d+")
"""Names of the values that a write tool computes."""


def _is_name(text: str) -> bool:
    """Whether a text is a plain name in Python, SQL and tool calls."""
    return re.fullmatch("[A-Za-z][A-Za-z0-9_]{0,63}", text) is not None and not iskeyword(text)


@dataclass(frozen=True)
class Argument:
    """One argument of a tool."""

    name: str
    column: Column
    """Type and unit; ``column.name`` is the column it filters by."""
    source: str | None
    """ "relation.key" if the argument names an entity."""


def tool_specs(relations: Sequence[Relation], access: Sequence[Access]) -> tuple[ToolSpec, ...]:
    """Specify tools for agents: signatures with units and sources, returns, documented errors.

    Raises:
        PipelineError: if an access can't be a tool (unknown columns, hidden relation, bad names).
    """
    schema = {relation.name: relation for relation in relations}
    return tuple(_spec(item, schema) for item in access)


def arguments_of(access: Access, schema: dict[str, Relation]) -> list[Argument]:
    """The arguments of a tool, its projection and page number left out."""
    found = []
    for name, target in access.args.items():
        table, dot, cell = target.partition(".")
        if access.mode != "write":
            table, cell = access.relation, target
        elif not dot:
            found.append(Argument(name, Column(name=name, type=target), None))
            continue
        column = schema[table].column(cell)
        found.append(Argument(name, column, _source(schema[table], column, schema)))
    return found


def _source(relation: Relation, column: Column, schema: dict[str, Relation]) -> str | None:
    if column.name == relation.key and not column.type.startswith("entity:"):
        return f"{relation.name}.{relation.key}"
    if column.type.startswith("entity:"):
        target = schema[column.type.removeprefix("entity:")]
        return f"{target.name}.{target.key}"
    return None


def checked(access: Access, schema: dict[str, Relation]) -> Access:
    """``access``, or PipelineError if it can't be a tool."""
    if not _is_name(access.tool) or access.tool in RESERVED:
        raise PipelineError(f"{access.tool!r} can't be a tool's name")
    own = [name for name in (access.projection, "page" if access.mode == "page" else None) if name]
    for name in (*access.args, *own):
        taken = name in RESERVED or name in LOCALS or [*access.args, *own].count(name) > 1
        if not _is_name(name) or taken or (access.effects and _COMPUTED.fullmatch(name)):
            raise PipelineError(f"{access.tool}: {name!r} can't be an argument's name")
    relation = schema[access.relation]
    if not relation.visible:
        raise PipelineError(f"{access.tool}: the relation {relation.name!r} is hidden")
    for name in access.returned_columns:
        relation.column(name)
    if access.mode == "info" and (access.projection is None or not access.args):
        raise PipelineError(f"{access.tool}: an info tool needs arguments and a projection")
    if access.mode == "inverse" and not (access.args and access.returned_columns):
        raise PipelineError(f"{access.tool}: an inverse tool needs arguments and columns")
    roots = [pre.expr for pre in access.pre] + [effect.key for effect in access.effects]
    roots += [expr for effect in access.effects for expr in effect.set.values()]
    for node in (node for root in roots for node in root.walk()):
        if isinstance(node, ir.Param | ir.SlotRef | ir.Old | ir.New):
            raise PipelineError(f"{access.tool}: a tool can't depend on {type(node).__name__}")
    return access


def errors_of(access: Access, arguments: list[Argument]) -> tuple[ToolErrorSpec, ...]:
    """The documented errors of a tool."""
    errors: list[tuple[str, str]] = []
    if arguments or access.mode == "page":
        errors.append(("bad_argument", "an argument has a wrong type or value"))
    if access.mode in ("inverse", "info") or any(argument.source for argument in arguments):
        errors.append(("not_found", "no row has the given key"))
    errors += [(pre.code, pre.text) for pre in access.pre]
    if any(effect.kind == "insert" for effect in access.effects):
        errors.append(("already_exists", "the new row exists already"))
    first: dict[str, str] = {}
    for code, when in errors:
        first.setdefault(code, when)
    return tuple(ToolErrorSpec(code=code, when=when) for code, when in first.items())


def _spec(access: Access, schema: dict[str, Relation]) -> ToolSpec:
    checked(access, schema)
    arguments = arguments_of(access, schema)
    properties: dict[str, JsonValue] = {}
    if access.projection is not None:
        columns: list[JsonValue] = list(access.returned_columns)
        items: JsonValue = {"type": "string", "enum": columns}
        properties[access.projection] = {
            "type": "array", "items": items, "minItems": 1, "uniqueItems": True,
            "description": "Which facts to return.",
        }  # fmt: skip
    for argument in arguments:
        properties[argument.name] = {**_argument_schema(argument), **_limits(access, argument)}
    if access.mode == "page":
        properties["page"] = {"type": "integer", "minimum": 1, "description": "Page, from 1."}
    return ToolSpec(
        name=access.tool,
        description=_description(access, schema),
        parameters=closed(properties),
        returns=_returns(access, schema),
        mutates=access.mode == "write",
        errors=errors_of(access, arguments),
    )


def _argument_schema(argument: Argument) -> Schema:
    leaf = _leaf(argument.column, argument.source)
    if isinstance(leaf["type"], list):
        leaf["type"] = leaf["type"][0]
    words = argument.name.replace("_", " ")
    unit = leaf.get("description")
    leaf["description"] = f"{words[:1].upper()}{words[1:]}{f', {unit}' if unit else ''}."
    return leaf


def _limits(access: Access, argument: Argument) -> Schema:
    """The limits that a write tool's preconditions set for an argument alone: its values are drawn there."""
    found: Schema = {}
    if access.mode != "write" or argument.source is not None:
        return found
    for expr in (part for pre in access.pre for part in conjuncts(pre.expr)):
        if not isinstance(expr, ir.Cmp) or expr.left != ir.Arg(name=argument.name):
            continue
        bound = expr.right.value if isinstance(expr.right, ir.Const) else None
        if expr.fn == "in" and isinstance(bound, tuple):
            return {"enum": list(bound)}
        if type(bound) is int and expr.fn in (">", ">="):
            found["minimum"] = bound + (expr.fn == ">")
        elif type(bound) is int and expr.fn in ("<", "<="):
            found["maximum"] = bound - (expr.fn == "<")
    return found


def closed(properties: dict[str, JsonValue]) -> Schema:
    """The schema of an object with exactly these properties."""
    return {
        "type": "object",
        "properties": properties,
        "required": list[JsonValue](properties),
        "additionalProperties": False,
    }


def json_type(kind: str) -> str:
    """The JSON type of a column's values."""
    words = {"bool": "boolean", "int": "integer", "minutes": "integer"}
    return "integer" if kind.startswith("decimal:") else words.get(kind, "string")


def _leaf(column: Column, source: str | None) -> Schema:
    kind = json_type(column.type)
    leaf: Schema = {"type": [kind, "null"] if column.nullable else kind}
    if source is not None:
        leaf["x-source"] = source
    unit = _unit(column)
    if unit:
        leaf["description"] = unit
    return leaf


def _unit(column: Column) -> str:
    if column.type.startswith("decimal:"):
        scale = _SCALES.get(int(column.type.removeprefix("decimal:")), "scaled")
        named_so = not column.unit or column.unit == column.name or column.unit in scale
        return f"in {scale}" if named_so else f"in {scale} of {column.unit}"
    named = {
        "date": "as YYYY-MM-DD",
        "datetime": "as YYYY-MM-DDTHH:MM",
        "minutes": "in minutes after midnight",
    }
    return f"in {column.unit}" if column.unit else named.get(column.type, "")


def _description(access: Access, schema: dict[str, Relation]) -> str:
    text = access.description
    units = {name: _unit(schema[access.relation].column(name)) for name in access.returned_columns}
    noted = [f"{name} {unit}" for name, unit in units.items() if unit]
    if noted:
        text += f" Values: {'; '.join(noted)}."
    for pre in access.pre:
        text += f' Fails with the error {pre.code}: "{pre.text}"'
    return text


def _returns(access: Access, schema: dict[str, Relation]) -> Schema:
    if access.mode == "write":
        return {"type": "object", "properties": {"ok": {"const": True}}}
    relation = schema[access.relation]
    columns = [relation.column(name) for name in access.returned_columns]
    leaves: dict[str, JsonValue] = {c.name: _leaf(c, _source(relation, c, schema)) for c in columns}
    row: JsonValue = {"type": "object", "properties": leaves}
    if access.mode != "info" and len(leaves) == 1:
        row = next(iter(leaves.values()))
    if access.mode in ("inverse", "info"):
        return row if isinstance(row, dict) else {}
    rows: Schema = {"type": "array", "items": row}
    if access.mode != "page":
        return rows
    count: JsonValue = {"type": "integer"}
    return {"type": "object", "properties": {"items": rows, "page": count, "pages": count}}
