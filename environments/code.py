"""Code environments: a repository with an issue, tools to work on it, its tests as the judge."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from pydantic import JsonValue

from envgen.core.errors import (
    ConfigError,
    EnvError,
    EnvgenError,
    SandboxError,
    WorkspaceError,
)
from envgen.core.surrogates import to_text
from envgen.core.types import PublicTask, Schema, Score, Submission, ToolSpec
from envgen.environments.code_hosts import (
    CodeBackend,
    CodeHosts,
    CodeTask,
    code_backend,
    code_hosts_for,
)
from envgen.environments.code_tools import CODE_TOOLS, SUBMIT_SPEC, CodePlace
from envgen.environments.episodes import Catalogue, EpisodeEnv, ToolResult
from envgen.environments.toolbox import Toolbox
from envgen.store.dataset import Dataset

NO_DIFF = "no_diff"
"""Begins the reason of a score where the changes can't be told: the repository is gone, the disk full."""


class CodeEnv(EpisodeEnv):
    """Plays issue-PR tasks; see ``EpisodeEnv`` for observations, actions and the end.

    The agent works with ``bash``, ``view``, ``edit`` and ``write`` in a sandbox without a network that
    holds the repository at the base commit, in one commit; neither the solution nor the tests that
    judge it are inside. ``submit`` takes the working tree's diff, which is judged in a fresh sandbox.
    The first episode in an environment builds its workspace, which needs the package indexes.

    Args:
        dataset: a dataset folder, or an open ``Dataset``.
        backend: ``bubblewrap``, ``docker``, or ``auto``: the first that works here.
        isolate: as other families have it; each episode has a sandbox of its own in any case.
        render_mode: ``ansi`` makes ``render()`` return the conversation.
        task_id: play this task only.
        task_ids: play these tasks only.
        unproven: accept tasks without evidence.
        hosts: the dataset's workspaces; None: those that this process's episodes share.

    Attributes:
        patch: the diff that was submitted, once there is one.
    """

    family = "code"

    def __init__(
        self,
        dataset: str | Path | Dataset,
        *,
        backend: CodeBackend = "auto",
        isolate: str = "episode",
        render_mode: str | None = None,
        task_id: str | None = None,
        task_ids: Sequence[str] | None = None,
        unproven: bool = False,
        hosts: CodeHosts | None = None,
    ) -> None:
        if task_id is not None:
            if task_ids is not None:
                raise ConfigError("both task_id and task_ids", "give one of them")
            task_ids = (task_id,)
        self._backend = code_backend(backend)
        self._task: CodeTask | None = None
        self._given = hosts
        self.patch: bytes | None = None
        super().__init__(dataset, render_mode=render_mode, task_ids=task_ids, unproven=unproven)

    def _catalogue(self) -> Catalogue:
        return _all_tools

    def _open(self, task_id: str) -> tuple[PublicTask, Toolbox]:
        self.patch = None
        self._task = self._hosts().task(task_id)
        return self._task.public, self._task.toolbox

    def _start(self, alone: bool) -> CodePlace:
        """Open the repository, always in a sandbox of its own; an episode without a tool call never does."""
        assert self._task is not None
        try:
            opened = self._hosts().workspace(self._task.public.environment_id).open()
        except (WorkspaceError, SandboxError) as error:
            raise EnvError(f"the workspace can't be opened: {error}", error.hint) from error
        return CodePlace(opened)

    def _run(self, name: str, arguments: dict[str, JsonValue]) -> ToolResult:
        result: ToolResult = self._places.do(lambda place: place.run(name, arguments))
        return result

    def _judge(self, answer: str, *, alone: bool) -> Score:
        assert self._task is not None
        if self.patch is None:
            try:
                self.patch = (
                    self._places.do(lambda place: place.diff()) if self._places.used else b""
                )
            except WorkspaceError as error:
                self.patch = b""
                reason = f"{NO_DIFF}: {str(error)[-500:]}"
                return Score(value=0.0, passed=False, reasons=(reason,))
            self._release()  # its memory is better used by the tests
        return self._verdict(self.patch)

    def _verdict(self, patch: bytes) -> Score:
        """Every one is found in a sandbox of its own."""
        assert self._task is not None
        verifier = self._hosts().verifier(self._task.public.id)
        return verifier.verify(Submission.model_construct(raw=to_text(patch)))

    def _gold_holds(self) -> bool:
        assert self._task is not None
        try:
            return self._verdict(self._task.gold_patch.encode("utf-8", "surrogateescape")).passed
        except EnvgenError:  # whatever it is, it is broken without this answer, too
            return False

    def _hosts(self) -> CodeHosts:
        self._pid = os.getpid()
        return self._given or code_hosts_for(self.dataset, self._backend)


def _all_tools() -> tuple[Sequence[ToolSpec], Schema | None]:
    """Return all tools, and the submit tool, for samples where no episode runs."""
    return (*CODE_TOOLS, SUBMIT_SPEC), None
