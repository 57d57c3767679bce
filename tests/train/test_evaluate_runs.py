"""Evaluation from run folders, with a run on canaries beside the one on ordinary tasks."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_dataset import write_tiny_dataset

from envgen.core.errors import ConfigError, ResumeError, StoreError
from envgen.pipelines.canaries import make_canaries
from envgen.pipelines.general.generate import GenerateConfig, generate
from envgen.pipelines.general.variants import VariantsConfig, variants
from envgen.policies.registry import PolicyConfig
from envgen.rollout.run import RolloutConfig, rollout
from envgen.train.evaluate import (
    EvalConfig,
    EvalSummary,
    PlayedRun,
    compare_runs,
    evaluate_model,
    evaluate_runs,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    dataset = write_tiny_dataset(folder / "ds")
    make_canaries(dataset.path, folder / "canaries")
    for name, spec in (("gold", "gold"), ("noisy", "noisy-gold:0.6")):
        for data in ("ds", "canaries"):
            rollout(
                RolloutConfig(
                    dataset=str(folder / data),
                    policy=PolicyConfig(spec=spec),
                    out=str(folder / f"{name}-{data}"),
                    n=4,
                ),
            )
    return folder


def played(folder: Path, name: str, *datasets: str) -> list[PlayedRun]:
    return [
        PlayedRun(run=str(folder / f"{name}-{data}"), dataset=str(folder / data))
        for data in datasets
    ]


def test_runs_are_evaluated_together(folder: Path) -> None:
    found = evaluate_runs(played(folder, "gold", "ds", "canaries"))
    assert found.policy == "gold"
    assert (found.tasks, found.rollouts, found.errors) == (4, 16, 0)
    assert found.pass_at[1] is not None
    assert found.pass_at[1].value == 1.0
    assert found.canaries is not None
    assert found.canaries.honest_passes == 4 * 5
    assert found.canaries.unsolvable_rollouts == 4 * 4
    assert found.canaries.alarms == ()
    assert evaluate_runs(played(folder, "gold", "ds")).canaries is None


def test_runs_are_compared(folder: Path) -> None:
    before = played(folder, "noisy", "ds", "canaries")
    found = compare_runs(before, played(folder, "gold", "ds", "canaries"))
    assert found.before.policy == "noisy-gold:0.6"
    assert found.pass_at[1] is not None
    assert found.pass_at[1].value > 0
    assert found.after.canaries is not None


def test_runs_that_do_not_fit_are_refused(folder: Path, tmp_path: Path) -> None:
    wrong = PlayedRun(run=str(folder / "gold-ds"), dataset=str(folder / "canaries"))
    with pytest.raises(ResumeError, match="were made on another dataset"):
        evaluate_runs([wrong])
    with pytest.raises(StoreError):
        evaluate_runs([PlayedRun(run=str(tmp_path / "none"), dataset=str(folder / "ds"))])
    with pytest.raises(ConfigError, match="only one of the two policies played"):
        compare_runs(played(folder, "gold", "canaries"), played(folder, "gold", "ds"))
    with pytest.raises(ConfigError, match="several policies"):
        evaluate_runs([*played(folder, "gold", "ds"), *played(folder, "noisy", "canaries")])


def test_an_evaluation_tells_whether_a_policy_learned(tmp_path: Path) -> None:
    """Gold is as good as its ceiling and far above the first row; the first row itself learned nothing."""
    config = GenerateConfig(
        categories=("room_lookup",), environments=1, tasks_per_environment=1, max_level=1, seed=4
    )
    generate(config, tmp_path / "parents", workers=1, backend="inline")
    variants(VariantsConfig(per_task=60, seed=1), tmp_path / "parents", tmp_path / "ds", workers=1)

    def evaluated(
        policy: str, name: str, against: str | None = None, ceiling: str | None = None
    ) -> EvalSummary:
        settings = EvalConfig(
            data=str(tmp_path / "ds"), model=policy, out=str(tmp_path / name), split="train",
            temperatures=(0.0,), backend="inline",
        )  # fmt: skip
        others = [None if run is None else tmp_path / run for run in (against, ceiling)]
        return evaluate_model(settings, against=others[0], ceiling=others[1])

    evaluated("gold", "best")
    evaluated("greedy", "first")
    learned = evaluated("gold", "gold", against="first", ceiling="best")
    assert learned.missed == ()
    assert learned.first_row is not None
    assert 0.2 < learned.first_row < 0.6
    stuck = evaluated("greedy", "again", against="first", ceiling="best")
    assert [text.partition(",")[0] for text in stuck.missed] == [
        "the lift",
        f"after training {learned.first_row:.3f} is more than 0.1 below the ceiling",
    ]
    with pytest.raises(ConfigError, match="against two other evaluations"):
        evaluated("gold", "alone", ceiling="best")
