"""Patches to judge a Python code task by, beside its gold patch: made from it by rule, as git diffs.

Some do what the gold patch does in other words, some only half of it, some the wrong thing, and some
also break what worked. What each deserves is for the tests to say: two judges have to agree.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

from envgen.core.patches import split_patch
from envgen.core.surrogates import to_bytes
from envgen.sandboxes.workspace import OpenWorkspace, Workspace

MOST_PARTS = 4
"""Hunks or files left out, one after another."""
Rewrite = Callable[[ast.Module, set[int]], bool]
"""Changes a module, given the numbers of the lines that the gold patch wrote; whether it did."""


def patches(workspace: Workspace, gold: str, folder: Path | None) -> Iterator[tuple[str, bytes]]:
    """Names and diffs: the given one, none, those made by rule, those in ``folder`` (``*.patch``)."""
    yield "gold", to_bytes(gold)
    yield "empty", b""
    yield from _parts(gold)
    for name, rewrite in RULES.items():
        with workspace.open() as opened:
            opened.apply(to_bytes(gold))
            if any([_rewrite(opened, path, lines, rewrite) for path, lines in _written(gold)]):
                yield name, opened.diff()
    for path in sorted(folder.glob("*.patch")) if folder is not None else ():
        yield path.stem, path.read_bytes()


def _parts(gold: str) -> Iterator[tuple[str, bytes]]:
    """The gold patch without one of its hunks."""
    files = [
        _hunks(part.text.decode("utf-8", "surrogateescape")) for part in split_patch(to_bytes(gold))
    ]
    places = [(n, m) for n, (_, hunks) in enumerate(files) for m in range(len(hunks))]
    if len(places) < 2:
        return
    for number, left_out in enumerate(places[:MOST_PARTS], 1):
        texts = []
        for n, (head, hunks) in enumerate(files):
            kept = [hunk for m, hunk in enumerate(hunks) if (n, m) != left_out]
            texts.append(head + "".join(kept) if kept or not hunks else "")
        yield f"gold without hunk {number}", to_bytes("".join(texts))


def _hunks(text: str) -> tuple[str, list[str]]:
    """The head of one file's diff, and its hunks."""
    lines = text.splitlines(keepends=True)
    starts = [n for n, line in enumerate(lines) if line.startswith("@@ ")]
    if not starts:
        return text, []
    ends = [*starts[1:], len(lines)]
    return "".join(lines[: starts[0]]), [
        "".join(lines[a:b]) for a, b in zip(starts, ends, strict=True)
    ]


def _written(gold: str) -> Iterator[tuple[str, set[int]]]:
    """Python files of the gold patch that it leaves there, and the lines that it writes in them."""
    for part in split_patch(to_bytes(gold)):
        path, lines, number = part.path, set[int](), 0
        if not path.endswith(".py"):
            continue
        for line in part.text.decode("utf-8", "surrogateescape").splitlines():
            if line.startswith("@@ "):
                number = int(line.split("+")[1].split(",")[0].split(" ")[0])
            elif number and line.startswith("+"):
                lines.add(number)
                number += 1
            elif number and line.startswith(" "):
                number += 1
        yield path, lines


def _rewrite(opened: OpenWorkspace, path: str, lines: set[int], rewrite: Rewrite) -> bool:
    """Rewrite a file as the gold patch left it."""
    if opened.shell(f"test -f '{path}'").exit_code:  # deleted
        return False
    tree = ast.parse(opened.read(path))
    if not rewrite(tree, lines):
        return False
    opened.write(path, (ast.unparse(ast.fix_missing_locations(tree)) + "\n").encode())
    return True


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    """Functions with something in them, outer ones first."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and len(node.body) > 1:
            yield node


def _covers(node: ast.stmt | ast.expr, lines: set[int]) -> bool:
    return any(node.lineno <= line <= (node.end_lineno or node.lineno) for line in lines)


def other_words(tree: ast.Module, lines: set[int]) -> bool:
    """The same program, printed anew."""
    return True


def other_order(tree: ast.Module, lines: set[int]) -> bool:
    """The same program: ``if`` with its branches changed over, and its test with them."""
    found = [node for node in ast.walk(tree) if isinstance(node, ast.If) and node.orelse]
    for node in found:
        node.test = ast.UnaryOp(ast.Not(), node.test)
        node.body, node.orelse = node.orelse, node.body
    return bool(found)


def no_body(tree: ast.Module, lines: set[int]) -> bool:
    """What the gold patch touches gives None."""
    found = [node for node in _functions(tree) if _covers(node, lines)]
    for node in found[-1:]:
        node.body = [ast.Return(ast.Constant(None))]
    return bool(found)


def turned_test(tree: ast.Module, lines: set[int]) -> bool:
    """The first condition that the gold patch wrote, turned round."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and _covers(node.test, lines):
            node.test = ast.UnaryOp(ast.Not(), node.test)
            return True
    return False


def broken_elsewhere(tree: ast.Module, lines: set[int]) -> bool:
    """The gold patch, and the longest function that it does not touch raises."""
    others = [node for node in _functions(tree) if not _covers(node, lines)]
    if not others:
        return False
    longest = max(others, key=lambda node: (node.end_lineno or 0) - node.lineno)
    longest.body = [ast.Raise(ast.Call(ast.Name("RuntimeError"), [], []))]
    return True


def broken_import(tree: ast.Module, lines: set[int]) -> bool:
    """The gold patch, in a module that can't be loaded."""
    tree.body.append(ast.Raise(ast.Call(ast.Name("RuntimeError"), [], [])))
    return True


RULES: dict[str, Rewrite] = {
    "gold in other words": other_words,
    "gold, branches changed over": other_order,
    "touched function gives None": no_body,
    "gold's condition turned": turned_test,
    "gold, and another function raises": broken_elsewhere,
    "gold, and the module raises": broken_import,
}
