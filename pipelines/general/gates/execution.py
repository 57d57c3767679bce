"""Gates about running: the same build twice, a restricted solution, gold that passes on other rows, too."""

from __future__ import annotations

from dataclasses import fields
from itertools import islice

from envgen.core.canonical import dumps
from envgen.core.types import GateResult
from envgen.core.version import VERSION
from envgen.environments.checker import check_solution
from envgen.pipelines.general.draft import Draft, as_stored
from envgen.pipelines.general.gates.trial import Trial, not_applicable, outcome, trial_children
from envgen.pipelines.general.semantics.tables import read_sqlite
from envgen.pipelines.general.space.answers import solve
from envgen.sandboxes.programs.params import same_program

GOLD_RUNS = 3
RESEEDS = 3


def rebuild(trial: Trial) -> GateResult:
    """Two builds of the database give the same bytes, and reading one gives the rows back."""
    second = trial.stored(trial.draft.tables, "rebuilt")
    same = trial.database.read_bytes() == second.read_bytes()
    exact = read_sqlite(trial.draft.relations, second) == trial.draft.tables
    reason = "two builds differ" if not same else "reading the database gives other rows"
    return outcome("rebuild", same and exact, 2, reason=reason)


def compiled(trial: Trial) -> GateResult:
    """Each text, schema and id is what this envgen compiles from the IR, the rows and the recipe."""
    if trial.incomparable:
        return not_applicable("compiled", trial.incomparable)
    again = None if trial.author is None else trial.author.recompiled(trial.draft)
    if again is None:
        reason = "the author can't compile this task again"
        if trial.author is None or trial.draft.author != trial.author.name:
            return not_applicable("compiled", reason)
        return outcome("compiled", False, 1, reason=f"{reason}: its blueprint is not the author's")
    again, parts = as_stored(again), [part.name for part in fields(Draft) if part.compare]
    differing = [name for name in parts if getattr(again, name) != getattr(trial.draft, name)]
    reason = f"not what the constraint IR gives: {', '.join(differing)}"
    return outcome("compiled", not differing, len(parts), reason=reason, envgen=VERSION)


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
    if len({dumps(run.gold) for run in runs}) > 1:
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


def reseeds(trial: Trial) -> GateResult:
    """On three re-seeded databases gold agrees with the independent solver, infeasible ones included."""
    children = trial_children(trial, RESEEDS)
    if children is None:
        return not_applicable("reseeds", "the author can't re-seed this task")
    if len(children) < RESEEDS:
        return outcome("reseeds", False, 1, reason="too few re-seeds could be re-bound")
    problems = [problem for child in children if (problem := _disagreement(trial.draft, child))]
    return outcome(
        "reseeds",
        not problems,
        len(children),
        figure=1.0 - len(problems) / len(children),
        reason="; ".join(problems[:2]),
        infeasible=sum(not child.problem.feasible for child in children),
    )


def _disagreement(parent: Draft, child: Trial) -> str:
    """Name what is wrong with a re-seeded draft; "" when gold, verifier and solver agree."""
    draft = child.draft
    for name in ("solution", "verifier"):
        if not same_program(getattr(parent, name), getattr(draft, name)):
            return f"the {name} differs in more than PARAMS"
    if child.gold_result.fault is not None:
        return f"the solution fails on a re-seed: {child.gold_result.fault}"
    found = list(islice(solve(child.problem, draft.tables, child.rng("solve")), 1))
    if child.gold.answer is None:
        return "the solver finds an answer on a re-seed, the solution none" if found else ""
    if not found:
        return "the solution finds an answer on a re-seed, the solver none"
    score = child.judge([child.gold_case])[0]
    return "" if score.passed else f"gold fails on a re-seed: {', '.join(score.reasons)}"
