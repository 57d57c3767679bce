"""``isolate``: whether episodes of one environment can see each other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import gymnasium
import pytest

from envgen.core.errors import ConfigError, EnvError, SandboxUnavailableError
from envgen.environments.general import GeneralEnv
from envgen.environments.hosts import close_hosts, hosts_for
from envgen.policies.registry import PolicyConfig
from envgen.rollout.run import RolloutConfig, rollout
from envgen.sandboxes.tools import WorkerToolHost, tool_host
from envgen.sandboxes.zygote import Isolation
from envgen.store.bundles import EnvironmentBundle
from envgen.store.dataset import Dataset
from envgen.store.writer import DatasetWriter

VICTIM, OTHER = "0123", "0321"
SPY = """

import os, signal


def get_hotel(db, *, name):
    \"\"\"Mark this process by its umask, which all may read; find, or kill, those with a mark.\"\"\"
    what, _, word = name.partition(":")
    if what == "mark":
        os.umask(int(word, 8))
        return {"marked": word}
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/status") as file:
                status = file.read()
        except OSError:
            continue
        if f"\\nUmask:\\t{word}\\n" in status:
            found.append(int(pid))
            if what == "kill":
                os.kill(int(pid), signal.SIGKILL)
    return {"found": len(found)}
"""


@pytest.fixture(scope="module")
def spies(tiny: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """The hotels, with a tool that looks around."""
    files = tiny.environment_files("tiny_hotels")
    assert files.database is not None
    environment = EnvironmentBundle(
        spec=files.spec,
        database=files.database.read_bytes(),
        tools_source=files.tools_source + SPY,
        blueprint=files.blueprint,
    )
    with DatasetWriter(tmp_path_factory.mktemp("spies") / "ds", name="spies") as writer:
        writer.add_environment(environment)
        writer.add_task(tiny.task_files("tiny-cheapest"))
        return writer.finish()


@pytest.fixture
def closed(spies: Dataset) -> Iterator[None]:
    yield
    close_hosts(spies)


def ask(env: gymnasium.Env[str, str], name: str) -> Any:
    action = {"content": "", "tool_calls": [{"name": "get_hotel", "arguments": {"name": name}}]}
    return json.loads(env.step(json.dumps(action))[0])


def two(spies: Dataset, isolate: Isolation) -> tuple[gymnasium.Env[str, str], ...]:
    """Two running episodes of one environment; marked ``VICTIM`` and ``OTHER``."""
    created = []
    for mark in (VICTIM, OTHER):
        env = gymnasium.make(
            "envgen/General-v0", dataset=spies, backend="bubblewrap", isolate=isolate
        )
        env.reset(seed=0)
        assert ask(env, f"mark:{mark}") == {"marked": mark}
        created.append(env)
    return tuple(created)


@pytest.mark.bwrap
@pytest.mark.usefixtures("closed")
def test_episodes_of_one_environment_share_a_sandbox(spies: Dataset) -> None:
    victim, other = two(spies, "environment")
    assert ask(other, f"look:{VICTIM}") == {"found": 1}
    assert ask(other, f"kill:{VICTIM}")["error"] == "tool_failed"  # the worker's filter refuses it
    assert ask(victim, f"look:{VICTIM}") == {"found": 1}
    victim.close()
    other.close()


@pytest.mark.bwrap
@pytest.mark.usefixtures("closed")
def test_isolated_episodes_neither_see_nor_reach_each_other(spies: Dataset) -> None:
    victim, other = two(spies, "episode")
    assert ask(other, f"look:{OTHER}") == {"found": 1}
    assert ask(other, f"look:{VICTIM}") == {"found": 0}
    assert ask(other, f"kill:{VICTIM}") == {"found": 0}
    assert ask(victim, f"look:{VICTIM}") == {"found": 1}
    other.close()
    assert ask(victim, f"look:{VICTIM}") == {"found": 1}
    victim.close()


@pytest.mark.bwrap
@pytest.mark.usefixtures("closed")
def test_an_isolated_episode_s_sandbox_ends_with_it(spies: Dataset) -> None:
    env = GeneralEnv(spies, backend="bubblewrap", isolate="episode")
    env.reset(seed=0)
    ask(env, f"mark:{VICTIM}")
    assert env._places._place is not None
    zygote = env._places._place.session._zygote
    env.reset(seed=0)
    zygote.process.wait(5)  # or it lives on, which is an error; killed or told to end, as it comes
    assert ask(env, f"look:{VICTIM}") == {"found": 0}
    env.close()


@pytest.mark.bwrap
@pytest.mark.usefixtures("closed")
def test_both_kinds_run_beside_each_other(spies: Dataset) -> None:
    shared = hosts_for(spies, "bubblewrap")
    apart = hosts_for(spies, "bubblewrap", "episode")
    assert shared is not apart
    assert apart is hosts_for(spies, "bubblewrap", "episode")


@pytest.mark.bwrap
def test_an_isolated_session_that_can_t_open_leaves_no_sandbox(
    spies: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = spies.environment_files("tiny_hotels")
    assert files.database is not None
    host = tool_host(
        files.tools_source,
        files.spec.tools,
        files.database,
        backend="bubblewrap",
        isolate="episode",
    )
    assert isinstance(host, WorkerToolHost)
    started = []
    start = host._start

    def note() -> Any:
        started.append(start())
        return started[-1]

    monkeypatch.setattr(host, "_start", note)
    with pytest.raises(EnvError, match="can't read"):
        host.open(tmp_path / "missing.sqlite")
    assert [zygote.alive for zygote in started] == [False]
    host.close()


@pytest.mark.parametrize("backend", ["inline", "process"])
def test_a_backend_that_isolates_nothing_is_refused(spies: Dataset, backend: Any) -> None:
    env = GeneralEnv(spies.path, backend=backend, isolate="episode", trust=True, unproven=True)
    with pytest.raises(SandboxUnavailableError, match="a sandbox for each episode") as caught:
        env.reset(seed=0)
    assert "bubblewrap" in str(caught.value.hint)


def test_an_unknown_isolation_is_refused(spies: Dataset) -> None:
    assert get_args(Isolation) == ("environment", "episode")
    with pytest.raises(ConfigError, match="unknown isolate 'episodes'"):
        GeneralEnv(spies, isolate="episodes")  # type: ignore[arg-type]  # the point of the test


@pytest.mark.bwrap
@pytest.mark.usefixtures("closed")
def test_rollouts_can_be_isolated(spies: Dataset, tmp_path: Path) -> None:
    config = RolloutConfig(
        dataset=str(spies.path),
        policy=PolicyConfig(spec="gold"),
        out=str(tmp_path / "run"),
        n=3,
        concurrency=1,
        backend="bubblewrap",
        isolate="episode",
    )
    done = rollout(config)
    assert (done.passed, done.errors) == (3, 0)
    refused = config.model_copy(
        update={"backend": "process", "out": str(tmp_path / "other"), "trust": True}
    )
    with pytest.raises(SandboxUnavailableError, match="a sandbox for each episode"):
        rollout(refused)
