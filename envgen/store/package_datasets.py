"""Content hashes of the datasets that are shipped in the package and trusted like its code."""

from __future__ import annotations

PACKAGE_DATASETS: frozenset[str] = frozenset(
    {
        "18ec2f73d89675a636fc6a101ce71cdcefb90a7d8257ec6d76dcc83f51820cb1",  # trip_planning
    }
)
