"""Sound datasets, and a run with faults in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from planted_runs import FAULTY
from planted_trajectories import PlayedRun, play, sound_datasets


@pytest.fixture(scope="session")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sound_datasets(tmp_path_factory.mktemp("sound"))


@pytest.fixture(scope="session")
def loans(sound: Path, tmp_path_factory: pytest.TempPathFactory) -> PlayedRun:
    """A broken tool, a lax checker and a leak; two passed and two failed."""
    return play(FAULTY[0], sound, tmp_path_factory.mktemp("loans"))
