"""What clients of an environment server send; every field says how long it may be."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from envgen.core.limits import Json, Label, Text, Whole

MOST_CALLS = 64
Seed = Annotated[int, Field(ge=0, lt=1 << 63)]


class _Body(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class ResetBody(_Body):
    """Which episode begins. Without a task and a seed: the next of the server's own order."""

    task_id: Label | None = None
    seed: Seed | None = None
    episode_id: Label | None = None
    """The client's own name of it; handed back in ``state``."""


class CallBody(_Body):
    """A call of one tool."""

    name: Label
    arguments: dict[Label, Json] | Text = Field(default_factory=dict)
    """An object, or its JSON text."""
    id: Label | None = None
    type: Label = "function"


class NestedCall(_Body):
    """OpenAI's form of a call."""

    function: CallBody
    id: Label | None = None
    type: Label = "function"


class TurnBody(_Body):
    """A turn of the agent: an assistant message, with all calls that it makes at once."""

    content: Text | None = None
    tool_calls: Annotated[list[CallBody | NestedCall], Field(max_length=MOST_CALLS)] | None = None
    role: Literal["assistant"] = "assistant"
    reasoning: Text | None = None
    metadata: dict[Label, Json] = Field(default_factory=dict)

    def message(self) -> dict[str, JsonValue]:
        """As an environment steps it."""
        found: dict[str, JsonValue] = {"content": self.content or ""}
        if self.reasoning is not None:
            found["reasoning"] = self.reasoning
        if self.tool_calls is not None:
            calls = [c.function if isinstance(c, NestedCall) else c for c in self.tool_calls]
            found["tool_calls"] = [{"name": c.name, "arguments": c.arguments} for c in calls]
        return found


class ToolCallBody(_Body):
    """OpenEnv's ``CallToolAction``."""

    type: Literal["call_tool"] = "call_tool"
    tool_name: Label
    arguments: dict[Label, Json] = Field(default_factory=dict)
    metadata: dict[Label, Json] = Field(default_factory=dict)


class ListToolsBody(_Body):
    """OpenEnv's ``ListToolsAction``."""

    type: Literal["list_tools"]
    metadata: dict[Label, Json] = Field(default_factory=dict)


class SocketMessage(_Body):
    """A message of OpenEnv's WebSocket."""

    type: Label
    data: Json = Field(default_factory=dict)


class RpcBody(_Body):
    """A JSON-RPC request inside of a message of type ``mcp``."""

    jsonrpc: Literal["2.0"]
    method: Label
    params: dict[Label, Json] = Field(default_factory=dict)
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
            "maxItems": MOST_CALLS,
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
