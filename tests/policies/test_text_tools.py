from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envgen.policies.text_tools import instructions, parse_text

ONE = [("f", {"x": 1, "y": "a"})]


@pytest.mark.parametrize(
    ("text", "content", "calls"),
    [
        ("plain", "plain", []),
        ('hi <tool_call>{"name": "f", "arguments": {"x": 1, "y": "a"}}</tool_call>', "hi", ONE),
        ('<tool_call>{"name": "f", "arguments": {"x": 1, "y": "a"}}', "", ONE),
        ('<function=f>{"x": 1, "y": "a"}</function>', "", ONE),
        (
            "<tool_call><function=f><parameter=x>\n1\n</parameter><parameter=y>a</parameter>"
            "</function></tool_call>",
            "",
            ONE,
        ),
        ('[TOOL_CALLS] [{"name": "f", "arguments": {"x": 1, "y": "a"}}]', "", ONE),
        ('```json\n{"name": "f", "arguments": {"x": 1, "y": "a"}}\n```', "", ONE),
        ('{"name": "f", "parameters": {"x": 1, "y": "a"}}', "", ONE),
        (
            '<\uff5cDSML\uff5cfunction_calls>\n<\uff5cDSML\uff5cinvoke name="f">\n'
            '<\uff5cDSML\uff5cparameter name="x" string="false">1</\uff5cDSML\uff5cparameter>\n'
            '<\uff5cDSML\uff5cparameter name="y" string="true">a</\uff5cDSML\uff5cparameter>\n'
            "</\uff5cDSML\uff5cinvoke>\n</\uff5cDSML\uff5cfunction_calls>",
            "",
            ONE,
        ),
        ('<tool_call>{"name": "f", "arguments": null}</tool_call>', "", [("f", {})]),
        ('```json\n{"name": "Ann", "arguments": {}}\n```', None, []),
        ('{"city": "Arden"}', None, []),
    ],
)
def test_conventions(text: str, content: str | None, calls: list[Any]) -> None:
    message = parse_text(text, ["f", "g"])
    assert [(c.name, c.arguments) for c in message.tool_calls] == calls
    assert message.content == (text if content is None else content)


def test_malformed_calls_survive() -> None:
    message = parse_text("<tool_call>{broken</tool_call>", ["f"])
    assert message.tool_calls[0].arguments is None
    assert message.tool_calls[0].arguments_text == "{broken"


@pytest.mark.parametrize("opening", ["<think>", ""])
def test_thinking_is_split_off(opening: str) -> None:
    message = parse_text(f"{opening}because</think>\n\nanswer")
    assert (message.reasoning, message.content) == ("because", "answer")


def test_several_calls_get_their_own_ids() -> None:
    block = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
    message = parse_text(block * 3, ["f"], turn=4)
    assert [c.id for c in message.tool_calls] == ["call_4_0", "call_4_1", "call_4_2"]


def test_instructions_name_every_tool() -> None:
    tools = [{"type": "function", "function": {"name": n, "parameters": {}}} for n in ("f", "g")]
    assert all(f'"name": "{name}"' in instructions(tools) for name in ("f", "g"))


@settings(max_examples=50, deadline=None)
@given(st.text(alphabet="<>{}[]\"'=/ toolcalfunin_|`\n:,.\uff5c", max_size=80))
def test_any_text_gives_a_message(text: str) -> None:
    assert parse_text(text, ["f"]).role == "assistant"


ENDLESS = (
    "\n", "```json", "<tool_call>", "<function=f>", "<parameter=k>", '<|DSML|invoke name="f">',
    '<|DSML|parameter name="k" string="true">', "<think>", "<|thought|>", "</tool_call>",
)  # fmt: skip


@pytest.mark.parametrize("piece", ENDLESS)
def test_what_never_ends_is_read_in_time(piece: str) -> None:
    """Some models repeat themselves until their limit; a quadratic pattern would then hold up the run."""
    starts = ("", "```json\n", "<tool_call>", "<function=f>", '<|DSML|invoke name="f">')
    begun = time.process_time()
    for start in starts:
        assert parse_text(start + piece * (300_000 // len(piece)), ["f"]).role == "assistant"
    assert time.process_time() - begun < 5


def test_arguments_that_are_no_json_stay_text() -> None:
    """A model may write NaN: a call that can't be run, and never an error of the episode."""
    text = '<tool_call>\n{"name": "add", "arguments": {"x": NaN}}\n</tool_call>'
    (call,) = parse_text(text, ["add"], turn=0).tool_calls
    assert call.name == "add"
    assert call.arguments is None
    assert "NaN" in (call.arguments_text or "")
