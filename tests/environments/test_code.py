from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import toy_python
from env_check import JUNK
from gymnasium.error import ResetNeeded

import envgen
from envgen.core.errors import ConfigError, ToolsDiedError
from envgen.core.types import Message, SourceKind, StopReason, ToolCall
from envgen.environments.code import CodeEnv
from envgen.environments.code_hosts import code_hosts_for
from envgen.environments.families import make_env
from envgen.environments.places import MAX_DEATHS
from envgen.policies.registry import PolicyConfig
from envgen.policies.scripted import ScriptedPolicy
from envgen.rollout.episode import run_episode
from envgen.rollout.run import RolloutConfig
from envgen.rollout.task_tools import TaskTools
from envgen.sandboxes import cgroups
from envgen.sandboxes.zygote import WorkerBackend
from envgen.store.dataset import Dataset

pytestmark = pytest.mark.bwrap
TASK = "toy__shop-7"
FIX = "price * count"
FILL = "for n in $(seq 60); do head -c 1G /dev/zero > /work/full$n; head -c 1G /dev/zero > /tmp/full$n; done"
"""Again and again: the kernel may end ``head`` first, and what it wrote stays."""


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return Dataset.open(toy_python.dataset(tmp_path_factory.mktemp("code")))


@pytest.fixture
def env(dataset: Dataset) -> Iterator[CodeEnv]:
    opened = CodeEnv(dataset, backend="bubblewrap")
    opened.reset(options={"task_id": TASK})
    yield opened
    opened.close()


def call(env: CodeEnv, name: str, **arguments: Any) -> Any:
    action = {"content": "", "tool_calls": [{"name": name, "arguments": arguments}]}
    observation, *_ = env.step(json.dumps(action))
    return json.loads(observation)


def bash(env: CodeEnv, command: str, **more: Any) -> str:
    return str(call(env, "bash", command=command, **more)["output"])


def test_it_is_a_gymnasium_environment(dataset: Dataset) -> None:
    env = gymnasium.make("envgen/Code-v0", dataset=str(dataset.path), render_mode="ansi")
    observation, info = env.reset(seed=1)
    assert "ignores how many" in observation
    assert [tool["function"]["name"] for tool in info["tools"]] == [
        "bash", "view", "edit", "write", "submit",
    ]  # fmt: skip
    assert TaskTools(dataset).of(TASK) == info["tools"]  # what a cold start is shown
    assert env.observation_space.contains(observation)
    assert env.action_space.contains(env.action_space.sample())
    assert "ignores how many" in str(env.render())
    env.close()


def test_an_agent_that_mends_the_fault_is_paid(env: CodeEnv) -> None:
    seen = call(env, "view", path="src/shop/cart.py", first_line=11, last_line=12)
    assert seen["text"].splitlines()[1] == (
        "12          return sum(price for name, price, count in self.lines)"
    )
    done = call(env, "edit", path="src/shop/cart.py", old="sum(price for", new=f"sum({FIX} for")
    assert done["line"] == 12
    command = (
        'cat >> src/shop/cart.py <<"E"\n' + toy_python.FIXED.partition("self.lines]\n")[2] + "E"
    )
    assert bash(env, command) == ""
    assert "5 passed" in bash(env, "cd tests && python -m pytest -q .. | tail -1")
    assert bash(env, "pwd") == "/work/repo/tests\n"
    submit = json.dumps({"content": "", "tool_calls": [{"name": "submit", "arguments": {}}]})
    _, reward, terminated, truncated, info = env.step(submit)
    assert (reward, terminated, truncated) == (1.0, True, False), info["reasons"]
    assert env.score is not None
    assert set(env.score.tests) == {*toy_python.FAIL_TO_PASS, *toy_python.PASS_TO_PASS}
    assert env.reached_verifier
    assert env.patch is not None
    assert FIX.encode() in env.patch
    with pytest.raises(ResetNeeded):
        env.step(submit)


def test_nothing_done_scores_nothing(env: CodeEnv) -> None:
    call(env, "submit")
    assert env.stop is StopReason.SUBMITTED
    assert env.score is not None
    assert env.score.value == 0
    assert env.score.reasons == tuple(
        f"fail_to_pass: {name} is {status}, as a look-alike that must pass"
        for name, status in zip(toy_python.FAIL_TO_PASS, ("fail", "missing"), strict=True)
    )


