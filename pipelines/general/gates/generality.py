"""The gate over re-seeded rows: gold and verifier still agree with an independent solver."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

from envgen.core.seeding import derive
from envgen.core.types import GateResult
from envgen.pipelines.general.draft import Draft
from envgen.pipelines.general.gates.trial import Trial, not_applicable, outcome
from envgen.pipelines.general.programs.emit import replace_params
from envgen.pipelines.general.space.answers import solve
from envgen.sandboxes.programs.params import same_program

RESEEDS = 3


def reseeds(trial: Trial) -> GateResult:
    """On three re-seeded databases gold agrees with the independent solver, infeasible ones included."""
    children = trial_children(trial, RESEEDS)
    if children is None:
        return not_applicable("reseeds", "the author can't re-seed this task")
    if len(children) < RESEEDS:
        return outcome("reseeds", False, 1, reason="too few re-seeds could be re-bound")
    problems = [problem for child in children if (problem := disagreement(trial.draft, child))]
    infeasible = sum(child.gold.answer is None for child in children)
    return outcome(
        "reseeds",
        not problems,
        len(children),
        figure=1.0 - len(problems) / len(children),
        reason="; ".join(problems[:2]),
        infeasible=infeasible,
    )


def trial_children(trial: Trial, n: int) -> list[Trial] | None:
    """The first ``n`` re-seeds that can be re-bound (made once per trial); None without an author."""
    if trial.author is None or trial.draft.blueprint is None:
        return None
    for i in range(trial.reseeds_tried, 4 * n):
        if len(trial.children) >= n:
            break
        trial.reseeds_tried = i + 1
        draft = trial.author.reseed(trial.draft, derive(trial.seed, "reseed", i))
        if draft is not None and trial.foreign:
            draft = _with_programs_of(trial.draft, draft)
        if draft is not None:
            trial.children.append(trial.child(draft, f"reseed-{i}"))
    return trial.children[:n]


def _with_programs_of(parent: Draft, child: Draft) -> Draft:
    """A re-seed whose programs are its parent's, but for the parameters."""
    assert child.problem is not None  # only drafts with an IR are re-seeded
    return replace(
        child,
        tools=parent.tools,
        tools_source=parent.tools_source,
        solution=replace_params(parent.solution, child.problem.params),
        verifier=replace_params(parent.verifier, child.problem.params),
    )


def disagreement(parent: Draft, child: Trial) -> str:
    """What is wrong with a re-seeded draft; "" when gold, verifier and solver agree."""
    draft = child.draft
    for name in ("solution", "verifier"):
        if not same_program(getattr(parent, name), getattr(draft, name)):
            return f"the {name} differs in more than PARAMS"
    if child.gold_result.fault is not None:
        return f"the solution fails on a re-seed: {child.gold_result.fault}"
    found = list(islice(solve(child.problem, draft.tables, child.rng("solve")), 1))
    if child.gold.answer is None or not found:
        return "" if child.gold.answer is None and not found else "feasible for one, not the other"
    score = child.judge([child.gold_case])[0]
    return "" if score.passed else f"gold fails on a re-seed: {', '.join(score.reasons)}"
