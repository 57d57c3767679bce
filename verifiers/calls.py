"""The call that ends a line of source, in languages whose calls look like C's."""

from __future__ import annotations

import re
from typing import NamedTuple


class CallLine(NamedTuple):
    """A line that ends with a call."""

    before: str
    """The function, with all that stands before it."""
    arguments: list[str]
    after: str

    def line(self, *arguments: str) -> str:
        """The line with other arguments."""
        return f"{self.before}({', '.join(arguments)}){self.after}"


_CLOSED = re.compile(r"\)(\s*;?\s*)$")
_PAIRS = {")": "(", "]": "[", "}": "{"}


def last_call(line: str) -> CallLine | None:
    """The call that ends a line, with its arguments; None where quotes or brackets don't fit."""
    end = _CLOSED.search(line)
    if end is None:
        return None
    stack: list[tuple[str, int]] = []
    commas: list[tuple[int, int]] = []
    quote, n = "", 0
    while n <= end.start():
        char = line[n]
        if quote:
            n += char == "\\"
            quote = "" if char == quote else quote
        elif char in "\"'`":
            quote = char
        elif char in "([{":
            stack.append((char, n))
        elif char in _PAIRS:
            if not stack or stack[-1][0] != _PAIRS[char]:
                return None
            opened = stack.pop()[1]
        elif char == ",":
            commas.append((len(stack), n))
        elif line.startswith(("//", "/*"), n):
            return None
        n += 1
    if quote or stack:
        return None
    cuts = [at for depth, at in commas if depth == 1 and at > opened]
    ends = [*cuts, end.start()]
    starts = [opened + 1, *(at + 1 for at in cuts)]
    arguments = [line[a:b].strip() for a, b in zip(starts, ends, strict=True)]
    return CallLine(line[:opened], [a for a in arguments if a], line[end.start() + 1 :])
