"""Content hashes of the datasets that are shipped in the package and trusted like its code."""

from __future__ import annotations

PACKAGE_DATASETS: frozenset[str] = frozenset(
    {
        "6233e3efae89c72fa92867a911a466497c5373285fbc2ee7ef33a68285016df2",  # trip_planning
    }
)
