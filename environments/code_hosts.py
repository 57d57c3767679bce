"""Built workspaces that the code episodes of one process share."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from envgen.core.code_types import CodeTests, Recipe
from envgen.core.environ import secret
from envgen.core.errors import ConfigError, EnvError, WorkspaceError
from envgen.core.surrogates import from_json
from envgen.core.types import PublicTask
from envgen.environments.code_tools import SUBMIT_SPEC
from envgen.environments.loading import load_task
from envgen.environments.toolbox import Toolbox
from envgen.sandboxes.workspace import Workspace, build_workspace
from envgen.store.dataset import Dataset
from envgen.store.recent import Recent
from envgen.verifiers.code import CodeVerifier

CodeBackend = Literal["auto", "bubblewrap", "docker"]
TREE = "tree.tar"
"""The attachment of an environment that holds the repository at the base commit."""
RECIPE = "recipe"
"""Where the blueprint of an environment holds how to build it."""
MAX_TASKS = 4_096


def code_backend(name: str) -> CodeBackend:
    """A backend that code tasks can use.

    Raises:
        ConfigError: if it is none of theirs.
    """
    found: CodeBackend | None = next((one for one in get_args(CodeBackend) if one == name), None)
    if found is None:
        what = f"code tasks don't run with backend {name!r}"
        raise ConfigError(what, "use bubblewrap or docker")
    return found


class CodeTask(NamedTuple):
    """A code task as an episode needs it."""

    public: PublicTask
    toolbox: Toolbox
    tests: CodeTests
    gold_patch: str


class CodeHosts:
    """The workspaces of one dataset, built when first needed. Thread-safe.

    Args:
        dataset: with code tasks.
        backend: where workspaces are built and opened.
        access: arguments of ``build_workspace`` in place of what this machine says of itself.
    """

    def __init__(
        self,
        dataset: Dataset,
        backend: CodeBackend = "auto",
        access: Mapping[str, Any] | None = None,
    ) -> None:
        self.dataset = dataset
        self.backend = backend
        self._access = access
        self._lock = threading.Lock()
        self._building: dict[str, threading.Lock] = {}
        self._workspaces: dict[str, Workspace] = {}
        self._tasks = Recent(self._load, MAX_TASKS)

    def task(self, task_id: str) -> CodeTask:
        """A task, ready to be played.

        Raises:
            ConfigError: if the dataset has no such task, or it is of another family.
            EnvError: if its files don't hold what a code task needs.
        """
        return self._tasks(task_id)

    def workspace(self, environment_id: str) -> Workspace:
        """The built repository of an environment; the first one to ask waits for the build.

        Raises:
            EnvError: if it can't be built.
        """
        with self._lock:
            building = self._building.setdefault(environment_id, threading.Lock())
        with building:
            if environment_id not in self._workspaces:
                self._workspaces[environment_id] = self._build(environment_id)
            return self._workspaces[environment_id]

    def verifier(self, task_id: str) -> CodeVerifier:
        """The verifier of a task. Raises as ``task`` and ``workspace`` do."""
        task = self.task(task_id)
        return CodeVerifier(self.workspace(task.public.environment_id), task.tests)

    def _load(self, task_id: str) -> CodeTask:
        files = load_task(self.dataset, task_id, "code")
        environment = self.dataset.environments[files.spec.environment_id]
        try:
            tests = from_json(CodeTests, files.verifier)
        except ValueError as error:
            raise EnvError(
                f"the verifier of {task_id!r} must be a list of tests: {error}"
            ) from error
        return CodeTask(
            files.spec.public(environment),
            Toolbox(environment, SUBMIT_SPEC),
            tests,
            files.solution,
        )

    def _build(self, environment_id: str) -> Workspace:
        files = self.dataset.environment_files(environment_id)
        blueprint = files.blueprint if isinstance(files.blueprint, dict) else {}
        if TREE not in files.attachments or RECIPE not in blueprint:
            raise EnvError(f"environment {environment_id!r} has no tree or no recipe")
        try:
            recipe = Recipe.model_validate(blueprint[RECIPE])
            access = self._access
            if access is None:
                access = {"certificates": host_certificates(), "reach": host_reach()}
            return build_workspace(
                recipe, files.attachments[TREE], **{**access, "backend": self.backend}
            )
        except (WorkspaceError, ValueError) as error:
            raise EnvError(f"environment {environment_id!r} can't be built: {error}") from error


def host_certificates() -> Path | None:
    """The certificates that this machine's programs are told to trust (``SSL_CERT_FILE``)."""
    named = secret("SSL_CERT_FILE")
    path = Path(named) if named else None
    return path if path is not None and path.is_file() else None


def host_reach() -> tuple[str, ...]:
    """Hosts of private networks that installs may reach: the words of ``ENVGEN_REACH``."""
    return tuple((secret("ENVGEN_REACH") or "").split())


_hosts: dict[tuple[str, str, str], CodeHosts] = {}
_lock = threading.Lock()


def _forget() -> None:
    """Give a forked child locks of its own; built workspaces are folders and stay good."""
    global _lock
    _lock = threading.Lock()
    _hosts.clear()


os.register_at_fork(after_in_child=_forget)


def code_hosts_for(dataset: Dataset, backend: CodeBackend = "auto") -> CodeHosts:
    """The workspaces of a dataset that this process's episodes share."""
    key = (str(dataset.path.absolute()), dataset.manifest.content_hash, backend)
    with _lock:
        if key not in _hosts:
            _hosts[key] = CodeHosts(dataset, backend)
        return _hosts[key]
