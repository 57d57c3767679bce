"""What clients of an environment server send; every field says how long it may be."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from envgen.core.limits import Json, Label, Whole
from envgen.core.turns import MAX_CALLS_A_MESSAGE

Seed = Annotated[int, Field(ge=0, lt=1 << 63)]


class _Body(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class ResetBody(_Body):
    """Which episode begins. Without a task and a seed: the next of the server's own order."""

    task_id: Label | None = None
    seed: Seed | None = None
    episode_id: Label | None = None
    """The client's own name of it; handed back in ``state``."""


class ListToolsBody(_Body):
    """OpenEnv's ``ListToolsAction``."""

    type: Literal["list_tools"]
    metadata: dict[Label, Json] = Field(default_factory=dict)


class SocketMessage(_Body):
    """A message of OpenEnv's WebSocket."""

    type: Label
    data: Any = Field(default_factory=dict)


class RpcBody(_Body):
    """A JSON-RPC request inside of a message of type ``mcp``."""

    jsonrpc: Literal["2.0"]
    method: Label
    params: dict[Label, Any] | None = None
    id: Whole | Label | None = None


class SplitBody(_Body):
    """A split of the task API, and a place or range in it."""

    split: Label
    index: Annotated[int, Field(ge=0, lt=1 << 53)] | None = None
    start: Annotated[int, Field(ge=0, lt=1 << 53)] | None = None
    stop: Annotated[int, Field(ge=0, lt=1 << 53)] | None = None


ACTION_SCHEMA: dict[str, Any] = {
    "title": "AssistantMessage",
    "description": "A turn: words, and the calls of the episode's tools that are made in it.",
    "type": "object",
    "properties": {
        "content": {"type": "string", "description": "words; empty where tools are called"},
        "tool_calls": {
            "type": "array",
            "maxItems": MAX_CALLS_A_MESSAGE,
            "items": {
                "type": "object",
                "properties": {"name": {"type": "string"}, "arguments": {"type": "object"}},
                "required": ["name", "arguments"],
            },
        },
    },
    "required": ["content"],
}
OBSERVATION_SCHEMA: dict[str, Any] = {
    "title": "Observation",
    "type": "object",
    "properties": {
        "text": {
            "type": "string",
            "description": "results of the calls, one a line; at first policy and prompt",
        },
        "task_id": {"type": "string"},
        "messages": {
            "type": "array",
            "description": "at first: in OpenAI's form",
            "items": {"type": "object"},
        },
        "tools": {
            "type": "array",
            "description": "at first: in OpenAI's form",
            "items": {"type": "object"},
        },
        "max_turns": {"type": "integer"},
        "metadata": {"type": "object"},
    },
}
STATE_SCHEMA: dict[str, Any] = {
    "title": "State",
    "type": "object",
    "properties": {
        "episode_id": {"type": ["string", "null"]},
        "step_count": {"type": "integer"},
        "task_id": {"type": ["string", "null"]},
        "done": {"type": "boolean"},
        "reward": {"type": ["number", "null"]},
    },
}
