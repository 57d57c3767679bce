from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny_dataset import TOOLS_SOURCE, write_tiny_dataset

from envgen.core.errors import ConfigError, DatasetError, EnvError, SandboxUnavailableError
from envgen.core.types import StopReason
from envgen.environments import hosts as hosts_module
from envgen.environments.general import GeneralEnv
from envgen.environments.hosts import close_hosts, hosts_for, open_dataset
from envgen.store.dataset import Dataset


def call(name: str, /, **arguments: Any) -> str:
    return json.dumps({"tool_calls": [{"name": name, "arguments": arguments}]})


LIST = call("list_hotels", city="Hangzhou")
SUBMIT = call("submit_result", answer_text='{"hotel": "Lotus Inn"}')


def play(env: GeneralEnv) -> float:
    env.reset(options={"task_id": "tiny-cheapest"})
    env.step(LIST)
    return env.step(SUBMIT)[1]


@pytest.mark.parametrize(
    "backend",
    [
        "inline",
        "process",
        pytest.param("bubblewrap", marks=pytest.mark.bwrap),
    ],
)
def test_gold_scores_on_every_backend(tiny: Dataset, backend: Any) -> None:
    env = GeneralEnv(tiny, backend=backend)
    assert play(env) == 1.0
    env.reset(options={"task_id": "tiny-book"})
    env.step(call("book_hotel", hotel="Garden Court", nights=2))
    done = call("submit_result", answer_text='{"outcome": "done"}')
    assert env.step(done)[1] == 1.0
    env.reset(options={"task_id": "tiny-cheapest-v1"})
    env.step(LIST)
    variant = call("submit_result", answer_text='{"hotel": "West Lake"}')
    assert env.step(variant)[1] == 1.0
    env.close()


def test_a_dataset_opened_unproven_stays_so_in_a_child(tiny: Dataset) -> None:
    env = GeneralEnv(Dataset.open(tiny.path, unproven=True), backend="process")
    assert play(env) == 1.0
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    child = context.Process(target=lambda: results.put(play(env)))
    child.start()
    assert results.get(timeout=30) == 1.0
    child.join(30)


def test_a_vanished_dataset_is_an_env_error(folder: Path) -> None:
    env = GeneralEnv(write_tiny_dataset(folder), backend="process")
    env.reset(options={"task_id": "tiny-cheapest"})
    env.step(LIST)
    shutil.rmtree(folder)
    with pytest.raises(EnvError):
        env.step(SUBMIT)
    assert env.stop is StopReason.ERROR


def test_nothing_starts_before_the_first_call(tiny: Dataset) -> None:
    close_hosts()
    env = GeneralEnv(tiny, backend="process")
    env.reset(options={"task_id": "tiny-cheapest"})
    shared = hosts_for(tiny, "process")
    assert not shared._running
    assert shared._verifiers._host is None
    env.step(LIST)
    assert list(shared._running) == ["tiny_hotels"]
    other = GeneralEnv(tiny, backend="process")
    other.reset(options={"task_id": "tiny-cheapest-v1"})
    other.step(LIST)
    assert len(shared._running["tiny_hotels"].leases) == 2
    env.close()
    other.close()
    env.close()
    assert shared._running["tiny_hotels"].leases == []


def test_untrusted_code_is_never_run_unisolated(folder: Path) -> None:
    other = TOOLS_SOURCE + "\n# from elsewhere\n"  # trust goes by hash: another content
    foreign = write_tiny_dataset(folder, tools_source=other, register=False)
    env = GeneralEnv(foreign, backend="process")
    with pytest.raises(SandboxUnavailableError) as caught:
        env.reset(options={"task_id": "tiny-cheapest"})
    assert caught.value.hint


BROKEN: dict[str, tuple[str, str]] = {
    "undocumented exception": ("list_hotels", "    raise RuntimeError('boom')\n"),
    "exit": ("list_hotels", "    raise SystemExit(0)\n"),
    "hard exit": ("list_hotels", "    import os\n    os._exit(3)\n"),
    "no JSON": ("list_hotels", "    return {1, 2}\n"),
    "writes although it only reads": (
        "list_hotels",
        "    db.execute('DELETE FROM hotels')\n    return []\n",
    ),
}


def sabotaged(body: str) -> str:
    head, _, rest = TOOLS_SOURCE.partition('    """The hotels of a city, by name."""\n')
    return f'{head}    """Broken."""\n{body}\n' + rest.partition("\n\n\n")[2].join(["\n\n", ""])


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_tool_spoils_no_episode(folder: Path, name: str) -> None:
    body = BROKEN[name][1]
    dataset = write_tiny_dataset(folder, tools_source=sabotaged(body))
    env = GeneralEnv(dataset, backend="process")
    env.reset(options={"task_id": "tiny-cheapest"})
    observation, reward, terminated, *_ = env.step(LIST)
    error, stop = ("tool_failed", None)
    if name == "hard exit":
        error, stop = ("sandbox_died", StopReason.SANDBOX_DIED)
    assert json.loads(observation)["error"] == error
    assert (reward, terminated, env.stop) == (0.0, stop is not None, stop)
    assert len(env.faults) == 1
    env.reset(options={"task_id": "tiny-cheapest"})
    assert json.loads(env.step(call("get_hotel", name="Lotus Inn"))[0])["price"] == 180
    assert env.step(SUBMIT)[1] == 1.0
    env.close()


