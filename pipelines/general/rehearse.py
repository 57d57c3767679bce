"""Read a page as its tasks: every part built, every step tried, each task compiled; nothing is run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from envgen.core.errors import ConfigError, PipelineError
from envgen.pipelines.general.authoring.page import Domain
from envgen.pipelines.general.authoring.tasks import tasks_from
from envgen.pipelines.general.programs.task_code import TaskCompiler
from envgen.pipelines.general.words.prompt import prompt

_REACHABLE = "give the tools of that scene what its rules read"


class Rehearsed(NamedTuple):
    """A task of one level, as an agent is told of it."""

    level: int
    policy: str
    prompt: str


def rehearse(domain: Domain, seed: int = 0) -> Iterator[Rehearsed]:
    """A task of each level, each made of the one before.

    Raises:
        ConfigError: naming the part of the page that is wrong, with what to do.
    """
    tasks = tasks_from(domain.text)
    for level, (problem, _) in enumerate(tasks.rehearsed(seed), 1):
        text = prompt(problem, tasks.lexicon)
        try:
            TaskCompiler().code(problem)
        except PipelineError as error:
            raise ConfigError(
                f"domain {domain.id!r}, level {level}: {error}", _REACHABLE
            ) from error
        yield Rehearsed(level, text.policy_text, text.text)
