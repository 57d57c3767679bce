"""Canaries inside the project's own test files: a copy of a test with one assertion turned round.

A test and its negation can't both pass. The copy looks like the tests around it and stands among those
that a submission is judged by, so that code which rewrites verdicts by file, by name or by form rewrites
the copy's, too. In the languages with braces the copy expects what nothing gives (``failing_copies``). C and
C++ have ``program_canaries``.
"""

from __future__ import annotations

import ast
import random
import re
import secrets
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from envgen.core.code_types import CodeLanguage, Status, TestId
from envgen.verifiers.failing_copies import failing_copies

MAX_FILES = 8
"""Test files that get one."""
_MAX_LINES = 40
_OPPOSITES = {
    "assertEqual": "assertNotEqual",
    "assertTrue": "assertFalse",
    "assertIn": "assertNotIn",
    "assertIs": "assertIsNot",
    "assertIsNone": "assertIsNotNone",
    "assertIsInstance": "assertNotIsInstance",
    "assertAlmostEqual": "assertNotAlmostEqual",
}
_TURNED = _OPPOSITES | {value: key for key, value in _OPPOSITES.items()}
_PARAMETERS = re.compile(r"\[.*$", re.DOTALL)
_GOOD = frozenset({Status.PASS, Status.XFAIL})


class Inline(NamedTuple):
    """A test file with a canary in it.

    Attributes:
        path: the file.
        content: all of it, with the canary.
        original: name of the test that was copied.
        name: the copy's.
        pairs: whether each id of the original has one of the copy, parameters and all (Python); else the
            copy is told by its name alone, and must fail in every report.
    """

    path: str
    content: bytes
    original: str
    name: str
    pairs: bool = True

    def names(self, test: TestId) -> bool:
        """Whether this is the copy's id (with parameters or without, or of a part of it)."""
        if not self.pairs:
            return self.name in test
        return _PARAMETERS.sub("", test).rpartition("::")[2] == self.name

    def fault(self, statuses: Mapping[TestId, Status]) -> str:
        """What is contradictory in a report; empty when nothing is."""
        return self._contradiction(statuses) if self.pairs else self._passed(statuses)

    def missing(self, statuses: Mapping[TestId, Status]) -> bool:
        """Whether the report knows nothing of the copy: it was not collected, or does not compile."""
        return not any(self.names(test) for test in statuses)

    def _passed(self, statuses: Mapping[TestId, Status]) -> str:
        copies = {test: status for test, status in statuses.items() if _title(test) == self.name}
        if good := [test for test, status in copies.items() if status in _GOOD]:
            return f"{good[0]!r} passed, and must fail"
        originals = [test for test in statuses if _title(test) == self.original]
        # a name may be used in several files: with the copy nowhere, all that is known is of one
        if copies or len(originals) != 1 or statuses[originals[0]] is not Status.PASS:
            return ""
        return f"{originals[0]!r} passed, and its copy {self.name!r} that must fail is missing"

    def _contradiction(self, statuses: Mapping[TestId, Status]) -> str:
        for test, status in statuses.items():
            bare = _PARAMETERS.sub("", test)
            head, _, name = bare.rpartition("::")
            if (
                name != self.original
                or not test.startswith(f"{self.path}::")
                or status is not Status.PASS
            ):
                continue
            copy = f"{head}::{self.name}{test[len(bare) :]}"
            if copy not in statuses:
                return f"{test!r} passed, and its negation {copy!r} is missing"
            if statuses[copy] in _GOOD:
                return f"{test!r} passed, and its negation {copy!r} did, too"
        return ""


def inline_canaries(
    language: CodeLanguage, sources: Mapping[str, bytes], draw: random.Random | None = None
) -> tuple[Inline, ...]:
    """Canaries for test files.

    Which test is copied depends on the file alone, so that every run of it is alike; the name is new.

    Args:
        language: of the files; C's and C++'s give none.
        sources: paths and contents of the test files.
        draw: where names come from; by default nobody can foretell them.
    """
    draw = draw or secrets.SystemRandom()
    found: list[Inline] = []
    for path, content in sorted(sources.items()):
        if len({canary.path for canary in found}) >= MAX_FILES:
            break
        if language != "python":
            found += _copies(language, path, content, draw)
        elif path.endswith(".py") and (canary := _canary(path, content, draw)) is not None:
            found.append(canary)
    return tuple(found)


