"""The stabiliser study's own logic: its arms, what a collapse is, and the task's verifier and teacher."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from envgen.train.config import GRPOConfig

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def study() -> ModuleType:
    """The script; it is no part of the package."""
    spec = importlib.util.spec_from_file_location("stabilisers", FOLDER / "stabilisers.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["stabilisers"] = module
    spec.loader.exec_module(module)
    return module


def changed(one: GRPOConfig, other: GRPOConfig) -> set[str]:
    return {name for name in GRPOConfig.model_fields if getattr(one, name) != getattr(other, name)}


def test_each_arm_turns_one_switch(study: ModuleType) -> None:
    on = GRPOConfig(kl_coef=0.05, off_policy_delta=0.1, keep_topk=False)
    arms = study.objectives(on)
    own = {
        "no-unbiased-kl": {"kl_form"},
        "no-off-policy-mask": {"off_policy_mask"},
        "no-keep-routing": {"keep_routing"},
        "no-keep-sampling-mask": {"keep_sampling_mask"},
        "index-replay": {"keep_topk"},
    }
    for name, fields in own.items():
        assert changed(on, arms[name]) == fields
    off = set.union(*(fields for name, fields in own.items() if name != "index-replay"))
    assert changed(on, arms["all-on"]) == set()
    assert changed(on, arms["all-off"]) == off
    assert set(arms) == {"all-on", "all-off", *own}


def test_the_committed_study_has_everything_on_and_pilots_of_its_own(study: ModuleType) -> None:
    config = study.StudyConfig.model_validate_json((FOLDER / "stabilisers.json").read_text())
    on = config.objective
    assert on.kl_coef > 0
    assert on.kl_form == "unbiased"
    assert on.off_policy_mask
    assert on.keep_routing
    assert on.keep_sampling_mask
    assert not on.keep_topk
    assert config.update.mini_batches > 1
    assert config.architecture.index_topk * 4 <= config.task.shown
    assert len(config.seeds) >= 5
    assert not set(config.seeds) & set(config.pilot_seeds)


@pytest.mark.parametrize(
    ("rewards", "after"),
    [
        ([0.2, 0.4, 0.6, 0.8, 0.8, 0.8], None),
        ([0.2, 0.8, 0.8, 0.3, 0.3], 50),  # peak 0.8 over two batches, then two below 0.4
        ([0.2, 0.8, 0.8, 0.3, 0.5, 0.3], None),  # never two on end
        ([0.8, 0.8, 0.4, 0.4], None),  # half is not below half
        ([0.3, 0.6, 0.25, 0.25], None),  # one lucky batch is no peak: 0.45 is
        ([0.8], None),
        ([], None),
    ],
)
def test_a_collapse_is_below_half_the_peak_for_so_many_updates(
    study: ModuleType, rewards: list[float], after: int | None
) -> None:
    config = study.CollapseConfig(share=0.5, updates=20)
    assert study.collapsed_after(rewards, 10, config) == after
