"""Confidence intervals for proportions."""

from __future__ import annotations

from math import sqrt

Z = 3.2905
"""Two-sided 99.9 %."""


def wilson(hits: int, n: int, z: float = Z) -> tuple[float, float]:
    """Score interval for a proportion (Wilson 1927); without hits its upper end is at least 3 / n."""
    if n == 0:
        return 0.0, 1.0
    share = hits / n
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    low = 0.0 if hits == 0 else max(middle - half, 0.0)
    return low, min(max(middle + half, 3 / n), 1.0)
