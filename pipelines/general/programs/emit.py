"""Layout of generated code: blocks that go on one line where they fit, else one item a line."""

from __future__ import annotations

import ast
import json
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pprint import pformat

from pydantic import JsonValue

from envgen.core.ir import Scalar

WIDTH = 100
"""Columns of generated code."""

_KEYWORDS = frozenset(
    """abort action add after all alter always analyze and as asc attach autoincrement before begin
    between by cascade case cast check collate column commit conflict constraint create cross current
    current_date current_time current_timestamp database default deferrable deferred delete desc detach
    distinct do drop each else end escape except exclude exclusive exists explain fail filter first
    following for foreign from full generated glob group groups having if ignore immediate in index
    indexed initially inner insert instead intersect into is isnull join key last left like limit match
    materialized natural no not nothing notnull null nulls of offset on or order others outer over
    partition plan pragma preceding primary query raise range recursive references regexp reindex release
    rename replace restrict returning right rollback row rows savepoint select set table temp temporary
    then ties to transaction trigger unbounded union unique update using vacuum values view virtual when
    where window with without""".split()
)


@dataclass(frozen=True)
class Block:
    """Text in brackets or after a keyword: ``open``, items with ``join`` between them, ``close``.

    Broken over lines, ``join`` starts the next line, or ends each line if not ``lead``.
    """

    open: str
    items: tuple[Doc, ...]
    join: str = " "
    close: str = ""
    lead: bool = True


Doc = str | Block


def flat(doc: Doc) -> str:
    """``doc`` on one line."""
    if isinstance(doc, str):
        return doc
    return doc.open + doc.join.join(flat(item) for item in doc.items) + doc.close


def layout_text(doc: Doc, indent: int = 0, used: int = 0) -> str:
    """``doc`` in lines of at most ``WIDTH`` columns where it can be.

    Args:
        doc: what to write.
        indent: column at which continuation lines start (the first line's start is the caller's).
        used: columns taken on the first line before and after ``doc``, beyond ``indent``.
    """
    line = flat(doc)
    if isinstance(doc, str) or indent + used + len(line) <= WIDTH:
        return line
    deeper = indent + 4 if doc.open else indent
    pad = "\n" + " " * deeper
    lead, trail = (doc.join.lstrip(), "") if doc.lead else ("", doc.join.rstrip())
    parts = []
    for i, item in enumerate(doc.items):
        head = lead if i else ""
        tail = trail if i < len(doc.items) - 1 else ""
        body = layout_text(item, deeper, len(head) + len(tail))
        parts.append(f"{head}{body}{tail}")
    close = f"\n{' ' * indent}{doc.close.lstrip()}" if doc.close and doc.open else doc.close
    opening = doc.open.rstrip() + pad if doc.open else ""
    return f"{opening}{pad.join(parts)}{close}"


def identifier(name: str) -> str:
    """``name`` as an SQL identifier, quoted where it must be."""
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) and name.lower() not in _KEYWORDS:
        return name
    return '"' + name.replace('"', '""') + '"'


def sql_literal(value: Scalar) -> str:
    """``value`` as an SQL literal."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int):
        return str(value)
    return "'" + value.replace("'", "''") + "'"


def python_literal(value: JsonValue) -> str:
    """``value`` as a one-line Python literal, strings in double quotes."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_string(k)}: {python_literal(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(python_literal(item) for item in value) + "]"
    return _string(value) if isinstance(value, str) else repr(value)


def _string(text: str) -> str:
    quoted = json.dumps(text, ensure_ascii=False)
    return quoted if text.isprintable() else pformat(text, width=10**6)


def quoted(text: str, *, block: bool = False) -> str:
    """``text`` as it must be written between double quotes (three if ``block``) to stay that very text.

    So nothing that comes from a problem can end a string of generated code early.
    """
    found, quotes = [], 0
    for i, char in enumerate(text):
        quotes = quotes + 1 if char == '"' else 0
        if char == '"' and (not block or quotes == 3 or i == len(text) - 1):
            found.append('\\"')
            quotes = 0
        elif char == "\\" or not (char.isprintable() or (block and char == "\n")):
            found.append(char.encode("unicode_escape").decode())
        else:
            found.append(char)
    return "".join(found)


def params_line(params: dict[str, Scalar]) -> str:
    """The one line that variants replace: ``PARAMS = {...}``."""
    return f"PARAMS = {python_literal(dict(params))}"


def replace_params(source: str, params: dict[str, Scalar]) -> str:
    """``source`` (a solution or verifier) with other values of the parameters that it has."""

    def other(line: re.Match[str]) -> str:
        own = ast.literal_eval(line[1])
        return params_line({name: value for name, value in params.items() if name in own})

    return re.sub(r"(?m)^PARAMS = (\{.*\})$", other, source, count=1)


def comment(text: str, indent: int = 0) -> list[str]:
    """``text`` as comment lines, without what is no printable character."""
    shown = "".join(char if char.isprintable() else " " for char in text)
    return [" " * indent + "# " + line for line in wrap(shown, WIDTH - indent - 2)]


def wrap(text: str, width: int) -> list[str]:
    """``text`` broken at spaces into lines of at most ``width``; one empty line if it is empty."""
    words = " ".join(text.split())
    return textwrap.wrap(words, width, break_long_words=False, break_on_hyphens=False) or [""]


def statement(query: Doc, prefix: str, suffix: str = "", indent: int = 4) -> list[str]:
    """Lines of Python that hold a query: as a plain string where it fits, else in triple quotes."""
    pad, line = " " * indent, flat(query)
    if len(pad + prefix + line + suffix) + 2 <= WIDTH and not set('"\n') & set(line):
        return [f'{pad}{prefix}"{quoted(line)}"{suffix}']
    inner = " " * (indent + 4)
    text = quoted(layout_text(query, indent + 4), block=True)
    return [f'{pad}{prefix}"""', f"{inner}{text}", f'{inner}"""{suffix}']


def join_lines(parts: Sequence[str]) -> str:
    """A file from its parts, two blank lines between them, one newline at the end."""
    return "\n\n\n".join(part.strip("\n") for part in parts if part.strip()) + "\n"
