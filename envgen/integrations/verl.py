"""envgen's tasks for verl: an agent loop that plays an episode, and rewards it with our verdict.

verl generates and tokenizes; what a turn leads to, and when an episode is over, the session says, so that the
same words get the same reward as in ``envgen rollout``. ``agent_loops.yaml`` of an export names a subclass.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from pydantic import JsonValue

from envgen.core.errors import ConfigError, EnvgenError, MissingExtraError
from envgen.integrations.sessions import Episodes, Session, StepResult
from envgen.integrations.settings import EpisodesConfig

try:
    from verl.experimental.agent_loop.agent_loop import AgentLoopOutput
    from verl.experimental.agent_loop.tool_agent_loop import AgentState, ToolAgentLoop
    from verl.tools.schemas import OpenAIFunctionToolSchema, ToolResponse
except ImportError as error:
    raise MissingExtraError(
        "this is an agent loop of the package verl, 0.9 or later", "pip install 'verl>=0.9'"
    ) from error

logger = logging.getLogger(__name__)


class _Tool(NamedTuple):
    """A tool as verl's parsers of calls read it."""

    name: str
    tool_schema: Any


class EnvgenAgentLoop(ToolAgentLoop):  # type: ignore[misc]
    """Plays the task that a row's ``extra_info.task_id`` names; one instance an episode, as verl makes them.

    Args:
        dataset: a dataset folder; None: the class's ``DATASET``.
        backend: where tools and verifiers run, as ``envgen rollout --backend`` names it.
        trust: run the dataset's code in this process.
    """

    DATASET: ClassVar[Path | None] = None

    def __init__(
        self, *args: Any, dataset: str | None = None, backend: str = "auto", trust: bool = False,
        **more: Any,
    ) -> None:  # fmt: skip
        super().__init__(*args, **more)
        place = dataset or self.DATASET
        if place is None:
            raise ConfigError("no dataset is named", "dataset: FOLDER in agent_loops.yaml")
        self._session = _episodes(str(place), backend, trust).session()
        self._one_by_one = asyncio.Lock()
        self._played = 0
        """The turn whose results are there."""
        self._results: tuple[str, ...] = ()
        self._given = 0
        self._broken = ""

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> AgentLoopOutput:
        """Play the episode.

        One whose environment broke has no reward: it comes back with a mask of zeros, so that nothing is
        learned from its tokens, and a 0 that verl must have.

        Raises:
            ConfigError: if the row names no task of the dataset.
        """
        task_id = str((row.get("extra_info") or {}).get("task_id", ""))
        try:
            opening = await asyncio.to_thread(self._session.reset, task_id)
            self.tool_schemas = opening.tools
            self.tools = {tool.name: tool for tool in map(_tool, opening.tools)}
            output = await super().run(sampling_params, **row)
        finally:
            await asyncio.to_thread(self._session.close)
        outcome = self._session.outcome
        output.reward_score = outcome.reward
        output.extra_fields["reward_extra_info"] = {"passed": float(outcome.reward >= 1)}
        if self._broken:
            logger.warning("task %s: %s", task_id, self._broken)
            output.reward_score, output.response_mask = 0.0, [0] * len(output.response_mask)
        return output

    async def _call_tool(
        self, tool_call: Any, tools_kwargs: dict[str, Any], agent_data: Any
    ) -> tuple[ToolResponse, float, dict[str, Any]]:
        """The result of one call; the first of a turn plays all of it. verl asks for them in their order."""
        async with self._one_by_one:
            if self._played != agent_data.assistant_turns:
                self._played, self._given = agent_data.assistant_turns, 0
                calls = agent_data.tool_calls[: self.max_parallel_calls]
                message = {
                    "content": agent_data.messages[-1]["content"],
                    "tool_calls": [{"name": c.name, "arguments": c.arguments} for c in calls],
                }
                outcome = await self._say(message)
                self._results = outcome.results if outcome is not None else ()
            self._given += 1
            text = self._results[self._given - 1] if self._given <= len(self._results) else ""
            return ToolResponse(text=text or self._broken), 0.0, {}

    async def _handle_processing_tools_state(self, agent_data: Any) -> AgentState:
        state = await super()._handle_processing_tools_state(agent_data)
        return state if self._session.running else AgentState.TERMINATED

    async def _handle_generating_state(
        self, agent_data: Any, sampling_params: dict[str, Any], ignore_termination: bool = False
    ) -> AgentState:
        turns = len(agent_data.messages)
        state = await super()._handle_generating_state(
            agent_data, sampling_params, ignore_termination
        )
        spoke = len(agent_data.messages) > turns and not agent_data.tool_calls
        if state != AgentState.TERMINATED or not spoke:
            return state
        outcome = await self._say(self._text(agent_data))
        if outcome is None or outcome.done:
            return AgentState.TERMINATED
        before = list(agent_data.messages)  # plain text did nothing, and the agent is told so
        agent_data.messages.append({"role": "user", "content": outcome.text})
        merged, mask, logprobs = await self.ct_merge_context_msg(
            before, agent_data.messages, agent_data.prompt_ids, agent_data.response_mask,
            agent_data.response_logprobs or None, tools=self.tool_schemas,
        )  # fmt: skip
        if len(mask) >= self.response_length:
            return AgentState.TERMINATED
        agent_data.prompt_ids, agent_data.response_mask = merged.token_ids, mask
        agent_data.response_logprobs = logprobs or []
        agent_data.user_turns += 1
        return AgentState.GENERATING

    def _text(self, agent_data: Any) -> str:
        """What the agent wrote, without the tokens that only end a turn."""
        text = self.tokenizer.decode(agent_data.response_ids, skip_special_tokens=True)
        return str(text).strip()

    async def _say(self, message: JsonValue) -> StepResult | None:
        """Play a turn of the session. None if the environment broke or the episode is over."""
        if not self._session.running:
            return None
        try:
            return await asyncio.to_thread(Session.say, self._session, message)
        except EnvgenError as error:
            self._broken = f"the environment broke: {error}"
            return None


@lru_cache(maxsize=8)
def _episodes(dataset: str, backend: str, trust: bool) -> Episodes:
    """Opened once in a process: verl makes a loop for each episode."""
    return Episodes(dataset, EpisodesConfig(backend=backend, trust=trust))


def _tool(tool: Mapping[str, Any]) -> _Tool:
    """Its schema in verl's form, which knows types and options of arguments and nothing deeper."""
    function = tool["function"]
    schema = function["parameters"]
    properties = {
        name: {
            "type": one.get("type") or [t for part in _branches(one) if (t := part.get("type"))],
            "description": one.get("description"),
            "enum": one.get("enum"),
        }
        for name, one in (schema.get("properties") or {}).items()
        if isinstance(one, Mapping)  # true, in JSON Schema, is any value
    }
    parameters = {
        "type": "object",
        "properties": properties,
        "required": schema.get("required", []),
    }
    wanted = {"type": "function", "function": {**function, "parameters": parameters}}
    return _Tool(function["name"], OpenAIFunctionToolSchema.model_validate(wanted))


def _branches(schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    parts = schema.get("anyOf") or schema.get("oneOf") or ()
    return [one for one in parts if isinstance(one, Mapping)]
