"""Code episodes in Docker, from ``gymnasium.make`` to the score."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import toy_python

from envgen.core.errors import ConfigError
from envgen.environments.code import CodeEnv

pytestmark = [pytest.mark.docker, pytest.mark.bwrap]
TASK = "toy__shop-7"
AT_ONCE = 6


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_python.dataset(tmp_path_factory.mktemp("code"))


def make_env(dataset: Path) -> gymnasium.Env[Any, Any]:
    return gymnasium.make("envgen/Code-v0", dataset=str(dataset), task_id=TASK, backend="docker")


@pytest.fixture
def env(dataset: Path) -> Iterator[gymnasium.Env[Any, Any]]:
    env = make_env(dataset)
    env.reset(seed=1)
    yield env
    env.close()


def step(env: gymnasium.Env[Any, Any], name: str, **arguments: Any) -> Any:
    call = {"content": "", "tool_calls": [{"name": name, "arguments": arguments}]}
    return env.step(json.dumps(call))


def test_the_gold_patch_is_paid(env: gymnasium.Env[Any, Any]) -> None:
    observation, *_ = step(env, "bash", command="pwd && git log --oneline | wc -l && cd src/shop")
    assert json.loads(observation)["output"] == "/work/repo\n1\n"
    observation, *_ = step(env, "bash", command="ls cart.py && curl -sS https://example.org 2>&1")
    assert json.loads(observation)["output"].startswith("cart.py\ncurl: (6)")
    step(
        env, "edit", path="src/shop/cart.py",
        old="sum(price for", new="sum(price * count for",
    )  # fmt: skip
    text = toy_python.FIXED
    step(env, "write", path="src/shop/cart.py", content=text)
    _, reward, terminated, _, info = step(env, "submit")
    assert (reward, terminated) == (1.0, True), info["reasons"]


def test_no_change_is_not(env: gymnasium.Env[Any, Any]) -> None:
    _, reward, terminated, _, info = step(env, "submit")
    assert (reward, terminated) == (0.0, True)
    assert info["reasons"][0].startswith("fail_to_pass: ")


def test_several_are_open_at_once_and_apart(dataset: Path) -> None:
    with ExitStack() as stack:
        envs = [make_env(dataset) for _ in range(AT_ONCE)]
        for number, env in enumerate(envs):
            stack.callback(env.close)
            env.reset(seed=number)
            step(env, "bash", command=f"echo {number} > mine; export MINE={number}")
        for number, env in enumerate(envs):
            observation, *_ = step(env, "bash", command="cat mine; echo $MINE; ls | wc -l")
            output = json.loads(observation)["output"].split()
            assert output[:2] == [str(number), str(number)]


def test_one_task_is_named_once(dataset: Path) -> None:
    with pytest.raises(ConfigError, match="both task_id and task_ids"):
        CodeEnv(dataset, task_id=TASK, task_ids=[TASK])
