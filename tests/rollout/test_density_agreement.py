"""random-valid, through environment, tools and verifier, passes as often as the density says."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from ladders import ladder
from problem_dataset import write_problem_dataset
from sample_problems import SAMPLES, Sample

from envgen.environments.general import GeneralEnv
from envgen.pipelines.general.space.density import density
from envgen.policies.greedy import GreedyPolicy
from envgen.policies.random_valid import RandomValidPolicy
from envgen.rollout.bootstrap import clopper_pearson
from envgen.rollout.episode import run_episode


def hardened(domain: str, level: int) -> Sample:
    """The domain's task at ``level``."""
    problem, tables = ladder(domain, 0, level)[-1]
    return Sample(problem, tables)


CASES: dict[str, tuple[Callable[[], Sample], int]] = {
    "trip-1": (lambda: hardened("trip", 1), 100),
    "trip-5": (lambda: hardened("trip", 5), 100),
    "orders-2": (lambda: hardened("orders", 2), 100),
    "orders-4": (lambda: hardened("orders", 4), 100),
    "meetings-3": (lambda: hardened("meetings", 3), 100),
    "meetings-6": (lambda: hardened("meetings", 6), 100),
    "a-trip": (lambda: SAMPLES["a_trip"], 150),
    "a-stay": (lambda: SAMPLES["a_stay"], 150),
    "b-cheapest": (lambda: SAMPLES["b_cheapest"], 100),
    "b-set": (lambda: SAMPLES["b_set"], 100),
    "e-meetings": (lambda: SAMPLES["e_meetings"], 100),
}


@pytest.mark.parametrize("name", CASES)
def test_random_valid_agrees_with_the_density(name: str, tmp_path: Path) -> None:
    build, n = CASES[name]
    sample = build()
    dataset = write_problem_dataset(tmp_path / "problems", {name: sample})
    env = GeneralEnv(dataset, backend="inline", unproven=True)
    passed = 0
    for i in range(n):
        got = run_episode(env, RandomValidPolicy(), name, sample=i, seed=i).trajectory
        assert got.error is None, got.error
        assert got.reached_verifier, got.messages[-3:]
        assert got.score is not None
        passed += got.score.passed
    expected = density(sample.problem, sample.tables, random.Random(0))
    low, high = clopper_pearson(n, passed, 0.9999)
    assert low <= expected.high
    assert expected.low <= high
    greedy = run_episode(env, GreedyPolicy(), name, sample=0, seed=0).trajectory
    assert greedy.error is None
    assert greedy.reached_verifier
