"""A model behind files: requests out, answers in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event, Timer
from typing import Any

import pytest
from pydantic import JsonValue

from envgen.core.errors import ConfigError, PolicyError
from envgen.core.types import Message, PublicTask, Sampling
from envgen.policies import parse_policy
from envgen.policies.base import CancelledPolicyError, Policy, PolicyReply
from envgen.policies.registry import PolicyConfig

TASK = PublicTask(id="t", environment_id="e", family="general", prompt="?")
FAST = {"gather_s": 0.3}


def batch(folder: Path, **options: JsonValue) -> Policy:
    return parse_policy(PolicyConfig(spec=f"batch:m@{folder}", options={**FAST, **options}))


class Pool:
    """Threads that ask; requests that still wait when a test ends are cancelled."""

    def __init__(self) -> None:
        self.threads, self.stop = ThreadPoolExecutor(8), Event()

    def submit(self, policy: Policy, text: str) -> Future[PolicyReply]:
        return self.threads.submit(ask, policy, text, self.stop)


def ask(policy: Policy, text: str, cancel: Event | None = None) -> PolicyReply:
    messages = [Message(role="user", content=text)]
    return policy.respond(messages, [], Sampling(), seed=1, task=TASK, cancel=cancel)


def requests(folder: Path) -> list[dict[str, Any]]:
    paths = sorted((folder / "requests").glob("*.jsonl"))
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def answer(request: dict[str, Any], text: str, status: int = 200) -> str:
    """As vLLM's run-batch writes it."""
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": text},
        "finish_reason": "stop",
    }
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    body = {"id": "c", "object": "chat.completion", "choices": [choice], "usage": usage}
    response = {"status_code": status, "request_id": "r", "body": body}
    return json.dumps(
        {"id": "b", "custom_id": request["custom_id"], "response": response, "error": None}
    )


def asked(request: dict[str, Any]) -> str:
    return str(request["body"]["messages"][-1]["content"])


def wait_for(folder: Path, number: int) -> list[dict[str, Any]]:
    while len(found := requests(folder)) < number:
        Event().wait(0.02)
    return found


@pytest.fixture
def pool() -> Iterator[Pool]:
    found = Pool()
    yield found
    found.stop.set()
    found.threads.shutdown()


def test_requests_stand_in_one_file_and_answers_come_in_any_order(
    tmp_path: Path, pool: Pool
) -> None:
    policy = batch(tmp_path, price={"prompt": 1.0, "completion": 2.0})
    waiting = [pool.submit(policy, text) for text in "abc"]
    found = wait_for(tmp_path, 3)
    assert [path.name for path in (tmp_path / "requests").iterdir()] == ["0001.jsonl"]
    assert {(one["method"], one["url"]) for one in found} == {("POST", "/v1/chat/completions")}
    assert {one["body"]["model"] for one in found} == {"m"}
    assert not any("stream" in one["body"] for one in found)
    for number, request in enumerate(reversed(found)):
        line = answer(request, asked(request).upper())
        (tmp_path / "answers" / f"out{number}.jsonl").write_text(line + "\n")
    assert [one.result(30).message.content for one in waiting] == ["A", "B", "C"]
    assert waiting[0].result().usage.cost_usd == pytest.approx(13e-6)
    replayed = parse_policy(f"replay:{tmp_path}")
    assert (replayed.name, ask(replayed, "b")) == ("batch:m", waiting[1].result())


def test_a_half_answered_folder_goes_on_and_asks_nothing_twice(tmp_path: Path, pool: Pool) -> None:
    first = batch(tmp_path)
    waiting = [pool.submit(first, text) for text in "ab"]
    found = wait_for(tmp_path, 2)
    out = tmp_path / "answers" / "out.jsonl"
    out.write_text(answer(next(one for one in found if asked(one) == "a"), "A") + "\n")
    assert waiting[0].result(30).message.content == "A"
    pool.stop.set()
    with pytest.raises(CancelledPolicyError):
        waiting[1].result(30)
    with (tmp_path / "replies.jsonl").open("a") as file:
        file.write('{"key": "cut')
    pool.stop.clear()
    again = batch(tmp_path)
    waiting = [pool.submit(again, text) for text in "abc"]
    found = wait_for(tmp_path, 3)
    assert sorted(map(asked, found)) == ["a", "b", "c"]
    with out.open("a") as file:
        file.write("".join(answer(one, asked(one).upper()) + "\n" for one in found[1:]))
    assert [one.result(30).message.content for one in waiting] == ["A", "B", "C"]
    assert len((tmp_path / "replies.jsonl").read_text().splitlines()) == 3


def test_wrong_double_and_foreign_answers_are_named_and_an_error_is_asked_again(
    tmp_path: Path, pool: Pool, caplog: pytest.LogCaptureFixture
) -> None:
    policy = batch(tmp_path)
    waiting = [pool.submit(policy, text) for text in "ab"]
    found = sorted(wait_for(tmp_path, 2), key=asked)
    foreign = {"custom_id": "0" * 64}
    lines = [
        "no json",
        answer(foreign, "x"),
        answer(found[0], "A"),
        answer(found[0], "another"),
        answer(found[1], "", status=500),
        '{"custom_id": "cut',  # its rest never comes
    ]
    (tmp_path / "answers" / "out.jsonl").write_text("\n".join(lines))
    assert waiting[0].result(30).message.content == "A"
    with pytest.raises(PolicyError, match="status 500"):
        waiting[1].result(30)
    for said in ("line 1", "nobody asked", "second answer", "is an error"):
        assert said in caplog.text
    again = pool.submit(batch(tmp_path), "b")
    found = wait_for(tmp_path, 3)
    assert asked(found[2]) == "b"
    (tmp_path / "answers" / "new.jsonl").write_text(answer(found[2], "B"))
    assert again.result(30).message.content == "B"


def test_an_answer_is_read_once_it_is_whole(tmp_path: Path, pool: Pool) -> None:
    waiting = pool.submit(batch(tmp_path), "a")
    (request,) = wait_for(tmp_path, 1)
    line = answer(request, "whole")
    out = tmp_path / "answers" / "out.jsonl"
    out.write_text(line[:50])
    Timer(0.6, out.write_text, [line + "\n"]).start()
    assert waiting.result(30).message.content == "whole"


def test_a_folder_is_one_models(tmp_path: Path, pool: Pool) -> None:
    waiting = pool.submit(batch(tmp_path), "a")
    wait_for(tmp_path, 1)
    pool.stop.set()
    assert isinstance(waiting.exception(30), CancelledPolicyError)
    with pytest.raises(ConfigError, match="another model"):
        parse_policy(f"batch:other@{tmp_path}")
    with pytest.raises(ConfigError, match="missing a part"):
        parse_policy("batch:m")
    (tmp_path / "requests" / "0002.jsonl").write_bytes(b"\xff\xfe\n")
    with pytest.raises(ConfigError, match="can't be used"):
        batch(tmp_path)


def test_two_processes_share_a_folder(
    tmp_path: Path, pool: Pool, caplog: pytest.LogCaptureFixture
) -> None:
    waiting = [pool.submit(batch(tmp_path), text) for text in "abcd"]
    found = wait_for(tmp_path, 4)
    assert len(list((tmp_path / "requests").iterdir())) == 4
    lines = "".join(answer(one, asked(one).upper()) + "\n" for one in found)
    (tmp_path / "answers" / "out.jsonl").write_text(lines)
    assert [one.result(30).message.content for one in waiting] == ["A", "B", "C", "D"]
    assert "nobody asked" not in caplog.text
