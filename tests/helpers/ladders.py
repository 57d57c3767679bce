"""Tasks of the real domains, level by level."""

from __future__ import annotations

from functools import cache

from envgen.core.seeding import rng
from envgen.pipelines.general.blueprint import Hardened
from envgen.pipelines.general.domains import load_blueprint


@cache
def ladder(domain: str, seed: int) -> tuple[Hardened, ...]:
    """One task of ``domain`` from level 1 to its top, by random operators."""
    blueprint = load_blueprint(domain)
    draws = rng(seed, domain)
    problem = None
    while problem is None:
        tables = blueprint.tables(draws, 1)
        problem = blueprint.problem(draws, tables)
    steps = [Hardened(problem, tables)]
    for level in range(1, blueprint.max_level):
        operators = [operator for operator in blueprint.operators if operator.applies(level)]
        draws.shuffle(operators)
        harder = next(
            (h for o in operators if (h := o.harden(*steps[-1], draws)) is not None), None
        )
        if harder is None:
            break
        steps.append(harder)
    return tuple(steps)
