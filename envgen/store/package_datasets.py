"""Content hashes of the datasets that are shipped in the package and trusted like its code."""

from __future__ import annotations

PACKAGE_DATASETS: frozenset[str] = frozenset(
    {
        "8e7f36ec2f72ab909302236e5ce4c76d9fa13e8283c89b3200f3f4330bca3f49",  # trip_planning
    }
)
