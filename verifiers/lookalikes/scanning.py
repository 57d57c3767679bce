"""Tell code, strings and comments apart in languages with C-like calls, without a grammar."""

from __future__ import annotations

import re
from collections.abc import Iterator

CODE, TEXT, COMMENT = 0, 1, 2
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_BEFORE_PATTERN = "(,=:[!&|?{};\n"
"""After these a slash of JavaScript begins a regular expression."""


class Scanned:
    """A source with the kind of each character.

    Args:
        text: the source.
        quotes: characters that delimit strings.
        hashes: whether ``#`` begins a comment.
        patterns: whether slashes can delimit regular expressions.
    """

    def __init__(self, text: str, quotes: str, *, hashes: bool, patterns: bool) -> None:
        self.text = text
        self.kinds = bytearray(len(text))
        self.texts: list[tuple[int, int]] = []
        n, last = 0, "\n"
        while n < len(text):
            end, kind = n + 1, CODE
            if text[n] in quotes:
                end, kind = self._quoted(n, text[n]), TEXT
                self.texts.append((n, end))
            elif text.startswith("//", n) or (
                hashes and text[n] == "#" and text[n + 1 : n + 2] != "["
            ):
                end, kind = self._until("\n", n, 0), COMMENT
            elif text.startswith("/*", n):
                end, kind = self._until("*/", n + 2, 2), COMMENT
            elif patterns and text[n] == "/" and last in _BEFORE_PATTERN:
                end, kind = self._quoted(n, "/"), TEXT
            self.kinds[n:end] = bytes([kind]) * (end - n)
            if kind != COMMENT and not text[n].isspace():
                last = text[end - 1]
            n = end

    def _quoted(self, start: int, quote: str) -> int:
        n = start + 1
        while n < len(self.text) and self.text[n] != quote:
            if self.text[n] == "\n" and quote != "`":
                return n
            n += 1 + (self.text[n] == "\\")
        return min(n + 1, len(self.text))

    def _until(self, ending: str, start: int, more: int) -> int:
        found = self.text.find(ending, start)
        return len(self.text) if found < 0 else found + more

    def code(self, pattern: re.Pattern[str], start: int, end: int) -> Iterator[re.Match[str]]:
        """The matches of a pattern that begin in code."""
        for match in pattern.finditer(self.text, start, end):
            if self.kinds[match.start()] == CODE:
                yield match

    def closing(self, opening: int) -> int | None:
        """The position of the matching closing bracket; None if brackets don't match."""
        stack = []
        for n in range(opening, len(self.text)):
            char = self.text[n]
            if self.kinds[n] != CODE:
                continue
            if char in _CLOSING:
                stack.append(_CLOSING[char])
            elif char in ")]}":
                if not stack or stack.pop() != char:
                    return None
                if not stack:
                    return n
        return None

    def around(self, place: int, start: int) -> list[int]:
        """The curly brackets that are open at a place, of those after a start."""
        stack: list[int] = []
        for n in range(start, place):
            if self.kinds[n] == CODE and self.text[n] in "{}":
                stack = [*stack, n] if self.text[n] == "{" else stack[:-1]
        return stack

    def arguments(self, opening: int) -> list[tuple[int, int]]:
        """The positions of a call's arguments; none if its brackets don't match."""
        end = self.closing(opening)
        if end is None:
            return []
        spans, depth, start = [], 0, opening + 1
        for n in range(opening + 1, end):
            if self.kinds[n] != CODE:
                continue
            depth += (self.text[n] in "([{") - (self.text[n] in ")]}")
            if self.text[n] == "," and not depth:
                spans.append((start, n))
                start = n + 1
        spans.append((start, end))
        return [span for span in spans if self.text[slice(*span)].strip()]

    def expression(self, start: int, limit: int, stops: str) -> tuple[int, int]:
        """The text from a position to one of some characters or the line's end, outside brackets."""
        depth = 0
        for n in range(start, limit):
            if self.kinds[n] != CODE:
                continue
            char = self.text[n]
            if not depth and (char in stops or char in ")]}" or (char == "\n" and n > start)):
                return start, n
            depth += (char in "([{") - (char in ")]}")
        return start, limit
