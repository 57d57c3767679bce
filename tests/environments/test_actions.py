from __future__ import annotations

import json
from typing import Any

import pytest
from env_check import JUNK, check_env
from hypothesis import given, settings
from hypothesis import strategies as st
from schemas import json_values, wild_json, wild_text

from envgen.core.errors import ContractError
from envgen.core.turns import MAX_ACTION_CHARS, encode_message, parse_action
from envgen.core.types import Message, ToolCall
from envgen.environments.general import GeneralEnv
from envgen.store.dataset import Dataset

names = st.sampled_from(["list_hotels", "get_hotel", "book_hotel", "submit_result", "x"])
arguments = (
    st.fixed_dictionaries({"city": st.sampled_from(["Hangzhou", "Rome"])})
    | st.fixed_dictionaries({"hotel": wild_text, "nights": wild_json})
    | st.fixed_dictionaries({"answer_text": wild_text | st.just("{}")})
    | wild_json
)
call_values = (
    st.fixed_dictionaries({"name": names, "arguments": arguments})
    | st.fixed_dictionaries({"function": wild_json})
    | st.fixed_dictionaries({"id": wild_json, "name": wild_json, "arguments": wild_text})
    | wild_json
)
messages = st.fixed_dictionaries(
    {"tool_calls": st.lists(call_values, max_size=4) | wild_json},
    optional={"content": wild_json, "reasoning": wild_json, "role": wild_json},
)
actions = (
    wild_text
    | wild_json.map(json.dumps)
    | messages.map(json.dumps)
    | messages.map(lambda m: json.dumps(m, ensure_ascii=False))
    | messages.map(lambda m: json.dumps(m)[:-3])
    | st.sampled_from(JUNK)
)


@settings(max_examples=60, deadline=None)
@given(st.lists(actions, min_size=1, max_size=8))
def test_no_action_raises(tiny: Dataset, played: list[Any]) -> None:
    for task_id in ("tiny-book", "tiny-count"):
        env = GeneralEnv(tiny, backend="inline")
        env.reset(options={"task_id": task_id})
        for action in played:
            observation, reward, terminated, truncated, info = env.step(action)
            assert observation in env.observation_space
            assert (env.stop is not None) == (terminated or truncated)
            json.dumps(info, allow_nan=False, ensure_ascii=False).encode()
            for message in env.messages:
                assert Message.model_validate_json(message.model_dump_json()) == message
            for one in env.calls:
                assert type(one).model_validate_json(one.model_dump_json()) == one
            if terminated or truncated:
                assert reward == info["score"]
                break
            assert reward == 0.0
        env.close()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(json_values.map(lambda v: {"v": v}), max_size=3),
    st.text(max_size=5) | json_values.map(json.dumps) | st.just('{"content": "x"}'),
)
def test_messages_come_back_from_their_action(values: list[dict[str, Any]], text: str) -> None:
    text = text.encode("utf-8", "ignore").decode().replace("\0", "")
    calls = tuple(
        ToolCall(id=f"c{i}", name="get_hotel", arguments=value) for i, value in enumerate(values)
    )
    message = Message(role="assistant", content=text, reasoning="why" if values else None)
    message = message.model_copy(update={"tool_calls": calls})
    parsed = parse_action(encode_message(message))
    assert parsed.problem is None
    assert parsed.message == message


def test_long_reasoning_and_content_are_kept() -> None:
    message = Message(role="assistant", content="a" * 200_000, reasoning="b" * 300_000)
    parsed = parse_action(encode_message(message))
    assert parsed.problem is None
    assert parsed.message == message


@pytest.mark.parametrize("text", ["Ibis", "{}", '{"hotel": "Ibis"}', "{'a': 1}", "[1]", "3", "{"])
def test_what_is_no_message_is_plain_text(text: str) -> None:
    parsed = parse_action(text)
    assert parsed.problem is None
    assert parsed.message == Message(role="assistant", content=text)


@pytest.mark.parametrize(
    ("action", "problem"),
    [
        (None, "an action is a text, not null"),
        ({}, "an action is a text, not object"),
        ("x" * (MAX_ACTION_CHARS + 1), "at most"),
        ('{"tool_calls": [', "the message is not valid JSON"),
        ('{"tool_calls": NaN}', "contains NaN"),
        ('{"tool_calls": [], "tool_calls": []}', "twice"),
        ('{"tool_calls": {}}', "must be an array, not object"),
        ('{"tool_calls": [], "content": 3}', "'content' must be a text, not integer"),
        ('{"tool_calls": ["\\ud800"]}', "lone surrogate"),
        ('{"content": "\\u0000", "tool_calls": []}', "NUL"),
        ('{"tool_calls": [' + "[" * 60 + "]" * 60 + "]}", "deeper than 50"),
        (json.dumps({"tool_calls": [{}] * 65}), "at most 64 tool calls"),
    ],
)
def test_a_malformed_message_is_refused_with_a_reason(action: Any, problem: str) -> None:
    parsed = parse_action(action)
    assert parsed.problem is not None
    assert problem in parsed.problem


@pytest.mark.parametrize(
    ("call", "fault"),
    [
        (3, "must be an object, not integer"),
        ({}, "needs a 'name'"),
        ({"name": ""}, "needs a 'name'"),
        ({"name": "x" * 200}, "needs a 'name'"),
        ({"name": "x", "arguments": []}, "must be an object, not array"),
        ({"name": "x", "arguments": "{"}, "a text that is not valid JSON"),
        ({"name": "x", "arguments": '{"a": 1, "a": 2}'}, "twice"),
        ({"function": {"name": "x", "arguments": "3"}}, "must be an object, not integer"),
    ],
)
def test_a_malformed_call_has_a_fault(call: Any, fault: str) -> None:
    parsed = parse_action(json.dumps({"tool_calls": [call, {"name": "y"}]}))
    first, second = parsed.faults
    assert first is not None
    assert fault in first
    assert second is None
    assert parsed.message.tool_calls[1].arguments == {}


def test_check_env_passes_a_sound_environment(tiny: Dataset) -> None:
    check_env(GeneralEnv(tiny, backend="inline"))


class Raises(GeneralEnv):
    def step(self, action: str) -> Any:
        action.strip()
        return super().step(action)


class PaysEarly(GeneralEnv):
    def step(self, action: str) -> Any:
        observation, reward, *rest = super().step(action)
        return observation, reward + 0.5, *rest


class Drifts(GeneralEnv):
    turn = 0

    def step(self, action: str) -> Any:
        observation, *rest = super().step(action)
        Drifts.turn += 1
        return f"{observation} {Drifts.turn}", *rest


class OutOfSpace(GeneralEnv):
    def step(self, action: str) -> Any:
        return "\ud800", *super().step(action)[1:]


@pytest.mark.parametrize(
    ("broken", "what"),
    [
        (Raises, "raised AttributeError"),
        (PaysEarly, "a step before the last has a reward"),
        (Drifts, "two different episodes"),
        (OutOfSpace, "out of space"),
    ],
)
def test_check_env_catches_a_broken_environment(
    tiny: Dataset, broken: type[GeneralEnv], what: str
) -> None:
    with pytest.raises(ContractError, match=what):
        check_env(broken(tiny, backend="inline"))


@pytest.mark.parametrize("arguments", [None, "null", " null ", ""])
def test_null_arguments_are_none(arguments: Any) -> None:
    parsed = parse_action(json.dumps({"tool_calls": [{"name": "x", "arguments": arguments}]}))
    assert parsed.faults == (None,)
    assert parsed.message.tool_calls[0].arguments == {}
