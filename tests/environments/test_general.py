from __future__ import annotations

import json
from typing import Any

import pytest
from gymnasium.error import ResetNeeded

from envgen.core.errors import ConfigError
from envgen.environments.general import GeneralEnv
from envgen.store.dataset import Dataset


def call(name: str, /, **arguments: Any) -> str:
    return calls((name, arguments))


def calls(*pairs: tuple[str, Any]) -> str:
    listed = [{"name": name, "arguments": arguments} for name, arguments in pairs]
    return json.dumps({"content": "", "tool_calls": listed})


def submit(answer: Any) -> str:
    return call("submit_result", answer_text=json.dumps(answer))


@pytest.fixture
def env(tiny: Dataset) -> GeneralEnv:
    return GeneralEnv(tiny, backend="inline")


def start(env: GeneralEnv, task_id: str) -> str:
    return env.reset(seed=0, options={"task_id": task_id})[0]


def test_every_gold_run_scores_one(env: GeneralEnv, tiny: Dataset) -> None:
    for task_id in tiny.tasks:
        gold = tiny.task_files(task_id).gold
        assert gold is not None
        start(env, task_id)
        for one in gold.calls:
            observation, reward, terminated, truncated, _ = env.step(
                call(one.name, **one.arguments)
            )
            assert json.loads(observation) == one.result
            assert (reward, terminated, truncated) == (0.0, False, False)
        last = submit(gold.answer) if task_id != "tiny-count" else json.dumps(gold.answer)
        _, reward, terminated, truncated, info = env.step(last)
        assert (reward, terminated, truncated) == (1.0, True, False)
        assert info["score"] == 1.0
        assert info["reasons"] == []
        assert info["stop"] == ("answered" if task_id == "tiny-count" else "submitted")
        assert env.calls[: len(gold.calls)] == gold.calls


def test_a_wrong_answer_names_the_broken_rule(env: GeneralEnv) -> None:
    start(env, "tiny-cheapest")
    _, reward, terminated, _, info = env.step(submit({"hotel": "Harbour View"}))
    assert (reward, terminated) == (0.0, True)
    assert info["reasons"] == ["cheapest"]
    assert env.reached_verifier


@pytest.mark.parametrize(
    ("answer_text", "reason"),
    [
        ("{", "malformed: the answer is not valid JSON"),
        ('{"hotel": "a", "hotel": "b"}', "malformed: the answer has the key 'hotel' twice"),
        ('{"hotel": 3}', "schema: hotel: must be string, not integer"),
        ("null", "schema: must be object, not null"),
        ("{}", "schema: 'hotel' is missing"),
    ],
)
def test_a_malformed_answer_ends_the_episode_with_a_reason(
    env: GeneralEnv, answer_text: str, reason: str
) -> None:
    start(env, "tiny-cheapest")
    _, reward, terminated, _, info = env.step(call("submit_result", answer_text=answer_text))
    assert (reward, terminated) == (0.0, True)
    assert info["reasons"][0].startswith(reason)
    assert not env.reached_verifier


def test_step_needs_a_running_episode(env: GeneralEnv) -> None:
    with pytest.raises(ResetNeeded):
        env.step("x")
    start(env, "tiny-cheapest")
    env.step(submit({}))
    with pytest.raises(ResetNeeded):
        env.step("x")


def test_turn_limit_truncates_and_scores_once(env: GeneralEnv) -> None:
    start(env, "tiny-cheapest")
    for turn in range(8):
        assert env.score is None
        _, reward, terminated, truncated, info = env.step(call("list_hotels", city="Suzhou"))
        assert truncated == (turn == 7)
        assert not terminated
    assert reward == 0.0
    assert info["stop"] == "turn_limit"
    assert info["reasons"] == ["no_submission"]


def test_submitting_in_the_last_turn_counts(env: GeneralEnv) -> None:
    start(env, "tiny-cheapest")
    for _ in range(7):
        env.step(call("list_hotels", city="Suzhou"))
    _, reward, terminated, truncated, _ = env.step(submit({"hotel": "Lotus Inn"}))
    assert (reward, terminated, truncated) == (1.0, True, False)


def test_plain_text_twice_in_a_row_truncates(env: GeneralEnv) -> None:
    start(env, "tiny-cheapest")
    observation, _, _, truncated, _ = env.step("Lotus Inn")
    assert "submit_result" in json.loads(observation)["message"]
    assert not truncated
    env.step(call("list_hotels", city="Suzhou"))
    assert not env.step("Lotus Inn")[3]
    _, reward, terminated, truncated, info = env.step("really")
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert info["stop"] == "no_submission"


