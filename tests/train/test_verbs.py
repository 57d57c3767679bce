"""``envgen.train`` and ``envgen.evaluate``: the room's verbs from Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from students import School

import envgen
from envgen.core.errors import ConfigError
from envgen.train.cold_start import ColdStartSummary
from envgen.train.config import ColdStartConfig, SamplingConfig, TrainGRPOConfig
from envgen.train.evaluate import EvalConfig
from envgen.train.figures import TrainGRPOSummary
from envgen.train.rewards import RewardConfig

pytestmark = pytest.mark.xdist_group("school")


def test_a_config_says_what_is_trained(taught: School, student: Path, tmp_path: Path) -> None:
    data = str(taught.dataset)
    cold = ColdStartConfig(
        data=data,
        model=str(taught.model),
        rollouts=(str(taught.gold),),
        split=None,
        epochs=0.2,
        validation_rows=0,
    )
    learnt = envgen.train(cold, tmp_path / "sft")
    assert isinstance(learnt, ColdStartSummary)
    assert learnt.steps > 0
    rewarded = TrainGRPOConfig(
        data=data,
        model=str(student),
        split=None,
        steps=1,
        sampling=SamplingConfig(groups=4, group_size=4, max_new_tokens=40),
        rewards=RewardConfig(length=0.0, language=0.0),
    )
    played = envgen.train(rewarded, tmp_path / "grpo")
    assert isinstance(played, TrainGRPOSummary)
    assert played.rollouts == 16


def test_another_config_trains_nothing(tmp_path: Path) -> None:
    wrong: Any = RewardConfig()
    with pytest.raises(ConfigError, match="can't use a config of type 'RewardConfig'"):
        envgen.train(wrong, tmp_path)


def test_a_policy_is_evaluated(taught: School, tmp_path: Path) -> None:
    config = EvalConfig(
        data=str(taught.dataset),
        model="gold",
        out=str(tmp_path),
        split=None,
        max_tasks=3,
        temperatures=(0.0,),
    )
    found = envgen.evaluate(config).temperatures[0.0]
    assert found.tasks == 3
    assert found.pass_at[1] is not None
    assert found.pass_at[1].value == 1.0
