"""Every kind of expression, in random rules: the compilers mean the same as the reference."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import oracle
from generated import answers, database, solve, verifier
from random_problems import random_problem, tables

from envgen.core.errors import PipelineError
from envgen.core.ir import EXPR_NODES, Arg, New, Old
from envgen.pipelines.general.programs.solution_source import solution_source
from envgen.pipelines.general.semantics.evaluate import evaluate


def test_the_verifier_means_what_evaluate_means(tmp_path: Path) -> None:
    seen: Counter[str] = Counter()
    verdicts: Counter[bool] = Counter()
    for seed in range(150):
        rng = random.Random(seed)
        rows = tables(rng)
        problem = random_problem(rng, clauses=4, reachable=True)
        path = str(database(problem, rows, tmp_path / f"{seed}.sqlite"))
        verify = verifier(problem)
        for clause in problem.clauses:
            seen.update(type(node).__name__ for node in clause.expr.walk())
        for answer in answers(problem, rows, rng, 16):
            held = evaluate(problem, rows, answer)
            assert held == oracle.evaluate(problem, rows, answer), (seed, answer)
            broken = {rule for rule, holds in held.items() if not holds}
            wanted = {"layout"} if "layout" in broken else broken
            assert set(verify(answer, path, path)) == wanted, (seed, answer)
            verdicts.update(held.values())
    missing = {node.__name__ for node in EXPR_NODES if node not in (Arg, Old, New)} - set(seen)
    assert missing <= {"End"}
    assert min(verdicts.values()) > 1000


def test_solutions_keep_random_rules(tmp_path: Path) -> None:
    outcomes: Counter[str] = Counter()
    for seed in range(120):
        rng = random.Random(seed)
        rows = tables(rng)
        problem = random_problem(rng, clauses=2, reachable=seed % 2 == 1)
        try:
            source = solution_source(problem)
        except PipelineError:
            outcomes["unsupported"] += 1
            continue
        initial = database(problem, rows, tmp_path / f"{seed}.sqlite")
        answer, tools = solve(problem, source, initial, tmp_path / f"{seed}-final.sqlite")
        if answer is None:
            tried = answers(problem, rows, rng, 120)
            found = [a for a in tried if all(evaluate(problem, rows, a).values())]
            assert not found, (seed, found[0])
            outcomes["infeasible"] += 1
        else:
            assert verifier(problem)(answer, str(initial), str(tools.path)) == [], seed
            outcomes["solved"] += 1
    assert outcomes["solved"] > 40
    assert outcomes["unsupported"] == 0
