from __future__ import annotations

import re
from itertools import combinations

import pytest
from toy_world import SUBMIT

from envgen.core.types import Message, Style, ToolCall
from envgen.policies.styles import MAX_CALLS, misfit, offered, styled, thinks

STYLES: tuple[Style, ...] = ("reasoning", "agent", "thinking-agent")
LOOK = {"type": "function", "function": {"name": "look", "parameters": {}}}
TOOLS = [LOOK, SUBMIT]
ASK = Message(role="user", content="hi")


def says(*names: str, thought: str | None = None, text: str = "") -> Message:
    calls = tuple(ToolCall(id=str(i), name=name, arguments={}) for i, name in enumerate(names))
    return Message(role="assistant", content=text, reasoning=thought, tool_calls=calls)


def fault(style: Style, *replies: Message, answered: bool = True) -> str | None:
    tools = offered(style, TOOLS, "submit_result")
    return misfit(style, [ASK, *replies], tools, "submit_result", answered=answered)


def test_what_is_asked_stands_behind_the_environments_own_words() -> None:
    policy = Message(role="system", content="Never book.")
    for style in STYLES:
        alone, user = styled(style, [ASK])
        assert (alone.role, user) == ("system", ASK)
        both, _ = styled(style, [policy, ASK])
        assert both.content == f"Never book.\n\n{alone.content}"
    assert styled(None, [policy, ASK]) == (policy, ASK)
    assert styled("agent", []) == ()


def test_the_three_texts_ask_for_different_things() -> None:
    texts = {style: styled(style, [ASK])[0].content for style in STYLES}
    assert all(a != b for a, b in combinations(texts.values(), 2))
    assert str(MAX_CALLS) in texts["thinking-agent"]
    for style in STYLES:
        asks = bool(re.search(r"reasoning,? between <think> and </think>", texts[style]))
        assert asks == thinks(style)


def test_reasoning_offers_the_submit_tool_alone() -> None:
    assert offered("reasoning", TOOLS, "submit_result") == [SUBMIT]
    assert offered("reasoning", [LOOK], None) == []
    for style in ("agent", "thinking-agent", None):
        assert offered(style, TOOLS, "submit_result") == TOOLS


LOOKS = says("look", thought="hm")
SUBMITS = says("submit_result", thought="so")


@pytest.mark.parametrize(
    ("style", "replies"),
    [
        ("reasoning", [SUBMITS]),
        ("reasoning", [says(thought="so", text="42")]),
        ("agent", [says("look"), says("look", "look", text="now this"), says("submit_result")]),
        ("agent", [says("look"), says(text="42", thought=" \n")]),
        ("thinking-agent", [LOOKS, SUBMITS]),
        ("thinking-agent", [LOOKS, says(thought="so", text="42")]),
        ("thinking-agent", [LOOKS, says("submit_result", thought="so", text="The Lotus.")]),
        ("thinking-agent", [*[LOOKS] * MAX_CALLS, SUBMITS]),
    ],
)
def test_records_of_their_style(style: Style, replies: list[Message]) -> None:
    assert fault(style, *replies) is None


MALFORMED = Message(
    role="assistant",
    reasoning="hm",
    tool_calls=(ToolCall(id="a", name="look", arguments_text="{"),),
)


@pytest.mark.parametrize(
    ("style", "replies", "message"),
    [
        ("reasoning", [says("submit_result")], "no reasoning"),
        ("reasoning", [says("submit_result", thought=" ")], "no reasoning"),
        ("reasoning", [LOOKS, SUBMITS], "not offered"),
        ("reasoning", [says(thought="a", text="b"), SUBMITS], "neither calls a tool nor answers"),
        ("agent", [LOOKS, says("submit_result")], "reasoning where none was asked"),
        ("agent", [says("look", text="<think>hm"), says("submit_result")], "think tags"),
        ("agent", [says("lok"), says("submit_result")], "not offered"),
        ("agent", [MALFORMED.model_copy(update={"reasoning": None})], "malformed"),
        ("thinking-agent", [says("look"), SUBMITS], "no reasoning"),
        ("thinking-agent", [LOOKS, says("submit_result")], "no reasoning"),
        ("thinking-agent", [MALFORMED, SUBMITS], "malformed"),
        ("thinking-agent", [*[LOOKS] * (MAX_CALLS + 1), SUBMITS], "more than 20 times"),
        (
            "thinking-agent",
            [says(*["look"] * MAX_CALLS, thought="all"), LOOKS, SUBMITS],
            "more than 20 times",
        ),
        ("thinking-agent", [says("look", "submit_result", thought="so")], "in the final answer"),
        ("thinking-agent", [says("look", thought="so", text="Hm."), SUBMITS], "the final answer"),
    ],
)
def test_records_of_another_style(style: Style, replies: list[Message], message: str) -> None:
    found = fault(style, *replies)
    assert found is not None
    assert message in found


@pytest.mark.parametrize("style", STYLES)
def test_a_record_without_an_answer_is_none(style: Style) -> None:
    reply = says("submit_result", thought="so" if thinks(style) else None)
    assert fault(style, reply) is None
    assert fault(style, reply, answered=False) == "there is no final answer"
