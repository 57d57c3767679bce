"""Policies written as programs: a generator yields tool calls and is sent their results.

The program is started anew for each reply and fed the results that the conversation already holds, so a
policy keeps no state. ``gather`` runs several programs side by side and puts their calls in one message.
"""

from __future__ import annotations

import json
import random
from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from threading import Event
from typing import NamedTuple, TypeVar

from pydantic import JsonValue

from envgen.core import seeding
from envgen.core.types import Message, PublicTask, Sampling, ToolCall
from envgen.policies.base import (
    PolicyReply,
    Tool,
    submit_argument,
    submit_tool,
    takes_answer,
    tool_name,
)

T = TypeVar("T")

CALLS_PER_TURN = 64
"""Environments refuse longer messages; a program's longer list is made over several turns."""


class Call(NamedTuple):
    """A tool call that a program wants made."""

    name: str
    arguments: dict[str, JsonValue]


Program = Generator[list[Call], list[JsonValue], T]
"""Yields calls, is sent one result for each (a tool error as the environment wrote it)."""


def gather(programs: Sequence[Program[T]]) -> Program[list[T]]:
    """Run programs side by side; each round's calls go out together. Results keep the order."""
    results: dict[int, T] = {}
    waiting: dict[int, list[Call]] = {}

    def advance(i: int, sent: list[JsonValue] | None) -> None:
        try:
            waiting[i] = next(programs[i]) if sent is None else programs[i].send(sent)
        except StopIteration as stop:
            waiting.pop(i, None)
            results[i] = stop.value

    for i in range(len(programs)):
        advance(i, None)
    while waiting:
        order = sorted(waiting)
        unique = _unique([call for i in order for call in waiting[i]])
        replies = yield unique
        for i in order:
            advance(i, [replies[unique.index(call)] for call in waiting[i]])
    return [results[i] for i in range(len(programs))]


def _unique(calls: Sequence[Call]) -> list[Call]:
    return [call for i, call in enumerate(calls) if call not in calls[:i]]


class ProgramPolicy(ABC):
    """Base of the policies that are programs; a subclass writes ``answer``."""

    name = "program"
    version = "1"

    @abstractmethod
    def answer(self, task: PublicTask, rng: random.Random) -> Program[JsonValue]:
        """Make calls and return the answer to submit."""

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
        """The program's next calls, or its answer."""
        rounds = results_by_turn(messages)
        program = self.answer(task, seeding.rng(seed, self.name))
        try:
            calls = next(program)
            known: list[JsonValue] = []
            for results in rounds:
                known += results[: len(calls) - len(known)]
                if len(known) >= len(calls):
                    calls, known = program.send(known), []
        except StopIteration as stop:
            return PolicyReply(submit_message(stop.value, tools, task, len(rounds)))
        return PolicyReply(call_message(calls[len(known) :][:CALLS_PER_TURN], len(rounds)))


def call_message(calls: Sequence[Call], turn: int) -> Message:
    """An assistant message that makes ``calls``; ids are unique within the episode."""
    tool_calls = tuple(
        ToolCall(id=f"call_{turn}_{i}", name=call.name, arguments=call.arguments)
        for i, call in enumerate(calls)
    )
    return Message(role="assistant", tool_calls=tool_calls)


def submit_message(
    answer: JsonValue, tools: Sequence[Tool], task: PublicTask, turn: int
) -> Message:
    """An assistant message that submits ``answer``: by the submit tool, else as plain text."""
    text = json.dumps(answer, ensure_ascii=False, separators=(",", ":"))
    tool = submit_tool(tools, task)
    if tool is None:
        return Message(role="assistant", content=text)
    if not takes_answer(tool):
        return call_message([Call(tool_name(tool), {})], turn)
    return call_message([Call(tool_name(tool), {submit_argument(tool): text})], turn)


def results_by_turn(messages: Sequence[Message]) -> list[list[JsonValue]]:
    """Per assistant message so far, the parsed result of each of its tool calls."""
    rounds: list[list[JsonValue]] = []
    places: dict[str, int] = {}
    for message in messages:
        if message.role == "assistant":
            places = {call.id: i for i, call in enumerate(message.tool_calls)}
            rounds.append([None] * len(places))
        elif message.role == "tool" and rounds and message.tool_call_id in places:
            rounds[-1][places[message.tool_call_id]] = parse_result(message.content)
    return rounds


def parse_result(content: str) -> JsonValue:
    """A tool message's value; text that is no JSON stays text."""
    try:
        return json.loads(content)  # type: ignore[no-any-return]  # JSON text gives JSON values
    except ValueError:
        return content


def is_error(value: JsonValue) -> bool:
    """Whether a tool's result is its documented error."""
    return isinstance(value, dict) and "error" in value
