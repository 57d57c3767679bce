"""One task of each family that comes with a dataset, shown with its answer and who fails it."""

from __future__ import annotations

from collections.abc import Iterator

from envgen.core.errors import EnvgenError
from envgen.core.families import Family, family_names, find_family
from envgen.environments.families import make_env
from envgen.environments.hosts import open_dataset
from envgen.policies.registry import parse_policy
from envgen.report.data import FamilySample
from envgen.rollout.episode import run_episode
from envgen.rollout.gold import GoldPolicy
from envgen.store.dataset import Dataset

SAMPLES = 5
"""Episodes of a player that draws."""


def family_samples() -> Iterator[FamilySample]:
    """A task of middle difficulty of each family with a dataset in the package, played without a model."""
    for name in family_names():
        family = find_family(name)
        if family.shipped:
            yield _sample(family)


def _sample(family: Family) -> FamilySample:
    dataset = open_dataset(family.shipped)
    ranked = sorted(dataset.own_task_ids, key=lambda one: (dataset.facts(one).level, one))
    task_id = ranked[len(ranked) // 2]
    files = dataset.task_files(task_id)
    note, parts, players = "", dict[str, list[str]](), dict[str, str]()
    try:
        parts = family.load("readable")(dataset, task_id) if family.readable else {}
        players = dict(_played(family, dataset, task_id))
    except EnvgenError as error:  # an extra or a sandbox is missing: the page says so
        note = f"Not played here: {error}. {error.hint}"
    return FamilySample(
        family=family.name,
        title=dataset.environments[files.spec.environment_id].title,
        task_id=task_id,
        level=files.spec.difficulty.level,
        prompt=files.spec.prompt,
        answer="" if files.gold is None else str(files.gold.answer),
        parts={title: tuple(lines) for title, lines in parts.items()},
        players=players,
        note=note,
    )


def _played(family: Family, dataset: Dataset, task_id: str) -> Iterator[tuple[str, str]]:
    """(policy, how many episodes it passed) of gold and of the family's players."""
    env = make_env(dataset, family.name)
    try:
        env.check()
        for spec in ("gold", *family.players):
            policy = GoldPolicy(dataset) if spec == "gold" else parse_policy(spec)
            count = SAMPLES if spec == "random-valid" else 1
            runs = [run_episode(env, policy, task_id, sample=i, seed=0) for i in range(count)]
            passed = sum(bool(run.trajectory.score and run.trajectory.score.passed) for run in runs)
            yield spec, f"{passed} of {count}"
    finally:
        env.close()
