"""Text of generated Python: names, lines that fit, and loops for statements that repeat themselves."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Sequence

from envgen.pipelines.general.programs.emit import WIDTH

RESERVED = frozenset(
    """abs all any bool dict enumerate float int len list max min range reversed round set sorted str sum
    tuple zip date_add days_between minutes weekday combinations permutations product PARAMS LARGE
    solve found lambda ask load key page row rows reply""".split()
)
"""Builtins and prelude of the restricted language, and words that every solution uses."""


class Names:
    """Hands out names; ``reserved`` words, tools and names of functions are taken."""

    def __init__(self, reserved: Iterable[str]) -> None:
        self._fixed = RESERVED | set(reserved)
        self._locals: set[str] = set()

    def local(self, wish: str, taken: Iterable[str] = ()) -> str:
        """A name like ``wish`` for a local variable, none of ``taken``; equal wishes give equal names."""
        base = re.sub(r"\W", "_", wish).strip("_") or "value"
        if not base[0].isalpha():
            base = f"n{base}"
        name = self._first(base, self._fixed.union(taken))
        self._locals.add(name)
        return name

    def new(self, wish: str) -> str:
        """A name like ``wish`` for a function or constant, which nothing else has."""
        name = self._first(wish, self._fixed | self._locals)
        self._fixed |= {name}
        return name

    def _first(self, base: str, used: Iterable[str]) -> str:
        name, n = base, 2
        while name in used or keyword.iskeyword(name):
            name, n = f"{base}_{n}", n + 1
        return name


# --- lines ---------------------------------------------------------------------------------

_STRING = re.compile(r""" "(\\.|[^"\\])*" | '(\\.|[^'\\])*' """, re.VERBOSE)
_DELIMITERS = (
    (" for ", " if "),  # of a comprehension; without a "for", as below
    (" if ", " else "),
    (" or ",),
    (" and ",),
    (" == ", " != ", " <= ", " >= ", " < ", " > ", " in ", " not in "),
    (" + ", " - "),
)
"""What a line is broken before, the loosest first."""


def python_lines(
    text: str, indent: int = 0, before: str = "", after: str = "", *, inside: bool = False
) -> list[str]:
    """``before + text + after`` in lines of at most ``WIDTH`` columns where that can be.

    Args:
        text: an expression on one line.
        indent: column at which the lines start.
        before: start of the statement, such as ``return ``.
        after: its end, such as a colon.
        inside: whether brackets stand around it already, so that it needs none to be broken.
    """
    pad = " " * indent
    if indent + len(before + text + after) <= WIDTH:
        return [pad + before + text + after]
    parts = _operands(text)
    if len(parts) > 1 and not inside:
        lines = python_lines(text, indent + 4, inside=True)
        return [f"{pad}{before}(", *lines, f"{pad}){after}"]
    if len(parts) > 1:
        lines = [line for part in parts for line in python_lines(part, indent, inside=True)]
        return [*lines[:-1], lines[-1] + after]
    opening = _opening(text)
    if opening is None:
        return [pad + before + text + after]
    content = text[opening + 1 : -1]
    if indent + 4 + len(content) <= WIDTH and "{" not in text[opening]:
        return [pad + before + text[: opening + 1], f"{pad}    {content}", pad + text[-1] + after]
    items, packed = _items(content), False
    comma = "," if len(items) > 1 else ""
    lines = [pad + before + text[: opening + 1]]
    for item in items:
        own = python_lines(item, indent + 4, "", comma, inside=True)
        room = WIDTH - len(lines[-1]) - 1
        if len(own) == 1 and len(lines) > 1 and len(own[0].strip()) <= room and packed:
            lines[-1] += f" {own[0].strip()}"
        else:
            lines += own
        packed = len(own) == 1
    return [*lines, pad + text[-1] + after]


def _top_level(text: str) -> list[int]:
    """Positions in ``text`` that are in no brackets and no string; closing brackets are."""
    blank = _STRING.sub(lambda found: "_" * len(found[0]), text)
    found, depth = [], 0
    for i, letter in enumerate(blank):
        depth -= letter in ")]}"
        if depth == 0:
            found.append(i)
        depth += letter in "([{"
    return found


def _operands(text: str) -> list[str]:
    """``text`` broken before each of its loosest operators."""
    top = _top_level(text)
    for words in _DELIMITERS:
        at = [i for i in top for word in words if text.startswith(word, i)]
        if words[0] == " for " and not any(text.startswith(" for ", i) for i in at):
            continue
        if at and words[0] == " == " and 2 * (_opening(text) or len(text)) < len(text):
            return [text]  # its long last bracket is what breaks: ``for name in (...)``
        if at:
            ends = [*at[1:], len(text)]
            return [text[: at[0]], *(text[i + 1 : end] for i, end in zip(at, ends, strict=True))]
    return [text]


def _items(text: str) -> list[str]:
    """``text`` broken at its commas, but for those of a comprehension's or lambda's variables."""
    top = _top_level(text)
    if any(text.startswith(" for ", i) for i in top):
        return [text]
    items, start, header = [], 0, False
    for i in top:
        header = (header or text.startswith("lambda ", i)) and text[i] != ":"
        if text[i] == "," and not header:
            items.append(text[start:i])
            start = i + 2
    return [*items, text[start:]] if text[start:] else items


def _opening(text: str) -> int | None:
    """Where the bracket opens that ``text`` ends with closing; None if it holds nothing."""
    top = _top_level(text)
    if text[-1:] not in (")", "]", "}") or len(top) < 2 or top[-2] >= len(text) - 2:
        return None
    return top[-2]


# --- loops ---------------------------------------------------------------------------------

_TARGET = re.compile(r"\w+(\[\w+\])? = ")
_VARIES = re.compile(r'(?<=[A-Z0-9_]\[)\w+(?=\])|(?<=": )(?:"(?:\\.|[^"\\])*"|\d+)')
"""What a loop may run over: the number of a slot, as in ``CITY[1]``, and the value of a constant key."""


def masked(text: str) -> str:
    """``text`` without what a loop may run over."""
    return _VARIES.sub("\0", text)


def rolled(texts: Sequence[str], names: Names) -> tuple[str, str, str]:
    """Texts that are the same when ``masked`` as one: ("k", "[1, 2]", the text over k).

    A single text has no loop.
    """
    columns = list(zip(*map(_VARIES.finditer, texts), strict=True))
    variables: dict[tuple[str, ...], str] = {}
    for column in columns:
        values = tuple(found[0] for found in column)
        if len(set(values)) > 1 and values not in variables:
            key = re.search(r'"(\w+)": $', column[0].string[: column[0].start()])
            variables[values] = names.local(key[1] if key else "k", variables.values())
    shown = iter([variables.get(tuple(x[0] for x in column), column[0][0]) for column in columns])
    text = _VARIES.sub(lambda _: next(shown), texts[0])
    each = [", ".join(values) for values in zip(*variables, strict=True)]
    if len(variables) > 1:
        each = [f"({values})" for values in each]
    return ", ".join(variables.values()), f"[{', '.join(each)}]", text


def statement_lines(texts: Sequence[str], names: Names) -> list[str]:
    """Lines of statements that are the same when ``masked``, as a loop if there are several."""
    head, each, text = rolled(texts, names)
    indent = 4 if head else 0
    lines = python_lines(each, before=f"for {head} in ", after=":") if head else []
    for one in text.split("\n"):
        found = _TARGET.match(one)
        before = found[0] if found else ""
        lines += python_lines(one.removeprefix(before), indent, before)
    return lines
