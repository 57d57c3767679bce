"""The base of families whose tools and verifiers run in the host process."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from envgen.core.canonical import compact
from envgen.core.errors import ToolFaultError, UnjudgedError, VerifierError
from envgen.core.families import find_family
from envgen.core.types import PublicTask, Schema, Score, ToolSpec
from envgen.environments.episodes import Catalogue, EpisodeEnv, ToolResult
from envgen.environments.hosts import open_dataset
from envgen.environments.loading import load_task
from envgen.environments.toolbox import Toolbox
from envgen.store.bundles import TaskBundle
from envgen.store.dataset import Dataset


class HostEnv(EpisodeEnv):
    """Plays tasks whose tools are plain functions over trusted code, and run no code of a dataset or agent.

    A subclass says what tools do (``call``) and how answers are judged (``judge``). Arguments fit the tools'
    schemas, and mean whatever an agent likes: ``call`` must be safe and quick for all of them.

    Args:
        dataset: a dataset folder, ``package:NAME``, or an open ``Dataset``.
        backend, isolate: as other families have them; nothing runs that needs a sandbox.
        options: as ``EpisodeEnv`` takes them.

    Attributes:
        files: the running task with its secrets.
    """

    def __init__(
        self,
        dataset: str | Path | Dataset,
        *,
        backend: str = "auto",
        isolate: str = "environment",
        **options: Any,
    ) -> None:
        self.files: TaskBundle | None = None
        super().__init__(dataset, **options)

    @abstractmethod
    def call(self, name: str, arguments: dict[str, JsonValue]) -> ToolResult:
        """Run a tool; documented errors are results, too."""

    @abstractmethod
    def judge(self, files: TaskBundle, answer: str) -> Score:
        """Score the submitted text."""

    def _catalogue(self) -> Catalogue:
        return partial(_all_tools, self.dataset.path, self.family, self._unproven)

    def _open(self, task_id: str) -> tuple[PublicTask, Toolbox]:
        self.files = load_task(self.dataset, task_id, self.family)
        environment = self.dataset.environments[self.files.spec.environment_id]
        name = environment.submit_tool
        submit = None if name is None else find_family(self.family).submit(name)
        return self.files.spec.public(environment), Toolbox(environment, submit)

    def _start(self, alone: bool) -> _HostPlace:
        return _HostPlace()

    def _run(self, name: str, arguments: dict[str, JsonValue]) -> ToolResult:
        result: ToolResult = self._places.do(lambda place: place.call(self.call, name, arguments))
        return result

    def _judge(self, answer: str, *, alone: bool) -> Score:
        assert self.files is not None
        try:
            return self.judge(self.files, answer)
        except UnjudgedError:
            raise
        except (
            Exception
        ) as error:  # the boundary: if gold is judged, it is the answer that breaks it
            raise VerifierError(f"{type(error).__name__}: {error}"[:2_000]) from error

    def _gold_holds(self) -> bool:
        assert self.files is not None
        gold = self.files.gold
        try:
            return gold is not None and self._judge(compact(gold.answer), alone=True).passed
        except VerifierError:  # it is broken without the agent's answer, too
            return False


class _HostPlace:
    """This process, as a place of tools."""

    cpu_s = 0.0

    def call(self, run: Any, name: str, arguments: dict[str, JsonValue]) -> ToolResult:
        """Run a tool; one that breaks is told to the agent, as everywhere."""
        try:
            result: ToolResult = run(name, arguments)
        except Exception as error:  # the boundary: no action makes its episode vanish
            raise ToolFaultError(f"{name}: {type(error).__name__}: {error}"[:2_000]) from error
        return result

    def close(self) -> None:
        """Nothing is open."""


def submitted_text(answer: str) -> str:
    """The text that was submitted: of a JSON string what it holds, else all of it, digit for digit."""
    try:
        value = json.loads(answer)
    except (ValueError, RecursionError):
        return answer
    return value if isinstance(value, str) else answer


def _all_tools(path: Path, family: str, unproven: bool) -> tuple[Sequence[ToolSpec], Schema | None]:
    """All tools of a family's environments, for samples where no episode runs."""
    dataset = open_dataset(path, unproven=unproven)
    headers = map(dataset.facts, dataset.tasks)
    own = {one.environment_id for one in headers if one.family == family}
    submit = find_family(family).submit
    found: dict[str, ToolSpec] = {}
    for name in sorted(own):
        spec = dataset.environments[name]
        found |= {tool.name: tool for tool in spec.tools}
        if spec.submit_tool is not None:
            found[spec.submit_tool] = submit(spec.submit_tool)
    return list(found.values()), None