def test_tools_that_do_not_load_are_an_env_error(folder: Path) -> None:
    dataset = write_tiny_dataset(folder, tools_source="raise RuntimeError('no')\n")
    env = GeneralEnv(dataset, backend="process")
    env.reset(options={"task_id": "tiny-cheapest"})
    with pytest.raises(EnvError):
        env.step(LIST)


def test_a_lost_zygote_costs_no_episode(tiny: Dataset) -> None:
    close_hosts()
    env, other = (GeneralEnv(tiny, backend="process") for _ in range(2))
    for one in (env, other):
        one.reset(options={"task_id": "tiny-cheapest"})
        one.step(LIST)
    host: Any = hosts_for(tiny, "process")._running["tiny_hotels"].host
    host._zygote.close()
    for one in (env, other):  # what was done is done again elsewhere
        assert json.loads(one.step(LIST)[0])[0]["name"] == "Harbour View"
        assert one._places.deaths == 1
        assert one.step(SUBMIT)[1] == 1.0
    assert play(env) == play(other) == 1.0
    env.close()
    other.close()


def _in_child(path: Path, results: Any) -> None:
    env = GeneralEnv(path, backend="process")
    shared = hosts_for(env.dataset, "process")
    results.put((play(env), os.getpid(), len(hosts_module._processes), len(shared._running)))
    env.close()


def test_a_forked_child_starts_its_own_workers(tiny: Dataset) -> None:
    env = GeneralEnv(tiny, backend="process")
    assert play(env) == 1.0
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    child = context.Process(target=_in_child, args=(tiny.path, results))
    child.start()
    score, pid, processes, running = results.get(timeout=30)
    child.join(30)
    assert child.exitcode == 0
    assert (score, running) == (1.0, 1)
    assert pid != os.getpid()
    assert processes >= 2
    assert play(env) == 1.0  # the parent's workers live on


def test_an_env_made_before_the_fork_works_in_the_child(tiny: Dataset) -> None:
    env = GeneralEnv(tiny, backend="process")
    env.reset(options={"task_id": "tiny-cheapest"})
    env.step(LIST)
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    child = context.Process(target=lambda: results.put(play(env)))
    child.start()
    assert results.get(timeout=30) == 1.0
    child.join(30)
    assert env.step(SUBMIT)[1] == 1.0


def in_threads(n: int, work: Callable[[], None]) -> list[BaseException]:
    failed: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run) for _ in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return failed


def test_episodes_in_threads_share_one_host(tiny: Dataset) -> None:
    close_hosts()

    def work() -> None:
        env = GeneralEnv(tiny, backend="process")
        for _ in range(5):
            assert play(env) == 1.0
        env.close()

    assert in_threads(8, work) == []
    shared = hosts_for(tiny, "process")
    assert list(shared._running) == ["tiny_hotels"]
    assert shared._running["tiny_hotels"].leases == []


def test_idle_hosts_beyond_the_limit_are_shut_down(
    tiny: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    close_hosts()
    monkeypatch.setattr(hosts_module, "MAX_TOOL_HOSTS", 1)
    env = GeneralEnv(tiny, backend="inline")
    play(env)
    env.reset(options={"task_id": "tiny-count"})
    env.step(LIST)
    assert list(hosts_for(tiny, "inline")._running) == ["tiny_quiz"]
    assert play(env) == 1.0


def test_datasets_are_opened_once(tiny: Dataset, tmp_path: Path) -> None:
    assert open_dataset(tiny) is tiny
    assert open_dataset(tiny.path) is open_dataset(str(tiny.path))
    with pytest.raises(DatasetError):
        open_dataset(tmp_path / "nothing")
    with pytest.raises(DatasetError):
        open_dataset("package:nothing")


def test_close_hosts_twice_is_harmless_and_play_goes_on(tiny: Dataset) -> None:
    env = GeneralEnv(tiny, backend="process")
    assert play(env) == 1.0
    close_hosts()
    close_hosts()
    assert play(env) == 1.0


def test_an_unknown_backend_is_a_config_error(tiny: Dataset) -> None:
    with pytest.raises(ConfigError, match="did you mean 'process'"):
        GeneralEnv(tiny, backend="proces")  # type: ignore[arg-type]  # what is tested
