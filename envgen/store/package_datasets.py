"""Content hashes of the datasets that are shipped in the package and trusted like its code."""

from __future__ import annotations

PACKAGE_DATASETS: frozenset[str] = frozenset(
    {
        "1a551d9922dad04bee913c16f36781154101eeda96ce40146350ca868cdeba86",  # trip_planning
    }
)
