"""Parameters for given rows: values under which a task has an answer and each of its rules matters.

A parameter's domain on the page is a table or some of its rows (any of their keys), a column (any value
in it), a draw, or ``edge``: what some answer, or some row that decides, just meets. Three kinds of task
are tuned, each by looking at what its rules make of the rows; none of them knows a domain.
"""

from __future__ import annotations

from random import Random

from envgen.core import ir
from envgen.core.ir import Problem
from envgen.pipelines.general.authoring.analysis import Analysis, Params, one_best, other_side
from envgen.pipelines.general.authoring.answers import answer_params
from envgen.pipelines.general.authoring.blueprint import Blueprint
from envgen.pipelines.general.authoring.opened import OpenTask
from envgen.pipelines.general.authoring.workflows import workflow_params
from envgen.pipelines.general.semantics.tables import Tables

_TRIES = 40
"""Choices of parameters tried for a question about one set of rows."""


class Tuner:
    """Binds the parameters of one domain's problems."""

    def __init__(self, blueprint: Blueprint) -> None:
        self.blueprint = blueprint
        self._analysis: Analysis | None = None

    def tune(
        self, problem: Problem, tables: Tables, rng: Random, *,
        fixed: Params | None = None, escalated: bool = False, other_than: Params | None = None,
    ) -> Problem | None:  # fmt: skip
        """``problem`` with parameters for ``tables``; None if none of those tried will do.

        Args:
            problem: as ``Blueprint.problem`` states it; its parameters are replaced.
            tables: the rows.
            rng: the source of chance.
            fixed: parameters that must keep these values.
            escalated: of a workflow: whether the request must be escalated.
            other_than: of a workflow: the parameters of a request that must not come again.
        """
        if self._analysis is None or self._analysis.problem is not problem:
            self._analysis = Analysis(problem, self.blueprint.domain)
        task = OpenTask(self.blueprint, self._analysis, tables, rng, dict(fixed or {}))
        if isinstance(problem.goal, ir.Reach):
            params = workflow_params(task, escalated=escalated, other_than=other_than or {})
        elif isinstance(problem.goal, ir.Equals):
            params = _question_params(task, problem.goal.query)
        else:
            params = answer_params(task)
        return None if params is None else problem.model_copy(update={"params": params})


def _question_params(task: OpenTask, query: ir.Query) -> Params | None:
    """Parameters under which a question is fair: it has one answer, and each condition matters for it."""
    for _ in range(_TRIES if task.names else 1):
        params = task.drawn()
        if params is None:
            return None
        params |= _some_edges(task)
        if _fair(task, params, query):
            return params
    return None


def _some_edges(task: OpenTask) -> Params:
    """For each edge the value of some row on the other side of its comparison."""
    found: Params = {}
    for name, edge in task.edges.items():
        other = other_side(edge, name)
        assert isinstance(other, ir.Get)
        values = {row[other.column] for row in task.tables[other.relation].values()} - {None}
        step = task.analysis.options(name).get("step", 1)
        column = sorted({v // step * step if isinstance(v, int) else v for v in values}, key=str)
        found[name] = task.rng.choice(column) if column else None
    return found


def _fair(task: OpenTask, params: Params, query: ir.Query) -> bool:
    frame, compiler = task.frame(params), task.compiler
    answer = compiler.compile(query)(frame)
    if answer is None or not task.blueprint.answers(task.problem, answer):
        return False
    queries = (node for node in query.walk() if isinstance(node, ir.Query))
    return all(one_best(node, compiler, frame) for node in queries) and all(
        compiler.compile(other)(frame) != answer for other in task.analysis.weaker
    )
