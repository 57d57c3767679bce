from __future__ import annotations

import pytest
from ladders import ladder

from envgen.core.seeding import rng
from envgen.pipelines.general.domains import DOMAINS, load_tasks
from envgen.pipelines.general.programs.solution_source import solution_source
from envgen.pipelines.general.programs.task_code import TaskCode, TaskCompiler
from envgen.pipelines.general.programs.tools_source import tool_specs, tools_source
from envgen.pipelines.general.programs.verifier_source import verifier_source


@pytest.mark.parametrize("domain", DOMAINS)
def test_re_seeds_compile_to_the_same_texts_as_alone(domain: str) -> None:
    tasks, compiler = load_tasks(domain), TaskCompiler()
    changed = 0
    for level, (problem, _) in enumerate(ladder(domain, 11), start=1):
        problems = [problem]
        found = tasks.reseeded(problem, rng(0, domain, level))
        problems += [found.problem] if found is not None else []
        for one in problems:
            alone = TaskCode(
                tool_specs(one.relations, one.access),
                tools_source(one.relations, one.access),
                solution_source(one),
                verifier_source(one),
            )
            assert compiler.code(one) == alone, level
            changed += one.params != problem.params
    assert changed


def test_a_parameter_more_is_another_problem() -> None:
    problem, _ = ladder("trip", 11)[-1]
    compiler = TaskCompiler()
    compiler.code(problem)
    more = problem.model_copy(update={"params": {**problem.params, "unused": 1}})
    assert compiler.code(more).solution == solution_source(more)
    none = problem.model_copy(update={"params": {}})
    assert compiler.code(none).verifier == verifier_source(none)
