"""The environment server: every protocol plays the same episodes, and nothing a client does ends it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from socket import SHUT_RDWR
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
import uvicorn
from env_server import OpenEnv, http, serving
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from tiny_dataset import write_tiny_dataset
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from envgen.core.canonical import compact
from envgen.core.errors import ConfigError
from envgen.integrations import seats
from envgen.integrations.server import EnvServer, make_app
from envgen.integrations.settings import EnvServerConfig
from envgen.policies.serving.doors import in_thread, listen
from envgen.store.dataset import Dataset

NAMED = "session=somebody-or-other"
SECRETS = ("solution", "verifier", "expected", "probes", "sqlite", "SELECT")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_tiny_dataset(tmp_path_factory.mktemp("served") / "ds")


@pytest.fixture(scope="module")
def server(dataset: Dataset) -> Iterator[EnvServer]:
    with serving(dataset).running() as running:
        yield running


def gold_turns(dataset: Dataset, task_id: str) -> list[dict[str, Any]]:
    """Gold's calls, one a turn, then its answer."""
    gold = dataset.task_files(task_id).gold
    assert gold is not None
    calls = [{"name": one.name, "arguments": one.arguments} for one in gold.calls]
    submit = {"name": "submit_result", "arguments": {"answer_text": compact(gold.answer)}}
    spec = dataset.tasks[task_id]
    if dataset.environments[spec.environment_id].submit_tool is None:
        return [
            *({"content": "", "tool_calls": [c]} for c in calls),
            {"content": compact(gold.answer)},
        ]
    return [{"content": "", "tool_calls": [call]} for call in (*calls, submit)]


def over_openenv(server: EnvServer, dataset: Dataset, task_id: str) -> list[Any]:
    with OpenEnv(server) as client:
        told = [client.say("reset", task_id=task_id)["observation"]["text"]]
        for turn in gold_turns(dataset, task_id):
            found = client.say("step", **turn)
            told.append((found["observation"]["text"], found["reward"], found["done"]))
    return told


def over_http(server: EnvServer, dataset: Dataset, task_id: str) -> list[Any]:
    status, opened = http(server, "POST", "/episodes", {"task_id": task_id})
    assert status == 201
    told = [opened["text"]]
    for turn in gold_turns(dataset, task_id):
        found = http(server, "POST", f"/episodes/{opened['id']}/step", turn)[1]
        told.append((found["text"], found["reward"] or 0.0, found["done"]))
    assert http(server, "DELETE", f"/episodes/{opened['id']}") == (204, None)
    return told


def over_mcp(server: EnvServer, dataset: Dataset, task_id: str) -> list[Any]:
    _, opened = http(server, "POST", "/episodes", {"task_id": task_id})

    async def play() -> list[Any]:
        url = f"http://127.0.0.1:{server.port}{opened['mcp']}"
        async with Client(streamable_http_client(url)) as client:
            names = [tool.name for tool in (await client.list_tools()).tools]
            assert names == [tool["function"]["name"] for tool in opened["tools"]]
            prompt: Any = (await client.get_prompt("task")).messages[0].content
            told: list[Any] = [prompt.text]
            for turn in gold_turns(dataset, task_id):
                for call in turn.get("tool_calls", ()):
                    result: Any = await client.call_tool(call["name"], call["arguments"])
                    state = http(server, "GET", f"/episodes/{opened['id']}")[1]
                    told.append((result.content[0].text, state["reward"] or 0.0, state["done"]))
            return told

    return asyncio.run(play())


def test_the_same_actions_get_the_same_in_every_protocol(
    server: EnvServer, dataset: Dataset
) -> None:
    for task_id in ("tiny-cheapest", "tiny-pair", "tiny-book"):
        told = over_openenv(server, dataset, task_id)
        assert told == over_http(server, dataset, task_id) == over_mcp(server, dataset, task_id)
        assert told[-1][1:] == (1.0, True)
    told = over_openenv(server, dataset, "tiny-count")  # its answer is plain text
    assert told == over_http(server, dataset, "tiny-count")
    assert told[-1][1:] == (1.0, True)


def test_a_seed_draws_the_same_task_in_every_protocol(server: EnvServer) -> None:
    drawn = set()
    for seed in range(6):
        with OpenEnv(server) as client:
            first = client.say("reset", seed=seed)["observation"]["task_id"]
        second = http(server, "POST", "/episodes", {"seed": seed})[1]["task_id"]
        assert first == second == server.episodes.draw(seed)
        drawn.add(first)
    assert len(drawn) > 1


