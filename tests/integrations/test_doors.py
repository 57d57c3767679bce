"""One table of turns through every door: the same reward, or the same words."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import turn_table
from env_server import OpenEnv, http, serving
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from tiny_dataset import write_tiny_dataset
from turn_table import FAULTY, PAID, PLAIN, REFUSED, turn

from envgen.core.canonical import compact
from envgen.core.turns import parse_action
from envgen.environments.general import GeneralEnv
from envgen.integrations.server import EnvServer
from envgen.policies.serving.errors import ApiError
from envgen.policies.serving.messages import read_messages
from envgen.store.dataset import Dataset

TASK = "tiny-cheapest"


class Told(NamedTuple):
    text: str
    reward: float
    done: bool


class Doors:
    """A dataset behind all doors; each turn is the first of an episode."""

    def __init__(self, dataset: Dataset, server: EnvServer) -> None:
        self.env, self.server = GeneralEnv(dataset, backend="inline"), server
        gold = dataset.task_files(TASK).gold
        assert gold is not None
        self.answer = compact(gold.answer)
        self.known = {"name": gold.calls[0].name, "arguments": gold.calls[0].arguments}

    def gym(self, said: Any) -> Told:
        self.env.reset(options={"task_id": TASK})
        text, reward, terminated, truncated, _ = self.env.step(
            said if isinstance(said, str) else json.dumps(said)
        )
        return Told(text, float(reward), terminated or truncated)

    def socket(self, said: Any) -> Told:
        with OpenEnv(self.server) as client:
            client.say("reset", task_id=TASK)
            client.socket.send(json.dumps({"type": "step", "data": said}))
            found = json.loads(client.socket.recv(30))["data"]
            return Told(found["observation"]["text"], found["reward"], found["done"])

    def over_http(self, said: Any) -> Told:
        opened = http(self.server, "POST", "/episodes", {"task_id": TASK})[1]
        status, found = http(self.server, "POST", f"/episodes/{opened['id']}/step", said)
        assert status == 200, found
        return Told(found["text"], found["reward"] or 0.0, found["done"])

    def calls(self, call: Any) -> dict[str, tuple[str, Any]]:
        """What the doors that take one call say to it, and whether they say that it failed."""
        opened = http(self.server, "POST", "/episodes", {"task_id": TASK})[1]
        one = {"tool_name": call.get("name"), "arguments": call.get("arguments")}
        text = http(self.server, "POST", f"/episodes/{opened['id']}/step", one)[1]["text"]
        found: dict[str, tuple[str, Any]] = {"http": (text, None)}
        with OpenEnv(self.server) as client:
            client.say("reset", task_id=TASK)
            told = client.say("step", type="call_tool", **one)
            found["call_tool"] = told["observation"]["result"], None
            client.say("reset", task_id=TASK)
            rpc = client.say("mcp", jsonrpc="2.0", id=1, method="tools/call", params=call)["result"]
            found["socket's mcp"] = rpc["content"][0]["text"], rpc["isError"]
        if isinstance(call.get("arguments"), dict) and isinstance(call.get("name"), str):
            found["mcp"] = asyncio.run(self._mcp(call))
        return found

    async def _mcp(self, call: Any) -> tuple[str, Any]:
        opened = http(self.server, "POST", "/episodes", {"task_id": TASK})[1]
        url = f"http://127.0.0.1:{self.server.port}{opened['mcp']}"
        async with Client(streamable_http_client(url)) as client:
            told: Any = await client.call_tool(call["name"], call["arguments"])
            return told.content[0].text, told.is_error


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    dataset = write_tiny_dataset(tmp_path_factory.mktemp("doors") / "ds")
    with serving(dataset).running() as server:
        yield Doors(dataset, server)


def alike(doors: Doors, said: Any) -> Told:
    told = doors.gym(said)
    assert doors.socket(said) == told
    assert doors.over_http(said) == told
    assert "pydantic" not in told.text
    assert "[type=" not in told.text
    return told


@pytest.mark.parametrize("what", PAID)
def test_a_turn_with_the_answer_is_paid_at_every_door(doors: Doors, what: str) -> None:
    said = turn_table.filled(PAID[what], doors.answer)
    told = alike(doors, said)
    assert told[1:] == (1.0, True)
    assert "must be an object" not in told.text  # null and empty arguments are none
    assert (
        read_messages([{"role": "assistant", **said}])[0] == parse_action(json.dumps(said)).message
    )


@pytest.mark.parametrize("what", REFUSED)
def test_a_turn_that_is_none_is_refused_in_the_same_words(doors: Doors, what: str) -> None:
    said, words = REFUSED[what]
    told = alike(doors, said)
    assert words in told.text
    assert not told.done
    with pytest.raises(ApiError) as caught:
        read_messages([{"role": "assistant", **said}])
    assert words in str(caught.value)


@pytest.mark.parametrize("what", FAULTY)
def test_a_call_that_fails_is_told_in_the_same_words(doors: Doors, what: str) -> None:
    call, words = FAULTY[what]
    told = alike(doors, turn(call))
    assert words in told.text
    assert not told.done
    if isinstance(call, dict) and "function" not in call and "custom" not in call:
        for door, (text, failed) in doors.calls(call).items():
            assert text == told.text, door
            assert failed in (True, None), door


def test_a_call_that_succeeds_is_no_error(doors: Doors) -> None:
    found = doors.calls(doors.known)
    assert {failed for _, failed in found.values()} == {False, None}


@pytest.mark.parametrize("what", PLAIN)
def test_words_are_words_at_every_door(doors: Doors, what: str) -> None:
    assert "malformed_action" in alike(doors, PLAIN[what]).text


def test_the_table_is_long() -> None:
    assert len(PAID) + len(REFUSED) + len(FAULTY) + len(PLAIN) >= 60
