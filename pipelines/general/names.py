"""Names in a generated solution: none that the restricted language reserves, none used twice."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable

RESERVED = frozenset(
    """abs all any bool dict enumerate float int len list max min range reversed round set sorted str sum
    tuple zip date_add days_between minutes weekday combinations permutations product PARAMS solve
    rows item page pages reply facts LARGE""".split()
)
"""Builtins and prelude of the restricted language, and the names that generated functions use."""


class Names:
    """Hands out names; tools, builtins and earlier names are taken."""

    def __init__(self, tools: Iterable[str]) -> None:
        self._fixed = RESERVED | set(tools)
        self._taken: set[str] = set()

    def local(self, wish: str) -> str:
        """A name for a local variable: equal wishes give equal names."""
        name = re.sub(r"\W", "_", wish).strip("_") or "value"
        if not name[0].isalpha():
            name = f"n{name}"
        while name in self._fixed or keyword.iskeyword(name):
            name += "_1"
        return name

    def free(self, wish: str, taken: Iterable[str]) -> str:
        """A local name like ``wish`` that is not in ``taken``."""
        base, used = self.local(wish), set(taken)
        name, n = base, 2
        while name in used:
            name, n = f"{base}_{n}", n + 1
        return name

    def new(self, wish: str, *, local: bool = False) -> str:
        """A name like ``wish`` that nothing else has.

        ``local`` names may be used again by ``local`` but not by another ``new``.
        """
        base = self.local(wish)
        name, n = base, 2
        while name in self._taken or name in self._fixed:
            name, n = f"{base}_{n}", n + 1
        self._taken.add(name)
        if not local:
            self._fixed = self._fixed | {name}
        return name
