"""Styles of records for a cold start by prompting (DeepSeek-V3.2, section 3.2.2): think, act, or both.

* ``reasoning``: think, then answer; no tool but the one that hands the answer in;
* ``agent``: call tools in the format told, and do not think;
* ``thinking-agent``: call tools while thinking, then answer without them.

A style is a text behind the environment's own system message, the tools that are offered, and a check of what
came of it: a model that was asked does not always do it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from envgen.core.types import Message, Style
from envgen.policies.base import Tool, tool_name

MAX_CALLS = 20
"""Of a ``thinking-agent``, the one that hands the answer in not counted."""

_PROMPTS: dict[Style, str] = {
    "reasoning": (
        "Think before you answer. Every reply begins with your reasoning, between <think> and </think>: "
        "work the problem out there, step by step, and check what you found. Behind </think> stands the "
        "answer and nothing else, in the form that the task asks for; if there is a tool that takes the "
        "answer, call it there. There are no other tools."
    ),
    "agent": (
        "Solve the task with the tools that are described to you. Follow the prescribed format of calls to "
        "the letter: names of tools and arguments as they are listed, each value of the type that its "
        "schema names, no call hidden in other text. Act at once: write down no reasoning and no <think> "
        "block, neither before a call nor before the answer. Rely on what the calls return, and give the "
        "answer as the task demands."
    ),
    "thinking-agent": (
        "Think before you answer, and use the tools while you think. Every reply begins with reasoning "
        "between <think> and </think>. Calls are part of the thinking: say there what you want to find "
        "out, call, and reason on with what comes back; write nothing to the user beside a call. You may "
        f"call tools again and again, {MAX_CALLS} times at most, and rather early than late: what a tool "
        "can look up or compute is not to be worked out in words. Follow the prescribed format of calls to "
        "the letter. Once the thinking is done, present the final answer, in which no tool is called; only "
        "a tool that takes the answer is called then, alone."
    ),
}
_THINK_TAG = re.compile(r"</?think>")


def thinks(style: Style) -> bool:
    """Whether a model of this style reasons."""
    return style != "agent"


def offered(style: Style | None, tools: Sequence[Tool], submit: str | None) -> list[Tool]:
    """The tools that a model of this style is told of.

    Args:
        style: None: no style was asked for.
        tools: all of the task, in OpenAI's form.
        submit: name of the one that takes the answer, if there is one.
    """
    return [tool for tool in tools if style != "reasoning" or tool_name(tool) == submit]


def styled(style: Style | None, messages: Sequence[Message]) -> tuple[Message, ...]:
    """The conversation as a model of this style sees it: what is asked stands in its system message."""
    if style is None or not messages:
        return tuple(messages)
    prompt = _PROMPTS[style]
    if messages[0].role != "system":
        return (Message(role="system", content=prompt), *messages)
    both = f"{messages[0].content}\n\n{prompt}"
    return (messages[0].model_copy(update={"content": both}), *messages[1:])


def misfit(
    style: Style,
    messages: Sequence[Message],
    tools: Sequence[Tool],
    submit: str | None,
    *,
    answered: bool,
) -> str | None:
    """Why a conversation is no record of its style, in words; None if it is one.

    Args:
        style: what was asked for.
        messages: the conversation.
        tools: that were offered.
        submit: name of the tool that takes the answer, if there is one.
        answered: the conversation ended with an answer.
    """
    names = {tool_name(tool) for tool in tools}
    return next(_faults(style, messages, names, submit, answered), None)


def _faults(
    style: Style, messages: Sequence[Message], names: set[str], submit: str | None, answered: bool
) -> Iterator[str]:
    if not answered:
        yield "there is no final answer"
    replies = [message for message in messages if message.role == "assistant"]
    for i, reply in enumerate(replies):
        yield from _reply_faults(style, reply, names, submit)
        if not reply.tool_calls and i + 1 < len(replies):
            yield "a reply neither calls a tool nor answers"
    calls = sum(call.name != submit for reply in replies for call in reply.tool_calls)
    if style == "thinking-agent" and calls > MAX_CALLS:
        yield f"tools are called more than {MAX_CALLS} times"


def _reply_faults(
    style: Style, reply: Message, names: set[str], submit: str | None
) -> Iterator[str]:
    reasons = bool(reply.reasoning and reply.reasoning.strip())
    if reasons and not thinks(style):
        yield "there is reasoning where none was asked for"
    if not reasons and thinks(style):
        yield "a reply has no reasoning"
    if _THINK_TAG.search(reply.content):
        yield "think tags stand in the text"
    for call in reply.tool_calls:
        if call.name not in names:
            yield "a tool is called that was not offered"
        if call.arguments is None:
            yield "a call is malformed"
    if style == "thinking-agent" and _in_answer(reply, submit):
        yield "a tool is called in the final answer"


def _in_answer(reply: Message, submit: str | None) -> bool:
    """Whether a call stands where something is presented: beside text, or beside the answer."""
    called = [call.name for call in reply.tool_calls]
    others = [name for name in called if name != submit]
    presents = bool(reply.content.strip()) or len(others) < len(called)
    return bool(others) and presents
