"""Task samplers: what they draw, what they learn, and that a resumed one draws the same."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from tiny_dataset import write_tiny_dataset

from envgen.core.errors import ConfigError, ResumeError
from envgen.train.tasks import (
    BandSampler,
    LadderSampler,
    PoolTask,
    TaskSampler,
    TaskSamplerConfig,
    make_sampler,
    task_pool,
)

KINDS = ("uniform", "band", "ladder")


def pool(count: int = 12, domains: tuple[str, ...] = ("trips", "orders")) -> list[PoolTask]:
    return [PoolTask(f"t-{i}", domains[i % len(domains)], 1 + i % 3) for i in range(count)]


def sampler(
    kind: Any, tasks: list[PoolTask] | None = None, seed: int = 0, **more: Any
) -> TaskSampler:
    return make_sampler(TaskSamplerConfig(kind=kind, **more), tasks or pool(), seed)


def play(one: TaskSampler, steps: int, n: int = 5) -> list[list[str]]:
    """Draw and observe, with results that follow from the task's id."""
    drawn = []
    for _ in range(steps):
        ids = one.draw(n)
        drawn.append(ids)
        for task_id in ids:
            one.observe(task_id, int(task_id[2:]) % 5, 4)
    return drawn


@pytest.mark.parametrize("kind", KINDS)
def test_samplers_keep_the_protocol(kind: str) -> None:
    one = sampler(kind)
    assert isinstance(one, TaskSampler)
    assert one.draw(0) == []
    ids = one.draw(4)
    assert len(set(ids)) == 4
    with pytest.raises(ConfigError, match="unknown task 'nobody'"):
        one.observe("nobody", 0, 1)
    with pytest.raises(ValueError, match="3 of 2 rollouts"):
        one.observe(ids[0], 3, 2)
    with pytest.raises(ValueError, match="can't draw -1"):
        one.draw(-1)
    assert all(np.isfinite(value) for value in one.metrics().values())