def test_calls_after_a_submission_are_ignored_and_logged(env: GeneralEnv) -> None:
    start(env, "tiny-book")
    observation, reward, terminated, _, _ = env.step(
        calls(
            ("book_hotel", {"hotel": "Garden Court", "nights": 2}),
            ("submit_result", {"answer_text": '{"outcome": "done"}'}),
            ("book_hotel", {"hotel": "Tiger Hill", "nights": 1}),
            ("submit_result", {"answer_text": "{}"}),
        )
    )
    assert (reward, terminated) == (1.0, True)
    lines = [json.loads(line) for line in observation.splitlines()]
    assert lines[:2] == [{"booking": 1}, {"status": "submitted"}]
    assert [line["error"] for line in lines[2:]] == ["episode_over"] * 2
    assert [one.error for one in env.calls] == [None, "episode_over", "episode_over"]


def test_several_calls_run_in_order_each_with_its_message(env: GeneralEnv) -> None:
    start(env, "tiny-pair")
    observation, *_, info = env.step(
        json.dumps(
            {
                "content": "Let me look.",
                "tool_calls": [
                    {"id": "a", "name": "get_hotel", "arguments": {"name": "Lotus Inn"}},
                    {"id": "b", "function": {"name": "get_hotel", "arguments": '{"name": "No"}'}},
                ],
            }
        )
    )
    first, second = observation.splitlines()
    assert json.loads(first)["price"] == 180
    assert json.loads(second)["error"] == "not_found"
    roles = [message["role"] for message in info["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "tool"]
    assert [message.tool_call_id for message in env.messages[3:]] == ["a", "b"]
    assert info["messages"][2]["tool_calls"][1]["function"]["arguments"] == '{"name":"No"}'
    assert {tool["function"]["name"] for tool in info["tools"]} == {
        "list_hotels",
        "get_hotel",
        "book_hotel",
        "submit_result",
    }


def test_mutating_episodes_do_not_see_each_other(tiny: Dataset) -> None:
    first, second = GeneralEnv(tiny, backend="inline"), GeneralEnv(tiny, backend="inline")
    for env in (first, second):
        start(env, "tiny-book")
    book = call("book_hotel", hotel="Garden Court", nights=2)
    for env in (first, second):
        assert json.loads(env.step(book)[0]) == {"booking": 1}
    assert first.step(submit({"outcome": "done"}))[1] == 1.0
    start(first, "tiny-book")
    assert first.step(submit({"outcome": "done"}))[4]["reasons"] == ["booking"]
    assert second.step(submit({"outcome": "done"}))[1] == 1.0


def test_a_failed_mutation_leaves_no_trace(env: GeneralEnv) -> None:
    start(env, "tiny-book")
    env.step(call("book_hotel", hotel="Nowhere", nights=2))
    env.step(call("book_hotel", hotel="Garden Court", nights=2))
    assert env.step(submit({"outcome": "done"}))[1] == 1.0


def test_the_seed_draws_the_task_and_task_ids_bound_the_draw(tiny: Dataset) -> None:
    env = GeneralEnv(tiny, backend="inline")
    drawn = [env.reset(seed=seed)[1]["task_id"] for seed in range(30)]
    assert drawn == [env.reset(seed=seed)[1]["task_id"] for seed in range(30)]
    assert set(drawn) == set(tiny.tasks)
    one = GeneralEnv(tiny, backend="inline", task_ids=["tiny-book"])
    assert {one.reset()[1]["task_id"] for _ in range(5)} == {"tiny-book"}


def test_task_and_seed_fix_the_episode(env: GeneralEnv) -> None:
    played = []
    for seed in (1, 1, 2):
        env.reset(seed=seed, options={"task_id": "tiny-book"})
        steps = [
            env.step(call("list_hotels", city="Suzhou")),
            env.step(call("book_hotel", hotel="Tiger Hill")),
            env.step(submit({"outcome": "done"})),
        ]
        played.append((steps, env.messages, env.calls))
    assert played[0] == played[1] == played[2]


def test_unknown_names_are_config_errors_that_help(env: GeneralEnv, tiny: Dataset) -> None:
    with pytest.raises(ConfigError, match="did you mean 'tiny-book'"):
        env.reset(options={"task_id": "tiny-bok"})
    with pytest.raises(ConfigError, match="did you mean 'task_id'"):
        env.reset(options={"taskid": "tiny-book"})
    with pytest.raises(ConfigError, match="unknown task"):
        GeneralEnv(tiny, task_ids=["nothing"])
    with pytest.raises(ConfigError, match="render_mode"):
        GeneralEnv(tiny, render_mode="human")


def test_what_is_secret_stays_secret(env: GeneralEnv, tiny: Dataset) -> None:
    _, info = env.reset(options={"task_id": "tiny-cheapest"})
    seen = json.dumps(info) + env.task.model_dump_json()
    files = tiny.task_files("tiny-cheapest")
    for secret in (files.solution, files.verifier, "PARAMS", "Lotus Inn", str(tiny.path)):
        assert secret not in seen


def test_render_shows_the_conversation(tiny: Dataset) -> None:
    env = GeneralEnv(tiny, backend="inline", render_mode="ansi")
    start(env, "tiny-cheapest")
    env.step(call("list_hotels", city="Hangzhou"))
    text = env.render()
    assert text is not None
    assert 'list_hotels({"city":"Hangzhou"})' in text
    assert "[tool]" in text
