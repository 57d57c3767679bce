from __future__ import annotations

import base64
import io
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy_world import play, town_functions, town_task

from envgen.core.errors import ConfigError, PolicyError
from envgen.core.types import Message, Sampling, ToolCall
from envgen.policies import parse_policy
from envgen.policies.base import SamplingMask, Tokens
from envgen.policies.random_valid import RandomValidPolicy
from envgen.policies.replay import RecordPolicy, ReplayPolicy, unpack_tokens
from envgen.policies.scripted import ScriptedPolicy


def test_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "recording.jsonl"
    recorded = RecordPolicy(RandomValidPolicy(), path)
    live = [play(recorded, town_task(), town_functions(), seed) for seed in range(3)]
    again = ReplayPolicy(path)
    assert (again.name, again.version) == ("random-valid", "1")
    replayed = [play(again, town_task(), town_functions(), seed) for seed in range(3)]
    assert [e.messages for e in replayed] == [e.messages for e in live]


def test_half_a_character_survives(tmp_path: Path) -> None:
    said = Message(role="assistant", content="\ud83d", reasoning="\udc00")
    asked = [Message(role="user", content="\ud83d\ude00?")]
    path, rest = tmp_path / "r.jsonl", dict[str, Any](seed=0, task=town_task())
    recorded = RecordPolicy(ScriptedPolicy([said]), path).respond(asked, [], Sampling(), **rest)
    for again in (ReplayPolicy(path), RecordPolicy(ScriptedPolicy([]), path)):
        assert again.respond(asked, [], Sampling(), **rest).message == recorded.message == said


def test_another_request_is_a_miss(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    play(RecordPolicy(RandomValidPolicy(), path), town_task(), town_functions(), 0)
    with pytest.raises(PolicyError, match="holds no reply"):
        play(ReplayPolicy(path), town_task(prompt="Another."), town_functions(), 0)
    with pytest.raises(PolicyError, match="holds no reply"):
        play(ReplayPolicy(path), town_task(), town_functions(), 0, Sampling(temperature=0.5))


@pytest.mark.parametrize(("tool", "known"), [("bash", True), ("check", False)])
def test_what_bash_printed_may_differ_and_nothing_else(
    tmp_path: Path, tool: str, known: bool
) -> None:
    """A conversation that began with `ls -l` goes on where it was stopped, though the clock has."""
    said = Message(role="assistant", content="done")
    call = ToolCall(id="1", name=tool, arguments={"command": "date"})
    asked = [Message(role="user", content="Build."), Message(role="assistant", tool_calls=(call,))]

    def at(hour: str) -> list[Message]:
        return [*asked, Message(role="tool", tool_call_id="1", content=hour)]

    path, rest = tmp_path / "r.jsonl", dict[str, Any](seed=0, task=town_task())
    RecordPolicy(ScriptedPolicy([said, said]), path).respond(at("10:00"), [], Sampling(), **rest)
    other = Message(role="assistant", content="begun anew")
    resumed = RecordPolicy(ScriptedPolicy([other, other]), path)
    reply = resumed.respond(at("11:00"), [], Sampling(), **rest)
    assert reply.message == (said if known else other)
    longer = [Message(role="user", content="Build it."), *at("10:00")[1:]]
    with pytest.raises(PolicyError):
        ReplayPolicy(path).respond(longer, [], Sampling(), **rest)


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    policy = parse_policy(f"record:{path}:greedy")
    play(policy, town_task(), town_functions(), 0)
    whole = path.read_text()
    path.write_text(whole[:-20])
    ReplayPolicy(path)
    path.write_text("nonsense\n" + whole)
    with pytest.raises(ConfigError, match="line 1"):
        ReplayPolicy(path)


def test_tokens_survive(tmp_path: Path) -> None:
    tokens = Tokens(
        prompt_ids=np.array([1, 2], np.int32),
        completion_ids=np.array([3], np.int32),
        logprobs=np.array([-0.1], np.float32),
        mask=SamplingMask.from_rows([[3, 4]]),
        routing=np.ones((2, 1, 1), np.uint16),
        policy_version="v",
        raw_logprobs=True,
    )
    back = unpack_tokens(tokens.arrays())
    assert back.raw_logprobs
    assert back.policy_version == "v"
    for name, array in tokens.arrays().items():
        np.testing.assert_array_equal(back.arrays()[name], array)


def test_context_rule() -> None:
    from envgen.policies.context import retain_thinking

    answer = Message(role="assistant", content="a", reasoning="r")
    tool = Message(role="tool", content="t", tool_call_id="x")
    user = Message(role="user", content="u")
    assert retain_thinking([user, answer, tool]) == [user, answer, tool]
    assert [m.reasoning for m in retain_thinking([user, answer, user, answer])] == [
        None,
        None,
        None,
        "r",
    ]


def test_a_hostile_recording_is_told_in_one_line(tmp_path: Path) -> None:
    def played(**changes: Any) -> None:
        line = {**json.loads(text), **changes}
        path.write_text(json.dumps(line) + "\n")
        ReplayPolicy(path).respond([asked], [], Sampling(), seed=0, task=town_task())

    asked, path = Message(role="user", content="?"), tmp_path / "r.jsonl"
    said = ScriptedPolicy([Message(role="assistant", content="done")])
    RecordPolicy(said, path).respond([asked], [], Sampling(), seed=0, task=town_task())
    text, bomb = path.read_text(), io.BytesIO()
    np.savez_compressed(bomb, prompt_ids=np.zeros(80 << 20, np.int32))
    with pytest.raises(PolicyError, match="more than 256 MiB"):
        played(tokens=base64.b64encode(bomb.getvalue()).decode())
    with pytest.raises(PolicyError, match="can't be read"):
        played(tokens="AAAA")
    with pytest.raises(ConfigError, match="is not a recorded reply") as told:
        played(usage={"prompt_tokens": "\x1b[2J", "a": 1})
    assert "\n" not in str(told.value)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(ConfigError, match="no regular file"):
        ReplayPolicy(pipe)
    with path.open("r+b") as file:
        file.truncate(1 << 35)  # zeros without a line's end: it was read whole
    with pytest.raises(ConfigError, match="is not"):
        ReplayPolicy(path)
