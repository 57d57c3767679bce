"""Two processes learn what one does, resume to the bit, and tell what another died of."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError
from students import School

from envgen.core.errors import ConfigError
from envgen.model.modeling import DSAForCausalLM
from envgen.train.cold_start import run_sft, train_sft
from envgen.train.config import (
    ColdStartConfig,
    GRPOConfig,
    OptimizerConfig,
    SamplingConfig,
    TrainGRPOConfig,
    UpdateConfig,
)
from envgen.train.grpo_run import train_grpo
from envgen.train.metrics import read_metrics
from envgen.train.parallel import RankError, ranks
from envgen.train.rewards import DomainRewards, RewardConfig

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("school")]


def sft_config(taught: School, **changes: object) -> ColdStartConfig:
    base: dict[str, object] = {
        "data": str(taught.dataset),
        "rollouts": (str(taught.gold), str(taught.greedy)),
        "model": str(taught.model),
        "split": None,
        "epochs": 2,
        "tokens_per_batch": 1_500,
        "validation_rows": 0,
        "optimizer": OptimizerConfig(lr=1e-3, warmup_steps=2),
    }
    return ColdStartConfig.model_validate(base | changes)


def grpo_config(taught: School, student: Path, **changes: object) -> TrainGRPOConfig:
    base: dict[str, object] = {
        "data": str(taught.dataset),
        "model": str(student),
        "split": None,
        "steps": 3,
        "sampling": SamplingConfig(groups=4, group_size=4, max_new_tokens=40),
        "rewards": RewardConfig(length=0.0, language=0.0),
        "objective": GRPOConfig(kl_coef=0.01),
        "update": UpdateConfig(mini_batches=2),
        "optimizer": OptimizerConfig(lr=2e-4, indexer_lr=5e-5, warmup_steps=0, weight_decay=0.0),
        "save_every": 1,
    }
    return TrainGRPOConfig.model_validate(base | changes)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return dict(DSAForCausalLM.from_pretrained(folder).named_parameters())


def test_two_processes_learn_from_teachers_what_one_does(taught: School, tmp_path: Path) -> None:
    for count in (1, 2):
        train_sft(sft_config(taught, processes=count), tmp_path / str(count))
    one, two = (read_metrics(tmp_path / name) for name in ("1", "2"))
    assert len(one) == len(two)
    for name in ("sft/loss", "sft/grad_norm"):
        assert two[0][name] == pytest.approx(one[0][name], rel=1e-4), name
        # Adam makes much of the last bits; the curves stay together all the same.
        wanted = [line[name] for line in one]
        assert [line[name] for line in two] == pytest.approx(wanted, rel=0.05), name


def test_two_processes_play_the_same_groups_and_share_an_update(
    taught: School, student: Path, tmp_path: Path
) -> None:
    # More text than a command line takes; a filter's many kept tasks are that, too.
    rewards = RewardConfig(
        length=0.0, language=0.0, domains={f"domain {i}": DomainRewards() for i in range(4_000)}
    )
    assert len(rewards.model_dump_json()) > 128 << 10
    for count in (1, 2):
        config = grpo_config(
            taught, student, steps=1, update=UpdateConfig(), processes=count, rewards=rewards
        )
        train_grpo(config, tmp_path / str(count))
    (one,), (two,) = (read_metrics(tmp_path / name) for name in ("1", "2"))
    for name in ("reward/pass_rate", "update/loss", "update/grad_norm", "policy/mismatch_p95"):
        assert two[name] == pytest.approx(one[name], rel=1e-3, abs=1e-6), name


def test_shards_learn_from_teachers_what_whole_models_do(taught: School, tmp_path: Path) -> None:
    optimizer = OptimizerConfig(kind="muon", lr=1e-3, warmup_steps=2)  # vectors: AdamW
    common = {"optimizer": optimizer, "validation_rows": 4, "save_every": 2, "processes": 2}
    ends = [
        train_sft(sft_config(taught, **common, sharding=sharding), tmp_path / sharding)
        for sharding in ("none", "fsdp")
    ]
    lines = [read_metrics(tmp_path / name) for name in ("none", "fsdp")]
    assert len(lines[0]) == len(lines[1]) > 2
    for name in ("sft/loss", "sft/grad_norm", "index/loss", "index/grad_norm"):
        wanted, found = ([line[name] for line in some if name in line] for some in lines)
        assert found[0] == pytest.approx(wanted[0], rel=1e-5), name
        assert found == pytest.approx(wanted, rel=0.01), name
    assert ends[1].validation_loss == pytest.approx(ends[0].validation_loss, rel=0.01)
    require_alike(tmp_path / "fsdp" / "last", tmp_path / "none" / "last")


def test_shards_play_the_same_groups_and_share_an_update(
    taught: School, student: Path, tmp_path: Path
) -> None:
    # Parts of one rollout, and groups that not all processes have as many of: other numbers of passes.
    common = {
        "steps": 1,
        "processes": 2,
        "update": UpdateConfig(mini_batches=2, part_tokens=1, pack_tokens=20),
        "objective": GRPOConfig(kl_coef=0.01, old="recomputed"),
        "sampling": SamplingConfig(groups=3, group_size=4, max_new_tokens=40),
    }
    for sharding in ("none", "fsdp"):
        train_grpo(grpo_config(taught, student, **common, sharding=sharding), tmp_path / sharding)
    (one,), (two,) = (read_metrics(tmp_path / name) for name in ("none", "fsdp"))
    for name in (
        "reward/pass_rate", "update/loss", "update/grad_norm", "policy/mismatch_p95", "policy/kl",
        "policy/log_ratio_p99",
    ):  # fmt: skip
        assert two[name] == pytest.approx(one[name], rel=1e-4, abs=1e-6), name
    require_alike(tmp_path / "fsdp" / "last", tmp_path / "none" / "last")


def require_alike(folder: Path, wanted: Path) -> None:
    """All weights are whole, and about the same."""
    found = weights(folder)
    for name, weight in weights(wanted).items():
        assert (found[name] - weight).norm() < 0.01 * weight.norm(), name


def test_shards_need_several_processes(taught: School) -> None:
    with pytest.raises(ValidationError, match="processes=2 or more"):
        sft_config(taught, sharding="fsdp")


@pytest.mark.parametrize("sharding", ["none", "fsdp"])
def test_two_processes_go_on_to_the_same_bits(
    taught: School, student: Path, tmp_path: Path, sharding: str
) -> None:
    config = grpo_config(taught, student, processes=2, sharding=sharding)
    train_grpo(config, tmp_path / "whole")

    class StopError(Exception):
        pass

    def stop(step: int, steps: int, text: str) -> None:
        if step:
            raise StopError

    with pytest.raises(StopError):
        train_grpo(config, tmp_path / "cut", progress=stop)
    assert train_grpo(config, tmp_path / "cut").steps == 2
    whole, cut = weights(tmp_path / "whole" / "last"), weights(tmp_path / "cut" / "last")
    for name, weight in whole.items():
        assert torch.equal(weight, cut[name]), name


def test_what_another_process_died_of_is_told(taught: School, tmp_path: Path) -> None:
    config = sft_config(taught, rollouts=(str(tmp_path / "nowhere"),), processes=2)
    with (
        pytest.raises(RankError, match="process 1 ended with code 1"),
        ranks(config, partial(run_sft, config, tmp_path, None), tmp_path) as mine,
    ):
        mine.gather("hello")


def test_more_processes_than_groups_are_refused(
    taught: School, student: Path, tmp_path: Path
) -> None:
    sampling = SamplingConfig(groups=1, group_size=2)
    with pytest.raises(ConfigError, match="1 groups can't be shared by 2 processes"):
        train_grpo(grpo_config(taught, student, sampling=sampling, processes=2), tmp_path)
