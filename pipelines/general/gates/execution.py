"""Gates about running: the same build twice, a restricted solution, gold that passes every time."""

from __future__ import annotations

from dataclasses import fields

from envgen.core.canonical import dumps
from envgen.core.types import GateResult
from envgen.core.version import VERSION
from envgen.environments.checker import check_solution
from envgen.pipelines.general.draft import Draft
from envgen.pipelines.general.gates.trial import Trial, calls_of, not_applicable, outcome
from envgen.pipelines.general.reload import as_stored
from envgen.pipelines.general.semantics.tables import read_sqlite, write_sqlite

GOLD_RUNS = 3


def rebuild(trial: Trial) -> GateResult:
    """Two builds of the database give the same bytes, and reading one gives the rows back."""
    second = trial.folder / "rebuilt.sqlite"
    write_sqlite(trial.draft.relations, trial.draft.tables, second)
    same = trial.database.read_bytes() == second.read_bytes()
    exact = read_sqlite(trial.draft.relations, second) == trial.draft.tables
    reason = "two builds differ" if not same else "reading the database gives other rows"
    return outcome("rebuild", same and exact, 2, reason=reason)


def compiled(trial: Trial) -> GateResult:
    """Each text, schema and id is what this envgen compiles from the IR, the rows and the recipe."""
    if trial.foreign:
        return not_applicable("compiled", trial.foreign)
    again = None if trial.author is None else trial.author.recompiled(trial.draft)
    if again is None:
        reason = "the author can't compile this task again"
        if trial.author is not None and trial.draft.author == trial.author.name:
            return outcome(
                "compiled", False, 1, reason=f"{reason}: its blueprint is not the author's"
            )
        return not_applicable("compiled", reason)
    again, parts = as_stored(again), [part.name for part in fields(Draft) if part.compare]
    differing = [name for name in parts if getattr(again, name) != getattr(trial.draft, name)]
    return outcome(
        "compiled",
        not differing,
        len(parts),
        reason=f"not what the constraint IR gives: {', '.join(differing)}",
        envgen=VERSION,
    )


def restricted(trial: Trial) -> GateResult:
    """The solution stays inside the restricted language (docs/ir.md): tools and logic only."""
    draft = trial.draft
    text = f"{draft.policy_text}\n{draft.prompt}"
    found = check_solution(draft.solution, draft.tools, text, draft.submit_schema)
    return outcome(
        "restricted", not found, 1, figure=float(len(found)), reason="; ".join(found[:3])
    )


def gold(trial: Trial) -> GateResult:
    """The solution passes in three fresh processes of two hash seeds, with one answer and one call log."""
    runs = [trial.gold_result, trial.run_gold(1), trial.run_gold(0)]
    faults = sorted({run.fault for run in runs if run.fault is not None})
    if faults:
        return outcome("gold", False, GOLD_RUNS, reason=f"the solution fails: {faults[0]}")
    logs = {dumps([calls_of(run.gold.calls), run.gold.answer]) for run in runs}
    if len(logs) > 1:
        return outcome("gold", False, GOLD_RUNS, reason="runs differ in answer or calls")
    if trial.gold.answer is None:
        return outcome("gold", False, GOLD_RUNS, reason="the solution finds no answer")
    submission = trial.submission(trial.gold_case)
    verifier = trial.verifier(check_schema=True)
    scores = [verifier.verify(submission) for _ in range(GOLD_RUNS)]
    reasons = sorted({reason for score in scores for reason in score.reasons})
    return outcome(
        "gold",
        all(score.passed for score in scores),
        GOLD_RUNS,
        reason=f"the verifier rejects gold: {', '.join(reasons)}",
        calls=len(trial.gold.calls),
    )
