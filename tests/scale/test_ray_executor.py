from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from equal_episodes import equal_but_times
from tiny_dataset import write_tiny_dataset

from envgen.core.errors import ConfigError, WorkerDiedError
from envgen.core.executor import WorkerSpec
from envgen.policies import PolicyConfig
from envgen.rollout.run import RolloutConfig, rollout
from envgen.scale.ray_executor import RayExecutor
from envgen.store.runs import RunStore

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'envgen-gym[scale]'")
pytestmark = [
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    helpers = str(Path(__file__).parents[1] / "helpers")
    paths = os.pathsep.join([helpers, os.environ.get("PYTHONPATH", "")])
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        runtime_env={"env_vars": {"PYTHONPATH": paths}},
    )
    yield
    ray.shutdown()


@pytest.mark.usefixtures("cluster")
def test_every_item_has_one_outcome(tmp_path: Path) -> None:
    spec = WorkerSpec("workers:squares", {"folder": str(tmp_path)})
    outcomes = list(RayExecutor(actors=2, threads=2).run(spec, iter([*range(30), -1])))
    assert {o.item: o.value[0] for o in outcomes if o.error is None} == {
        i: i * i for i in range(30)
    }
    assert [type(o.error) for o in outcomes if o.error is not None] == [ValueError]
    assert len(list(tmp_path.iterdir())) == 2  # each worker was closed


@pytest.mark.usefixtures("cluster")
def test_a_dead_actor_costs_its_items_only() -> None:
    spec = WorkerSpec("workers:squares")
    outcomes = list(RayExecutor(actors=1).run(spec, [1, 2, 666, *range(10, 30)]))
    assert len(outcomes) == 23
    died = [o.item for o in outcomes if isinstance(o.error, WorkerDiedError)]
    assert 666 in died
    assert len(died) <= 6


@pytest.mark.usefixtures("cluster")
def test_rollouts_by_actors_are_the_same(tmp_path: Path) -> None:
    dataset = write_tiny_dataset(tmp_path / "tiny")
    config = RolloutConfig(
        dataset=str(dataset.path),
        policy=PolicyConfig(spec="random"),
        out=str(tmp_path / "ray"),
        n=5,
        concurrency=2,
        executor="ray",
        backend="inline",
        unproven=True,
    )
    assert rollout(config).samples == 20
    rollout(config.model_copy(update={"executor": "local", "out": str(tmp_path / "local")}))
    with RunStore.read(tmp_path / "ray") as a, RunStore.read(tmp_path / "local") as b:
        pairs = zip(a.trajectories(), b.trajectories(), strict=True)
        assert all(equal_but_times(first, second) for first, second in pairs)


def test_impossible_forms_are_refused() -> None:
    with pytest.raises(ConfigError):
        RayExecutor(actors=0)