@settings(max_examples=40, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    before=st.integers(0, 6),
    after=st.integers(1, 6),
    n=st.integers(1, 30),
    weighted=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_a_resumed_sampler_draws_the_same(
    kind: str, before: int, after: int, n: int, weighted: bool, seed: int
) -> None:
    weights = {"trips": 2.0, "orders": 1.0} if weighted else None
    more: dict[str, Any] = {"domain_weights": weights, "unlock_window": 8, "unlock_rate": 0.3}
    one = sampler(kind, seed=seed, **more)
    play(one, before, n)
    saved = json.loads(json.dumps(one.state()))
    other = sampler(kind, seed=seed + 1, **more)
    play(other, 2, n)  # what it did before is forgotten
    other.load(saved)
    assert other.state() == saved
    assert play(one, after, n) == play(other, after, n)
    assert one.state() == other.state()


@settings(max_examples=40, deadline=None)
@given(
    kind=st.sampled_from(KINDS), count=st.integers(1, 9), n=st.integers(0, 30), seed=st.integers(0)
)
def test_a_batch_repeats_no_task_before_all_were_drawn(
    kind: str, count: int, n: int, seed: int
) -> None:
    tasks = [PoolTask(f"t-{i}", "trips", 1) for i in range(count)]
    times = Counter(sampler(kind, tasks, seed).draw(n))
    assert sum(times.values()) == n
    assert max(times.values(), default=0) - min(times.get(t.task_id, 0) for t in tasks) <= 1


@pytest.mark.parametrize("kind", KINDS)
def test_seeds_matter_and_are_all_that_matters(kind: str) -> None:
    assert play(sampler(kind, seed=3), 4) == play(sampler(kind, seed=3), 4)
    assert play(sampler(kind, seed=3), 4) != play(sampler(kind, seed=4), 4)


def test_uniform_draws_every_task_equally_often() -> None:
    one = sampler("uniform")
    times = Counter(task_id for _ in range(3_000) for task_id in one.draw(2))
    assert len(times) == 12
    assert all(abs(n - 500) < 5 * 500**0.5 for n in times.values())


@pytest.mark.parametrize("kind", KINDS)
def test_domains_come_by_their_weights(kind: str) -> None:
    domains = {task.task_id: task.domain for task in pool()}
    one = sampler(kind, domain_weights={"trips": 3.0, "orders": 1.0})
    times = Counter(domains[task_id] for _ in range(1_000) for task_id in one.draw(4))
    assert abs(times["trips"] - 3_000) < 5 * (4_000 * 0.75 * 0.25) ** 0.5
    alone = sampler(kind, domain_weights={"trips": 0.0, "orders": 1.0})
    assert {domains[task_id] for task_id in alone.draw(50)} == {"orders"}
    alone.observe("t-0", 1, 2)  # of the domain that is left out


def test_band_prefers_tasks_of_middling_rates() -> None:
    one = sampler("band", floor=0.0)
    for i in range(12):
        one.observe(f"t-{i}", (0, 32, 64)[i % 3], 64)
    times = Counter(task_id for _ in range(400) for task_id in one.draw(4))
    middling = {f"t-{i}" for i in range(1, 12, 3)}
    assert sum(times[t] for t in middling) / sum(times.values()) > 0.99
    assert one.metrics()["tasks/in_band_share"] == pytest.approx(1 / 3)
    # A batch larger than the band takes those next to it, and never a task twice.
    assert len(set(one.draw(12))) == 12


def test_band_s_floor_keeps_every_task_in_play() -> None:
    one = sampler("band", floor=0.05)
    for i in range(12):
        one.observe(f"t-{i}", 32 if i < 4 else 0, 64)
    times = Counter(task_id for _ in range(3_000) for task_id in one.draw(2))
    hopeless = sum(times[f"t-{i}"] for i in range(4, 12)) / sum(times.values())
    # 5 % uniform over 12 tasks, of which 8 are hopeless; Thompson sampling adds next to nothing.
    assert hopeless == pytest.approx(0.05 * 8 / 12, abs=0.012)


def test_band_explores_what_it_has_not_seen() -> None:
    one = sampler("band", floor=0.0)
    for i in range(11):
        one.observe(f"t-{i}", 0, 64)
    assert sum("t-11" in one.draw(1) for _ in range(200)) > 120


def test_band_forgets_old_rollouts() -> None:
    one = sampler("band", memory=32)
    assert isinstance(one, BandSampler)
    for _ in range(10):
        one.observe("t-0", 0, 16)
    assert one.posterior("t-0") == (1, 33)
    one.observe("t-0", 16, 16)
    assert one.posterior("t-0") == (17, 17)
    one.observe("t-0", 40, 40)  # more at once than is remembered
    assert one.posterior("t-0") == (41, 1)


@settings(max_examples=50, deadline=None)
@given(
    seen=st.lists(st.tuples(st.integers(0, 16), st.integers(0, 16)), max_size=20),
    memory=st.integers(1, 80),
)
def test_a_posterior_holds_no_more_than_its_memory(
    seen: list[tuple[int, int]], memory: int
) -> None:
    one = sampler("band", memory=memory)
    assert isinstance(one, BandSampler)
    largest = 0
    for passed, failed in seen:
        one.observe("t-0", passed, passed + failed)
        largest = max(largest, passed + failed)
    alpha, beta = one.posterior("t-0")
    assert alpha >= 1
    assert beta >= 1
    assert alpha + beta - 2 <= max(memory, largest) + 1e-9


def test_ladder_unlocks_level_after_level() -> None:
    level = {task.task_id: task.level for task in pool()}
    one = sampler("ladder", unlock_window=16, unlock_rate=0.75, frontier=0.5)
    assert {level[t] for t in one.draw(40)} == {1}
    for task_id in ("t-0", "t-3", "t-6"):
        one.observe(task_id, 4, 4)
    assert {level[t] for t in one.draw(40)} == {1}  # 12 of 16 rollouts are not enough to tell
    one.observe("t-9", 0, 4)
    drawn = Counter(level[t] for _ in range(100) for t in one.draw(8))
    assert set(drawn) == {1, 2}
    assert drawn[2] / 800 == pytest.approx(0.5, abs=0.09)
    assert one.metrics() == {"tasks/level": 2.0}
    for _ in range(20):  # passing easier ones does not help
        one.observe("t-0", 4, 4)
        one.observe("t-1", 2, 4)
    assert one.metrics() == {"tasks/level": 2.0, "tasks/level_rate": pytest.approx(0.5)}
    for _ in range(20):
        one.observe("t-1", 4, 4)
    assert one.metrics()["tasks/level"] == 3.0
    for _ in range(20):
        one.observe("t-2", 4, 4)
    assert one.metrics()["tasks/level"] == 3.0  # there is none above


def test_each_weighted_domain_has_its_ladder() -> None:
    one = sampler("ladder", domain_weights={"trips": 1.0, "orders": 1.0}, unlock_window=4)
    assert isinstance(one, LadderSampler)
    one.observe("t-0", 4, 4)  # trips, level 1
    assert one.metrics() == {"tasks/orders_level": 1.0, "tasks/trips_level": 2.0}


@pytest.mark.parametrize("kind", KINDS)
def test_another_sampler_s_state_is_refused(kind: str) -> None:
    one = sampler(kind)
    other = sampler(KINDS[KINDS.index(kind) - 1])
    with pytest.raises(ResumeError, match="task sampler is"):
        one.load(other.state())
    with pytest.raises(ResumeError, match="not those of this dataset"):
        one.load(sampler(kind, pool(13)).state())


@pytest.mark.parametrize(
    ("more", "match"),
    [
        ({"band_low": 0.9, "band_high": 0.1}, "not below"),
        ({"domain_weights": {"trips": -1.0}}, "weight of domain 'trips' is -1.0"),
        ({"domain_weights": {"trips": 0.0}}, "no weight above 0"),
        ({"domain_weights": {"trips": float("nan")}}, "finite number"),
        ({"kind": "best"}, "kind"),
    ],
)
def test_impossible_settings_are_refused(more: dict[str, Any], match: str) -> None:
    with pytest.raises(ValidationError, match=match):
        TaskSamplerConfig(**more)


def test_pools_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigError, match="the pool is empty"):
        make_sampler(TaskSamplerConfig(), [], 0)
    with pytest.raises(ConfigError, match="twice"):
        sampler("uniform", [PoolTask("t", "trips", 1)] * 2)
    with pytest.raises(ConfigError, match="'t' has no level"):
        sampler("ladder", [PoolTask("t", "trips")])
    with pytest.raises(ConfigError, match="unknown domain 'trip'"):
        sampler("uniform", domain_weights={"trip": 1.0})
    with pytest.raises(ConfigError, match="'orders' has tasks but no weight"):
        sampler("uniform", domain_weights={"trips": 1.0})


def test_a_pool_is_a_dataset_s_tasks(tmp_path: Path) -> None:
    dataset = write_tiny_dataset(tmp_path / "ds", variant=True)
    found = {task.task_id: task for task in task_pool(dataset)}
    assert found["tiny-cheapest-v1"] == PoolTask("tiny-cheapest-v1", "hotels", 1)
    assert found["tiny-count"].domain == "quiz"
    assert len(found) == 5
    assert [t.task_id for t in task_pool(dataset, ["tiny-book"])] == ["tiny-book"]
    with pytest.raises(ConfigError, match="unknown task 'tiny-boo'"):
        task_pool(dataset, ["tiny-boo"])
    with pytest.raises(ConfigError, match="no task to train on"):
        task_pool(dataset, [])
