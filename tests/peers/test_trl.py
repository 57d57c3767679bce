"""TRL: its own GRPOTrainer loads the export, runs our tools in its loop, and trains on our rewards."""

from __future__ import annotations

import json
import math
import subprocess
from pathlib import Path
from typing import Any

import pytest
from peer_play import ROOT, SEED, TASKS, Peer, own_rewards, some_tasks

from envgen.integrations.exports import write_package
from envgen.store.dataset import Dataset
from envgen.store.subset import subset

PLAYER = Path(__file__).parent / "players" / "trl_player.py"
SPEC = "noisy-gold:0.3"


def play(peer: Peer, dataset: Dataset, place: Path, *words: str) -> Any:
    """What the player prints last."""
    python = peer("trl", "trl==1.16.0", "torch<2.14", "-e", f"{ROOT}[interpreter]")
    write_package(dataset, place / "pkg", "trl")
    (module,) = (one.parent.name for one in (place / "pkg").glob("*/__init__.py"))
    command = [
        str(python),
        "-P",
        str(PLAYER),
        str(place / "pkg"),
        module,
        str(dataset.path),
        *words,
    ]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=1_200)
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-4_000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("family", ["general", "search", "interpreter", "proof", "code"])
def test_it_gives_our_rewards(
    peer: Peer, datasets: dict[str, Dataset], family: str, tmp_path: Path
) -> None:
    tasks = some_tasks(datasets[family], TASKS)
    dataset = subset(datasets[family], tasks, tmp_path / "ds")
    found = play(peer, dataset, tmp_path, json.dumps(tasks), SPEC, str(SEED))
    assert found == own_rewards(dataset, SPEC, tasks)
    print(family, SPEC, len(found), "tasks,", sum(found.values()), "passed")


def test_it_trains_three_steps(peer: Peer, datasets: dict[str, Dataset], tmp_path: Path) -> None:
    losses = play(peer, datasets["general"], tmp_path, "train")["losses"]
    assert len(losses) == 3
    assert all(map(math.isfinite, losses))
