"""OpenEnv: its own client plays a server of ours, and its own validator reads the exported package."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from peer_play import SEED, TASKS, Peer, own_rewards, some_tasks
from policy_server import policy_server

from envgen.integrations.exports import write_package
from envgen.integrations.server import EnvServer
from envgen.integrations.settings import EnvServerConfig
from envgen.store.dataset import Dataset

PLAYER = Path(__file__).parent / "players" / "openenv_player.py"
SPEC = "noisy-gold:0.3"


@pytest.mark.parametrize("family", ["general", "search", "interpreter", "proof", "code"])
def test_it_gives_our_rewards(peer: Peer, datasets: dict[str, Dataset], family: str) -> None:
    python, dataset = peer("openenv", "openenv==0.10.0"), datasets[family]
    tasks = some_tasks(dataset, TASKS)
    server = EnvServer(dataset, EnvServerConfig(port=0))
    with server.running(), policy_server(dataset, SPEC, SEED) as model:
        words = [str(python), "-P", str(PLAYER), server.url, model.url, json.dumps(tasks)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3_000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == own_rewards(dataset, SPEC, tasks)
    print(family, SPEC, len(found), "tasks,", sum(found.values()), "passed")


def test_its_validator_takes_the_server(peer: Peer, datasets: dict[str, Dataset]) -> None:
    python = peer("openenv", "openenv==0.10.0")
    server = EnvServer(datasets["general"], EnvServerConfig(port=0))
    with server.running():
        words = [str(python.parent / "openenv"), "validate", "--url", server.url]
        done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    print(done.stdout)
    assert done.returncode == 0, done.stdout


def test_its_validator_takes_the_package(
    peer: Peer, datasets: dict[str, Dataset], tmp_path: Path
) -> None:
    python = peer("openenv", "openenv==0.10.0")
    write_package(datasets["general"], tmp_path / "pkg", "openenv")
    (folder,) = (one.parent for one in (tmp_path / "pkg").glob("*/openenv.yaml"))
    words = [str(python.parent / "openenv"), "validate", "--level", "static", str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    print(done.stdout[-1_500:])
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-2_000:]
