"""What a problem statement says too much of, and too little: pieces of the fix, and names that tests need."""

from __future__ import annotations

import re

from envgen.core.patches import split_patch

_IDENTIFIER = re.compile(r"[A-Za-z_$][\w$]{5,}")
_CODE = re.compile(r"[(\[{=;]|\breturn\b|\braise\b|=>|->")
_MADE = re.compile(
    r"\b(?:def|class|function|func|fn|var|let|const|for|type|struct|import|as)\s+\*?([A-Za-z_$][\w$]*)"
    r"|^\s*([A-Za-z_$][\w$]*)\s*(?::=|=(?![=>]))"
)
"""What a line of a test makes itself: a function or a variable. An argument by name is none."""
MIN_LINE_CHARS = 20


def leaks(statement: str, gold_patch: str, test_patch: str = "") -> tuple[str, ...]:
    """Lines and names of the fix that a statement holds.

    A line counts if the patch adds it, it looks like code and is long enough to be no accident; a name if
    only the patch introduces it: it is written like code (``snake_case``, ``camelCase``, digits) and
    stands neither in lines that were there before nor in the tests, which must be able to name it.

    Args:
        statement: the text.
        gold_patch: the fix.
        test_patch: what tests may name.
    """
    added, before = _lines(gold_patch)
    wanted, kept = _lines(test_patch)
    flat = " ".join(statement.split())
    tests = {" ".join(line.split()) for line in (*wanted, *kept, *before)}
    lines = (" ".join(line.split()) for line in added)
    found = [
        line
        for line in dict.fromkeys(lines)
        if len(line) >= MIN_LINE_CHARS and _CODE.search(line) and line in flat and line not in tests
    ]
    known = _names("\n".join((*before, *wanted, *kept)))
    stated = _names(statement)
    return (*found, *sorted(name for name in (_names("\n".join(added)) - known) & stated))


def untold(statement: str, gold_patch: str, test_patch: str) -> tuple[str, ...]:
    """Names that the fix introduces, its tests use without making them, and the statement does not tell.

    Who can't know them can't pass the tests: where a language says nothing about a name that is missing, as
    JavaScript about a property, they build all the same.
    """
    added, before = _lines(gold_patch)
    wanted, kept = _lines(test_patch)
    known = _names("\n".join((*before, *kept, statement)))
    known |= {
        name for line in wanted for match in _MADE.finditer(line) for name in match.groups() if name
    }
    return tuple(sorted((_names("\n".join(added)) & _names("\n".join(wanted))) - known))


def vague(statement: str, kind: str) -> str:
    """Why a statement can't say what must change, as far as its form shows; empty: it may."""
    if not statement.strip():
        return "it is empty"
    if kind == "commit" and "\n" not in statement.strip():
        return f"it is a bare commit title: {statement.strip()[:100]!r}"
    return ""


def _lines(patch: str) -> tuple[list[str], list[str]]:
    """(lines that a patch adds, lines that it removes or shows)."""
    added: list[str] = []
    before: list[str] = []
    for part in split_patch(patch.encode("utf-8", "surrogatepass")):
        if part.binary:
            continue
        body = part.text.decode("utf-8", "replace").split("\n@@ ")[1:]
        for line in (line for hunk in body for line in hunk.split("\n")[1:]):
            (added if line.startswith("+") else before).append(line[1:])
        before += [hunk.split("\n")[0] for hunk in body]  # git shows the enclosing function there
    return added, before


def _names(text: str) -> set[str]:
    """Names that are written like code."""
    return {name for name in _IDENTIFIER.findall(text) if _codelike(name)}


def _codelike(name: str) -> bool:
    inner = name.strip("_")
    return "_" in inner or bool(re.search(r"[a-z][A-Z]|\d", name)) or name.startswith("_")
