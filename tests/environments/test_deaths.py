"""No action of an agent makes its episode vanish: sabotaged tools, killed sandboxes, broken verifiers."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gymnasium.error import ResetNeeded
from hostile import alive, descendants
from tiny_dataset import CHEAPEST_VERIFIER, TOOLS_SOURCE, write_tiny_dataset

from envgen.core.errors import EnvError, VerifierError
from envgen.core.types import Message, StopReason, ToolCall, Trajectory
from envgen.environments.general import GeneralEnv
from envgen.environments.hosts import close_hosts, hosts_for
from envgen.policies.registry import PolicyConfig
from envgen.policies.scripted import ScriptedPolicy
from envgen.rollout.episode import run_episode
from envgen.rollout.run import RolloutConfig, rollout
from envgen.store.dataset import Dataset
from envgen.store.runs import RunStore

WORKERS = ["process", pytest.param("bubblewrap", marks=pytest.mark.bwrap)]
ALL = [*WORKERS, pytest.param("docker", marks=pytest.mark.docker)]
SABOTAGE = '''

_good = get_hotel


def get_hotel(db, *, name):
    """One hotel, or harm."""
    import os, time
    if name == "raise":
        raise ValueError("a secret of the environment")
    if name == "die":
        os._exit(3)
    if name == "segfault":
        os.kill(os.getpid(), 11)
    if name == "wedge":
        time.sleep(3600)
    if name == "spin":
        while True: pass
    return _good(db, name=name)
'''
ANSWER = json.dumps({"hotel": "Lotus Inn"})


@pytest.fixture(scope="module")
def sabotaged(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("sabotage") / "ds"
    return write_tiny_dataset(folder, tools_source=TOOLS_SOURCE + SABOTAGE)


def action(name: str, /, **arguments: Any) -> str:
    return json.dumps({"content": "", "tool_calls": [{"name": name, "arguments": arguments}]})


def played(dataset: Dataset, backend: Any, task: str = "tiny-cheapest") -> GeneralEnv:
    env = GeneralEnv(dataset, backend=backend)
    env.reset(options={"task_id": task})
    return env


def patient(dataset: Dataset, backend: Any, seconds: float) -> None:
    """Let the tools take so long, and no longer."""
    env = played(dataset, backend)
    env.step(action("get_hotel", name="Lotus Inn"))
    host: Any = hosts_for(dataset, backend)._running["tiny_hotels"].host
    host.timeout_s = seconds
    env.close()


@pytest.mark.parametrize("backend", ["inline", *ALL])
def test_a_tool_that_raises_is_told_of_and_counted(sabotaged: Dataset, backend: Any) -> None:
    env = played(sabotaged, backend, "tiny-book")
    env.step(action("book_hotel", hotel="Garden Court", nights=2))
    observation, reward, terminated, truncated, _ = env.step(action("get_hotel", name="raise"))
    assert json.loads(observation)["error"] == "tool_failed"
    assert "secret" not in observation
    assert (reward, terminated, truncated) == (0.0, False, False)
    assert ["secret" in fault for fault in env.faults] == [True]
    # the booking of before is still there
    _, reward, *_ = env.step(action("submit_result", answer_text='{"outcome": "done"}'))
    assert reward == 1.0
    env.close()


@pytest.mark.parametrize("backend", ALL)
@pytest.mark.parametrize("harm", ["die", "segfault"])
def test_a_call_that_kills_its_worker_again_scores_0(
    sabotaged: Dataset, backend: Any, harm: str
) -> None:
    env = played(sabotaged, backend)
    env.step(action("get_hotel", name="Lotus Inn"))
    observation, reward, terminated, truncated, info = env.step(action("get_hotel", name=harm))
    assert json.loads(observation)["error"] == "sandbox_died"
    assert (reward, terminated, truncated) == (0.0, True, False)
    assert (info["stop"], info["reasons"]) == ("sandbox_died", ["sandbox_died"])
    assert env._places.deaths == 2
    env.close()


@pytest.mark.parametrize("backend", WORKERS)
@pytest.mark.parametrize("harm", ["wedge", "spin"])
def test_a_call_past_its_limit_is_an_error_observation(
    sabotaged: Dataset, backend: Any, harm: str
) -> None:
    patient(sabotaged, backend, 0.3)
    env = played(sabotaged, backend, "tiny-book")
    env.step(action("book_hotel", hotel="Garden Court", nights=2))
    observation, *_ = env.step(action("get_hotel", name=harm))
    assert json.loads(observation)["error"] == "tool_timeout"
    assert env.tool_s >= 0.3 or harm == "wedge"
    assert env.faults == []
    _, reward, *_ = env.step(action("submit_result", answer_text='{"outcome": "done"}'))
    assert reward == 1.0
    patient(sabotaged, backend, 10.0)


@pytest.mark.parametrize("backend", WORKERS)
def test_a_sandbox_that_the_host_kills_costs_nothing(sabotaged: Dataset, backend: Any) -> None:
    env = played(sabotaged, backend, "tiny-book")
    env.step(action("book_hotel", hotel="Garden Court", nights=2))
    host: Any = hosts_for(sabotaged, backend)._running["tiny_hotels"].host
    gone = {host._zygote.pid, *descendants(host._zygote.pid)}
    os.kill(host._zygote.pid, signal.SIGKILL)
    while alive(gone):
        host._zygote.process.poll()
    observation, *_ = env.step(action("get_hotel", name="Garden Court"))
    assert json.loads(observation)["price"] == 240
    _, reward, *_ = env.step(action("submit_result", answer_text='{"outcome": "done"}'))
    assert (reward, env.stop, env._places.deaths) == (1.0, StopReason.SUBMITTED, 1)


def test_a_third_death_is_the_episode_s_own(sabotaged: Dataset) -> None:
    env = played(sabotaged, "process")
    ask = action("get_hotel", name="Garden Court")
    env.step(ask)
    for death in (1, 2, 3):
        env._places._place.session._zygote.close()  # type: ignore[union-attr]  # it is open
        env.step(ask)
        assert env._places.deaths == death
    assert (env.stop, env.score and env.score.value) == (StopReason.SANDBOX_DIED, 0.0)


def script(*names: str) -> ScriptedPolicy:
    calls = [ToolCall(id="c", name="get_hotel", arguments={"name": name}) for name in names]
    done = ToolCall(id="s", name="submit_result", arguments={"answer_text": ANSWER})
    return ScriptedPolicy([Message(role="assistant", tool_calls=(c,)) for c in (*calls, done)])


def test_rollouts_store_and_count_it(sabotaged: Dataset, tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    lines = [
        [{"name": "get_hotel", "arguments": {"name": "raise"}}],
        [{"name": "get_hotel", "arguments": {"name": "die"}}],
    ]
    path.write_text(
        json.dumps(
            [
                {"role": "assistant", "content": "", "tool_calls": [{"id": "c", **call}]}
                for (call,) in lines
            ]
        )
    )
    summary = rollout(
        RolloutConfig(
            dataset=str(sabotaged.path),
            policy=PolicyConfig(spec=f"scripted:{path}"),
            out=str(tmp_path / "run"),
            task_ids=("tiny-cheapest",),
            backend="process",
        )
    )
    assert (summary.errors, summary.passed, summary.stops) == (0, 0, {"sandbox_died": 1})
    assert any("a secret of the environment" in fault for fault in summary.tool_faults)
    with RunStore.read(tmp_path / "run") as store:
        (one,) = store.trajectories()
    assert (one.stop, one.score and one.score.value) == (StopReason.SANDBOX_DIED, 0.0)
    assert len(one.faults) == 2


@pytest.mark.slow  # eight processes start
def test_an_episode_that_kills_its_player_three_times_scores_0(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real worker processes, killed by the bookings of one task; the other tasks' episodes pass."""
    deadly = (
        TOOLS_SOURCE
        + "\n\ndef book_hotel(db, *, hotel, nights=1):\n    import os; os.kill(os.getpid(), 9)\n"
    )
    dataset = write_tiny_dataset(folder, tools_source=deadly)
    monkeypatch.setattr("envgen.rollout.run._WORTH_PROCESSES", 1)
    summary = rollout(
        RolloutConfig(
            dataset=str(dataset.path),
            policy=PolicyConfig(spec="gold"),
            out=str(tmp_path / "run"),
            concurrency=2,
            backend="inline",
            unproven=True,
            trust=True,
        )
    )
    assert (summary.errors, summary.new) == (0, summary.wanted)
    with RunStore.read(tmp_path / "run") as store:
        every = list(store.trajectories())
    for one in every:
        booked = one.task_id == "tiny-book"
        assert (one.stop is StopReason.SANDBOX_DIED) is booked
        assert one.score is not None
        assert one.score.passed is not booked
        assert bool(one.faults) is booked
    assert summary.passed == len(every) - 1 == 3


