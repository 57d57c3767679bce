"""The one line of a solution or verifier that re-seeding changes: ``PARAMS = {...}``. Standard library."""

from __future__ import annotations

import re
from typing import NamedTuple

_LINE = re.compile(r"^PARAMS = .*$", re.MULTILINE)


class SplitSource(NamedTuple):
    """A source around its ``PARAMS`` line; the three parts joined are the source."""

    before: str
    line: str
    after: str

    @property
    def program(self) -> tuple[str, str]:
        """The text that all re-seeds of a source share, before and after its parameters."""
        return self.before, self.after


def split(source: str) -> SplitSource | None:
    """A source around its ``PARAMS`` line, None if it has none or several."""
    found = list(_LINE.finditer(source))
    if len(found) != 1:
        return None
    start, end = found[0].span()
    return SplitSource(source[:start], source[start:end], source[end:])


def same_program(left: str, right: str) -> bool:
    """Whether two sources differ in nothing, or in their one ``PARAMS`` line only."""
    if left == right:
        return True
    one, other = split(left), split(right)
    return one is not None and other is not None and one.program == other.program
