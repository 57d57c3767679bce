"""What training is tried on; made once a session."""

from __future__ import annotations

from pathlib import Path

import pytest
from students import School, school

from envgen.train.cold_start import train_sft
from envgen.train.config import ColdStartConfig, OptimizerConfig


@pytest.fixture(scope="session")
def taught(tmp_path_factory: pytest.TempPathFactory) -> School:
    """Level-1 tasks, two teachers' rollouts of them and a model with random weights."""
    return school(tmp_path_factory.mktemp("school"))


@pytest.fixture(scope="session")
def student(taught: School, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that makes valid calls and submits the first row or the right one."""
    out = tmp_path_factory.mktemp("student")
    config = ColdStartConfig(
        data=str(taught.dataset),
        rollouts=(str(taught.gold), str(taught.greedy)),
        model=str(taught.model),
        split=None,
        epochs=30,
        validation_rows=0,
        optimizer=OptimizerConfig(lr=4e-3, warmup_steps=5),
    )
    train_sft(config, out)
    return (out / "last").resolve()
