"""Records of the three styles, asked for over HTTP, stored and resumed."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from equal_episodes import equal_but_times
from model_server import ModelServer
from styled_replies import LIST, STYLES, SUBMIT, TASKS, good, prompt_of, says, scripted
from tiny_dataset import write_tiny_dataset
from tiny_models import write_random_model

from envgen.core.errors import ResumeError
from envgen.core.types import Sampling, Style, Trajectory
from envgen.policies.encoding import EncodingConfig, load_encoding
from envgen.policies.registry import PolicyConfig
from envgen.rollout.run import RolloutConfig, RolloutSummary, rollout
from envgen.store.run_folder import load
from envgen.store.runs import RunStore
from envgen.store.token_files import read_tokens


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_dataset(tmp_path_factory.mktemp("data") / "ds").path


def collect(
    dataset: Path, server: ModelServer, out: Path, style: Style | None, **more: Any
) -> RolloutSummary:
    call = {"cancel": more.pop("cancel", None), "progress": more.pop("progress", None)}
    settings: dict[str, Any] = {
        "dataset": str(dataset),
        "policy": PolicyConfig(spec=f"openai:m@{server.url}", options={"stream": False}),
        "out": str(out),
        "style": style,
        "task_ids": TASKS,
        "backend": "inline",
        "preflight": False,
    }
    return rollout(RolloutConfig(**{**settings, **more}), **call)


def stored(out: Path) -> dict[tuple[str, int], Trajectory]:
    with RunStore.read(out) as store:
        return {(t.task_id, t.sample): t for t in store.trajectories()}


@pytest.mark.parametrize("style", STYLES)
def test_a_style_is_asked_for_played_and_stored(
    dataset: Path, tmp_path: Path, style: Style
) -> None:
    with ModelServer([good]) as server:
        summary = collect(dataset, server, tmp_path / "run", style)
        sent = server.generations
    assert (summary.new, summary.errors, summary.misfits) == (2, 0, {})
    assert summary.passed == 2  # the server knows the answers
    for trajectory in stored(tmp_path / "run").values():
        assert trajectory.style == style
        system, user = trajectory.messages[:2]
        assert system.content.endswith(prompt_of(style))
        requests = [b for b in sent if b["messages"][1]["content"] == user.content]
        assert len(requests) == len(trajectory.turns)
        assert all(body["messages"][0]["content"] == system.content for body in requests)
        for turn in trajectory.turns:
            assert trajectory.messages[turn.message_index].role == "assistant"
        names = {tool["function"]["name"] for body in requests for tool in body.get("tools", ())}
        submit = {"submit_result"} if trajectory.task_id == "tiny-cheapest" else set()
        assert ({"list_hotels"} < names) == (style != "reasoning")
        assert names & {"submit_result"} == submit
    policy = stored(tmp_path / "run")["tiny-cheapest", 0].messages[0].content
    assert policy == f"Never book more than was asked for.\n\n{prompt_of(style)}"


def test_reasoning_is_given_back_between_calls(dataset: Path, tmp_path: Path) -> None:
    with ModelServer([good]) as server:
        collect(dataset, server, tmp_path / "r", "thinking-agent", task_ids=("tiny-cheapest",))
        last = server.generations[-1]["messages"]
    thoughts = [m.get("reasoning_content") for m in last if m["role"] == "assistant"]
    assert thoughts == ["I need the prices.", "180 is least; to be sure:"]
    replies = [m for m in stored(tmp_path / "r")["tiny-cheapest", 0].messages if m.reasoning]
    assert len(replies) == 3


def test_think_tags_beside_native_calls_are_reasoning(dataset: Path, tmp_path: Path) -> None:
    with ModelServer([good]) as server:
        collect(dataset, server, tmp_path / "r", "thinking-agent", task_ids=("tiny-count",))
    first = stored(tmp_path / "r")["tiny-count", 0].messages[2]
    assert (first.reasoning, first.content) == ("Let me count.", "")
    assert first.tool_calls[0].name == "list_hotels"


def test_what_is_of_another_style_is_counted_with_its_reason(dataset: Path, tmp_path: Path) -> None:
    replies = [says("", LIST, thought="hm"), says("", SUBMIT)]
    with ModelServer([scripted(replies)]) as server:
        only = {"task_ids": ("tiny-cheapest",), "n": 3}
        summary = collect(dataset, server, tmp_path / "a", "agent", **only)
        assert summary.misfits == {"there is reasoning where none was asked for": 3}
        summary = collect(dataset, server, tmp_path / "b", None, **only)
        assert summary.misfits == {}
        assert summary.passed == 3


def test_a_cut_run_goes_on_to_the_same_records(dataset: Path, tmp_path: Path) -> None:
    stop = threading.Event()
    with ModelServer([good]) as server:
        collect(dataset, server, tmp_path / "whole", "thinking-agent", n=6)
        cut = collect(
            dataset, server, tmp_path / "cut", "thinking-agent", n=6, concurrency=1, cancel=stop,
            progress=lambda now: stop.set() if now.done >= 4 else None,
        )  # fmt: skip
        assert (cut.ended, 4 <= cut.samples < 12) == ("interrupted", True)
        again = collect(dataset, server, tmp_path / "cut", "thinking-agent", n=6)
        assert (again.ended, again.new) == ("complete", 12 - cut.samples)
        with pytest.raises(ResumeError, match="style: 'thinking-agent' -> 'agent'"):
            collect(dataset, server, tmp_path / "cut", "agent", n=6)
    whole, resumed = stored(tmp_path / "whole"), stored(tmp_path / "cut")
    assert whole.keys() == resumed.keys()
    assert all(equal_but_times(whole[key], resumed[key]) for key in whole)


def test_runs_without_a_style_are_identified_as_before(dataset: Path, tmp_path: Path) -> None:
    with ModelServer([scripted([says("", SUBMIT)])]) as server:
        collect(dataset, server, tmp_path / "r", None, task_ids=("tiny-cheapest",))
    assert "style" not in load(tmp_path / "r")["config"]
    (trajectory,) = stored(tmp_path / "r").values()
    assert trajectory.style is None
    assert trajectory.messages[0].content == "Never book more than was asked for."


@pytest.mark.parametrize(("style", "begin"), [("thinking-agent", "<think>"), ("agent", "</think>")])
def test_a_model_of_ours_is_prompted_in_the_mode_of_the_style(
    dataset: Path, tmp_path: Path, style: Style, begin: str
) -> None:
    write_random_model(tmp_path / "m", EncodingConfig(kind="dsml"))
    summary = rollout(
        RolloutConfig(
            dataset=str(dataset),
            policy=PolicyConfig(spec=f"dsa:{tmp_path / 'm'}", options={"threads": 1}),
            out=str(tmp_path / "run"),
            style=style,
            task_ids=("tiny-cheapest",),
            sampling=Sampling(max_tokens=8),
            backend="inline",
        )
    )
    assert (summary.new, summary.errors) == (1, 0)
    assert sum(summary.misfits.values()) == 1  # it writes noise
    tokenizer = load_encoding(tmp_path / "m").tokenizer
    (trajectory,) = stored(tmp_path / "run").values()
    tokens = trajectory.turns[0].tokens
    assert tokens is not None
    prompt = read_tokens(tmp_path / "run", tokens)["prompt_ids"].tolist()
    assert prompt[-1] == tokenizer.token_id(begin)
    assert prompt_of(style) in tokenizer.decode(prompt)


def test_options_come_before_the_mode_of_the_style() -> None:
    def options(spec: str, style: Style | None, **given: Any) -> dict[str, Any]:
        policy = PolicyConfig(spec=spec, options=given)
        return dict(RolloutConfig(dataset="d", policy=policy, out="o", style=style).player.options)

    assert options("dsa:m", "thinking-agent") == {"thinking": True}
    assert options("record:log:dsa:m", "agent") == {"thinking": False}
    assert options("dsa:m", "agent", thinking=True) == {"thinking": True}
    assert options("dsa:m", None) == options("openai:m", "agent") == {}
