"""What is stored of a proof beside what proving gives: gates that are missing, and results that differ."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from envgen.core.types import Evidence, GateResult, GateStatus

Sameness = Literal["results", "numbers", "names"]
"""How far a proof gives the same again: whole results, outcomes and counts, or only which gates there are."""


def differing_gates(
    stored: Evidence, derived: Evidence, same: Sameness, optional: Collection[str] = ()
) -> list[str]:
    """The gates whose stored result is not the derived one.

    Args:
        stored: the evidence of a task.
        derived: what proving it gives.
        same: what must be the same; with names alone (other draws, another version) there may be others.
        optional: names that may be missing.
    """
    found, wanted = {one.gate: one for one in stored}, {one.gate: one for one in derived}
    if same == "names":
        return sorted(set(wanted) - set(found) - set(optional))

    def result(one: GateResult | None) -> object:
        return (one.status, one.n) if one is not None and same == "numbers" else one

    return sorted(n for n in {*wanted, *found} if result(found.get(n)) != result(wanted.get(n)))


def evidence_gate(
    stored: Evidence, derived: Evidence, same: Sameness, *, by_evaluation: bool
) -> GateResult:
    """The gate of stored evidence; with ``by_evaluation``, what differs is shown and fails nothing."""
    differing, n = differing_gates(stored, derived, same), len(derived)
    if not differing:
        return GateResult(gate="evidence", status=GateStatus.PASSED, n=n)
    reason = f"stored otherwise than derived: evidence of {', '.join(differing)}"
    if by_evaluation:
        return GateResult(gate="differences", status=GateStatus.NOT_APPLICABLE, reason=reason)
    reason += " (--by-evaluation shows that, and fails nothing for it)"
    return GateResult(gate="evidence", status=GateStatus.FAILED, n=n, reason=reason)
