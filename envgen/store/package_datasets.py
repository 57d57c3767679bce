"""Content hashes of the datasets that are shipped in the package and trusted like its code."""

from __future__ import annotations

PACKAGE_DATASETS: frozenset[str] = frozenset(
    {
        "ac55b145968c56c650ccc9134f6a7c913e983e278e2981af472c49181ea5fa19",  # trip_planning
        "3a26a5ef466c7e8a47536988c2a7dba04d311baa107b8a9bacfa397891c1f656",  # search_questions
    }
)
