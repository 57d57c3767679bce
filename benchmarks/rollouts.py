"""10,000 random-policy rollouts (100 tasks x 100), isolated and stored; and where the time goes.

    python benchmarks/rollouts.py [--dataset DS] [--tasks 100] [--n 100] [--processes 2]

Without ``--dataset`` one is generated (levels 1-5, all categories, seed 7). The figure is the wall time of
``envgen.rollout.rollout`` with worker processes, from the call to the last commit; other work on the
machine makes it worse, so the load is printed. The baseline in the same run is the plain loop: one process,
one environment, no isolation, nothing stored.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from envgen.environments.general import GeneralEnv
from envgen.environments.hosts import open_dataset
from envgen.policies import PolicyConfig
from envgen.policies.random_policy import RandomPolicy
from envgen.rollout import RolloutConfig, rollout, run_episode
from envgen.rollout.work import episode_seed
from envgen.store.dataset import Dataset

TARGET_S = 60.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset")
    parser.add_argument("--tasks", type=int, default=100)
    parser.add_argument("--n", type=int, default=100)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--split-episodes", type=int, default=400)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="envgen-bench-") as name:
        folder = Path(name)
        path = options.dataset or generated(folder / "dataset", options.tasks)
        dataset = open_dataset(path, unproven=True)
        task_ids = dataset.own_task_ids[: options.tasks]
        print(f"rollouts: {len(task_ids)} tasks x {options.n}, policy random")
        headline(path, task_ids, folder / "run", options.n, options.processes)
        split(dataset, task_ids, options.split_episodes)
        baseline(dataset, task_ids, options.split_episodes)


def generated(path: Path, num_tasks: int) -> str:
    """A dataset of at least ``num_tasks`` proven tasks."""
    from envgen.pipelines.general.generate import GenerateConfig, generate

    environments = -(-num_tasks // 3)
    while True:
        config = GenerateConfig(environments=environments, tasks_per_environment=4, seed=7)
        summary = generate(config, path)
        print(
            f"generated {summary.tasks} tasks in {summary.seconds:.0f} s (not part of the figure)"
        )
        if summary.tasks >= num_tasks:
            return str(path)
        environments *= 2
        path = path.with_name(f"dataset-{environments}")


def headline(path: Any, task_ids: tuple[str, ...], out: Path, n: int, processes: int) -> None:
    config = RolloutConfig(
        dataset=str(path),
        policy=PolicyConfig(spec="random"),
        out=str(out),
        n=n,
        seed=1,
        task_ids=task_ids,
        concurrency=processes,
        unproven=True,
    )
    before = cpu_seconds()
    start = time.monotonic()
    summary = rollout(config)
    wall, cpu = time.monotonic() - start, cpu_seconds() - before
    load = os.getloadavg()[0]
    size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    scaled = wall * 10_000 / summary.samples
    print(
        f"  {summary.samples} rollouts in {wall:.1f} s wall, {cpu:.1f} s CPU without sandboxes, "
        f"{processes} processes, load {load:.1f}: "
        f"{summary.samples / wall:.0f} a second; 10,000 take {scaled:.1f} s (target <= {TARGET_S:.0f})"
    )
    print(
        f"  mean tool calls {summary.mean_calls:.2f} (>= 6), reached the verifier "
        f"{summary.reached_verifier:.0%} (>= 25 %), errors {summary.errors}, stored {size / 1e6:.1f} MB"
    )


def cpu_seconds() -> float:
    """CPU time of this process and its finished children."""
    own, children = (
        resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


class Clock:
    """Adds up wall time by phase."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time what runs inside."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


class TimedPolicy(RandomPolicy):
    """The random policy, timed."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def respond(self, *args: Any, **more: Any) -> Any:
        """See RandomPolicy."""
        with self.clock.phase("policy"):
            return super().respond(*args, **more)


class TimedEnv(GeneralEnv):
    """The environment, timed: reset, steps with tool calls, the last step with its verifier."""

    clock: Clock

    def reset(self, **options: Any) -> Any:
        """See GeneralEnv."""
        with self.clock.phase("reset"):
            return super().reset(**options)

    def step(self, action: str) -> Any:
        """See GeneralEnv."""
        name = "submit and verify" if "submit_result" in action else "tool calls"
        with self.clock.phase(name):
            return super().step(action)


def split(dataset: Dataset, task_ids: tuple[str, ...], episodes: int) -> None:
    """Where an isolated episode's wall time goes, in one process."""
    clock = Clock()
    calls = 0
    with closing(TimedEnv(dataset, unproven=True)) as env:
        env.clock = Clock()  # the first episodes start zygotes
        play(env, RandomPolicy(), task_ids, len(task_ids))
        env.clock = clock
        start = time.perf_counter()
        calls = play(env, TimedPolicy(clock), task_ids, episodes)
        wall = time.perf_counter() - start
    clock.seconds["rest"] = wall - sum(clock.seconds.values())
    parts = ", ".join(
        f"{name} {seconds / episodes * 1e3:.2f}" for name, seconds in sorted(clock.seconds.items())
    )
    print(
        f"  one process, isolated: {wall / episodes * 1e3:.2f} ms an episode of "
        f"{calls / episodes:.1f} calls (ms: {parts})"
    )


def baseline(dataset: Dataset, task_ids: tuple[str, ...], episodes: int) -> None:
    """The plain loop without isolation or storage."""
    with closing(GeneralEnv(dataset, backend="inline", unproven=True)) as env:
        play(env, RandomPolicy(), task_ids, len(task_ids))
        start = time.perf_counter()
        play(env, RandomPolicy(), task_ids, episodes)
        wall = time.perf_counter() - start
    print(
        f"  baseline, one process, no isolation, nothing stored: {wall / episodes * 1e3:.2f} ms an "
        f"episode; 10,000 take {wall / episodes * 10_000:.1f} s"
    )


def play(env: GeneralEnv, policy: Any, task_ids: tuple[str, ...], episodes: int) -> int:
    """Play episodes round the tasks; returns their tool calls."""
    calls = 0
    for i in range(episodes):
        task_id = task_ids[i % len(task_ids)]
        seed = episode_seed(2, task_id, i)
        result = run_episode(env, policy, task_id, sample=i, seed=seed)
        calls += result.trajectory.num_calls
    return calls


if __name__ == "__main__":
    main()
