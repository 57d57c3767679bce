"""NeMo Gym: its own command starts the exported server, its agent and a model server, and plays our tasks."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from peer_play import ROOT, SEED, TASKS, Peer, own_rewards, some_tasks
from policy_server import policy_server

from envgen.integrations.exports import write_package
from envgen.store.dataset import Dataset
from envgen.store.subset import subset

SPEC = "noisy-gold:0.3"
SERVERS = (
    "resources_servers/{}",
    "responses_api_agents/simple_agent",
    "responses_api_models/vllm_model",
)


@pytest.mark.parametrize("family", ["general", "search", "interpreter", "proof", "code"])
def test_it_gives_our_rewards(
    peer: Peer, datasets: dict[str, Dataset], family: str, tmp_path: Path
) -> None:
    found = filter(None, map(shutil.which, ("python3.12", "python3.13")))
    base = next((one for one in found if not subprocess.run([one, "-c", ""]).returncode), None)
    if base is None:
        pytest.skip("NeMo Gym needs Python 3.12")
    python = peer("nemo", "nemo-gym==0.4.0", "uv", "-e", f"{ROOT}[interpreter]", base=base)
    tasks = some_tasks(datasets[family], TASKS)
    dataset = subset(datasets[family], tasks, tmp_path / "ds")
    folder = tmp_path / "gym"
    write_package(dataset, folder, "nemo")
    (server,) = (folder / "resources_servers").iterdir()
    for (
        place
    ) in SERVERS:  # it would make an environment for each; the peer's own has all that they need
        venv = folder / place.format(server.name) / ".venv"
        venv.parent.mkdir(parents=True, exist_ok=True)
        venv.symlink_to(python.parent.parent)
    rows = [
        row for kind in ("train", "validation") for row in _lines(server / "data" / f"{kind}.jsonl")
    ]
    (server / "data" / "train.jsonl").write_text("".join(f"{row}\n" for row in rows), "utf-8")
    with policy_server(dataset, SPEC, SEED) as model:
        words = [
            str(python.parent / "gym"), "eval", "run", "--resources-server", server.name,
            "--model-type", "vllm_model", "--model", "scripted", "--model-url", model.url,
            "--model-api-key", "none", "--agent", f"{server.name}_simple_agent", "--split", "train",
            "--output", "out.jsonl", "--concurrency", "4", "+skip_venv_if_present=true",
        ]  # fmt: skip
        environment = {**os.environ, "PATH": f"{python.parent}:{os.environ['PATH']}"}
        done = subprocess.run(
            words, cwd=folder, env=environment, capture_output=True, text=True, timeout=900
        )
    assert done.returncode == 0, done.stdout[-4_000:] + done.stderr[-2_000:]
    told = [json.loads(row) for row in _lines(folder / "out.jsonl")]
    rewards = {one["task_id"]: one["reward"] for one in told}
    assert rewards == own_rewards(dataset, SPEC, tasks)
    print(family, SPEC, len(rewards), "tasks,", sum(rewards.values()), "passed")


def _lines(file: Path) -> list[str]:
    return file.read_text("utf-8").splitlines() if file.exists() else []
