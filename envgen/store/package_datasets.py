"""Content hashes of the datasets that are shipped in the package and trusted like its code."""

from __future__ import annotations

PACKAGE_DATASETS: frozenset[str] = frozenset(
    {
        "4095f06d68f8844caeb2b814c6c42235feb50882123d3febabeb2b0f1940507f",  # trip_planning
    }
)
