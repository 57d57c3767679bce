"""A small memory of what was made last."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Recent(Generic[T]):
    """A cache of ``make``'s results for the keys asked for last. Thread-safe.

    Args:
        make: of a key; called again once the key was forgotten.
        limit: most values kept.
    """

    def __init__(self, make: Callable[[str], T], limit: int) -> None:
        self._make, self._limit = make, limit
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, T] = OrderedDict()

    def __call__(self, key: str) -> T:
        """The value of ``key``."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        value = self._make(key)
        with self._lock:
            self._kept[key] = value
            while len(self._kept) > self._limit:
                self._kept.popitem(last=False)
        return value
