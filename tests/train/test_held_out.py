"""Held-out tasks during training: never trained on, and the training does not notice them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from students import School

from envgen.core.errors import ConfigError
from envgen.environments.hosts import open_dataset
from envgen.model.modeling import DSAForCausalLM
from envgen.report.training import training_report
from envgen.store.bundles import EnvironmentBundle
from envgen.store.writer import DatasetWriter
from envgen.train.config import HeldOutConfig, OptimizerConfig, SamplingConfig, TrainGRPOConfig
from envgen.train.grpo_run import train_grpo
from envgen.train.metrics import read_metrics, tokens_per_second
from envgen.train.rewards import RewardConfig

pytestmark = pytest.mark.xdist_group("school")


class _StopError(Exception):
    """Ends a run in a test."""


@pytest.fixture(scope="module")
def other(taught: School, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of the one task that is not trained on here, under another name."""
    out = tmp_path_factory.mktemp("other") / "ds"
    source = open_dataset(taught.dataset)
    task = source.task_files(source.own_task_ids[0])
    files = source.environment_files(task.spec.environment_id)
    assert files.database is not None
    spec = task.spec.model_copy(update={"id": f"{task.spec.id}-other"})
    with DatasetWriter(out, name="other") as writer:
        writer.add_environment(
            EnvironmentBundle(
                spec=files.spec,
                database=files.database.read_bytes(),
                tools_source=files.tools_source,
                blueprint=files.blueprint,
            )
        )
        writer.add_task(task.model_copy(update={"spec": spec}))
        writer.finish()
    return out


def config_of(taught: School, student: Path, **changes: Any) -> TrainGRPOConfig:
    """Three steps on the variants, not on the task that they were made of."""
    dataset = open_dataset(taught.dataset)
    parent = dataset.own_task_ids[0]
    settings: dict[str, Any] = {
        "data": str(taught.dataset),
        "model": str(student),
        "split": None,
        "task_ids": tuple(sorted(set(dataset.tasks) - {parent})),
        "steps": 3,
        "sampling": SamplingConfig(groups=3, group_size=4, max_new_tokens=40),
        "rewards": RewardConfig(length=0.0, language=0.0),
        "optimizer": OptimizerConfig(lr=2e-4, indexer_lr=5e-5, warmup_steps=2, weight_decay=0.0),
        "save_every": 1,
        **changes,
    }
    return TrainGRPOConfig(**settings)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return dict(DSAForCausalLM.from_pretrained(folder).named_parameters())


def curve(out: Path) -> list[tuple[int, float]]:
    return [
        (one["step"], one["eval/pass_rate"]) for one in read_metrics(out) if "eval/tasks" in one
    ]


def test_training_does_not_notice_and_a_stopped_run_tells_the_same(
    taught: School, student: Path, other: Path, tmp_path: Path
) -> None:
    eval_ = HeldOutConfig(every=2, data=str(other), split=None)
    judged = config_of(taught, student, eval=eval_)
    train_grpo(config_of(taught, student), tmp_path / "plain")
    train_grpo(judged, tmp_path / "judged")
    wanted, found = weights(tmp_path / "plain" / "last"), weights(tmp_path / "judged" / "last")
    assert all(torch.equal(wanted[name], found[name]) for name in wanted)
    assert [step for step, _ in curve(tmp_path / "judged")] == [0, 2, 3]
    assert {rate for _, rate in curve(tmp_path / "judged")} <= {0.0, 1.0}  # one task, greedily
    assert curve(tmp_path / "plain") == []
    assert tokens_per_second(read_metrics(tmp_path / "judged"))
    curves = [c for p in training_report(tmp_path / "judged").curves[0].panels for c in p.curves]
    assert [x for c in curves if c.name == "held out" for x, _ in c.points] == [0, 2, 3]

    def stop(step: int, steps: int, text: str) -> None:
        if step == 2:
            raise _StopError

    with pytest.raises(_StopError):
        train_grpo(judged, tmp_path / "stopped", progress=stop)
    train_grpo(judged, tmp_path / "stopped")
    assert curve(tmp_path / "stopped") == curve(tmp_path / "judged")


def test_what_is_trained_on_is_refused(
    taught: School, student: Path, other: Path, tmp_path: Path
) -> None:
    parent = open_dataset(taught.dataset).own_task_ids[0]
    both = config_of(taught, student, eval=HeldOutConfig(every=1, split=None))
    with pytest.raises(ConfigError, match=r"held-out task .* is trained on"):
        train_grpo(both, tmp_path / "run")
    copied = config_of(
        taught,
        student,
        task_ids=(parent,),
        eval=HeldOutConfig(every=1, split=None, data=str(other)),
    )
    with pytest.raises(ConfigError, match=rf"'{parent}-other' is trained on, as '{parent}'"):
        train_grpo(copied, tmp_path / "run")
    nothing = config_of(taught, student, eval=HeldOutConfig(every=1, split="validation"))
    with pytest.raises(ConfigError, match="no task in split 'validation' to evaluate on"):
        train_grpo(nothing, tmp_path / "run")
    assert not (tmp_path / "run").exists()
