from __future__ import annotations

from typing import Any

import pytest

from envgen.core.types import Message, ToolCall
from envgen.policies.serving.errors import ApiError
from envgen.policies.serving.messages import read_messages, read_tools, wire_call


def call(call_id: str, arguments: str = "{}") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "f", "arguments": arguments}}


def test_results_are_put_in_the_order_of_their_calls() -> None:
    wire: list[dict[str, Any]] = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": None, "tool_calls": [call("a"), call("b"), call("c")]},
        {"role": "tool", "tool_call_id": "c", "content": "3"},
        {"role": "tool", "tool_call_id": "a", "content": "1"},
        {"role": "tool", "tool_call_id": "b", "content": "2"},
        {"role": "assistant", "content": "", "tool_calls": [call("b"), call("a")]},
        {"role": "tool", "tool_call_id": "a", "content": "5"},
        {"role": "tool", "tool_call_id": "b", "content": "4"},
    ]
    read = read_messages(wire)
    assert [m.content for m in read if m.role == "tool"] == ["1", "2", "3", "4", "5"]


@pytest.mark.parametrize("text", ["{", "[1]", '{"a": NaN}', '{"a": 1, "a": 2}'])
def test_malformed_arguments_survive(text: str) -> None:
    wire = {"role": "assistant", "tool_calls": [call("a", text)]}
    (message,) = read_messages([wire])
    assert message.tool_calls == (ToolCall(id="a", name="f", arguments_text=text),)
    assert wire_call(message.tool_calls[0]) == call("a", text)


def test_an_assistant_message_is_read_whole() -> None:
    wire = {
        "role": "assistant",
        "content": "c",
        "reasoning_content": "r",
        "refusal": None,
        "tool_calls": [call("a", '{"x": 1}')],
    }
    assert read_messages([wire]) == [
        Message(
            role="assistant",
            content="c",
            reasoning="r",
            tool_calls=(ToolCall(id="a", name="f", arguments={"x": 1}),),
        )
    ]


def test_a_tool_without_parameters_takes_none() -> None:
    (tool,) = read_tools([{"type": "function", "function": {"name": "f"}}])
    assert tool["function"]["parameters"] == {"type": "object", "properties": {}}


def test_a_schema_nested_without_end_is_refused() -> None:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(5_000):
        schema = {"type": "object", "properties": {"a": schema}}
    with pytest.raises(ApiError, match=r"nested|recursion"):
        read_tools([{"type": "function", "function": {"name": "f", "parameters": schema}}])
