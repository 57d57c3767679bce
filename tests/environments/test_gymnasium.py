from __future__ import annotations

import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env as gymnasium_check_env
from gymnasium.vector import AutoresetMode

import envgen.environments.registration as registration
from envgen.environments.general import GeneralEnv
from envgen.store.dataset import Dataset

registration.register_envs()


def call(name: str, /, **arguments: Any) -> str:
    return json.dumps({"tool_calls": [{"name": name, "arguments": arguments}]})


LIST = call("list_hotels", city="Hangzhou")
GET = call("get_hotel", name="Lotus Inn")


def test_check_env_is_clean(tiny: Dataset) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Other render modes need a spec: below.
        gymnasium_check_env(GeneralEnv(tiny, backend="inline"), skip_render_check=True)
        envs = gymnasium.make(
            registration.gym_id("general"), dataset=str(tiny.path), backend="inline"
        )
        gymnasium_check_env(envs.unwrapped)


def test_check_env_is_clean_through_wrappers(tiny: Dataset) -> None:
    env = gymnasium.make(registration.gym_id("general"), dataset=str(tiny.path), backend="inline")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # gymnasium says so about every wrapper.
        warnings.filterwarnings("ignore", message=".*different from the unwrapped version")
        gymnasium_check_env(env)
    env.close()


def test_spec_survives_json(tiny: Dataset) -> None:
    env = gymnasium.make(registration.gym_id("general"), dataset=str(tiny.path), backend="inline")
    assert env.spec is not None
    again = gymnasium.make(gymnasium.envs.registration.EnvSpec.from_json(env.spec.to_json()))
    assert again.reset(seed=5)[0] == env.reset(seed=5)[0]


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("backend", ["inline", "process"])
def test_vector_observations_have_their_values(tiny: Dataset, mode: Any, backend: str) -> None:
    envs: Any = gymnasium.make_vec(
        registration.gym_id("general"),
        num_envs=2,
        vectorization_mode=mode,
        dataset=str(tiny.path),
        backend=backend,
        task_ids=["tiny-cheapest", "tiny-pair"],
    )
    alone = GeneralEnv(tiny, backend="inline", task_ids=["tiny-cheapest", "tiny-pair"])
    try:
        first, infos = envs.reset(seed=[3, 4])
        assert list(first) == [alone.reset(seed=3)[0], alone.reset(seed=4)[0]]
        assert list(infos["task_id"]) == [alone.reset(seed=seed)[1]["task_id"] for seed in (3, 4)]
        second, *_ = envs.step((LIST, GET))
        third, rewards, terminated, truncated, infos = envs.step((GET, LIST))
        listed, got = alone.step(LIST)[0], alone.step(GET)[0]
        assert list(second) == [listed, got]
        assert list(third) == [got, listed]
        assert not np.any(rewards)
        assert not np.any(terminated | truncated)
        assert [len(messages) for messages in infos["messages"]] == [6, 6]
        submit = call("submit_result", answer_text="{}")
        *_, terminated, _, infos = envs.step((submit, LIST))
        assert list(terminated) == [True, False]
        assert infos["stop"][0] == "submitted"
        assert isinstance(infos["reasons"][0], list)
        fifth, *_ = envs.step((LIST, LIST))  # the first environment starts anew
        assert "Submit" in fifth[0]
    finally:
        envs.close()


def test_vectors_spawn_and_reset_by_mask(tiny: Dataset) -> None:
    envs: Any = gymnasium.make_vec(
        registration.gym_id("general"),
        num_envs=2,
        vectorization_mode="async",
        vector_kwargs={"context": "spawn", "autoreset_mode": AutoresetMode.DISABLED},
        dataset=str(tiny.path),
        backend="inline",
        task_ids=["tiny-cheapest"],
    )
    try:
        first, _ = envs.reset(seed=0)
        submit = call("submit_result", answer_text='{"hotel": "Lotus Inn"}')
        second, rewards, terminated, *_ = envs.step((submit, LIST))
        assert list(rewards) == [1.0, 0.0]
        assert list(terminated) == [True, False]
        third, _ = envs.reset(options={"reset_mask": terminated})
        assert list(third) == [first[0], second[1]]
    finally:
        envs.close()


def test_vector_samples_are_calls_in_the_parent(tiny: Dataset) -> None:
    envs = gymnasium.make_vec(
        registration.gym_id("general"),
        num_envs=2,
        vectorization_mode="async",
        dataset=str(tiny.path),
        backend="inline",
    )
    try:
        envs.reset(seed=0)
        envs.action_space.seed(1)
        for _ in range(3):
            actions = envs.action_space.sample()
            assert actions in envs.action_space
            envs.step(actions)
    finally:
        envs.close()


def test_trip_planning_plays_as_shipped() -> None:
    env = gymnasium.make("envgen/TripPlanning-v0", backend="process")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gymnasium_check_env(env.unwrapped)
    env.close()


def test_import_is_light_and_registers(tmp_path: Path) -> None:
    code = (
        "import sys, time; start = time.process_time(); import envgen; "
        "print(time.process_time() - start); import gymnasium; "
        "assert 'envgen/General-v0' in gymnasium.registry; "
        "assert 'envgen/TripPlanning-v0' in gymnasium.registry; "
        "heavy = {'torch', 'sqlalchemy', 'openai', 'ray', 'docker', 'click', 'scipy', 'pyarrow'}; "
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    took = [
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
        for _ in range(3)
    ]
    assert min(took) < 0.3
