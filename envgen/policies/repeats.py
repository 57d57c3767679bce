"""Tell a model that fails again and again in the same way from one that fails now and then."""

from __future__ import annotations

import re
from threading import Lock


class Repeats:
    """Counts identical errors in a row; thread-safe.

    Args:
        limit: so many are too many; 0: none are.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = Lock()
        self._last = ""
        self._count = 0

    def clear(self) -> None:
        """There was a reply."""
        with self._lock:
            self._count = 0

    def too_many(self, error: str) -> bool:
        """Count an error; whether it and those before it are too many of a kind."""
        bare = _bare(error)
        with self._lock:
            self._count = self._count + 1 if bare == self._last else 1
            self._last = bare
            return 0 < self._limit <= self._count


def _bare(text: str) -> str:
    """An error without what differs from request to request: numbers and ids."""
    return re.sub(r"\w*\d[\w-]*", "#", text)
