"""envgen's tasks for Inspect (``inspect_ai``): its solver plays episodes, its scorer is our verifier.

A model's reply is one turn, with all calls that it makes; the verifier runs in Inspect's own process.
"""

from __future__ import annotations

import asyncio
from itertools import islice
from pathlib import Path
from typing import Any

from envgen.core.errors import MissingExtraError
from envgen.integrations.sessions import Episodes, Session
from envgen.integrations.settings import EpisodesConfig
from envgen.store.dataset import Dataset

try:
    from inspect_ai import Task
    from inspect_ai.dataset import MemoryDataset, Sample
    from inspect_ai.model import ChatMessageSystem, ChatMessageTool, ChatMessageUser
    from inspect_ai.scorer import Score, accuracy, scorer, stderr
    from inspect_ai.solver import solver
    from inspect_ai.tool import ToolDef, ToolParams
except ImportError as error:
    raise MissingExtraError("this is a task of inspect_ai", "pip install inspect_ai") from error

_REWARD, _REASONS, _STOP = "envgen_reward", "envgen_reasons", "envgen_stop"


def make_task(dataset: str | Path | Dataset, *, episodes: int | None = None, **chosen: Any) -> Task:
    """A dataset's tasks as one of Inspect's.

    Args:
        dataset: a folder, ``package:NAME``, or an open ``Dataset``.
        episodes: so many samples, tasks in an order that the seed draws, again and again; None: each once.
        chosen: ``split``, ``families``, ``min_level``, ... of ``EpisodesConfig``.

    Raises:
        ConfigError: if no task is left, or a name is unknown.
    """
    found = Episodes(dataset, EpisodesConfig.model_validate(chosen))
    names = found.task_ids if episodes is None else islice(found.stream(), episodes)
    samples = [_sample(found, name, number) for number, name in enumerate(names)]
    held = MemoryDataset(samples, name=found.dataset.manifest.name)
    return Task(
        dataset=held, solver=play(found), scorer=verdict(), name=found.dataset.manifest.name
    )


def _sample(episodes: Episodes, task_id: str, number: int) -> Sample:
    facts = episodes.dataset.facts(task_id)
    told = {"task_id": task_id, "family": facts.family, "level": facts.level, "split": facts.split}
    return Sample(id=f"{number}-{task_id}", input=task_id, metadata=told)


@solver  # type: ignore[untyped-decorator]
def play(episodes: Episodes) -> Any:
    """Plays an episode: the model's replies are turns, until it submits or its turns are spent."""

    async def solve(state: Any, generate: Any) -> Any:
        session = episodes.session()
        try:
            opening = await asyncio.to_thread(session.reset, state.metadata["task_id"])
            state.messages = [_message(one) for one in opening.messages]
            state.tools = [_tool(one["function"]) for one in opening.tools]
            while session.running:
                state = await generate(state, tool_calls="none")
                await _turn(session, state)
            outcome = session.outcome
            state.metadata |= {
                _REWARD: outcome.reward, _REASONS: list(outcome.reasons), _STOP: outcome.stop
            }  # fmt: skip
        finally:
            await asyncio.to_thread(session.close)
        return state

    return solve


async def _turn(session: Session, state: Any) -> None:
    """Hand the model's reply to the episode, and its results back."""
    said = state.output.message
    calls = said.tool_calls or []
    turn: dict[str, Any] = {"content": said.text}
    if calls:
        turn["tool_calls"] = [{"name": one.function, "arguments": one.arguments} for one in calls]
    outcome = await asyncio.to_thread(session.say, turn if calls else said.text)
    for call, text in zip(calls, outcome.results, strict=False):
        state.messages.append(
            ChatMessageTool(content=text, tool_call_id=call.id, function=call.function)
        )
    if not outcome.results and outcome.text:
        state.messages.append(ChatMessageUser(content=outcome.text))


def _message(one: dict[str, Any]) -> Any:
    kind = ChatMessageSystem if one["role"] == "system" else ChatMessageUser
    return kind(content=one["content"])


def _tool(function: dict[str, Any]) -> Any:
    """A tool as models are told of it; ``play`` makes its calls itself."""

    async def called() -> str:
        raise RuntimeError("calls are made by the episode")

    properties = {  # Inspect wants a description of each
        name: {"description": name.replace("_", " "), **schema}
        for name, schema in (function["parameters"].get("properties") or {}).items()
    }
    parameters = ToolParams.model_validate({**function["parameters"], "properties": properties})
    told = ToolDef(called, function["name"], function["description"], parameters)
    return told.as_tool()


@scorer(metrics=[accuracy(), stderr()])  # type: ignore[untyped-decorator]
def verdict() -> Any:
    """The score that the task's own verifier gave."""

    async def score(state: Any, target: Any) -> Any:
        found = state.metadata
        why = "; ".join(found[_REASONS]) or found[_STOP]
        return Score(value=found[_REWARD], answer=state.output.completion, explanation=why)

    return score
