"""Distinguish a model that keeps failing in the same way from one that fails now and then."""

from __future__ import annotations

import re
from threading import Lock


class Repeats:
    """Counts identical errors in a row; thread-safe.

    Args:
        limit: how many in a row are too many; 0: no number is.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = Lock()
        self._last = ""
        self._count = 0

    def clear(self) -> None:
        """Start counting anew, after a reply."""
        with self._lock:
            self._count = 0

    def too_many(self, error: str) -> bool:
        """Count an error, and return whether the limit of identical errors is reached."""
        bare = _bare(error)
        with self._lock:
            self._count = self._count + 1 if bare == self._last else 1
            self._last = bare
            return 0 < self._limit <= self._count


def _bare(text: str) -> str:
    """An error without the parts that change from request to request: numbers and ids."""
    return re.sub(r"\w*\d[\w-]*", "#", text)
