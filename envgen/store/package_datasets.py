"""Content hashes of the datasets that are shipped in the package and trusted like its code."""

from __future__ import annotations

PACKAGE_DATASETS: frozenset[str] = frozenset(
    {
        "ac55b145968c56c650ccc9134f6a7c913e983e278e2981af472c49181ea5fa19",  # trip_planning
        "8e40b42a4c275f957e025d8ba441fcc2c76577eac470d0c8c71bccb0c6820f62",  # search_questions
    }
)
