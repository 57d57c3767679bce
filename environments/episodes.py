"""The conversation of an episode, whatever its family: turns, tool calls, their log, and the one score."""

from __future__ import annotations

import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import gymnasium
from gymnasium.error import ResetNeeded
from pydantic import JsonValue

from envgen.core.canonical import compact
from envgen.core.errors import (
    BrokenStepError,
    ConfigError,
    EnvError,
    EnvgenError,
    SandboxError,
    SandboxUnavailableError,
    ToolFaultError,
    ToolTimeoutError,
    UnjudgedError,
    VerifierError,
)
from envgen.core.jsonvalues import clean_text
from envgen.core.registry import near_names
from envgen.core.turns import MAX_ACTION_CHARS, Action, parse_action
from envgen.core.types import (
    CallRecord,
    Message,
    PublicTask,
    Schema,
    Score,
    StopReason,
    ToolCall,
    ToolSpec,
)
from envgen.environments.hosts import open_dataset
from envgen.environments.places import AgentKilledError, Place, Places
from envgen.environments.rendering import clip, message_dict, render_messages
from envgen.environments.spaces import ToolCallText, UnicodeText
from envgen.environments.toolbox import EPISODE_OVER, INVALID_ARGUMENTS, Toolbox
from envgen.store.dataset import Dataset
from envgen.verifiers.general import MALFORMED, NO_SUBMISSION, SCHEMA

logger = logging.getLogger(__name__)

MAX_OBSERVATION_CHARS = 131_072
MAX_RESULT_CHARS = 65_536
SUBMITTED_TEXT = '{"status":"submitted"}'
_OPTIONS = ("task_id",)
_TERMINAL = frozenset({StopReason.SUBMITTED, StopReason.ANSWERED, StopReason.SANDBOX_DIED})
TOOL_FAILED, TOOL_TIMEOUT, SANDBOX_DIED = "tool_failed", "tool_timeout", "sandbox_died"
"""Errors of a call whose tool broke, took too long, or killed what it ran in; the last is a reason, too."""
VERIFIER_BROKE = "verifier_broke"
"""Begins the reason of a score where the answer breaks a verifier that holds for the gold run."""


class ToolResult(NamedTuple):
    """The value that a tool returned, or its documented error."""

    value: JsonValue = None
    error: str | None = None
    message: str = ""


Catalogue = Callable[[], tuple[Sequence[ToolSpec], Schema | None]]


