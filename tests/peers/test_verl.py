"""verl: its own dataset and agent loop read the export, and every episode gets our reward."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from peer_play import ROOT, SEED, TASKS, Peer, own_rewards, some_tasks

from envgen.integrations.exports import write_package
from envgen.store.dataset import Dataset
from envgen.store.subset import subset

PLAYER = Path(__file__).parent / "players" / "verl_player.py"
SPEC = "noisy-gold:0.3"


@pytest.mark.parametrize("family", ["general", "search", "interpreter", "proof", "code"])
def test_it_gives_our_rewards(
    peer: Peer, datasets: dict[str, Dataset], family: str, tmp_path: Path
) -> None:
    tasks, found, dataset = play(peer, datasets[family], SPEC, tmp_path)
    assert found == own_rewards(dataset, SPEC, tasks)
    print(family, SPEC, len(found), "tasks,", sum(found.values()), "passed")


def test_plain_text_is_told_to_do_nothing(
    peer: Peer, datasets: dict[str, Dataset], tmp_path: Path
) -> None:
    _, found, _ = play(peer, datasets["general"], "gold", tmp_path, "muses")
    assert {*found.values()} == {1.0}


def play(
    peer: Peer, whole: Dataset, spec: str, tmp_path: Path, *words: str
) -> tuple[list[str], dict[str, float], Dataset]:
    """Tasks, what the player says of them, and the dataset of just these."""
    python = peer(
        "verl",
        "verl==0.9.1",
        "cachetools",
        "uvicorn",
        "fastapi",
        "torch<2.14",
        "-e",
        f"{ROOT}[interpreter]",
    )
    tasks = some_tasks(whole, TASKS)
    dataset = subset(whole, tasks, tmp_path / "ds")
    package = tmp_path / "pkg"
    write_package(dataset, package, "verl")
    command = [str(python), "-P", str(PLAYER), str(package), str(dataset.path), json.dumps(tasks)]
    done = subprocess.run(
        [*command, spec, str(SEED), *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=1_200,
    )
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-4_000:]
    return tasks, json.loads(done.stdout.splitlines()[-1]), dataset