def test_without_a_seed_every_task_comes_up(dataset: Dataset) -> None:
    with serving(dataset).running() as server, OpenEnv(server) as client:
        seen = [
            client.say("reset")["observation"]["task_id"] for _ in range(2 * len(dataset.tasks))
        ]
    assert sorted(seen) == sorted([*dataset.tasks] * 2)


def test_a_turn_may_make_several_calls_and_counts_once(server: EnvServer, dataset: Dataset) -> None:
    limit = dataset.tasks["tiny-pair"].limits.turns
    call = {"name": "list_hotels", "arguments": {"city": "Suzhou"}}
    with OpenEnv(server) as client:
        client.say("reset", task_id="tiny-pair")
        for turn in range(1, limit + 1):
            found = client.say("step", content="", tool_calls=[call, call])
            assert found["observation"]["text"].count("Garden Court") == 2
            assert found["done"] == (turn == limit)
        assert found["metadata"]["stop"] == "turn_limit"
        client.say("reset", task_id="tiny-pair")
        for _ in range(limit + 1):  # one by one, as peers send those of one turn
            found = client.say(
                "step", type="call_tool", tool_name="list_hotels", arguments={"city": "Suzhou"}
            )
        assert not found["done"]


def test_sessions_are_isolated(server: EnvServer) -> None:
    book = {"name": "book_hotel", "arguments": {"name": "Lotus Inn", "guest": "A"}}

    def play(number: int) -> str:
        with OpenEnv(server) as client:
            client.say("reset", task_id="tiny-book")
            first = client.say("step", content="", tool_calls=[book])["observation"]["text"]
            again = client.say("step", content="", tool_calls=[book])["observation"]["text"]
            return f"{first} {again}"

    with ThreadPoolExecutor(64) as pool:
        assert len(set(pool.map(play, range(64)))) == 1


def test_who_vanishes_leaves_nothing(server: EnvServer) -> None:
    before = len(server.seats)
    with OpenEnv(server) as client:
        client.say("reset", seed=1)
        assert len(server.seats) == before + 1
        client.socket.socket.shutdown(SHUT_RDWR)  # without a word
    for _ in range(100):
        if len(server.seats) == before:
            break
        asyncio.run(asyncio.sleep(0.05))
    assert len(server.seats) == before


def test_another_asgi_server_plays_the_same(server: EnvServer, dataset: Dataset) -> None:
    app = make_app(dataset.path, backend="inline", trust=True)
    other = uvicorn.Server(uvicorn.Config(app, log_config=None))
    with listen("127.0.0.1", 0) as place:
        stop = partial(setattr, other, "should_exit", True)
        with in_thread(lambda: other.run(sockets=[place]), stop, 10):
            there: Any = SimpleNamespace(port=place.getsockname()[1])
            told = over_openenv(there, dataset, "tiny-book")
            with OpenEnv(there) as client:
                client.socket.send(b"\xff")
                assert json.loads(client.socket.recv())["data"]["code"] == "INVALID_JSON"
    assert told == over_openenv(server, dataset, "tiny-book")


def test_what_nobody_uses_is_given_up(dataset: Dataset) -> None:
    with serving(dataset, idle_s=0.2).running() as server:
        opened = http(server, "POST", "/episodes", {"seed": 0})[1]
        asyncio.run(asyncio.sleep(0.6))
        status, told = http(server, "GET", f"/episodes/{opened['id']}")
        assert (status, len(server.seats)) == (404, 0)
        assert "nobody used it" in told["error"]["message"]
        with OpenEnv(server) as client:
            asyncio.run(asyncio.sleep(0.6))
            assert client.say("reset", seed=0)["code"] == "SESSION_ERROR"
            with pytest.raises(ConnectionClosed):
                client.say("reset", seed=0)


def test_closing_waits_for_a_step_a_while_only(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seats, "_PATIENCE_S", 0.2)
    with serving(dataset).running() as server:
        opened = http(server, "POST", "/episodes", {"seed": 0})[1]
        seat = server.seats.find(opened["id"])
        with seat.turn:  # as a step that goes on and on
            assert http(server, "DELETE", f"/episodes/{opened['id']}")[0] == 204
            assert seat.closed


