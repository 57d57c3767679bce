"""Content hashes of the datasets that are shipped in the package and trusted like its code."""

from __future__ import annotations

PACKAGE_DATASETS: frozenset[str] = frozenset(
    {
        "e1ffb006bbb42ed1edc684104abf86f857ea1e30537d69e23ef2bc63472d1b04",  # trip_planning
    }
)
