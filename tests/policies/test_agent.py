"""The agent's loop over scripted replies and a real server."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from model_server import ModelServer, Raw
from pydantic import BaseModel, ConfigDict

from envgen.core.errors import PolicyError
from envgen.core.types import Message, Sampling, ToolCall
from envgen.policies import parse_policy
from envgen.policies.agent import AgentConfig, AgentRun, AgentTool, run_agent
from envgen.policies.ask import ask
from envgen.policies.base import Policy
from envgen.policies.context import ContextConfig
from envgen.policies.registry import PolicyConfig
from envgen.policies.scripted import ScriptedPolicy

LENGTH = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
TOOLS = [
    AgentTool("long", "Give n letters.", LENGTH, lambda given: "x" * given["n"]),
    AgentTool("whole", "Give n letters.", LENGTH, lambda given: "x" * given["n"], whole=True),
]


class Number(BaseModel):
    """Hand in a number."""

    model_config = ConfigDict(title="hand_in")

    number: int


def call(turn: int, name: str, **arguments: object) -> Message:
    one = ToolCall.model_validate({"id": f"c{turn}", "name": name, "arguments": arguments})
    return Message(role="assistant", tool_calls=(one,))


def work(
    policy: Policy, accept: Callable[[Number], str] = lambda _: "", **config: Any
) -> AgentRun[Number]:
    settings = AgentConfig(**config)
    return run_agent(policy, "Go.", TOOLS, Number, accept, name="n", family="toy", config=settings)


def seen(run: AgentRun[Number]) -> list[str]:
    return [one.content for one in run.messages if one.role in ("user", "tool")]


def test_what_is_wrong_with_a_submission_is_told_until_it_is_accepted() -> None:
    script = [
        call(1, "hand_in", number="x"),
        call(2, "hand_in", number=1),
        call(3, "hand_in", number=2),
    ]
    run = work(ScriptedPolicy(script), lambda given: "" if given.number == 2 else "it is not even")
    assert (run.answer, run.ended, run.turns, run.submissions) == (
        Number(number=2),
        "submitted",
        3,
        3,
    )
    assert seen(run)[2:] == ["not accepted: it is not even", "accepted"]
    again = work(ScriptedPolicy(script), lambda _: "never", submissions=2)
    assert (again.answer, again.ended, again.fault) == (None, "submissions", "never")


def test_bad_calls_are_answered_and_long_results_cut() -> None:
    bad = Message(
        role="assistant", tool_calls=(ToolCall(id="c2", name="long", arguments_text="{"),)
    )
    script = [call(1, "fly"), bad, call(3, "long", n="many"), call(4, "long", n=1000)]
    script.append(call(5, "whole", n=1000))
    run = work(ScriptedPolicy(script), output_chars=200)
    shown = seen(run)
    assert shown[1] == "there is no tool 'fly'"
    assert "must be a JSON object" in shown[2]
    assert "n" in shown[3]
    assert [shown[i].count("x") for i in (4, 5)] == [200, 1000]
    assert run.ended == "silent"


@pytest.mark.parametrize(
    ("script", "config", "ended"),
    [
        ([Message(role="assistant", content="hm")], {}, "silent"),
        ([call(i, "long", n=1) for i in range(9)], {}, "repeats"),
        ([call(i, "long", n=i) for i in range(9)], {"turns": 4}, "turns"),
    ],
)
def test_who_gets_nowhere_is_stopped(
    script: list[Message], config: dict[str, Any], ended: str
) -> None:
    assert work(ScriptedPolicy(script), **config).ended == ended


def _reply(tokens: int) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def reply(body: dict[str, Any]) -> dict[str, Any]:
        n = len(body["messages"])
        made = {"id": f"c{n}", "function": {"name": "long", "arguments": f'{{"n": {n}}}'}}
        message = {"role": "assistant", "content": "", "tool_calls": [made]}
        usage = {"prompt_tokens": tokens * n, "completion_tokens": 1}
        return {"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}

    return reply


def test_a_full_window_is_made_room_in_and_a_budget_ends_it() -> None:
    with ModelServer([_reply(100)]) as server:
        options = {"stream": False}
        policy = parse_policy(PolicyConfig(spec=f"openai:m@{server.url}", options=options))
        context = ContextConfig(strategy="discard-75", window_tokens=1000)
        run = work(policy, turns=30, tokens=9_000, context=context)
        assert run.ended == "tokens"
        sizes = [len(body["messages"]) for body in server.generations]
        assert max(sizes) < 12
        assert min(sizes[5:]) < max(sizes[:8])


def test_an_overflow_ends_it_and_no_reply_at_all_is_an_error() -> None:
    full = Raw(400, '{"error": {"message": "maximum context length is 10 tokens"}}')
    for answer, ends in ((full, True), (Raw(401, "{}"), False)):
        with ModelServer([answer]) as server:
            options = {"stream": False, "max_retries": 0}
            policy = parse_policy(PolicyConfig(spec=f"openai:m@{server.url}", options=options))
            if ends:
                assert work(policy).ended == "context"
            else:
                with pytest.raises(PolicyError):
                    work(policy)


def test_half_a_character_is_no_part_of_an_answer() -> None:
    said = call(1, "hand_in", number=1, note="\ud83d").model_copy(
        update={"content": "\ud83d\ude00\udc00"}
    )
    run = work(ScriptedPolicy([said]))
    (heard,) = (one for one in run.messages if one.role == "assistant")
    assert (run.ended, heard.content) == ("submitted", "\U0001f600\ufffd")
    assert heard.tool_calls[0].arguments == {"number": 1, "note": "\ufffd"}


@pytest.mark.parametrize("ends", [True, False])
def test_a_fence_is_read_whether_it_ends_or_not(ends: bool) -> None:
    said = '```json\n\n{"number": 1}\n```' if ends else "```json" + "\n" * 300_000
    policy, begun = (
        ScriptedPolicy([Message(role="assistant", content=said)] * 2),
        time.process_time(),
    )
    asked = ask(policy, Number, "Go.", name="n", seed=0, sampling=Sampling())
    assert asked.answer == (Number(number=1) if ends else None)
    assert time.process_time() - begun < 5
