"""General-agent environments: a database, tools over it, a task, and a verifier at the end."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, get_args

from pydantic import JsonValue

from envgen.core.errors import ConfigError
from envgen.core.registry import near_names
from envgen.core.types import PublicTask, Schema, Score, SourceKind, Submission, ToolSpec
from envgen.environments.episodes import (
    MAX_OBSERVATION_CHARS,
    MAX_RESULT_CHARS,
    SUBMITTED_TEXT,
    Catalogue,
    EpisodeEnv,
    ToolResult,
)
from envgen.environments.hosts import DatasetHosts, Lease, Task, hosts_for, open_dataset
from envgen.environments.toolbox import Toolbox
from envgen.sandboxes.zygote import Isolation, WorkerBackend, choose
from envgen.store.dataset import Dataset

__all__ = ["MAX_OBSERVATION_CHARS", "MAX_RESULT_CHARS", "SUBMITTED_TEXT", "GeneralEnv"]


class GeneralEnv(EpisodeEnv):
    """Plays general-agent tasks; see ``EpisodeEnv`` for observations, actions and the end.

    Args:
        dataset: a dataset folder, ``package:NAME``, or an open ``Dataset``.
        backend: where generated code runs; ``auto`` isolates it, or, where this machine can't,
            runs code that is trusted by hash in a plain process. ``inline`` is the fastest.
        isolate: ``episode`` gives each episode a sandbox of its own (60 to 110 ms more); with
            ``environment``, those of one environment share one and could disturb each other.
        render_mode: ``ansi`` makes ``render()`` return the conversation.
        task_ids: play these tasks only.
        unproven: accept tasks without evidence.
        trust: you wrote or read the dataset's code, which so may run without isolation.
    """

    family = "general"

    def __init__(
        self,
        dataset: str | Path | Dataset,
        *,
        backend: WorkerBackend = "auto",
        isolate: Isolation = "environment",
        render_mode: str | None = None,
        task_ids: Sequence[str] | None = None,
        unproven: bool = False,
        trust: bool = False,
    ) -> None:
        if backend not in get_args(WorkerBackend):
            hint = near_names(str(backend), get_args(WorkerBackend))
            raise ConfigError(f"unknown backend {backend!r}{hint}")
        if isolate not in get_args(Isolation):
            hint = near_names(str(isolate), get_args(Isolation))
            raise ConfigError(f"unknown isolate {isolate!r}{hint}")
        self._backend: WorkerBackend = backend
        self._isolate: Isolation = isolate
        self._task: Task | None = None
        self._changed = False
        super().__init__(
            dataset,
            render_mode=render_mode,
            task_ids=task_ids,
            unproven=unproven,
            trust=trust,
        )

    def check(self) -> None:
        """See ``EpisodeEnv``."""
        choose(self._backend, self.dataset.trusted, self._isolate)

    def _catalogue(self) -> Catalogue:
        return partial(_all_tools, self.dataset.path, self._unproven)

    def _open(self, task_id: str) -> tuple[PublicTask, Toolbox]:
        self._task = self._hosts().task(task_id)
        self._changed = False
        return self._task.public, self._task.toolbox

    def _start(self, alone: bool) -> Lease:
        assert self._task is not None
        return self._hosts().open(self._task, alone=alone)

    def _run(self, name: str, arguments: dict[str, JsonValue]) -> ToolResult:
        assert self._task is not None
        reply = self._places.do(lambda lease: lease.session.call(name, arguments))
        if reply.error is None and self._task.toolbox.mutates(name):
            self._changed = True
        return ToolResult(reply.value, reply.error, reply.message)

    def _judge(self, answer: str, *, alone: bool) -> Score:
        assert self._task is not None
        initial = str(self._task.database)
        textual = self._task.toolbox.submit is None and self._task.public.submit_schema is None
        fields: dict[str, Any] = {"answer": answer} if textual else {"raw": answer}
        with contextlib.ExitStack() as stack:
            final = initial
            if self._changed:
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="envgen-"))
                path = Path(folder) / "final.sqlite"
                self._places.do(lambda lease: lease.session.snapshot(path))
                final = str(path)
            submission = Submission.model_construct(
                **{"answer": None, "raw": None, **fields},
                initial=initial,
                final=final,
                calls=tuple(self._calls),
            )
            return self._hosts().judge(self._task, submission, alone=alone)

    def _gold_holds(self) -> bool:
        assert self._task is not None
        return self._hosts().gold_holds(self._task)

    def _hosts(self) -> DatasetHosts:
        if self._pid != os.getpid():  # forked: read the dataset anew, start workers of our own
            self._pid = os.getpid()
            trusted = self.dataset.source is SourceKind.TRUSTED
            self.dataset = open_dataset(self.dataset.path, unproven=self._unproven, trust=trusted)
        return hosts_for(self.dataset, self._backend, self._isolate)


def _all_tools(path: Path, unproven: bool) -> tuple[Sequence[ToolSpec], Schema | None]:
    """All tools of a dataset, for samples drawn where no episode runs (a vector env's parent)."""
    hosts = hosts_for(open_dataset(path, unproven=unproven))
    found = [spec for name in hosts.dataset.environments for spec in hosts.toolbox(name).specs]
    return list({spec.name: spec for spec in found}.values()), None
