"""``limits.seconds`` is the agent's time: side by side, beside a load or alone, episodes end the same way."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tiny_dataset import TOOLS_SOURCE, write_tiny_dataset

from envgen.core.types import Limits, Message, StopReason, ToolCall
from envgen.environments.general import GeneralEnv
from envgen.environments.hosts import close_hosts, hosts_for
from envgen.policies.scripted import ScriptedPolicy
from envgen.rollout.episode import run_episode
from envgen.store.dataset import Dataset
from envgen.store.recent import Recent

TASK = "tiny-cheapest"
LIMIT_S = 0.5
WORK = '''

_quick = get_hotel


def get_hotel(db, *, name):
    """One hotel; some take the processor for a while, and some wait."""
    import time
    if name.isdigit():
        end = time.process_time() + int(name) / 1000
        while time.process_time() < end: pass
        name = "Lotus Inn"
    if name == "wait":
        time.sleep(0.2)
        name = "Lotus Inn"
    return _quick(db, name=name)
'''
PLANS: tuple[tuple[str, ...], ...] = (
    ("80", "80"),
    ("wait", "wait", "wait"),
    ("300", "300", "300"),
    ("Lotus Inn",),
)
"""What is called one after the other, and then the answer: the third takes longer than it may."""
ENDS = (
    (StopReason.SUBMITTED, 1.0),
    (StopReason.SUBMITTED, 1.0),
    (StopReason.TIME_LIMIT, 0.0),
    (StopReason.SUBMITTED, 1.0),
)


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dataset]:
    folder = tmp_path_factory.mktemp("busy") / "ds"
    dataset = write_tiny_dataset(folder, tools_source=TOOLS_SOURCE + WORK)
    yield dataset
    close_hosts(dataset)


def end(dataset: Dataset, backend: Any, plan: tuple[str, ...]) -> tuple[StopReason, float]:
    """How an episode of this plan ends, and its reward."""
    env = GeneralEnv(dataset, backend=backend)
    hosts = hosts_for(dataset, backend)
    task = hosts.task(TASK)
    limits = Limits(turns=8, seconds=LIMIT_S)
    limited = task._replace(public=task.public.model_copy(update={"limits": limits}))
    hosts._tasks = Recent(lambda _: limited, 1)
    calls = [ToolCall(id="c", name="get_hotel", arguments={"name": name}) for name in plan]
    answer = {"answer_text": '{"hotel": "Lotus Inn"}'}
    calls.append(ToolCall(id="s", name="submit_result", arguments=answer))
    policy = ScriptedPolicy([Message(role="assistant", tool_calls=(call,)) for call in calls])
    got = run_episode(env, policy, TASK, sample=0, seed=0).trajectory
    env.close()
    assert got.error is None, got.error
    assert got.score is not None
    return got.stop, got.score.value


def side_by_side(dataset: Dataset, backend: Any, number: int) -> list[tuple[StopReason, float]]:
    with ThreadPoolExecutor(number) as pool:
        plans = [PLANS[i % len(PLANS)] for i in range(number)]
        return list(pool.map(lambda plan: end(dataset, backend, plan), plans))


@contextmanager
def load(burners: int) -> Iterator[None]:
    """Processes that want the processor all the time."""
    code = "while True: pass"
    running = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(burners)]
    try:
        yield
    finally:
        for one in running:
            one.kill()
            one.wait()


@pytest.mark.parametrize(
    "backend",
    [
        pytest.param("process", marks=pytest.mark.slow),
        pytest.param("bubblewrap", marks=pytest.mark.bwrap),
    ],
)
def test_side_by_side_they_end_as_alone(busy: Dataset, backend: Any) -> None:
    assert tuple(end(busy, backend, plan) for plan in PLANS) == ENDS
    assert tuple(side_by_side(busy, backend, 12)) == 3 * ENDS


@pytest.mark.slow
@pytest.mark.bwrap
def test_128_of_them_end_as_alone_beside_a_load_too(busy: Dataset) -> None:
    assert tuple(side_by_side(busy, "bubblewrap", 128)) == 32 * ENDS
    with load(4 * (os.cpu_count() or 1)):
        assert tuple(side_by_side(busy, "bubblewrap", 128)) == 32 * ENDS


@pytest.mark.docker
def test_the_kernel_tells_a_container_s_time_too(busy: Dataset) -> None:
    assert end(busy, "docker", PLANS[2]) == ENDS[2]
    assert end(busy, "docker", PLANS[1]) == ENDS[1]


def test_a_worker_can_t_take_its_time_back(tmp_path: Path) -> None:
    """The clock is the kernel's: a tool that lies about its own time is not believed."""
    lie = "import time\ntime.process_time = time.thread_time = time.perf_counter = lambda: 0.0\n"
    source = (
        lie
        + TOOLS_SOURCE
        + WORK.replace("time.process_time()", "sum(os.times()[:2])").replace(
            "import time\n", "import os, time\n"
        )
    )
    dataset = write_tiny_dataset(tmp_path / "ds", tools_source=source)
    assert end(dataset, "process", PLANS[2]) == ENDS[2]
    close_hosts(dataset)
