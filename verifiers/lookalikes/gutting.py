"""Gut functions so that they raise at once: a test that still passes did not run the code it is about."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator

from envgen.core.patches import split_patch

_HUNK = re.compile(rb"^@@ -\d+(?:,\d+)? \+(\d+)", re.M)
_RAISE = b"raise NotImplementedError\n"
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def changed_lines(change: bytes) -> dict[str, set[int]]:
    """File -> the lines that a git diff changed, counted from 1; a removed line counts as the next one."""
    found: dict[str, set[int]] = {}
    for part in split_patch(change):
        if part.new is None or part.binary:
            continue
        lines, at = found.setdefault(part.new, set()), 0
        for line in part.text.split(b"\n"):
            if hunk := _HUNK.match(line):
                at = int(hunk[1])
            elif at and line[:1] in (b"+", b"-"):
                lines.add(at)
                at += line[:1] == b"+"
            elif at:
                at += line[:1] == b" "
    return found


def touched_functions(source: bytes, lines: Collection[int]) -> set[str]:
    """Names (``Class.function``) of the outermost functions that contain one of these lines."""
    return {
        name
        for name, node in _functions(source)
        if any(node.lineno <= line <= (node.end_lineno or 0) for line in lines)
    }


def gutted(source: bytes, names: Collection[str]) -> bytes:
    """A Python file with the bodies of the named functions replaced by a raise."""
    lines = source.splitlines(keepends=True)
    found = [node for name, node in _functions(source) if name in names]
    for node in sorted(found, key=lambda node: -node.lineno):
        first = node.body[0]
        line = lines[first.lineno - 1]
        if line[: first.col_offset].strip():  # the body stands behind the colon
            lines[first.lineno - 1] = line[: first.col_offset] + _RAISE
        else:
            lines.insert(first.lineno - 1, line[: first.col_offset] + _RAISE)
    return b"".join(lines)


def _functions(source: bytes) -> Iterator[tuple[str, _Function]]:
    try:
        todo: list[tuple[str, ast.AST]] = [("", ast.parse(source))]
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return
    while todo:
        owner, node = todo.pop()
        for one in ast.iter_child_nodes(node):
            if isinstance(one, _Function):
                yield f"{owner}{one.name}", one
            elif isinstance(one, ast.ClassDef):
                todo.append((f"{owner}{one.name}.", one))
            elif isinstance(one, ast.If | ast.Try | ast.With):
                todo.append((owner, one))
