"""OpenEnv's wire (huggingface/OpenEnv 0.10): a WebSocket a session, and the task API over HTTP.

A step is a turn of the agent, ``{"content": ..., "tool_calls": [{"name", "arguments"}]}``, or one call of a
tool, OpenEnv's ``CallToolAction``. Rewards and reasons stand beside the observation, not in what agents read.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from pydantic import BaseModel, ValidationError
from starlette.websockets import WebSocket, WebSocketDisconnect

from envgen.core.errors import ConfigError, EnvgenError
from envgen.core.families import find_family
from envgen.core.jsonvalues import JsonError, loads
from envgen.core.limits import fault
from envgen.core.types import SPLITS
from envgen.integrations.fields import (
    ListToolsBody,
    ResetBody,
    RpcBody,
    SocketMessage,
    SplitBody,
)
from envgen.integrations.own_thread import OWN_THREAD, Answered
from envgen.integrations.seats import FullError, GoneError, Seat, Seats
from envgen.integrations.sessions import Episodes, Opening, StepResult

_METHOD_NOT_FOUND, _SERVER_ERROR = -32601, -32000


class _WireError(Exception):
    """A message that can't be served; ``args``: OpenEnv's code and the message."""


class Talk:
    """One client's WebSocket.

    Args:
        seats: of the server.
        seat: the client's.
    """

    def __init__(self, seats: Seats, seat: Seat) -> None:
        self._seats, self._seat = seats, seat

    def answer(self, raw: str) -> Answered:
        """The answer to a message; a session that was given up ends with it."""
        goes_on = True
        try:
            message = _read(raw)
            handler = self._HANDLERS.get(message.type)
            if message.type == "close":
                return Answered(None, False)
            if handler is None:
                raise _WireError("UNKNOWN_TYPE", f"Unknown message type: {message.type[:80]}")
            kind, data = handler(self, message.data)
        except _WireError as error:
            kind, data = "error", {"code": error.args[0], "message": error.args[1]}
        except ValidationError as error:
            kind, data = "error", {"code": "VALIDATION_ERROR", "message": fault(error)}
        except FullError as error:
            kind, data = "error", {"code": "CAPACITY_REACHED", "message": str(error)}
        except ConfigError as error:
            kind, data = "error", {"code": "VALIDATION_ERROR", "message": str(error)}
        except GoneError as error:  # nobody used it for long
            kind, data = "error", {"code": "SESSION_ERROR", "message": str(error)}
            goes_on = False
        except EnvgenError as error:
            kind, data = "error", {"code": "EXECUTION_ERROR", "message": str(error)}
        return Answered(_wire(kind, data), goes_on)

    def is_slow(self) -> bool:
        """Whether steps may take longer than clients wait for a sign of life."""
        return bool(self._seat.family) and find_family(self._seat.family).sessions > 0

    def _reset(self, data: Any) -> tuple[str, dict[str, Any]]:
        body = ResetBody.model_validate(data)
        opening = self._seats.begin(self._seat, body.task_id, body.seed)
        self._seat.name = body.episode_id
        return "observation", opened(opening)

    def _step(self, data: Any) -> tuple[str, dict[str, Any]]:
        kind = data.get("type") if isinstance(data, dict) else None
        if kind == "list_tools":
            ListToolsBody.model_validate(data)
            return "observation", {
                "observation": {"tools": self._tools()},
                "reward": None,
                "done": False,
            }
        if kind == "call_tool":
            outcome = self._call(data.get("tool_name"), data.get("arguments"))
            told = {"tool_name": data.get("tool_name"), "result": outcome.text, "error": None}
            return "observation", stepped(outcome, told)
        return "observation", stepped(self._seats.play(self._seat, lambda one: one.say(data)))

    def _state(self, data: Any) -> tuple[str, dict[str, Any]]:
        return "state", state(self._seat)

    def _mcp(self, data: Any) -> tuple[str, dict[str, Any]]:
        """OpenEnv's tools over JSON-RPC, inside of its WebSocket."""
        body = RpcBody.model_validate(data)
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": body.id}
        if body.method == "tools/list":
            return "mcp", {**answer, "result": {"tools": self._tools(schema="inputSchema")}}
        if body.method != "tools/call":
            told = {"code": _METHOD_NOT_FOUND, "message": f"Method not found: {body.method[:80]}"}
            return "mcp", {**answer, "error": told}
        params = body.params or {}
        try:
            outcome = self._call(params.get("name"), params.get("arguments"))
        except EnvgenError as error:
            return "mcp", {**answer, "error": {"code": _SERVER_ERROR, "message": str(error)}}
        content = [{"type": "text", "text": outcome.text}]
        return "mcp", {**answer, "result": {"content": content, "isError": outcome.failed}}

    def _call(self, name: Any, arguments: Any) -> StepResult:
        return self._seats.play(self._seat, lambda session: session.call(name, arguments))

    def _tools(self, schema: str = "input_schema") -> list[dict[str, Any]]:
        opening = self._seat.session.opening
        tools = only_tools(self._seats.episodes) if opening is None else opening.tools
        functions = (tool["function"] for tool in tools)
        return [
            {"name": one["name"], "description": one["description"], schema: one["parameters"]}
            for one in functions
        ]

    _HANDLERS: dict[str, Callable[[Talk, Any], tuple[str, dict[str, Any]]]] = {
        "reset": _reset, "step": _step, "state": _state, "mcp": _mcp,
    }  # fmt: skip


