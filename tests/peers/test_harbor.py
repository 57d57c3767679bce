"""Harbor: its own models read our trajectories."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from peer_play import Peer

from envgen.policies.registry import PolicyConfig
from envgen.rollout.export import export_run
from envgen.rollout.run import RolloutConfig, rollout
from envgen.store.dataset import Dataset

READ = """
import json, sys
from harbor.models.trajectories import Trajectory
print(sum(bool(Trajectory.model_validate_json(line)) for line in open(sys.argv[1])))
"""


def test_its_models_read_our_trajectories(
    peer: Peer, datasets: dict[str, Dataset], tmp_path: Path
) -> None:
    found = filter(None, map(shutil.which, ("python3.12", "python3.13")))
    base = next((one for one in found if not subprocess.run([one, "-c", ""]).returncode), None)
    if base is None:
        pytest.skip("Harbor needs Python 3.12")
    python = peer("harbor", "harbor==0.25.0", base=base)
    dataset = datasets["general"]
    config = RolloutConfig(
        dataset=str(dataset.path),
        policy=PolicyConfig(spec="noisy-gold:0.3"),
        out=str(tmp_path / "run"),
        n=2,
    )
    rollout(config)
    file = tmp_path / "run.jsonl"
    written = export_run(tmp_path / "run", file, "atif", dataset=dataset).written
    done = subprocess.run(
        [str(python), "-c", READ, str(file)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    assert int(done.stdout) == written == 2 * len(dataset.tasks)
