"""Harbor: its own models read our trajectories and task folders.

Whole trials (three containers a task) need Docker with Compose and envgen on a package index: untested here.
`tests/integrations/test_harbor.py` runs each container's part by its own files.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from peer_play import Peer

from envgen.integrations.exports import write_package
from envgen.policies.registry import PolicyConfig
from envgen.rollout.export import export_run
from envgen.rollout.run import RolloutConfig, rollout
from envgen.store.dataset import Dataset

READER = Path(__file__).parent / "players" / "harbor_reader.py"
READ = """
import json, sys
from harbor.models.trajectories import Trajectory
print(sum(bool(Trajectory.model_validate_json(line)) for line in open(sys.argv[1])))
"""


@pytest.fixture
def python(peer: Peer) -> Path:
    found = filter(None, map(shutil.which, ("python3.12", "python3.13")))
    base = next((one for one in found if not subprocess.run([one, "-c", ""]).returncode), None)
    if base is None:
        pytest.skip("Harbor needs Python 3.12")
    return peer("harbor", "harbor==0.25.0", base=base)


@pytest.mark.parametrize("family", ["general", "search", "interpreter", "code"])
def test_its_models_read_our_task_folders(
    python: Path, datasets: dict[str, Dataset], tmp_path: Path, family: str
) -> None:
    dataset, out = datasets[family], tmp_path / "tasks"
    written = write_package(dataset, out, "harbor")
    words = [str(python), "-P", str(READER), str(out)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3_000:]
    assert done.stdout.count(" True\n") == written == len(dataset.tasks)


def test_its_models_read_our_trajectories(
    python: Path, datasets: dict[str, Dataset], tmp_path: Path
) -> None:
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
