"""Content hashes of the datasets that are shipped in the package and trusted like its code."""

from __future__ import annotations

PACKAGE_DATASETS: frozenset[str] = frozenset(
    {
        "f24aa88d644b2f27ef66a3daf3ef72863f740f3ee1483f9bff778c033606215f",  # trip_planning
    }
)
