"""How wide the columns of a table are, and which are left out, so that no number is ever cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rich.text import Text

from envgen.cli.console import out

GAP = 2
"""Blanks between two columns."""
LONG_WORD = 12
"""Words that are longer may be broken, unless a digit is in them."""
SHORTEST_CUT, LONGEST_CUT = 16, 60
"""Least and most width of a column whose texts are cut at a word."""
CUT = "\N{HORIZONTAL ELLIPSIS}"
"""The sign of a cut; at the end of a column's name: its texts may be cut."""


class TableColumn(NamedTuple):
    """A column of a table: its texts, the name first."""

    name: str
    texts: Sequence[Text]
    right: bool = False
    """Whether it is right-aligned."""
    cut: bool = False
    """Whether its texts are cut at a word rather than wrapped."""
    whole: bool = False
    """Whether no text of it is wrapped, but for the name."""

    @property
    def full(self) -> int:
        """The width in which nothing is wrapped or, where texts are long, much is read."""
        widest = max(line.cell_len for text in self.texts for line in text.split() or [text])
        return min(widest, LONGEST_CUT) if self.cut else widest

    @property
    def least(self) -> int:
        """The width in which no number is broken, and no word but a long one."""
        if self.cut:
            return min(self.full, SHORTEST_CUT)
        head, *texts = self.texts
        words = [
            word for text in ([head] if self.whole else self.texts) for word in text.split(" ")
        ]
        return max(0, *map(_least, words), *(text.cell_len for text in texts if self.whole))


def _least(word: Text) -> int:
    fixed = any(map(str.isdigit, word.plain))
    return word.cell_len if fixed else min(word.cell_len, LONG_WORD)


def columns_that_fit(
    columns: Sequence[TableColumn], spare: Sequence[str], width: int
) -> tuple[list[TableColumn], list[str]]:
    """The columns that fit and the names of the others: ``spare`` ones first, then from the right.

    The first two always stay.
    """
    kept = list(columns)
    order = [one for name in spare for one in columns[2:] if one.name == name]
    order += [one for one in reversed(columns[2:]) if one.name not in spare]
    for one in order:
        if sum(column.least + GAP for column in kept) - GAP <= width:
            break
        kept.remove(one)
    return kept, [one.name for one in columns if one not in kept]


def widths_of(columns: Sequence[TableColumn], width: int) -> list[int]:
    """Widths of columns that fit: what is left of ``width`` goes to the narrowest that wrap."""
    found = [column.least for column in columns]
    spare = width - sum(found) - GAP * (len(found) - 1)
    while spare > 0:
        open_ = [i for i, column in enumerate(columns) if found[i] < column.full]
        if not open_:
            break
        found[min(open_, key=lambda i: (columns[i].cut, found[i]))] += 1
        spare -= 1
    return found


def row_lines(columns: Sequence[TableColumn], row: int, widths: Sequence[int]) -> Iterator[Text]:
    """The lines of one row, each cell wrapped or cut in its column."""
    cells = [
        _cell(column, column.texts[row], width)
        for column, width in zip(columns, widths, strict=True)
    ]
    for i in range(max(map(len, cells), default=0)):
        line = Text()
        for column, width, lines in zip(columns, widths, cells, strict=True):
            text = lines[i] if i < len(lines) else Text()
            blanks = " " * max(0, width - text.cell_len)
            line.append_text(Text(blanks) + text if column.right else text + Text(blanks))
            line.append(" " * GAP)
        line.rstrip()
        yield line


def _cell(column: TableColumn, text: Text, width: int) -> list[Text]:
    if column.cut:
        return [Text(first_words(text.plain, width), style=text.style)]
    lines = list(text.wrap(out, width, overflow="fold")) or [Text()]
    for line in lines:
        line.rstrip()
    return lines


def first_words(text: str, width: int) -> str:
    """The words of ``text`` that fit ``width``, with a sign where more follow."""
    words = " ".join(text.split())
    if Text(words).cell_len <= width:
        return words
    kept = ""
    for word in words.split(" "):
        if Text(f"{kept} {word}{CUT}").cell_len > width + (not kept):
            break
        kept = f"{kept} {word}".strip()
    return (kept or words[: width - 1]) + CUT
