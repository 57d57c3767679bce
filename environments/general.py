"""General-agent environments: a database, tools over it, a task, and a verifier at the end."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, get_args

import gymnasium
from gymnasium.error import ResetNeeded
from pydantic import JsonValue

from envgen.core.canonical import compact
from envgen.core.errors import (
    ConfigError,
    EnvError,
    SandboxError,
    SandboxUnavailableError,
    VerifierError,
)
from envgen.core.jsonvalues import clean_text
from envgen.core.registry import near_names
from envgen.core.types import (
    CallRecord,
    Message,
    PublicTask,
    Schema,
    Score,
    StopReason,
    Submission,
    ToolCall,
    ToolSpec,
)
from envgen.environments.actions import MAX_ACTION_CHARS, Action, parse_action
from envgen.environments.hosts import DatasetHosts, Lease, Task, hosts_for, open_dataset
from envgen.environments.rendering import clip, message_dict, render_messages
from envgen.environments.spaces import ToolCallText, UnicodeText
from envgen.environments.toolbox import EPISODE_OVER, INVALID_ARGUMENTS
from envgen.sandboxes.zygote import Isolation, WorkerBackend
from envgen.store.dataset import Dataset
from envgen.verifiers.general import MALFORMED, NO_SUBMISSION, SCHEMA

MAX_OBSERVATION_CHARS = 131_072
MAX_RESULT_CHARS = 65_536
SUBMITTED_TEXT = '{"status":"submitted"}'
_OPTIONS = ("task_id",)
_TERMINAL = frozenset({StopReason.SUBMITTED, StopReason.ANSWERED})


class GeneralEnv(gymnasium.Env[str, str]):
    """Plays the tasks of a dataset.

    An observation is text: the task at first, then the results of the turn's tool calls, one a
    line, as compact JSON. An action is text: an answer in words, or the JSON of an assistant
    message ``{"content": "...", "tool_calls": [{"name": "...", "arguments": {...}}]}``. The reward
    is the score, on the last step; 0 before.

    The episode ends with a call of the submit tool (or, in an environment without one, with plain
    text), at the task's turn limit, or at the second plain text in a row where a call was due.
    Nothing an action contains raises; an environment or verifier that breaks raises ``EnvError``
    or ``VerifierError``, and the episode is over.

    (task_id, seed) fixes the episode; the seed only draws the task where none is named.

    Args:
        dataset: a dataset folder, ``package:NAME``, or an open ``Dataset``.
        backend: where generated code runs; ``auto`` isolates it, or, where this machine can't,
            runs code that is trusted by hash in a plain process. ``inline`` is the fastest.
        isolate: ``episode`` gives each episode a sandbox of its own (60 to 110 ms more); with
            ``environment``, those of one environment share one and could disturb each other.
        render_mode: ``ansi`` makes ``render()`` return the conversation.
        task_ids: play these tasks only.
        unproven: accept tasks without evidence.

    Attributes:
        task: what the agent may know, set by ``reset``.
        messages: the conversation so far.
        calls: every tool call so far, as the host logged it.
        score: the verdict, once there is one.
        stop: why the episode ended, once it has.
        reached_verifier: whether the task's own verifier judged the answer.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 4}

    def __init__(
        self,
        dataset: str | Path | Dataset,
        *,
        backend: WorkerBackend = "auto",
        isolate: Isolation = "environment",
        render_mode: str | None = None,
        task_ids: Sequence[str] | None = None,
        unproven: bool = False,
    ) -> None:
        if backend not in get_args(WorkerBackend):
            hint = near_names(str(backend), get_args(WorkerBackend))
            raise ConfigError(f"unknown backend {backend!r}{hint}")
        if isolate not in get_args(Isolation):
            hint = near_names(str(isolate), get_args(Isolation))
            raise ConfigError(f"unknown isolate {isolate!r}{hint}")
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise ConfigError(f"unknown render_mode {render_mode!r}; there is 'ansi'")
        self.render_mode = render_mode
        # Whoever opened a Dataset has said already whether it may be unproven.
        self._unproven = unproven or isinstance(dataset, Dataset)
        self._backend: WorkerBackend = backend
        self._isolate: Isolation = isolate
        self.dataset = open_dataset(dataset, unproven=unproven)
        self.task_ids = _task_ids(self.dataset, task_ids)
        catalogue = partial(_catalogue, self.dataset.path, self._unproven)
        self._actions = ToolCallText(MAX_ACTION_CHARS, catalogue)
        self.action_space = self._actions
        self.observation_space = UnicodeText(MAX_OBSERVATION_CHARS)
        self._pid = os.getpid()
        self._lease: Lease | None = None
        self._task: Task | None = None
        self._clear()

    def _clear(self) -> None:
        self._messages: list[Message] = []
        self._dumped: list[dict[str, Any]] = []
        self._calls: list[CallRecord] = []
        self._turns = 0
        self._plain_texts = 0
        self._snapshot: str | None = None
        self.score: Score | None = None
        self.stop: StopReason | None = None
        self.reached_verifier = False

    # ------------------------------------------------------------------ what a rollout reads

    @property
    def task(self) -> PublicTask:
        """The task that is being played.

        Raises:
            ResetNeeded: before the first ``reset``.
        """
        if self._task is None:
            raise ResetNeeded("call reset() first")
        return self._task.public

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """What the agent may call, the submit tool last."""
        return () if self._task is None else self._task.toolbox.specs

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation so far."""
        return tuple(self._messages)

    @property
    def calls(self) -> tuple[CallRecord, ...]:
        """The tool calls so far, refused ones included."""
        return tuple(self._calls)

    # ------------------------------------------------------------------ gymnasium

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Start an episode.

        Args:
            seed: of the draw of a task; the next ones are drawn on from there.
            options: ``{"task_id": ...}`` names the task instead.

        Raises:
            ConfigError: if the options or the task id are unknown.
            SandboxUnavailableError: if the dataset's code is not trusted and can't be isolated.
        """
        super().reset(seed=seed)
        task_id = self._choose(options or {})
        self._release()
        self._clear()
        self._task = self._hosts().task(task_id)
        public = self._task.public
        self._actions.use(self._task.toolbox.specs, public.submit_schema)
        if public.policy_text:
            self._say(Message(role="system", content=public.policy_text))
        self._say(Message(role="user", content=public.prompt))
        text = "\n\n".join(message.content for message in self._messages)
        return clip(
            clean_text(text, 2 * MAX_OBSERVATION_CHARS), MAX_OBSERVATION_CHARS
        ), self._info()

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Play one turn.

        Raises:
            EnvError: if the environment broke.
            VerifierError: if the verifier broke.
            ResetNeeded: if there is no running episode.
        """
        if self._task is None or self.stop is not None:
            raise ResetNeeded("there is no running episode: call reset()")
        self._turns += 1
        parsed = parse_action(action, self._turns)
        self._say(parsed.message)
        try:
            texts = self._respond(parsed)
            if self.stop is None and self._turns >= self._task.public.limits.turns:
                self._finish(StopReason.TURN_LIMIT, None)
        except (EnvError, VerifierError, SandboxError, OSError) as error:
            self.stop = StopReason.ERROR
            self._release()
            if isinstance(error, EnvError | VerifierError | SandboxUnavailableError):
                raise
            raise EnvError(f"{type(error).__name__}: {error}") from error
        observation = clip("\n".join(texts), MAX_OBSERVATION_CHARS)
        ended = self.stop is not None
        terminated = self.stop in _TERMINAL
        reward = self.score.value if self.score is not None else 0.0
        return observation, reward, terminated, ended and not terminated, self._info()

    def render(self) -> str | None:
        """The conversation so far, in mode ``ansi``."""
        return render_messages(self._messages) if self.render_mode == "ansi" else None

    def close(self) -> None:
        """End the episode; tools and verifiers stay for this process's other environments."""
        self._release()

    # ------------------------------------------------------------------ a turn

    def _choose(self, options: Mapping[str, Any]) -> str:
        for name in options:
            if name not in _OPTIONS:
                raise ConfigError(f"unknown reset option {name!r}{near_names(str(name), _OPTIONS)}")
        chosen = options.get("task_id")
        if chosen is None:
            return self.task_ids[int(self.np_random.integers(len(self.task_ids)))]
        if not isinstance(chosen, str):
            raise ConfigError(f"a task_id is a text, not {chosen!r}")
        return chosen

    def _respond(self, action: Action) -> list[str]:
        if action.problem is not None:
            return [self._complain(action.problem)]
        calls = action.message.tool_calls
        if not calls:
            return [self._take_text(action.message.content)]
        self._plain_texts = 0
        results = []
        for call, fault in zip(calls, action.faults, strict=True):
            text = self._run_call(call, fault)
            self._say(Message(role="tool", content=text, tool_call_id=call.id))
            results.append(text)
        return results

    def _complain(self, problem: str) -> str:
        text = clean_text(compact({"error": "malformed_action", "message": problem}))
        self._say(Message(role="user", content=text))
        return text

    def _take_text(self, text: str) -> str:
        """Plain text: the answer where there is no submit tool, else a mistake."""
        assert self._task is not None
        submit = self._task.toolbox.submit
        if submit is None:
            self._finish(StopReason.ANSWERED, text)
            return ""
        self._plain_texts += 1
        if self._plain_texts >= 2:
            self._finish(StopReason.NO_SUBMISSION, None)
        return self._complain(
            f"plain text does nothing here: call a tool, or end the task with {submit}"
        )

    def _run_call(self, call: ToolCall, fault: str | None) -> str:
        """The result of one tool call as text; the call is logged."""
        assert self._task is not None
        toolbox = self._task.toolbox
        if self.stop is not None:
            return self._refuse(call, EPISODE_OVER, "the episode is over; this call was ignored")
        if fault is not None:
            return self._refuse(call, INVALID_ARGUMENTS, fault)
        arguments = call.arguments or {}
        found = toolbox.fault(call.name, arguments)
        if found is not None:
            return self._refuse(call, *found)
        if call.name == toolbox.submit:
            self._finish(StopReason.SUBMITTED, str(arguments["answer_text"]))
            return SUBMITTED_TEXT
        return self._run_tool(call.name, arguments)

    def _run_tool(self, name: str, arguments: dict[str, JsonValue]) -> str:
        assert self._task is not None
        if self._lease is None:
            self._lease = self._hosts().open(self._task)
        reply = self._lease.session.call(name, arguments)
        value: JsonValue = reply.value
        if reply.error is not None:
            value = {"error": reply.error, "message": reply.message}
        self._log(name, arguments, value, reply.error, self._task.toolbox.mutates(name))
        return clip(clean_text(compact(value), 1 << 30), MAX_RESULT_CHARS)

    def _refuse(self, call: ToolCall, code: str, message: str) -> str:
        value: JsonValue = {"error": code, "message": message}
        self._log(call.name, call.arguments or {}, value, code, False)
        return clean_text(compact(value))

    def _log(
        self,
        name: str,
        arguments: dict[str, JsonValue],
        result: JsonValue,
        error: str | None,
        mutates: bool,
    ) -> None:
        self._calls.append(
            CallRecord.model_construct(
                name=name, arguments=arguments, result=result, error=error, mutates=mutates
            )
        )

    # ------------------------------------------------------------------ the end

    def _finish(self, stop: StopReason, answer: str | None) -> None:
        """End the episode and score it, once."""
        assert self._task is not None
        assert self.score is None
        self.stop = stop
        if answer is None:
            self.score = Score(value=0.0, passed=False, reasons=(NO_SUBMISSION,))
        else:
            self.score = self._judge(answer)
            self.reached_verifier = not any(
                reason.split(":")[0] in (MALFORMED, SCHEMA) for reason in self.score.reasons
            )
        self._release()

    def _judge(self, answer: str) -> Score:
        assert self._task is not None
        initial = str(self._task.database)
        textual = self._task.toolbox.submit is None and self._task.public.submit_schema is None
        fields: dict[str, Any] = {"answer": answer} if textual else {"raw": answer}
        with contextlib.ExitStack() as stack:
            final = initial
            if self._lease is not None and self._lease.session.changed:
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="envgen-"))
                final = str(Path(folder) / "final.sqlite")
                self._lease.session.snapshot(Path(final))
            submission = Submission.model_construct(
                **{"answer": None, "raw": None, **fields},
                initial=initial,
                final=final,
                calls=tuple(self._calls),
            )
            return self._task.verifier.verify(submission)

    def _release(self) -> None:
        lease, self._lease = self._lease, None
        if lease is not None and self._pid == os.getpid():
            lease.close()

    # ------------------------------------------------------------------ plumbing

    def _hosts(self) -> DatasetHosts:
        if self._pid != os.getpid():  # forked: read the dataset anew, start workers of our own
            self._pid = os.getpid()
            self.dataset = open_dataset(self.dataset.path, unproven=self._unproven)
        return hosts_for(self.dataset, self._backend, self._isolate)

    def _say(self, message: Message) -> None:
        self._messages.append(message)
        self._dumped.append(message_dict(message))

    def _info(self) -> dict[str, Any]:
        assert self._task is not None
        info: dict[str, Any] = {
            "task_id": self._task.public.id,
            "messages": list(self._dumped),
            "tools": self._task.toolbox.openai(),
        }
        if self.stop is not None and self.score is not None:
            info["score"] = self.score.value
            info["reasons"] = list(self.score.reasons)
            info["stop"] = str(self.stop)
        return info


def _task_ids(dataset: Dataset, wanted: Sequence[str] | None) -> tuple[str, ...]:
    if wanted is None:
        known = tuple(dataset.tasks)
        if not known:
            raise ConfigError(f"the dataset in {str(dataset.path)!r} has no tasks")
        return known
    for task_id in wanted:
        if task_id not in dataset.tasks:
            hint = near_names(str(task_id), dataset.own_task_ids)
            raise ConfigError(f"unknown task {task_id!r}{hint}")
    if not wanted:
        raise ConfigError("task_ids is empty")
    return tuple(wanted)


def _catalogue(path: Path, unproven: bool) -> tuple[Sequence[ToolSpec], Schema | None]:
    """All tools of a dataset, for samples drawn where no episode runs (a vector env's parent)."""
    hosts = hosts_for(open_dataset(path, unproven=unproven))
    found = [spec for name in hosts.dataset.environments for spec in hosts.toolbox(name).specs]
    return list({spec.name: spec for spec in found}.values()), None
