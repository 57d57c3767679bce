"""Tasks of the real domains, and of pages that only tests have, level by level."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from random import Random

from shared import recalled, remember

from envgen.core.seeding import rng
from envgen.pipelines.general.authoring.page import Domain
from envgen.pipelines.general.authoring.tasks import Hardened, Tasks, tasks_from
from envgen.pipelines.general.domains import DOMAINS, page, page_file

PAGES = Path(__file__).parents[1] / "data/pages"
"""Pages of tests: they stay as they are when a domain of the package changes."""
SEED = 11
"""The ladder that most tests look at: the processes of a run make it once."""


def page_of(domain: str) -> Domain:
    """The page of a domain of the package, or of ``tests/data/pages``."""
    return page(domain) if domain in DOMAINS else page_file(PAGES / f"{domain}.toml")


def tasks_of(domain: str) -> Tasks:
    """The tasks of such a page."""
    return tasks_from(page_of(domain).text)


class Climb:
    """A way up a domain by random operators, as far as anyone asked."""

    def __init__(self, domain: str, seed: int) -> None:
        self.tasks, self.draws = tasks_of(domain), rng(seed, domain)
        self.steps: list[Hardened] = []
        self.stuck = False

    def go_on(self, top: int) -> None:
        """Climb to a level, or as near as it goes."""
        while len(self.steps) < top and not self.stuck:
            found = self._next()
            if found is not None:
                self.steps.append(found)
            elif self.steps:
                self.stuck = True

    def _next(self) -> Hardened | None:
        if not self.steps:
            return self.tasks.first(self.draws)
        operators = self.tasks.blueprint.operators(len(self.steps))
        self.draws.shuffle(operators)
        problem = self.steps[-1].problem
        harder = (self.tasks.harder(o, problem, self.draws) for o in operators)
        return next((found for found in harder if found is not None), None)

    def state(self) -> tuple[list[Hardened], Random, bool]:
        """What another process needs to go on from here."""
        return self.steps, self.draws, self.stuck


@cache
def _climb(domain: str, seed: int) -> Climb:
    return Climb(domain, seed)


def ladder(domain: str, seed: int = SEED, top: int = 10) -> tuple[Hardened, ...]:
    """One task of ``domain`` from level 1 to ``top``, by random operators."""
    climb, name = _climb(domain, seed), f"ladder-{domain}-{seed}"
    if len(climb.steps) < top and not climb.stuck:
        known = recalled(name)
        if known is not None and len(known[0]) > len(climb.steps):
            steps, climb.draws, climb.stuck = known
            climb.steps += steps[len(climb.steps) :]
        if len(climb.steps) < top and not climb.stuck:
            climb.go_on(top)
            remember(name, climb.state())
    return tuple(climb.steps[:top])