def test_there_is_a_most_of_sessions(dataset: Dataset) -> None:
    with serving(dataset, max_sessions=2).running() as server, OpenEnv(server), OpenEnv(server):
        with OpenEnv(server) as third:
            told = json.loads(third.socket.recv(10))
            assert told["data"]["code"] == "CAPACITY_REACHED"
        status, body = http(server, "POST", "/episodes", {"seed": 0})
        assert status == 503
        assert "--max-sessions" in body["error"]["message"]


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        ("{", "INVALID_JSON"),
        ("[" * 100_000, "INVALID_JSON"),
        ('{"type": "dance"}', "UNKNOWN_TYPE"),
        ('{"type": "reset", "data": {"seed": -1}}', "VALIDATION_ERROR"),
        ('{"type": "reset", "data": {"sead": 1}}', "VALIDATION_ERROR"),
        ('{"type": "reset", "data": {"task_id": "nope"}}', "VALIDATION_ERROR"),
        (
            '{"type": "step", "data": {"tool_calls": [{"name": 1}]}}',
            "VALIDATION_ERROR",
        ),  # no episode
        ('{"type": "step", "data": {"content": "before reset"}}', "VALIDATION_ERROR"),
        ('{"type": "step", "data": null}', "VALIDATION_ERROR"),
        ('{"type": 5}', "VALIDATION_ERROR"),
        ('{"type": "\\ud800"}', "UNKNOWN_TYPE"),
        ('{"type": "reset", "data": {"task_id": "\\ud800"}}', "VALIDATION_ERROR"),
        ('{"type": "reset", "data": {"seed": ' + "9" * 5_000 + "}}", "INVALID_JSON"),
    ],
)
def test_what_is_no_message_is_told_and_the_session_goes_on(
    server: EnvServer, sent: str, code: str
) -> None:
    with OpenEnv(server) as client:
        client.socket.send(sent)
        told = json.loads(client.socket.recv(30))
        assert (told["type"], told["data"]["code"]) == ("error", code)
        assert client.say("reset", task_id="tiny-pair")["type"] == "observation"


def test_half_a_character_comes_back_as_it_was_sent(server: EnvServer) -> None:
    half = "\ud800"
    with OpenEnv(server) as client:
        client.say("reset", task_id="tiny-pair", episode_id=half)
        assert client.say("state")["episode_id"] == half
        found = client.say("step", type="call_tool", tool_name=half, arguments={})
        assert found["observation"]["tool_name"] == half
    opened = http(server, "POST", "/episodes", {"seed": 1, "episode_id": half})[1]
    assert http(server, "GET", f"/episodes/{opened['id']}")[1]["episode_id"] == half


def test_messages_have_a_most_of_bytes(dataset: Dataset) -> None:
    with serving(dataset, max_body_bytes=2_000).running() as server:
        with OpenEnv(server) as client, pytest.raises(ConnectionClosed, match="1009"):
            client.say("step", content="x" * 3_000)
        assert http(server, "POST", "/episodes", b"x" * 3_000)[0] == 413
        ticket = http(server, "POST", "/episodes", {"seed": 1})[1]["mcp"]
        assert http(server, "POST", ticket, b"x" * 3_000)[0] == 413
        assert http(server, "GET", "/health")[0] == 200


def test_without_the_key_nothing_is_told_but_an_agent_needs_its_address_alone(
    dataset: Dataset,
) -> None:
    with serving(dataset, key="open sesame").running() as server:
        for method, path in [("GET", "/schema"), ("POST", "/episodes"), ("POST", f"/mcp?{NAMED}")]:
            assert http(server, method, path, {}, Authorization="Bearer wrong")[0] == 401
        with pytest.raises(InvalidStatus, match="401"), OpenEnv(server):
            pass
        key = {"Authorization": "Bearer open sesame"}
        opened = http(server, "POST", "/episodes", {"task_id": "tiny-pair"}, **key)[1]
        assert http(server, "GET", f"/episodes/{opened['id']}")[0] == 401
        assert opened["id"] not in opened["mcp"]  # it reads no reward

        async def names() -> list[str]:
            url = f"http://127.0.0.1:{server.port}{opened['mcp']}"
            async with Client(streamable_http_client(url)) as client:
                return [tool.name for tool in (await client.list_tools()).tools]

        assert "list_hotels" in asyncio.run(names())
        for guess in ("/agents/x/mcp", f"/agents/{opened['id']}/mcp"):
            assert http(server, "POST", guess, {}, **key)[0] == 404


