"""The three programs of a task, compiled from its problem."""

from __future__ import annotations

from typing import NamedTuple

from envgen.core.ir import Problem
from envgen.core.types import ToolSpec
from envgen.pipelines.general.programs.emit import replace_params
from envgen.pipelines.general.programs.solution_source import solution_source
from envgen.pipelines.general.programs.tools_source import tool_specs, tools_source
from envgen.pipelines.general.programs.verifier_source import verifier_source


class TaskCode(NamedTuple):
    """What was compiled."""

    specs: tuple[ToolSpec, ...]
    tools: str
    solution: str
    verifier: str


class TaskCompiler:
    """Compiles problems; one that differs from the last only in its parameters' values costs little.

    Values stand in the ``PARAMS`` line and nowhere else, so compiling it anew would give the same texts.
    """

    def __init__(self) -> None:
        self._form: Problem | None = None
        self._code: TaskCode | None = None

    def code(self, problem: Problem) -> TaskCode:
        """Tools, solution and verifier.

        Raises:
            PipelineError: as ``tools_source``, ``solution_source`` and ``verifier_source``.
        """
        params = dict.fromkeys(problem.params)
        form = problem.model_copy(update={"id": "", "params": params})
        if self._code is None or form != self._form:
            self._form, self._code = form, _compiled(problem)
            return self._code
        return self._code._replace(
            solution=replace_params(self._code.solution, problem.params),
            verifier=replace_params(self._code.verifier, problem.params),
        )


def _compiled(problem: Problem) -> TaskCode:
    return TaskCode(
        tool_specs(problem.relations, problem.access),
        tools_source(problem.relations, problem.access),
        solution_source(problem),
        verifier_source(problem),
    )