class Breaking(GeneralEnv):
    """Raises what no one foresaw, so many times."""

    left = 3

    def _run(self, name: str, arguments: Any) -> Any:
        if self.left:
            self.left -= 1
            raise ArithmeticError("a fault of the host")
        return super()._run(name, arguments)


def test_a_step_that_breaks_raises_an_error_of_ours_and_ends_the_episode(
    sabotaged: Dataset,
) -> None:
    env = Breaking(sabotaged, backend="inline")
    env.reset(options={"task_id": "tiny-cheapest"})
    with pytest.raises(EnvError, match="ArithmeticError: a fault of the host"):
        env.step(action("get_hotel", name="Lotus Inn"))
    assert env.stop is StopReason.ERROR
    with pytest.raises(ResetNeeded):
        env.step(action("get_hotel", name="Lotus Inn"))
    env.close()


@pytest.mark.parametrize("times", [2, 3])
def test_a_step_that_breaks_three_times_scores_0(sabotaged: Dataset, times: int) -> None:
    env = Breaking(sabotaged, backend="inline")
    env.left = times
    found = run_episode(env, script("Lotus Inn"), "tiny-cheapest", sample=0, seed=0).trajectory
    env.close()
    assert found.error is None
    assert found.score is not None
    assert found.score.passed is (times == 2)
    assert found.stop is (StopReason.SUBMITTED if times == 2 else StopReason.SANDBOX_DIED)
    assert any("a fault of the host" in fault for fault in found.faults) is (times == 3)


