"""The gate of infeasible tasks: no answer keeps all rules, and it is plain which rules conflict."""

from __future__ import annotations

from envgen.core.types import GateResult
from envgen.pipelines.general.gates.trial import Case, Trial, not_applicable, outcome
from envgen.pipelines.general.programs.verifier_source import verifier_source
from envgen.pipelines.general.space.answers import count
from envgen.pipelines.general.space.conflicts import Conflict


def infeasible(trial: Trial) -> GateResult:
    """An exact count finds no answer; some rules conflict, and without any one of them there is an answer.

    For each of these rules its witness, an answer that keeps all other rules of the task, is accepted by
    the verifier compiled of the problem without that rule, and refused by the task's own.
    """
    if trial.problem.feasible is not False:
        return not_applicable("infeasible", "the task has an answer")
    counted = count(trial.problem, trial.draft.tables, cap=1)
    found = trial.conflict
    reasons = []
    if not counted.exact or counted.low:
        reasons.append("an answer keeps all rules" if counted.low else "counting takes too long")
    if found is None or len(found.rules) < 2:
        reasons.append("no rules conflict of which each alone can be dropped for an answer")
        return outcome("infeasible", False, 1, reason="; ".join(reasons))
    reasons += [f"the witness of {rule!r} {fault}" for rule, fault in _faults(trial, found)]
    return outcome(
        "infeasible",
        not reasons,
        1 + len(found.rules),
        figure=float(len(found.rules)),
        reason="; ".join(reasons[:3]),
        count=counted.low,
        conflict=list(found.rules),
        witnesses=dict(found.witnesses),
    )


def _faults(trial: Trial, found: Conflict) -> list[tuple[str, str]]:
    """Rules of whose witness a verifier says something else than it should, and what is wrong."""
    wrong = []
    for rule, answer in found.witnesses.items():
        without = trial.problem.without(rule).model_copy(update={"feasible": True})
        submission = trial.submission(Case(answer))
        if not trial.verifier(verifier_source(without)).verify(submission).passed:
            wrong.append((rule, "is refused without that rule"))
        if trial.judge([Case(answer)])[0].passed:
            wrong.append((rule, "is accepted"))
    return wrong
