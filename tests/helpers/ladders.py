"""Tasks of the real domains, level by level."""

from __future__ import annotations

from functools import cache

from envgen.core.seeding import rng
from envgen.pipelines.general.authoring.tasks import Hardened
from envgen.pipelines.general.domains import load_tasks


@cache
def ladder(domain: str, seed: int, top: int = 10) -> tuple[Hardened, ...]:
    """One task of ``domain`` from level 1 to ``top``, by random operators."""
    tasks, draws = load_tasks(domain), rng(seed, domain)
    first = None
    while first is None:
        first = tasks.first(draws)
    steps = [first]
    for level in range(1, top):
        operators = tasks.blueprint.operators(level)
        draws.shuffle(operators)
        harder = next(
            (h for o in operators if (h := tasks.harder(o, steps[-1].problem, draws)) is not None),
            None,
        )
        if harder is None:
            break
        steps.append(harder)
    return tuple(steps)
