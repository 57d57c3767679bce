"""Derive the descriptions of tools from the text of a tools.py, without running it.

A public function is a tool: ``def name(db, *, argument: type, ...)`` with a docstring. Its summary is the
tool's description, its ``Args:`` describe the arguments, and each ``raise ToolError("code", ...)`` is a
documented error. A tool counts as writing if it, or a function that it calls, contains SQL that writes.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator

from pydantic import JsonValue, ValidationError

from envgen.core.errors import ConfigError
from envgen.core.types import SUBMIT_TOOL, Schema, ToolErrorSpec, ToolSpec

_TYPES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}
_WRITES = re.compile(
    r"\s*(INSERT|UPDATE|DELETE|REPLACE|WITH\b.*\b(INSERT|UPDATE|DELETE))\b", re.I | re.S
)
_ARGS = re.compile(r"^(Args|Arguments|Returns|Raises|Yields|Note|Notes|Example|Examples):\s*$")
_ARGUMENT = re.compile(r"^(\s+)(\w+)(?:\s*\([^)]*\))?:\s*(.*)$")
_SHAPE = (
    "write def name(db, *, argument: str) with str, int, float, bool, list[...] or Literal[...]"
)


def derived_specs(source: str) -> tuple[ToolSpec, ...]:
    """The tools in a tools.py, in the order of the file.

    Raises:
        ConfigError: if it is not Python, holds no tool, or a tool lacks something that an agent must be told.
    """
    try:
        tree = ast.parse(source, "tools.py")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ConfigError(f"tools.py is not valid Python: {error}", "fix that line") from error
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    specs = [_spec(node, functions) for name, node in functions.items() if not name.startswith("_")]
    if not specs:
        raise ConfigError("tools.py holds no tool", _SHAPE)
    return tuple(specs)


def _spec(node: ast.FunctionDef, functions: dict[str, ast.FunctionDef]) -> ToolSpec:
    text = ast.get_docstring(node)
    if not text:
        raise ConfigError(
            f"tool {node.name!r} has no docstring, so no agent can know what it does",
            'write """What it does.""" as its first line; its Args: describe the arguments',
        )
    if node.name == SUBMIT_TOOL:
        raise ConfigError(f"a tool can't be called {SUBMIT_TOOL!r}", "that name ends an episode")
    summary, described = _docstring(text)
    try:
        return ToolSpec(
            name=node.name,
            description=summary,
            parameters=_parameters(node, described),
            mutates=any(_writes(one) for one in _reached(node, functions)),
            errors=_errors(_reached(node, functions)),
        )
    except ValidationError as error:
        found = error.errors(include_url=False)[0]
        raise ConfigError(
            f"tool {node.name!r}: {'.'.join(map(str, found['loc']))}: {found['msg']}",
            "use short names of a-z, 0-9 and _",
        ) from error


def _parameters(node: ast.FunctionDef, described: dict[str, str]) -> Schema:
    given = node.args
    names = [*given.args, *given.kwonlyargs]
    if given.posonlyargs or given.vararg or given.kwarg or not names or names[0].arg != "db":
        raise ConfigError(f"tool {node.name!r} has a form that can't be called by name", _SHAPE)
    late = [None] * (len(given.args) - len(given.defaults)) + [*given.defaults]
    defaults = [*late, *given.kw_defaults][1:]
    properties: dict[str, JsonValue] = {}
    required: list[JsonValue] = []
    for one, default in zip(names[1:], defaults, strict=True):
        schema = _schema(one.annotation)
        if schema is None:
            raise ConfigError(
                f"argument {one.arg!r} of tool {node.name!r} has no type that an agent can be told",
                f"{_SHAPE}, or describe the tools in tools.json",
            )
        if one.arg in described:
            schema["description"] = described[one.arg]
        properties[one.arg] = schema
        if default is None:
            required.append(one.arg)
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _schema(note: ast.expr | None) -> Schema | None:
    """The JSON Schema of an annotation; None where it has none."""
    if isinstance(note, ast.Constant) and isinstance(note.value, str):
        try:
            note = ast.parse(note.value, mode="eval").body
        except SyntaxError:
            return None
    if isinstance(note, ast.Name) and note.id in _TYPES:
        return {"type": _TYPES[note.id]}
    if isinstance(note, ast.BinOp) and isinstance(note.op, ast.BitOr):
        sides = [x for x in (note.left, note.right) if ast.unparse(x) != "None"]
        inner = _schema(sides[0]) if len(sides) == 1 else None
        return None if inner is None else {"anyOf": [inner, {"type": "null"}]}
    if isinstance(note, ast.Subscript) and isinstance(note.value, ast.Name):
        if note.value.id == "list":
            items = _schema(note.slice)
            return None if items is None else {"type": "array", "items": items}
        if note.value.id == "Literal":
            values = note.slice.elts if isinstance(note.slice, ast.Tuple) else [note.slice]
            if all(isinstance(x, ast.Constant) and isinstance(x.value, str | int) for x in values):
                return {"enum": [x.value for x in values if isinstance(x, ast.Constant)]}  # type: ignore[misc]  # str or int
    return None


def _docstring(text: str) -> tuple[str, dict[str, str]]:
    """(what is before the sections, argument -> description) of a docstring in google style."""
    before: list[str] = []
    described: dict[str, str] = {}
    section, last = "", ""
    for line in inspect.cleandoc(text).splitlines():
        if _ARGS.match(line):
            section = line
        elif not section:
            before.append(line)
        elif section.startswith("Arg"):
            if found := _ARGUMENT.match(line):
                last = found[2]
                described[last] = found[3].strip()
            elif line.strip() and last:
                described[last] = f"{described[last]} {line.strip()}"
    return " ".join(" ".join(before).split()), described


def _reached(
    node: ast.FunctionDef, functions: dict[str, ast.FunctionDef]
) -> Iterator[ast.FunctionDef]:
    """A function and those of the same file that it calls, and these call."""
    todo, seen = [node.name], {node.name}
    while todo:
        current = functions[todo.pop()]
        yield current
        for one in ast.walk(current):
            if isinstance(one, ast.Name) and one.id in functions and one.id not in seen:
                seen.add(one.id)
                todo.append(one.id)


def _writes(node: ast.FunctionDef) -> bool:
    texts = (x.value for x in ast.walk(node) if isinstance(x, ast.Constant))
    return any(isinstance(text, str) and _WRITES.match(text) for text in texts)


def _errors(nodes: Iterator[ast.FunctionDef]) -> tuple[ToolErrorSpec, ...]:
    """Each ``raise ToolError("code", message)``; the message where it is a plain text."""
    found: dict[str, str] = {}
    for node in nodes:
        for one in ast.walk(node):
            if not (isinstance(one, ast.Raise) and isinstance(one.exc, ast.Call)):
                continue
            call = one.exc
            if not (isinstance(call.func, ast.Name) and call.func.id == "ToolError" and call.args):
                continue
            texts = [x.value if isinstance(x, ast.Constant) else None for x in call.args]
            if isinstance(texts[0], str):
                when = texts[1] if len(texts) > 1 and isinstance(texts[1], str) else ""
                found.setdefault(texts[0], when)
    return tuple(ToolErrorSpec(code=code, when=when) for code, when in found.items())
