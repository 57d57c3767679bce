"""The agreement gate: ``random-valid`` through environment, tools and verifier meets the computed density.

The density comes from the tables; the policy knows neither tables nor density and plays through the
agent's own interface. If their intervals don't overlap, one of density, environment and verifier is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic import JsonValue

from envgen.core.seeding import derive
from envgen.core.types import GateResult, GateStatus
from envgen.environments.general import GeneralEnv
from envgen.environments.hosts import close_hosts
from envgen.pipelines.boundary import broken, guarded
from envgen.policies.random_valid import RandomValidPolicy
from envgen.rollout.bootstrap import clopper_pearson
from envgen.rollout.episode import run_episode
from envgen.sandboxes.zygote import WorkerBackend
from envgen.store.bundles import EnvironmentBundle, TaskBundle
from envgen.store.dataset import Dataset
from envgen.store.writer import DatasetWriter

GATE = "agreement"
CONFIDENCE = 0.999


def random_valid_agreement(
    environment: EnvironmentBundle,
    tasks: Sequence[TaskBundle],
    *,
    episodes: int,
    backend: WorkerBackend,
    seed: int = 0,
    trusted: bool = True,
) -> list[GateResult]:
    """One result per task: passed where the intervals overlap, failed where something breaks.

    A task whose density would need more than ``episodes`` episodes (3 / n <= density) is ``not_run``.
    Episodes are drawn from ``seed`` and the task's id alone, so that ``validate`` plays the same again.
    ``trusted`` says that the code may run without isolation.
    """
    playable = [_episodes_needed(task, episodes) for task in tasks]
    found = [_not_run(task, episodes) for task in tasks]
    try:
        if any(playable):
            found = _played(environment, tasks, playable, episodes, backend, seed, trusted)
    except Exception as error:  # the boundary: these tasks fail, the run goes on
        return [broken(GATE, error) for _ in tasks]
    told: dict[str, JsonValue] = {"episodes": episodes}
    return [one.model_copy(update={"details": {**one.details, **told}}) for one in found]


def _played(
    environment: EnvironmentBundle,
    tasks: Sequence[TaskBundle],
    playable: Sequence[int],
    episodes: int,
    backend: WorkerBackend,
    seed: int,
    trusted: bool,
) -> list[GateResult]:
    with TemporaryDirectory(prefix="envgen-agreement-") as folder:
        dataset = _dataset(environment, tasks, Path(folder) / "dataset", seed, trusted)
        try:
            with closing(GeneralEnv(dataset, backend=backend, unproven=True)) as env:
                return [
                    guarded(GATE, partial(agreement, env, task, n, seed))
                    if n
                    else _not_run(task, episodes)
                    for task, n in zip(tasks, playable, strict=True)
                ]
        finally:
            close_hosts(dataset)


def agreement(env: GeneralEnv, task: TaskBundle, n: int, seed: int) -> GateResult:
    """Play ``n`` random-valid episodes of one task and compare with its density."""
    density = task.spec.difficulty.density
    assert density is not None  # n is 0 without one
    policy = RandomValidPolicy()
    passed = 0
    for i in range(n):
        result = run_episode(
            env, policy, task.spec.id, sample=i, seed=derive(seed, task.spec.id, "agreement", i)
        )
        error = result.trajectory.error
        if error is not None:
            reason = f"episode {i} broke: {error.kind}: {error.text}"
            return GateResult(gate=GATE, status=GateStatus.FAILED, n=i + 1, reason=reason)
        score = result.trajectory.score
        passed += score is not None and score.passed
    low, high = clopper_pearson(n, passed, CONFIDENCE)
    agrees = low <= density.high and density.low <= high
    return GateResult(
        gate=GATE,
        status=GateStatus.PASSED if agrees else GateStatus.FAILED,
        n=n,
        figure=passed / n,
        reason=""
        if agrees
        else f"random-valid passes {passed}/{n}, the density is {density.value:.3g}",
        details={"low": low, "high": high, "density": density.value, "confidence": CONFIDENCE},
    )


def _episodes_needed(task: TaskBundle, most: int) -> int:
    """Enough episodes that 3 / n <= density, at least a quarter of ``most``; 0 if ``most`` won't do."""
    density = task.spec.difficulty.density
    if density is None or density.value <= 0 or 3 / density.value > most:
        return 0
    return max(most // 4, math.ceil(3 / density.value))


def _not_run(task: TaskBundle, episodes: int) -> GateResult:
    density = task.spec.difficulty.density
    known = "unknown" if density is None else f"{density.value:.2g}"
    return GateResult(
        gate=GATE,
        status=GateStatus.NOT_RUN,
        reason=f"{episodes} episodes are too few for a density of {known}",
    )


def _dataset(
    environment: EnvironmentBundle,
    tasks: Sequence[TaskBundle],
    path: Path,
    seed: int,
    trusted: bool,
) -> Dataset:
    writer = DatasetWriter(path, name="agreement", seed=seed)
    writer.add_environment(environment)
    for task in tasks:
        writer.add_task(task)
    writer.finish(funnel={})
    return Dataset.open(path, unproven=True, trust=trusted)
