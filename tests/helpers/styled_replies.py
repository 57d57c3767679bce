"""A model server's replies in every style, by what the system message of a request asks for.

They play ``tiny-cheapest`` (an answer is submitted) and ``tiny-count`` (plain text is the answer).
"""

from __future__ import annotations

import json
from typing import Any

from model_server import chat

from envgen.core.types import Message, Style
from envgen.policies.preflight import QUESTION
from envgen.policies.styles import styled

TASKS = ("tiny-cheapest", "tiny-count")
STYLES: tuple[Style, ...] = ("reasoning", "agent", "thinking-agent")
LIST = ("list_hotels", {"city": "Hangzhou"})
SUBMIT = ("submit_result", {"answer_text": '{"hotel": "Lotus Inn"}'})
Call = tuple[str, dict[str, Any]]


def prompt_of(style: Style) -> str:
    """What a style says in the system message."""
    return styled(style, [Message(role="user", content="?")])[0].content


def says(content: str = "", *calls: Call, thought: str | None = None) -> dict[str, Any]:
    """A chat completion with native tool calls."""
    more: dict[str, Any] = {} if thought is None else {"reasoning_content": thought}
    if calls:
        more["tool_calls"] = [
            {"type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for name, arguments in calls
        ]
    return chat(content, **more)


GOOD: dict[tuple[Style, str], list[dict[str, Any]]] = {
    ("reasoning", "tiny-cheapest"): [says("", SUBMIT, thought="I guess the Lotus Inn.")],
    # A model without reasoning of its own writes the tags that it was asked for.
    ("reasoning", "tiny-count"): [says("<think>Three, I guess.</think>\n\n3")],
    ("agent", "tiny-cheapest"): [says("", LIST), says("", SUBMIT)],
    ("agent", "tiny-count"): [says("", LIST), says("3")],
    ("thinking-agent", "tiny-cheapest"): [
        says("", LIST, thought="I need the prices."),
        says("", ("get_hotel", {"name": "Lotus Inn"}), thought="180 is least; to be sure:"),
        says("", SUBMIT, thought="It is in Hangzhou indeed."),
    ],
    ("thinking-agent", "tiny-count"): [
        says("<think>Let me count.</think>", LIST),
        says("3", thought="There are three."),
    ],
}
"""Replies turn by turn."""


READY = says("", ("ready", {"word": "yes"}))
"""What a server says to a preflight."""


def is_preflight(body: dict[str, Any]) -> bool:
    """Whether a request is the preflight's."""
    return bool(body["messages"][-1]["content"] == QUESTION)


def good(body: dict[str, Any]) -> dict[str, Any]:
    """The next reply of a model that does as it is asked."""
    contents = {message["role"]: message["content"] for message in reversed(body["messages"])}
    (style,) = (one for one in STYLES if prompt_of(one) in contents["system"])
    task = "tiny-count" if "How many" in contents["user"] else "tiny-cheapest"
    return GOOD[style, task][_turn(body)]


def scripted(replies: list[dict[str, Any]]) -> Any:
    """A server's entry: the replies of every episode, turn by turn; the last one for ever."""

    def answer(body: dict[str, Any]) -> dict[str, Any]:
        return replies[min(_turn(body), len(replies) - 1)]

    return answer


def _turn(body: dict[str, Any]) -> int:
    """How many replies a conversation already holds."""
    return [message["role"] for message in body["messages"]].count("assistant")
