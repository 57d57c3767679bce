"""Content hashes of the datasets that are shipped in the package and trusted like its code."""

from __future__ import annotations

PACKAGE_DATASETS: frozenset[str] = frozenset(
    {
        "28efbcd13ec09a168d7689a7558ea3dbc2f7126e77b820cb6fece3808c0e260d",  # trip_planning
    }
)
