"""Read a page as its tasks: every part built, every step tried, each task compiled; nothing is run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from envgen.core.errors import ConfigError, PipelineError
from envgen.pipelines.general.authoring.page import Domain
from envgen.pipelines.general.authoring.tasks import tasks_from
from envgen.pipelines.general.programs.task_code import TaskCompiler
from envgen.pipelines.general.words.prompt import prompt

_REACHABLE = "give the tools of that scene what its rules read"

DEAR = (
    "Each draw takes time, with every task that is made: let one in five or so hold one. Where nothing "
    "breaks a rule alone, or no answer keeps all, draw rows that do more often; where too few answers keep "
    "the others, or a player solves it, take a smaller k in edge(best=k), or draw costs that vary more. Such "
    "tasks are proven all the same, only slower: a few tries at this are enough."
)
"""Advice for levels that have a ``cost``."""
_MANY = 10
"""A level with so many failed draws for each good one, or more, has a ``cost``."""


class Rehearsed(NamedTuple):
    """A task of one level, as an agent is told of it."""

    level: int
    policy: str
    prompt: str
    cost: str = ""
    """How few of the draws of rows hold such a task, and why; empty: enough do."""


def rehearse(domain: Domain, seed: int = 0) -> Iterator[Rehearsed]:
    """A task of each level, each made of the one before.

    Raises:
        ConfigError: naming the part of the page that is wrong, with what to do.
    """
    tasks = tasks_from(domain.text)
    for level, (problem, _, held, lost) in enumerate(tasks.rehearsed(seed), 1):
        text = prompt(problem, tasks.lexicon)
        try:
            TaskCompiler().code(problem)
        except PipelineError as error:
            raise ConfigError(
                f"domain {domain.id!r}, level {level}: {error}", _REACHABLE
            ) from error
        cost = _cost(held, lost) if lost.total() >= _MANY * held else ""
        yield Rehearsed(level, text.policy_text, text.text, cost)


def _cost(held: int, lost: Counter[str]) -> str:
    why, times = lost.most_common(1)[0]
    often = f"; {times} times {why}" if why else ""
    return f"of {held + lost.total()} draws of rows {held} held such a task{often}"