def test_agents_at_a_port_of_their_own_begin_nothing_and_read_no_reward(dataset: Dataset) -> None:
    with serving(dataset, agents_port=0).running() as server:
        card = server.card()
        key = {"Authorization": f"Bearer {card['key']}"}
        at_agents: Any = SimpleNamespace(port=int(str(card["agents_url"]).rpartition(":")[2]))
        opened = http(server, "POST", "/episodes", {"task_id": "tiny-pair"}, **key)[1]
        url = urlsplit(opened["mcp"])
        assert (url.port, url.path.split("/")[1]) == (at_agents.port, "agents")
        asked: list[tuple[str, str]] = [
            ("POST", "/episodes"), ("POST", "/reset"), ("POST", f"/mcp?{NAMED}"), ("GET", "/schema"),
            ("GET", f"/episodes/{opened['id']}"), ("POST", f"/{dataset.manifest.name}/tasks"),
        ]  # fmt: skip
        for method, path in asked:
            assert http(at_agents, method, path, {}, **key)[0] == 404, path
            assert http(server, method, path, {})[0] == 401, path
        with pytest.raises(InvalidStatus, match=r"403|404"), OpenEnv(at_agents):
            pass
        assert http(server, "POST", url.path, {}, **key)[0] == 404  # agents come by their own door

        async def names() -> list[str]:
            async with Client(streamable_http_client(opened["mcp"])) as client:
                return [tool.name for tool in (await client.list_tools()).tools]

        assert "list_hotels" in asyncio.run(names())


