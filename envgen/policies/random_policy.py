"""``random``: schema-valid calls and, at the end, a schema-valid answer. It knows nothing of the task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from threading import Event
from typing import Any

from pydantic import JsonValue

from envgen.core import seeding
from envgen.core.sampler import sample_call, sample_schema
from envgen.core.types import Message, PublicTask, Sampling
from envgen.policies.base import PolicyReply, Tool, assistant_turns, submit_tool
from envgen.policies.programs import Call, call_message, parse_result, submit_message

LEAST_PLANNED, MOST_PLANNED = 6, 10


class RandomPolicy:
    """Makes 6 to 10 random calls (fewer where the turn limit is lower), then submits a random answer.

    Values that tool results carried under a leaf's ``x-source`` are drawn in preference to random text,
    so that calls reach further than the first refusal.
    """

    name = "random"
    version = "1"

    def respond(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        sampling: Sampling,
        *,
        deadline: float | None = None,
        cancel: Event | None = None,
        seed: int,
        task: PublicTask,
    ) -> PolicyReply:
        """One random call, or the random answer."""
        turn = assistant_turns(messages)
        planned = (
            seeding.derive(seed, "length") % (MOST_PLANNED - LEAST_PLANNED + 1) + LEAST_PLANNED
        )
        rng = seeding.rng(seed, "random", turn)
        known = known_values(messages, task)
        last = submit_tool(tools, task)
        usable = [tool for tool in tools if tool is not last]
        per_turn = -(-planned // max(1, task.limits.turns - 1))
        if not usable or turn * per_turn >= planned:
            answer = sample_schema(task.submit_schema or {"type": "string"}, rng, known)
            return PolicyReply(submit_message(answer, tools, task, turn))
        specs = {tool.name: tool for tool in task.tools}  # these say where values come from
        calls = []
        for _ in range(per_turn):
            tool = rng.choice(usable)
            spec = specs.get(str(tool["function"]["name"]), tool)
            calls.append(Call(*sample_call(spec, rng, known)))
        return PolicyReply(call_message(calls, turn))


def known_values(messages: Sequence[Message], task: PublicTask) -> dict[str, list[JsonValue]]:
    """Values seen in tool results so far, by ``x-source``, in order, without repeats."""
    returns = {tool.name: tool.returns for tool in task.tools}
    names: dict[str, str] = {}
    known: dict[str, dict[JsonValue, None]] = {}
    for message in messages:
        if message.role == "assistant":
            names = {call.id: call.name for call in message.tool_calls}
        elif message.role == "tool":
            schema = returns.get(names.get(message.tool_call_id or "", ""))
            if schema:
                for source, value in _sourced(schema, parse_result(message.content)):
                    known.setdefault(source, {})[value] = None
    return {source: list(values) for source, values in known.items()}


def _sourced(schema: Mapping[str, Any], value: JsonValue) -> Iterator[tuple[str, Any]]:
    source = schema.get("x-source")
    if source is not None:
        if isinstance(value, str | int):
            yield source, value
    elif isinstance(value, list):
        items = schema.get("items")
        if isinstance(items, Mapping):
            for item in value:
                yield from _sourced(items, item)
    elif isinstance(value, dict):
        for name, part in schema.get("properties", {}).items():
            if name in value:
                yield from _sourced(part, value[name])