def _copies(
    language: CodeLanguage, path: str, content: bytes, draw: random.Random
) -> Iterator[Inline]:
    try:
        copied = failing_copies(language, content.decode(), draw)
    except UnicodeDecodeError:
        return
    for original, name in () if copied is None else copied.pairs:
        assert copied is not None
        yield Inline(path, copied.text.encode(), original, name, pairs=False)


def _title(test: TestId) -> str:
    """The last part of an id: a test's own name, without its suites'."""
    return test.rpartition("::")[2].rpartition(" > ")[2]


class _Test(NamedTuple):
    function: ast.FunctionDef
    line: int
    """Of the assertion, from 1."""


def _canary(path: str, content: bytes, draw: random.Random) -> Inline | None:
    try:
        text = content.decode()
        tree = ast.parse(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None
    lines = text.split("\n")
    tests = sorted(_tests(tree, lines), key=lambda test: _length(test.function))
    if not tests:
        return None
    function = tests[0].function
    name = _new_name(function.name, text, draw)
    copied = lines[function.lineno - 1 : function.end_lineno]
    copied[0] = copied[0].replace(f"def {function.name}", f"def {name}", 1)
    at = tests[0].line - function.lineno
    copied[at] = _turn(copied[at])
    end = function.end_lineno or function.lineno
    gap = [""] if function.col_offset else ["", ""]
    made = "\n".join([*lines[:end], *gap, *copied, *lines[end:]])
    try:
        ast.parse(made)
    except SyntaxError:
        return None
    return Inline(path, made.encode(), function.name, name)


def _tests(tree: ast.Module, lines: list[str]) -> Iterator[_Test]:
    """Plain tests with an assertion that surely runs, in one line that can be turned round."""
    names = Counter(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    owners: list[ast.Module | ast.ClassDef] = [tree]
    owners += [node for node in tree.body if isinstance(node, ast.ClassDef)]
    for owner in owners:
        for node in owner.body:
            if not isinstance(node, ast.FunctionDef) or not node.name.startswith("test"):
                continue
            if node.decorator_list or names[node.name] > 1 or _length(node) > _MAX_LINES:
                continue
            if (line := _assertion(node, lines)) is not None:
                yield _Test(node, line)


def _assertion(function: ast.FunctionDef, lines: list[str]) -> int | None:
    """The line of the last statement, if it is a turnable assertion and nothing returns before it."""
    last = function.body[-1]
    leaves = any(
        isinstance(node, ast.Return | ast.Yield | ast.YieldFrom) for node in ast.walk(function)
    )
    if leaves or last.lineno != last.end_lineno or last.lineno == function.lineno:
        return None
    return last.lineno if _turn(lines[last.lineno - 1]) != lines[last.lineno - 1] else None


def _turn(line: str) -> str:
    """A line with its assertion turned round; the same line if it can't be."""
    try:
        statement = ast.parse(line.strip()).body[0]
    except (SyntaxError, IndexError):
        return line
    indent = line[: len(line) - len(line.lstrip())]
    if isinstance(statement, ast.Assert):
        test = ast.get_source_segment(line.strip(), statement.test)
        return f"{indent}assert not ({test})"
    call = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
        turned = _TURNED.get(call.func.attr)
        if turned and isinstance(call.func.value, ast.Name) and call.func.value.id == "self":
            return line.replace(f".{call.func.attr}(", f".{turned}(", 1)
    return line


def _new_name(name: str, text: str, draw: random.Random) -> str:
    """A name that is not in the file, made of words that are."""
    words = sorted(set(re.findall(r"[a-z]{3,12}", text))) or ["case"]
    while True:
        made = f"{name}_{draw.choice(words)}_{draw.choice(words)}"
        if made not in text:
            return made


def _length(function: ast.FunctionDef) -> int:
    return (function.end_lineno or function.lineno) - function.lineno