def test_a_session_is_its_key_s(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY_A", "aaa")
    monkeypatch.setenv("KEY_B", "bbb")
    with serving(dataset, api_key_env=("KEY_A", "KEY_B")).running() as server:
        a, b = ({"Authorization": f"Bearer {key}"} for key in ("aaa", "bbb"))
        opened = http(server, "POST", "/episodes", {"task_id": "tiny-pair"}, **a)[1]
        assert http(server, "GET", f"/episodes/{opened['id']}", **a)[0] == 200
        assert http(server, "GET", f"/episodes/{opened['id']}", **b)[0] == 404
        for key, task in (
            (a, "tiny-pair"),
            (b, "tiny-book"),
        ):  # one name, two clients, two sessions
            path = f"/mcp?{NAMED}&task_id={task}"
            prompt = named(server, path, "prompts/get", {"name": "task"}, **key)
            gold = dataset.tasks[task].prompt
            assert gold in prompt["result"]["messages"][0]["content"]["text"]


def test_names_of_sessions_are_hard_to_guess_and_end_with_delete(dataset: Dataset) -> None:
    with serving(dataset, max_sessions=1).running() as server:
        refused = named(server, "/mcp?session=agent1", "tools/list")
        assert "nobody can guess" in refused["error"]["message"]
        assert named(server, f"/mcp?{NAMED}", "tools/list")["result"]["tools"]
        assert http(server, "POST", "/episodes", {"seed": 0})[0] == 503
        assert http(server, "DELETE", f"/mcp?{NAMED}")[0] == 204
        assert http(server, "DELETE", f"/mcp?{NAMED}")[0] == 404
        assert http(server, "POST", "/episodes", {"seed": 0})[0] == 201


def test_two_first_requests_of_a_name_begin_one_episode(dataset: Dataset) -> None:
    with serving(dataset).running() as server, ThreadPoolExecutor(8) as pool:
        for i in range(6):
            path = f"/mcp?session=somebody-or-other-{i}&task_id=tiny-pair"
            told = list(pool.map(named, [server] * 8, [path] * 8, ["tools/list"] * 8))
            assert all(
                len(one["result"]["tools"]) == len(told[0]["result"]["tools"]) > 1 for one in told
            )
        assert len(server.seats) == 6


def test_an_episode_that_is_over_keeps_no_place(dataset: Dataset) -> None:
    with serving(dataset, max_sessions=2).running() as server:
        for i in range(5):
            path = f"/mcp?session=somebody-or-other-{i}&task_id=tiny-pair"
            for turn in gold_turns(dataset, "tiny-pair"):
                for call in turn["tool_calls"]:
                    told = named(server, path, "tools/call", call)["result"]
                    assert not told["isError"]
            again = named(server, path, "tools/call", call)["result"]
            assert (again["isError"], again["content"][0]["text"]) == (True, "the episode is over")


def named(server: EnvServer, path: str, method: str, params: Any = None, **headers: str) -> Any:
    """A request to a named MCP session, as a client of the stateless protocol sends it."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}
    more = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
    return http(server, "POST", path, body, **headers, **more)[1]


def test_web_pages_may_not_play(server: EnvServer) -> None:
    host = f"127.0.0.1:{server.port}"
    assert http(server, "POST", "/episodes", {"seed": 0}, Host="evil.example")[0] == 403
    assert http(server, "POST", "/episodes", {"seed": 0}, Origin="http://evil.example")[0] == 403
    assert http(server, "POST", "/episodes", {"seed": 0}, Origin=f"http://{host}")[0] == 201
    hidden: tuple[Any, ...] = ("http://evil.example", "null", "http://[::1")
    for evil in hidden:  # a frame with `sandbox`, a `data:` page: any page can have one
        assert http(server, "POST", "/episodes", {"seed": 0}, Origin=evil)[0] == 403
        with pytest.raises(InvalidStatus, match="403"), connect(f"ws://{host}/ws", origin=evil):
            pass


def test_a_message_of_bytes_is_answered(server: EnvServer) -> None:
    with OpenEnv(server) as client:
        client.socket.send(b"\xff")
        assert json.loads(client.socket.recv())["data"]["code"] == "INVALID_JSON"
        assert client.say("reset", seed=0)["observation"]["task_id"]


def test_nothing_secret_is_told_to_agents(server: EnvServer, dataset: Dataset) -> None:
    task_id = "tiny-pair"
    gold = dataset.task_files(task_id).gold
    assert gold is not None
    told = json.dumps(http(server, "POST", "/episodes", {"task_id": task_id})[1])
    with OpenEnv(server) as client:
        told += json.dumps(client.say("reset", task_id=task_id))
        told += json.dumps(client.say("step", type="list_tools"))
        wrong = {"name": "submit_result", "arguments": {"answer_text": "[]"}}
        told += json.dumps(client.say("step", content="", tool_calls=[wrong])["observation"])
    assert not [word for word in (*SECRETS, compact(gold.answer)) if word in told]


def test_the_task_api_tells_which_tasks_there_are(server: EnvServer, dataset: Dataset) -> None:
    (name,) = http(server, "GET", "/list_environments")[1]
    splits = [one["name"] for one in http(server, "GET", f"/{name}/splits")[1]]
    counts = [
        http(server, "POST", f"/{name}/num_tasks", {"split": s})[1]["num_tasks"] for s in splits
    ]
    assert sum(counts) == len(dataset.tasks)
    first = http(server, "POST", f"/{name}/task", {"split": splits[0], "index": 0})[1]["task"]
    assert first["task_id"] in dataset.tasks
    some = http(server, "POST", f"/{name}/task_range", {"split": splits[0], "start": 0, "stop": 1})[
        1
    ]
    assert some["tasks"] == [first]
    assert http(server, "POST", f"/{name}/task", {"split": splits[0], "index": 10**6})[0] == 422


def test_a_port_in_use_is_told(dataset: Dataset, server: EnvServer) -> None:
    with pytest.raises(ConfigError, match="can't listen on"):
        EnvServer(dataset.path, EnvServerConfig(port=server.port, trust=True))


def test_filters_that_leave_nothing_are_told(dataset: Dataset) -> None:
    with pytest.raises(ConfigError, match=r"no task of .* is left"):
        serving(dataset, families=("search",))
    with pytest.raises(ConfigError, match="unknown family 'generl'; did you mean 'general'"):
        serving(dataset, families=("generl",))
    with pytest.raises(ConfigError, match="did you mean 'tiny-pair'"):
        serving(dataset, task_ids=("tiny-pear",))


def test_one_episode_over_stdio(dataset: Dataset, tmp_path: Path) -> None:
    import sys

    from mcp.client.stdio import StdioServerParameters, stdio_client

    verdict = tmp_path / "verdict.json"
    words = [
        "-m",
        "envgen",
        "serve",
        "env",
        str(dataset.path),
        "--mcp",
        "stdio",
        "--task",
        "tiny-pair",
    ]
    more = ["--backend", "inline", "--trust", "--json", str(verdict)]
    started = StdioServerParameters(command=sys.executable, args=[*words, *more])

    async def play() -> None:
        async with Client(stdio_client(started)) as client:
            for turn in gold_turns(dataset, "tiny-pair"):
                for call in turn["tool_calls"]:
                    await client.call_tool(call["name"], call["arguments"])

    asyncio.run(play())
    assert json.loads(verdict.read_text())["reward"] == 1.0