async def talk(seats: Seats, socket: WebSocket, owner: str) -> None:
    """Answer a client until it closes, goes away, or does nothing for long.

    Args:
        seats: of the server.
        socket: not accepted yet.
        owner: the key that the client sent.
    """
    await socket.accept()
    try:
        seat = seats.open(owner, held=True)
    except FullError as error:
        told = {"message": str(error), "code": "CAPACITY_REACHED"}
        await socket.send_text(_wire("error", told))
        await socket.close(1013)
        return
    one = Talk(seats, seat)
    own_thread = socket.scope.get("extensions", {}).get(OWN_THREAD)
    try:
        if own_thread is not None:
            await own_thread(one.answer, seats.hop, one.is_slow)
        else:  # another server than ours
            await _in_turn(seats, socket, one)
    finally:
        await seats.close(seat)


async def _in_turn(seats: Seats, socket: WebSocket, one: Talk) -> None:
    reply = Answered(None, True)
    try:
        while reply.goes_on:
            try:
                raw = await socket.receive_text()
            except KeyError:  # Starlette's way to say that it is of bytes, which are no JSON
                raw = ""
            reply = await seats.hop(partial(one.answer, raw))
            if reply.text is not None:
                await socket.send_text(reply.text)
    except (WebSocketDisconnect, RuntimeError):
        pass  # the client is gone


def _wire(kind: str, data: dict[str, Any]) -> str:
    # ASCII: what a client sent comes back in errors and states, and may hold half a character.
    return json.dumps({"type": kind, "data": data})


def _read(raw: str) -> SocketMessage:
    try:
        value = loads(raw)
    except (JsonError, RecursionError) as error:
        raise _WireError("INVALID_JSON", f"Invalid JSON: {error}") from error
    return SocketMessage.model_validate(value)


def opened(opening: Opening) -> dict[str, Any]:
    """The answer to ``reset``."""
    observation = {
        "text": opening.text,
        "task_id": opening.task_id,
        "messages": opening.messages,
        "tools": opening.tools,
        "max_turns": opening.turns,
        "metadata": {},
    }
    return {"observation": observation, "reward": None, "done": False}


def stepped(outcome: StepResult, observation: dict[str, Any] | None = None) -> dict[str, Any]:
    """The answer to ``step``; why an answer failed stands outside of the observation."""
    found: dict[str, Any] = {
        "observation": {**(observation or {"text": outcome.text}), "metadata": {}},
        "reward": outcome.reward,
        "done": outcome.done,
    }
    if outcome.done:
        found["metadata"] = {"reasons": list(outcome.reasons), "stop": outcome.stop}
    return found


def state(seat: Seat) -> dict[str, Any]:
    """Where a session stands; the reward is null while there is none."""
    opening, outcome = seat.session.opening, seat.session.outcome
    judged = outcome.done and not seat.fault
    return {
        "episode_id": seat.name,
        "step_count": seat.session.steps,
        "task_id": None if opening is None else opening.task_id,
        "done": outcome.done,
        "reward": outcome.reward if judged else None,
        "reasons": list(outcome.reasons),
        "stop": outcome.stop,
        "error": seat.fault or None,
    }


def only_tools(episodes: Episodes) -> list[dict[str, Any]]:
    """The tools of a dataset whose tasks all have the same; they can be listed before an episode begins.

    Raises:
        ConfigError: if tools differ from task to task.
    """
    facts = episodes.dataset.facts
    names = {facts(task).environment_id for task in episodes.task_ids}
    if len(names) > 1:
        raise ConfigError("tools differ from task to task", "reset first")
    return episodes.toolbox(episodes.task_ids[0]).openai()


class TaskApi:
    """The task API: which tasks there are, by split and place.

    Args:
        episodes: what is played.
    """

    def __init__(self, episodes: Episodes) -> None:
        self.name = episodes.dataset.manifest.name
        self._episodes = episodes
        self._by_split: dict[str, list[str]] = {name: [] for name in SPLITS}
        for task_id in episodes.task_ids:
            self._by_split[episodes.dataset.facts(task_id).split].append(task_id)

    def splits(self) -> list[dict[str, str]]:
        """The splits that have tasks."""
        return [{"name": name, "type": name} for name in SPLITS if self._by_split[name]]

    def answer(self, what: str, body: BaseModel) -> dict[str, Any]:
        """``tasks``, ``num_tasks``, ``task`` or ``task_range`` of a split.

        Raises:
            ConfigError: if there is no such split or place.
        """
        assert isinstance(body, SplitBody)
        if body.split not in self._by_split:
            raise ConfigError(f"no split {body.split[:80]!r}", f"one of {', '.join(SPLITS)}")
        tasks = self._by_split[body.split]
        if what == "num_tasks":
            return {"num_tasks": len(tasks)}
        if what == "task":
            if body.index is None or body.index >= len(tasks):
                raise ConfigError(f"no task {body.index} of {len(tasks)}", "from 0 on")
            return {"task": self._spec(tasks[body.index])}
        some = tasks[body.start : body.stop] if what == "task_range" else tasks
        return {"tasks": [self._spec(task) for task in some], "env_name": self.name}

    def _spec(self, task_id: str) -> dict[str, Any]:
        facts = self._episodes.dataset.facts(task_id)
        return {"task_id": task_id, "family": facts.family, "level": facts.level}
