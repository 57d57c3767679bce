"""Episodes in lockstep: the same bits whatever the threads do, and errors that end nothing else."""

from __future__ import annotations

import random
import threading
import time

import numpy as np
import pytest

from envgen.core.errors import ConfigError
from envgen.model.config import preset
from envgen.model.engine import Engine, EngineConfig
from envgen.model.modeling import DSAForCausalLM
from envgen.model.requests import Completion, Request
from envgen.model.sampling import SamplingParams
from envgen.train.lockstep import LockstepEngine


@pytest.fixture(scope="module")
def model() -> DSAForCausalLM:
    return DSAForCausalLM(preset("tiny", vocab_size=64, num_hidden_layers=2)).eval()


def lockstep(model: DSAForCausalLM, concurrency: int = 4) -> LockstepEngine:
    engine = Engine(model, EngineConfig(max_batch=8, cache_tokens=2048))
    return LockstepEngine(engine, concurrency)


def request(seed: int, prompt: list[int]) -> Request:
    return Request(prompt, SamplingParams(max_new_tokens=5, seed=seed))


def test_results_do_not_depend_on_who_asks_first(model: DSAForCausalLM) -> None:
    def play(delay_seed: int) -> list[list[Completion]]:
        engine = lockstep(model)
        delays = random.Random(delay_seed)
        waits = [delays.random() / 50 for _ in range(12)]

        def episode(i: int) -> list[Completion]:
            prompt = list(range(1, 20 + i % 3))
            found = []
            for turn in range(1 + i % 3):  # some end early
                time.sleep(waits[i])
                done = engine.submit(request(100 * i + turn, prompt)).result()
                prompt = [*prompt, *done.ids.tolist(), 7]
                found.append(done)
            return found

        return engine.play(range(12), episode)

    first, second = play(1), play(2)
    for one, other in zip(first, second, strict=True):
        for a, b in zip(one, other, strict=True):
            assert a.ids.tolist() == b.ids.tolist()
            assert np.array_equal(a.logprobs, b.logprobs)


def test_an_error_of_one_episode_is_told_once_all_have_ended(model: DSAForCausalLM) -> None:
    engine = lockstep(model)
    ended = []

    def episode(i: int) -> None:
        if i == 1:
            raise ConfigError("broken")
        engine.submit(request(i, [1, 2, 3])).result()
        ended.append(i)

    with pytest.raises(ConfigError, match="broken"):
        engine.play(range(4), episode)
    assert sorted(ended) == [0, 2, 3]


def test_what_the_engine_refuses_is_told_to_its_episode_alone(model: DSAForCausalLM) -> None:
    engine = lockstep(model)

    def episode(i: int) -> int | str:
        try:
            prompt = [1] * (5_000 if i == 0 else 5)
            return len(engine.submit(request(i, prompt)).result().ids)
        except Exception as error:
            return type(error).__name__

    found = engine.play(range(3), episode)
    assert isinstance(found[0], str)
    assert found[1:] == [5, 5]


@pytest.mark.parametrize("concurrency", [1, 3])
def test_few_episodes_run_at_once_and_all_end(model: DSAForCausalLM, concurrency: int) -> None:
    engine = lockstep(model, concurrency)
    lock = threading.Lock()
    running, most = 0, 0

    def busy(seconds: float) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(seconds)
        with lock:
            running -= 1

    def episode(i: int) -> int:
        for turn in range(2):
            busy(0.005)
            engine.submit(request(10 * i + turn, [1, 2, 3 + i % 5])).result()
        busy(0.005)
        return i

    assert engine.play(range(24), episode) == list(range(24))
    assert min(2, concurrency) <= most <= concurrency