class EpisodeEnv(gymnasium.Env[str, str], ABC):
    """Plays the tasks of a dataset; a family's subclass says what tools do and how answers are judged.

    An observation is text: the task at first, then the results of the turn's tool calls, one a
    line, as compact JSON. An action is text: an answer in words, or the JSON of an assistant
    message ``{"content": "...", "tool_calls": [{"name": "...", "arguments": {...}}]}``. The reward
    is the score, on the last step; 0 before.

    The episode ends with a call of the submit tool (or, in an environment without one, with plain
    text), at the task's turn limit, or at the second plain text in a row where a call was due.
    Nothing an action contains raises, and none makes the episode vanish: a tool that breaks or takes too
    long gives an error observation; actions that kill the sandbox, or an answer that breaks the verifier,
    score 0. What can't be started, or is broken for the gold run, too, raises ``EnvError`` or
    ``VerifierError``, and the episode is over.

    (task_id, seed) fixes the episode; the seed only draws the task where none is named.

    Attributes:
        task: what the agent may know, set by ``reset``.
        messages: the conversation so far.
        calls: every tool call so far, as the host logged it.
        score: the verdict, once there is one.
        stop: why the episode ended, once it has.
        reached_verifier: whether the task's own verifier judged the answer.
        faults: what tools and verifier did that no spec documents.
        steps_a_turn: how many steps the turn limit takes for one turn. More than one for callers who step
            once for each call, where an agent may make several in a turn.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 4}
    family: ClassVar[str]
    """Whose tasks it plays; those of other families in the dataset are passed over."""

    def __init__(
        self,
        dataset: str | Path | Dataset,
        *,
        render_mode: str | None = None,
        task_ids: Sequence[str] | None = None,
        unproven: bool = False,
        trust: bool = False,
    ) -> None:
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise ConfigError(f"unknown render_mode {render_mode!r}; there is 'ansi'")
        self.render_mode = render_mode
        # Whoever opened a Dataset has said already whether it may be unproven.
        self._unproven = unproven or isinstance(dataset, Dataset)
        self.dataset = open_dataset(dataset, unproven=unproven, trust=trust)
        self.task_ids = _task_ids(self.dataset, self.family, task_ids)
        self._actions = ToolCallText(MAX_ACTION_CHARS, self._catalogue())
        self.action_space = self._actions
        self.observation_space = UnicodeText(MAX_OBSERVATION_CHARS)
        self.steps_a_turn = 1
        self._public: PublicTask | None = None
        self._toolbox: Toolbox | None = None
        self._pid = os.getpid()
        self._clear()

    def _clear(self) -> None:
        self._messages: list[Message] = []
        self._dumped: list[dict[str, Any]] = []
        self._calls: list[CallRecord] = []
        self._turns = 0
        self._plain_texts = 0
        self.score: Score | None = None
        self.stop: StopReason | None = None
        self.reached_verifier = False
        self.faults: list[str] = []
        self._places: Places[Any] = Places(self._start)

    # ------------------------------------------------------------------ what a family says

    @abstractmethod
    def _catalogue(self) -> Catalogue:
        """Return a catalogue for samples where no episode runs (a vector env's parent); it must pickle."""

    @abstractmethod
    def _open(self, task_id: str) -> tuple[PublicTask, Toolbox]:
        """Get a task ready to be played.

        Raises:
            ConfigError: if the dataset has no such task, or it is of another family.
        """

    @abstractmethod
    def _start(self, alone: bool) -> Place:
        """Open a fresh place for the episode's tools; ``alone``: one that nothing else runs in.

        Raises:
            EnvError: if it can't be opened.
        """

    @abstractmethod
    def _run(self, name: str, arguments: dict[str, JsonValue]) -> ToolResult:
        """Run a tool whose arguments fit its schema, through ``_places``; raises as that does."""

    @abstractmethod
    def _judge(self, answer: str, *, alone: bool) -> Score:
        """Score what was submitted: the argument of the submit tool, or plain text.

        Args:
            answer: what was submitted.
            alone: in a sandbox that nothing else runs in.
        """

    @abstractmethod
    def _gold_holds(self) -> bool:
        """Whether the verifier passes the gold run, so that it is not broken for every answer."""

    def check(self) -> None:
        """Refuse at once what would fail in every episode.

        Raises:
            SandboxUnavailableError: if the dataset's code can't be isolated here, or isn't trusted without.
        """

    # ------------------------------------------------------------------ what a rollout reads

    @property
    def task(self) -> PublicTask:
        """The task that is being played.

        Raises:
            ResetNeeded: before the first ``reset``.
        """
        if self._public is None:
            raise ResetNeeded("call reset() first")
        return self._public

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools that the agent may call, the submit tool last."""
        return () if self._toolbox is None else self._toolbox.specs

    @property
    def tool_s(self) -> float:
        """Seconds on the processor that the episode's own tool calls have taken."""
        return self._places.cpu_s

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
        public, toolbox = self._open(task_id)
        self._public, self._toolbox = public, toolbox
        self._actions.use(toolbox.specs, public.submit_schema)
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
            EnvError: if the environment broke; ``BrokenStepError`` if nobody foresaw how.
            VerifierError: if the verifier broke; ``UnjudgedError``: the answer to an open question waits for
                its judge.
            ResetNeeded: if there is no running episode.
        """
        if self._public is None or self.stop is not None:
            raise ResetNeeded("no episode is running: call reset()")
        self._turns += 1
        parsed = parse_action(action, self._turns)
        self._say(parsed.message)
        try:
            texts = self._respond(parsed)
            if self.stop is None and self._turns >= self._public.limits.turns * self.steps_a_turn:
                self._finish(StopReason.TURN_LIMIT, None)
        except Exception as error:  # the boundary: whoever steps meets typed errors only
            if not isinstance(error, UnjudgedError):
                self.stop = StopReason.ERROR
            try:
                self._release()
            except SandboxError as also:  # it is gone already
                logger.warning("%s", also)
            if isinstance(error, EnvError | VerifierError | SandboxUnavailableError):
                raise
            message = f"{type(error).__name__}: {error}"
            if isinstance(error, EnvgenError | OSError):
                raise EnvError(message) from error
            logger.exception("task %s: a step broke", self._public.id)
            raise BrokenStepError(f"a step broke: {message}") from error
        observation = clip("\n".join(texts), MAX_OBSERVATION_CHARS)
        ended = self.stop is not None
        terminated = self.stop in _TERMINAL
        reward = self.score.value if self.score is not None else 0.0
        return observation, reward, terminated, ended and not terminated, self._info()

    def render(self) -> str | None:
        """The conversation so far, in mode ``ansi``."""
        return render_messages(self._messages) if self.render_mode == "ansi" else None

    def close(self) -> None:
        """End the episode; what it shares with this process's other environments stays."""
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
        assert self._toolbox is not None
        submit = self._toolbox.submit
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
        assert self._toolbox is not None
        if self.stop is not None:
            return self._refuse(call, EPISODE_OVER, "the episode is over; this call was ignored")
        if fault is not None:
            return self._refuse(call, INVALID_ARGUMENTS, fault)
        arguments = call.arguments or {}
        found = self._toolbox.fault(call.name, arguments)
        if found is not None:
            return self._refuse(call, *found)
        if call.name == self._toolbox.submit:
            self._finish(StopReason.SUBMITTED, str(arguments.get("answer_text", "")))
            return SUBMITTED_TEXT
        return self._run_tool(call.name, arguments)

    def _run_tool(self, name: str, arguments: dict[str, JsonValue]) -> str:
        assert self._toolbox is not None
        try:
            result = self._run(name, arguments)
        except ToolFaultError as error:
            self.faults.append(str(error)[:2_000])
            result = ToolResult(None, TOOL_FAILED, f"{name} broke on this call; it had no effect")
        except ToolTimeoutError:
            result = ToolResult(None, TOOL_TIMEOUT, f"{name} took too long; it had no effect")
        except AgentKilledError as error:
            self.faults.append(str(error)[:2_000])
            result = ToolResult(None, SANDBOX_DIED, "this ended the sandbox, and the episode")
            self._finish(StopReason.SANDBOX_DIED, None)
        value: JsonValue = result.value
        if result.error is not None:
            value = {"error": result.error, "message": result.message}
        self._log(name, arguments, value, result.error, self._toolbox.mutates(name))
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
        assert self.score is None
        self.stop = stop
        if answer is None:
            self.score = _zero(SANDBOX_DIED if stop is StopReason.SANDBOX_DIED else NO_SUBMISSION)
        else:
            self.score = self._scored(answer)
            self.reached_verifier = self.stop is stop and not any(
                reason.split(":")[0] in (MALFORMED, SCHEMA) for reason in self.score.reasons
            )
        self._release()

    def _scored(self, answer: str) -> Score:
        """The verdict; one that breaks is sought again, alone, before it is told whose fault that is."""
        try:
            try:
                return self._judge(answer, alone=False)
            except UnjudgedError:
                self.reached_verifier = True
                raise
            except (VerifierError, SandboxError) as error:
                logger.info("task %s: judged again, alone: %s", self.task.id, error)
            try:
                return self._judge(answer, alone=True)
            except (VerifierError, SandboxError) as error:
                if not self._gold_holds():
                    raise
                self.faults.append(f"verifier: {error}"[:2_000])
                return _zero(f"{VERIFIER_BROKE}: {error}"[:500])
        except (AgentKilledError, ToolFaultError, ToolTimeoutError) as error:
            # What the agent left behind can't be read any more.
            self.faults.append(str(error)[:2_000])
            self.stop = StopReason.SANDBOX_DIED
            return _zero(SANDBOX_DIED)

    def _release(self) -> None:
        """Let go of what the episode's tools run in; a fork of the process that opened it does not."""
        if self._pid == os.getpid():
            self._places.close()

    # ------------------------------------------------------------------ plumbing

    def _say(self, message: Message) -> None:
        self._messages.append(message)
        self._dumped.append(message_dict(message))

    def _info(self) -> dict[str, Any]:
        assert self._public is not None
        assert self._toolbox is not None
        info: dict[str, Any] = {
            "task_id": self._public.id,
            "messages": list(self._dumped),
            "tools": self._toolbox.openai(),
        }
        if self.stop is not None and self.score is not None:
            info["score"] = self.score.value
            info["reasons"] = list(self.score.reasons)
            info["stop"] = str(self.stop)
        return info


def _zero(reason: str) -> Score:
    return Score(value=0.0, passed=False, reasons=(reason,))


def _task_ids(dataset: Dataset, family: str, wanted: Sequence[str] | None) -> tuple[str, ...]:
    if wanted is None:
        known = tuple(name for name in dataset.tasks if dataset.facts(name).family == family)
        if not known:
            where = str(dataset.path)
            raise ConfigError(f"the dataset in {where!r} has no tasks of family {family!r}")
        return known
    for task_id in wanted:
        if task_id not in dataset.tasks:
            hint = near_names(str(task_id), dataset.own_task_ids)
            raise ConfigError(f"unknown task {task_id!r}{hint}")
    if not wanted:
        raise ConfigError("task_ids is empty")
    return tuple(wanted)
