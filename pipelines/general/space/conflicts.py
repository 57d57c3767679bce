"""Why a problem has no answer: a smallest set of rules that none keeps together."""

from __future__ import annotations

from typing import Any, NamedTuple

from envgen.core.ir import Problem
from envgen.core.seeding import rng
from envgen.pipelines.general.semantics.evaluator import Compiler
from envgen.pipelines.general.semantics.tables import Tables
from envgen.pipelines.general.space.build import build_model
from envgen.pipelines.general.space.elimination import Eliminator
from envgen.pipelines.general.space.model import Model, OutOfStepsError, StepBudget, TooHardError
from envgen.pipelines.general.space.search import Search, solutions

STEPS = 60_000
"""Steps of each search, and of each elimination where a search takes more."""


class Conflict(NamedTuple):
    """Rules that no answer keeps together, by id, each with an answer that keeps all but it.

    Its witnesses show that no rule can be left out of it, and that the problem without one has an answer.
    So it is the only such set: every other one lacks a rule without which there is an answer.
    """

    witnesses: dict[str, Any]

    @property
    def rules(self) -> tuple[str, ...]:
        """The rules."""
        return tuple(self.witnesses)


def conflict(
    p: Problem, db: Tables, *, steps: int = STEPS, compiler: Compiler | None = None
) -> Conflict | None:
    """The conflict of an infeasible problem whose every member alone makes it infeasible.

    None if the problem has an answer, or its infeasibility has several reasons (then no one rule can be
    dropped, or too few of them), or the searches take more than ``steps`` steps. Deterministic.
    """
    compiler = compiler or Compiler(p, db)
    witnesses: dict[str, Any] = {}
    for clause in p.clauses:
        model = build_model(p, db, without=clause.id, compiler=compiler)
        found = next(solutions(model, rng(0, clause.id), StepBudget(steps)), None)
        if found is not None:
            witnesses[clause.id] = model.answer(found)
    members = tuple(clause for clause in p.clauses if clause.id in witnesses)
    alone = p.model_copy(update={"clauses": members})
    if not members or not empty(build_model(alone, db, compiler=compiler), steps):
        return None
    return Conflict(witnesses)


def empty(model: Model, steps: int = STEPS) -> bool:
    """Whether a model is shown to have no solution, by a complete search or by elimination."""
    try:
        return next(Search(model).run(rng(0, "empty"), StepBudget(steps)), None) is None
    except OutOfStepsError:
        pass
    try:
        return Eliminator(model, steps).count() == 0
    except TooHardError:
        return False
