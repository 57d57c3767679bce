"""Content hashes of the datasets that are shipped in the package and trusted like its code."""

from __future__ import annotations

PACKAGE_DATASETS: frozenset[str] = frozenset(
    {
        "ac55b145968c56c650ccc9134f6a7c913e983e278e2981af472c49181ea5fa19",  # trip_planning
        "cdb2fc60669d5f17675ec5faf36e1b97cb03c9fddc11145b7a890aacbc64531a",  # search_questions
        "ce168ef40a6535395ff0a04f3b23e010ca5d876b7f896f59363c37944a728145",  # interpreter_problems
        "b40763a7c2339b162e99f8c99d51bc3ad4ff2ffa44ff40c25fa8f24609464813",  # proofs
    }
)
