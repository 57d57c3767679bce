"""The form of rollouts: played in the real environment, by scripts that err in known ways."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from tiny_dataset import write_tiny_dataset

from envgen.core.types import Message, StopReason, ToolCall, Trajectory
from envgen.environments.general import GeneralEnv
from envgen.policies.scripted import ScriptedPolicy
from envgen.rollout.episode import run_episode
from envgen.train.well_formed import Calls, calls_of, ended_cleanly, form_share


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GeneralEnv]:
    dataset = write_tiny_dataset(tmp_path_factory.mktemp("well_formed") / "ds")
    env = GeneralEnv(dataset, backend="inline")
    yield env
    env.close()


def call(name: str, arguments: dict[str, object] | str) -> ToolCall:
    if isinstance(arguments, str):
        return ToolCall(id="c", name=name, arguments_text=arguments)
    return ToolCall.model_validate({"id": "c", "name": name, "arguments": arguments})


LIST = call("list_hotels", {"city": "Hangzhou"})
SUBMIT = call("submit_result", {"answer_text": '{"hotel": "Lotus Inn"}'})
WRONG = call("submit_result", {"answer_text": '{"hotel": "Canal House"}'})
BROKEN = call("submit_result", {"answer_text": '{"hotel": '})


def play(
    env: GeneralEnv, *turns: Sequence[ToolCall] | str, task: str = "tiny-cheapest"
) -> Trajectory:
    messages = [
        Message(role="assistant", content=turn)
        if isinstance(turn, str)
        else Message(role="assistant", tool_calls=tuple(turn))
        for turn in turns
    ]
    return run_episode(env, ScriptedPolicy(messages), task, sample=0, seed=0).trajectory


@pytest.mark.parametrize(
    ("turns", "calls", "clean", "share"),
    [
        (([LIST], [SUBMIT]), Calls(2, 2), True, 1.0),
        (([LIST, SUBMIT],), Calls(2, 2), True, 1.0),
        (([LIST], [WRONG]), Calls(2, 2), True, 1.0),  # wrong, but well-formed
        (([LIST], [BROKEN]), Calls(2, 2), False, 0.5),
        (([call("list_hotels", "{city: Hangz")], [SUBMIT]), Calls(1, 2), True, 0.75),
        (([call("list_hotel", {"city": "Hangzhou"})], [SUBMIT]), Calls(1, 2), True, 0.75),
        (([call("list_hotels", {"town": "Hangzhou"})], [SUBMIT]), Calls(1, 2), True, 0.75),
        # What a tool answers is no matter of form.
        (([call("get_hotel", {"name": "Nowhere"})], [SUBMIT]), Calls(2, 2), True, 1.0),
        (("Let me see.", [SUBMIT]), Calls(1, 2), True, 0.75),
        (("Let me see.", "Well."), Calls(0, 2), False, 0.0),
        (([SUBMIT, LIST],), Calls(1, 2), True, 0.75),  # the episode was over
        (([LIST],) * 9, Calls(8, 8), False, 0.5),  # out of turns
    ],
)
def test_calls_and_ends(
    env: GeneralEnv,
    turns: tuple[Sequence[ToolCall] | str, ...],
    calls: Calls,
    clean: bool,
    share: float,
) -> None:
    played = play(env, *turns)
    assert played.error is None
    assert calls_of(played) == calls
    assert ended_cleanly(played) == clean
    assert form_share(played) == pytest.approx(share)


def test_words_are_the_answer_where_there_is_no_submit_tool(env: GeneralEnv) -> None:
    played = play(env, [call("list_hotels", {"city": "Hangzhou"})], "3", task="tiny-count")
    assert played.stop is StopReason.ANSWERED
    assert calls_of(played) == Calls(1, 1)
    assert form_share(played) == 1.0