PICKY = CHEAPEST_VERIFIER.replace(
    "    broken = []\n", '    if answer["hotel"] == "Harbour View": 1 / 0\n    broken = []\n', 1
)
DEADLY = PICKY.replace("1 / 0", "import os; os._exit(3)")
BROKEN = CHEAPEST_VERIFIER.replace("    broken = []\n", "    1 / 0\n", 1)


def with_verifier(folder: Path, source: str) -> Dataset:
    from tiny_dataset import tiny_environments, tiny_tasks

    from envgen.store.writer import DatasetWriter

    with DatasetWriter(folder, name="picky", compiled=True) as writer:
        for environment in tiny_environments():
            writer.add_environment(environment)
        for task in tiny_tasks():
            if task.spec.id == "tiny-cheapest":
                writer.add_task(task.model_copy(update={"verifier": source}))
        return writer.finish()


@pytest.mark.parametrize("backend", ["inline", *WORKERS])
@pytest.mark.parametrize("source", [PICKY, DEADLY], ids=["raises", "dies"])
def test_an_answer_that_breaks_the_verifier_scores_0(
    folder: Path, backend: Any, source: str
) -> None:
    if backend == "inline" and source is DEADLY:
        pytest.skip("in this very process")
    env = played(with_verifier(folder, source), backend)
    answer = json.dumps({"hotel": "Harbour View"})
    _, reward, terminated, _, info = env.step(action("submit_result", answer_text=answer))
    assert (reward, terminated, info["stop"]) == (0.0, True, "submitted")
    assert info["reasons"][0].startswith("verifier_broke")
    assert env.reached_verifier
    assert len(env.faults) == 1
    env.reset(options={"task_id": "tiny-cheapest"})
    assert env.step(action("submit_result", answer_text=ANSWER))[1] == 1.0
    close_hosts(env.dataset)


@pytest.mark.parametrize("backend", ["inline", "process"])
def test_a_verifier_that_is_broken_for_gold_stays_an_error(folder: Path, backend: Any) -> None:
    env = played(with_verifier(folder, BROKEN), backend)
    with pytest.raises(VerifierError, match="ZeroDivisionError"):
        env.step(action("submit_result", answer_text=json.dumps({"hotel": "Harbour View"})))
    assert env.stop is StopReason.ERROR
    close_hosts(env.dataset)


def test_episodes_in_threads_end_well_while_their_sandbox_is_killed(sabotaged: Dataset) -> None:
    """The trainer's and ``rollout``'s way: every one of them passes."""
    found: list[Trajectory] = []

    def one(seed: int) -> None:
        env = GeneralEnv(sabotaged, backend="process")
        policy = script(*["Lotus Inn"] * 5)
        found.append(run_episode(env, policy, "tiny-cheapest", sample=0, seed=seed).trajectory)
        env.close()

    def together(end: Callable[[], None]) -> None:
        threads = [threading.Thread(target=one, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        end()
        for thread in threads:
            thread.join()

    def kill() -> None:
        host: Any = hosts_for(sabotaged, "process")._running["tiny_hotels"].host
        os.kill(host._zygote.pid, signal.SIGKILL)

    env = played(sabotaged, "process")
    env.step(action("get_hotel", name="Lotus Inn"))
    together(kill)
    assert [(one.stop, one.error) for one in found] == [(StopReason.SUBMITTED, None)] * 8
    assert all(one.score is not None and one.score.passed for one in found)
    env.close()
