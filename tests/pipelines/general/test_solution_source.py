from __future__ import annotations

import random
from pathlib import Path

import pytest
from generated import database, draw, read, solve, verifier
from sample_problems import SAMPLES, Sample

from envgen.core.ir import Reach
from envgen.pipelines.general.evaluate import evaluate
from envgen.pipelines.general.layout import fill_layout
from envgen.pipelines.general.solution_source import solution_source

FACTORS = (0.2, 0.5, 0.8, 0.9, 1.0, 1.1, 1.5, 3)


@pytest.mark.parametrize("name", SAMPLES)
def test_the_solution_of_a_sample_is_accepted(name: str, tmp_path: Path) -> None:
    sample = SAMPLES[name]
    initial = database(sample.problem, sample.tables, tmp_path / "initial.sqlite")
    source = solution_source(sample.problem)
    answer, tools = solve(sample.problem, source, initial, tmp_path / "final.sqlite")
    assert verifier(sample.problem)(answer, str(initial), str(tools.path)) == []
    final = read(sample.problem, tools.path)
    assert all(evaluate(sample.problem, sample.tables, answer, final).values())
    assert 0 < len(tools.calls) < 200
    lines = [line for line in source.splitlines() if not line.startswith("PARAMS")]
    assert max(map(len, lines)) <= 100


def _feasible(sample: Sample, rng: random.Random) -> bool:
    """Whether one of many drawn answers is accepted: only a lower bound."""
    p = sample.problem
    for _ in range(300):
        answer = fill_layout(p.layout, {s.name: draw(s, sample.tables, rng) for s in p.slots})
        if all(evaluate(p, sample.tables, answer).values()):
            return True
    return False


@pytest.mark.parametrize(
    "name", [name for name, s in SAMPLES.items() if not isinstance(s.problem.goal, Reach)]
)
def test_other_parameters_are_solved_or_found_infeasible(name: str, tmp_path: Path) -> None:
    sample, rng = SAMPLES[name], random.Random(name)
    initial = database(sample.problem, sample.tables, tmp_path / "initial.sqlite")
    outcomes = set()
    for i in range(12):
        params = {
            key: round(value * rng.choice([0.2, 0.5, 0.8, 0.9, 1.0, 1.1, 1.5, 3]))
            if type(value) is int
            else value
            for key, value in sample.problem.params.items()
        }
        p = sample.problem.model_copy(update={"params": params})
        retuned = sample._replace(problem=p)
        answer, tools = solve(p, solution_source(p), initial, tmp_path / f"final{i}.sqlite")
        if answer is None:
            assert not _feasible(retuned, rng), params
        else:
            assert verifier(p)(answer, str(initial), str(tools.path)) == [], params
        outcomes.add(answer is None)
    assert False in outcomes
