"""Content hashes of the datasets that are shipped in the package and trusted like its code."""

from __future__ import annotations

PACKAGE_DATASETS: frozenset[str] = frozenset(
    {
        "71235e3d68fad01aef2724fef97a42afbaa5ff33e338cd9125f228090e5c2569",  # trip_planning
    }
)
