"""Content hashes of the datasets that are shipped in the package and trusted like its code."""

from __future__ import annotations

PACKAGE_DATASETS: frozenset[str] = frozenset(
    {
        "7d3c78e06ee0124600ddbf3a995550cc2601fceec289cc55157006f29a785848",  # trip_planning
    }
)