@pytest.mark.parametrize("again", [True, False], ids=["twice", "once"])
def test_an_agent_that_fills_its_sandbox_to_death_scores_0(
    env: CodeEnv, dataset: Dataset, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    """Files that take all its memory leave no room for any program; a fresh sandbox ends likewise."""
    if reason := cgroups.unavailable():
        pytest.skip(reason)
    hosts = code_hosts_for(dataset, "bubblewrap")
    where = env.task.environment_id
    built = hosts.workspace(where)
    small = built.recipe.model_copy(update={"memory_bytes": 256 << 20, "disk_bytes": 256 << 20})
    monkeypatch.setitem(hosts._workspaces, where, built.model_copy(update={"recipe": small}))
    assert bash(env, "echo begun") == "begun\n"
    if not again:  # what comes next, the machine's other programs have brought about
        assert env._places._place is not None
        with pytest.raises(ToolsDiedError):
            env._places._place.run("bash", {"command": FILL})
        assert bash(env, "echo alive") == "alive\n"
        assert (env.stop, env._places.deaths) == (None, 1)
        return
    # the kernel may end `head` alone in the fresh sandbox, which then lives until the next command
    for _ in range(MAX_DEATHS):
        observation, reward, terminated, _, info = env.step(
            json.dumps({"tool_calls": [{"name": "bash", "arguments": {"command": FILL}}]})
        )
        if terminated:
            break
    assert json.loads(observation)["error"] == "sandbox_died"
    assert (reward, terminated, info["stop"]) == (0.0, True, "sandbox_died")
    assert info["reasons"] == ["sandbox_died"]
    assert env._places.deaths in (2, MAX_DEATHS)


def test_solution_tests_and_future_are_not_inside(env: CodeEnv, dataset: Dataset) -> None:
    assert bash(env, "git log --all --oneline | wc -l; git stash list; git remote").strip() == "1"
    assert bash(env, "git fsck --lost-found --no-progress 2>&1; ls .git/logs 2>&1 | head -1") in (
        "ls: cannot access '.git/logs': No such file or directory\n",
        "",
    )
    script = (
        f"grep -rlaF '{FIX}' /work /env /tmp /tree.tar /run /etc 2>/dev/null; "
        "grep -rlaF test_total_counts /work /env /tmp /tree.tar /run 2>/dev/null; "
        "git cat-file --batch-all-objects --batch | grep -aF test_total_counts"
    )
    assert bash(env, script) == ""
    assert "Could not resolve" in bash(env, "curl -sS https://example.org 2>&1 || true")
    assert bash(env, f"ls {dataset.path} 2>/dev/null") == ""


def test_tools_refuse_what_they_must(env: CodeEnv) -> None:
    assert call(env, "view", path="../../etc/passwd")["error"] == "no_file"
    assert call(env, "view", path="/etc/passwd")["error"] == "no_file"
    assert call(env, "view", path="nowhere.py")["error"] == "no_file"
    assert call(env, "edit", path="setup.cfg", old="absent", new="")["error"] == "not_found"
    assert call(env, "edit", path="tests/test_cart.py", old="cart", new="")["error"] == "not_unique"
    bash(env, r"printf 'a\r\nb\r\nc\r\n' > lines")
    assert call(env, "edit", path="lines", old="a\nb", new="a\nx\ny")["line"] == 1
    assert bash(env, "cat lines") == "a\r\nx\r\ny\r\nc\r\n"
    assert call(env, "view", path="src")["error"] == "no_file"
    bash(env, r"printf '\xff' > binary; ln -s /etc/passwd link")
    assert call(env, "view", path="binary")["error"] == "no_file"
    assert call(env, "view", path="link")["error"] == "no_file"
    assert call(env, "write", path="link", content="x")["error"] == "no_file"
    assert call(env, "write", path="new/dir/x.txt", content="a\nb\n")["lines"] == 2
    assert bash(env, "cat new/dir/x.txt") == "a\nb\n"
    assert call(env, "bash", command="sleep 60", timeout_s=0.5)["note"] == "stopped after 0.5 s"
    assert call(env, "bash", command="exit 1")["note"].startswith("the shell ended")
    assert call(env, "bash", command="x", timeout_s=0)["error"] == "invalid_arguments"
    assert call(env, "nothing")["error"] == "unknown_tool"


@pytest.mark.parametrize(
    "command",
    [
        "rm -rf /work/repo",
        "rm -rf .git",
        "head -c 300000000 /dev/zero > full; head -c 300000000 /dev/zero > /tmp/full",
        "git commit -qam x --allow-empty; git checkout -q --orphan other; git rm -rfq .",
        "mkdir -p a && chmod 000 a src",
        "kill -9 -1",
        "printf 'x' > $'new\\nline \"quoted\".py'",
        "mkdir -p tests; echo 'def test(): pass' > $'tests/test_caf\\xe9.py'; cp tests/*.py .",
        "mv tests $'t\\xe9sts'",
    ],
)
def test_whatever_an_agent_breaks_is_its_own_loss(env: CodeEnv, command: str) -> None:
    call(env, "bash", command=command)
    call(env, "submit")
    assert env.score is not None
    assert env.score.value == 0
    assert env.score.reasons


@pytest.mark.parametrize(
    "command",
    [
        "kill -9 -1",
        "kill -9 1 $PPID $$",
        "for p in /proc/[0-9]*; do kill -9 ${p#/proc/}; done",
        "setsid sh -c 'while :; do kill -9 -1; done' & sleep 0.2",
    ],
)
def test_an_agent_that_kills_everything_spoils_no_episode(dataset: Dataset, command: str) -> None:
    env = CodeEnv(dataset, backend="bubblewrap")
    commands = [command, "echo alive > there", command, "cat there"]
    calls = [ToolCall(id="c", name="bash", arguments={"command": one}) for one in commands]
    turns = [*calls, ToolCall(id="s", name="submit", arguments={})]
    policy = ScriptedPolicy([Message(role="assistant", tool_calls=(one,)) for one in turns])
    played = run_episode(env, policy, TASK, sample=0, seed=0).trajectory
    env.close()
    assert played.error is None
    assert played.score is not None
    assert (played.score.value, played.stop in (StopReason.SUBMITTED, StopReason.SANDBOX_DIED)) == (
        0,
        True,
    )
    assert played.num_calls >= 1


def test_junk_gives_observations(env: CodeEnv) -> None:
    for junk in JUNK:
        if env.stop is not None:
            env.reset(options={"task_id": TASK})
        observation, reward, *_ = env.step(junk)
        assert env.observation_space.contains(observation)
        assert reward == 0


def test_turns_run_out(dataset: Dataset) -> None:
    env = CodeEnv(dataset, backend="bubblewrap")
    env.reset(options={"task_id": TASK})
    action = json.dumps({"tool_calls": [{"name": "nothing", "arguments": {}}]})
    for _ in range(env.task.limits.turns):
        _, reward, terminated, truncated, _ = env.step(action)
    assert (reward, terminated, truncated) == (0, False, True)
    env.close()


def test_wrong_settings_are_refused(dataset: Dataset) -> None:
    with pytest.raises(ConfigError, match="don't run with backend 'inline'"):
        CodeEnv(dataset, backend="inline")  # type: ignore[arg-type]  # the point of the test
    env = CodeEnv(dataset)
    with pytest.raises(ConfigError, match="unknown task 'other'"):
        env.reset(options={"task_id": "other"})


@pytest.mark.parametrize("backend", ["inline", "process"])
def test_no_word_makes_code_tasks_run_on_the_host(
    dataset: Dataset, tmp_path: Path, backend: WorkerBackend
) -> None:
    assert dataset.source is SourceKind.FOREIGN  # though it was made here: its code is a stranger's
    trusted = Dataset.open(dataset.path, trust=True)
    with pytest.raises(ConfigError, match="code tasks don't run with backend"):
        make_env(trusted, "code", backend=backend)
    with make_env(trusted, "code") as env:
        assert isinstance(env, CodeEnv)
        env.reset(options={"task_id": TASK})
        (tmp_path / "host").write_text("host")
        output = bash(env, f"cat {tmp_path}/host; touch {tmp_path}/mark; id -u")
        assert "No such file" in output
    assert not (tmp_path / "mark").exists()


def test_rollouts_of_gold_pass_and_of_random_do_not(dataset: Dataset, tmp_path: Path) -> None:
    for policy, passed in (("gold", 2), ("random", 0)):
        config = RolloutConfig(
            dataset=str(dataset.path),
            policy=PolicyConfig(spec=policy),
            out=str(tmp_path / policy),
            n=2,
            backend="bubblewrap",
            concurrency=1,
        )
        summary = envgen.rollout(config)
        assert (summary.passed, summary.errors) == (passed, 0), summary.faults
