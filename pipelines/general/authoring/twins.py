"""Infeasible twins: a task with answers of which one bound is moved just past what any answer can keep."""

from __future__ import annotations

from typing import Any

from envgen.core.ir import Problem, Scalar
from envgen.core.seeding import rng
from envgen.pipelines.general.authoring.analysis import OpenTask, Params
from envgen.pipelines.general.authoring.edges import holds_below, just_met, other_side
from envgen.pipelines.general.space.build import bare_model, build_model
from envgen.pipelines.general.space.conflicts import conflict, empty
from envgen.pipelines.general.space.model import Model, SlotPart, StepBudget
from envgen.pipelines.general.space.search import solutions

LEAST_RULES = 3
"""Rules that conflict at least, where the task has so many."""
_ROUNDS = 60
"""Times that a bound is moved to the next better answer."""
_CELLS = 2_000
"""Combinations of slot values looked at for the values that a bound is compared with."""
_STEPS = 20_000
"""Step budget of each search."""


class TwinMaker:
    """Makes one task, tuned so that it has answers, infeasible."""

    def __init__(self, task: OpenTask) -> None:
        self.task = task
        self.space = bare_model(task.problem, task.tables, task.compiler)

    def params(self, tuned: Params) -> Params | None:
        """``tuned`` with one bound moved, so that no answer keeps all rules; None if none of them will do.

        Dropping any one of the rules that then conflict leaves an answer.
        """
        least = max(2, min(LEAST_RULES, len(self.task.problem.clauses)))
        for name in self.task.rng.sample(sorted(self.task.edges), len(self.task.edges)):
            params = self._moved(name, tuned)
            if params is None:
                continue
            self.task.compiler.bind(params)
            problem, tables = self._bound(params), self.task.tables
            found = conflict(problem, tables, steps=_STEPS, compiler=self.task.compiler)
            if found is not None and len(found.rules) >= least:
                return params
        return None

    def _bound(self, params: Params) -> Problem:
        return self.task.problem.model_copy(update={"params": dict(params)})

    def _model(self, params: Params) -> Model:
        self.task.compiler.bind(params)
        return build_model(self._bound(params), self.task.tables, compiler=self.task.compiler)

    def _moved(self, name: str, tuned: Params) -> Params | None:
        """``tuned`` with the bound ``name`` just past the best answer; None where that takes too long."""
        edge, params = self.task.edges[name], dict(tuned)
        measure = self.task.compiler.compile(other_side(edge, name))
        # From one answer to a better one, not by bisection: finding an answer is cheap, proving that there is
        # none is expensive, and bisection would ask for many proofs. Here it comes once, at the end, and
        # decides alone: a search that found nothing may only have run out of steps.
        for _ in range(_ROUNDS):
            model = self._model(params)
            found = next(solutions(model, rng(0, name), StepBudget(_STEPS)), None)
            if found is None:
                break
            model.frame.slots[:] = found
            past = self._past(name, measure(model.frame))
            if past is None:
                return None
            params[name] = past
        return params if empty(self._model(params), _STEPS) else None

    def _past(self, name: str, value: Any) -> Scalar:
        """The next bound, as bounds are drawn, that an answer of this value misses; None if there is none.

        Where few enough values can be compared with the bound, it is one that one of them just meets:
        the bounds of tasks with answers are such, too.
        """
        edge, step = self.task.edges[name], self.task.analysis.domains[name].options.get("step", 1)
        below, side = holds_below(edge, name), other_side(edge, name)
        model = self.space
        if step == 1 and model.size(model.scope_of(side)) <= _CELLS:
            part = SlotPart(model.scope_of(side), self.task.compiler.compile(side), side)
            better = {at for _, at in model.table(part) if at is not None}
            better = {at for at in better if (at < value if below else at > value)}
            if not better:
                return None
            return self._met(name, max(better) if below else min(better))
        if not isinstance(value, int):
            return None
        past = (value - 1) // step * step if below else -(-(value + 1) // step) * step
        return self._met(name, past)

    def _met(self, name: str, value: Any) -> Scalar:
        bound: Scalar = just_met(self.task.edges[name], name, value)
        return bound
