"""The tools that the agents of a dataset's tasks were offered, for later readers of their episodes."""

from __future__ import annotations

from envgen.core.errors import ConfigError
from envgen.core.families import find_family
from envgen.core.types import StopReason, Style, Trajectory
from envgen.environments.toolbox import Toolbox
from envgen.policies.base import Tool
from envgen.policies.styles import misfit, offered
from envgen.store.dataset import Dataset


class TaskTools:
    """The tools of a dataset's tasks in OpenAI's form."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self._known: dict[str, Toolbox] = {}

    def of(self, task_id: str, style: Style | None = None) -> list[Tool]:
        """The tools that the task's agent is offered, including the submit tool."""
        toolbox = self._toolbox(task_id)
        return offered(style, toolbox.openai(), toolbox.submit)

    def misfit(self, trajectory: Trajectory) -> str | None:
        """Why a rollout does not fit the style that was asked for; None if it does, or none was."""
        style = trajectory.style
        if style is None:
            return None
        return misfit(
            style,
            trajectory.messages,
            self.of(trajectory.task_id, style),
            self._toolbox(trajectory.task_id).submit,
            answered=trajectory.stop in (StopReason.SUBMITTED, StopReason.ANSWERED),
        )

    def _toolbox(self, task_id: str) -> Toolbox:
        if task_id not in self._dataset.tasks:
            raise ConfigError(
                f"the rollouts are of task {task_id!r}, which the dataset does not hold",
                "give the dataset that was rolled out",
            )
        facts = self._dataset.facts(task_id)
        environment_id = facts.environment_id
        if environment_id not in self._known:
            spec = self._dataset.environment_files(environment_id).spec
            name = spec.submit_tool
            submit = None if name is None else find_family(facts.family).submit(name)
            self._known[environment_id] = Toolbox(spec, submit)
        return self._known[environment_id]
