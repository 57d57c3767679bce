"""Content hashes of the datasets that are shipped in the package and trusted like its code."""

from __future__ import annotations

PACKAGE_DATASETS: frozenset[str] = frozenset(
    {
        "c0d02da828918ed52a8221fa26688149da0c9ea465a6bea7273ec7c0f63f3a45",  # trip_planning
        "e52c4eb5c6257eebb0d5105c8ad1b05e81c61f0f9276ebcab1d2976755bd4310",  # search_questions
        "a4f338da173646af890b29c20ec7665e083d137cbb501a3c120343f2f6724f0f",  # interpreter_problems
        "b40763a7c2339b162e99f8c99d51bc3ad4ff2ffa44ff40c25fa8f24609464813",  # proofs
    }
)
