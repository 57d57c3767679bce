"""Content hashes of the datasets that are shipped in the package and trusted like its code."""

from __future__ import annotations

PACKAGE_DATASETS: frozenset[str] = frozenset(
    {
        "50b0f452a0a347353fdfa5bc2f5ba1be60fb313e7af603213d36ce7fbb283d1f",  # trip_planning
    }
)
